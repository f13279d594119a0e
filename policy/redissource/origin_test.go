package redissource_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/redissource"
)

// room is a source with its client and the key of its snapshot.
type room struct {
	*redissource.Source
	t      *testing.T
	client *redis.Client
	key    string
}

func newRoom(t *testing.T) room {
	client, prefix := dial(t, redistest.Addr(t)), redistest.Prefix(t)
	s, err := redissource.New(client, redissource.Options{Prefix: prefix, Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	return room{s, t, client, prefix + "{policies}:snapshot"}
}

func of(database string, revision int64) redissource.Origin {
	return redissource.Origin{Database: database, Revision: revision}
}

// from publishes, which has to succeed.
func (r room) from(set policy.Set, origin redissource.Origin, instead string) string {
	r.t.Helper()
	there, err := r.Published(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	version, err := r.PublishFrom(r.t.Context(), set, there.Version, origin, instead)
	if err != nil {
		r.t.Fatal(err)
	}
	if now, err := r.Published(r.t.Context()); err != nil || now != (redissource.Published{version, origin}) {
		r.t.Errorf("%+v is published, %v; want %s of %+v", now, err, version, origin)
	}
	return version
}

// refused tries to publish over what is there, which has to fail because of its owner.
func (r room) refused(what string, set policy.Set, origin redissource.Origin, instead string) {
	r.t.Helper()
	there, err := r.Published(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	_, err = r.PublishFrom(r.t.Context(), set, there.Version, origin, instead)
	var taken *redissource.OwnerError
	if !errors.As(err, &taken) || taken.Version != there.Version || taken.Origin != there.Origin {
		r.t.Errorf("%s: %v, want an error about %+v", what, err, there)
	}
	if now, err := r.Published(r.t.Context()); err != nil || now != there {
		r.t.Errorf("%s: now it is %+v, %v", what, now, err)
	}
}

func TestPublishFromReplacesOnlyItsOwn(t *testing.T) {
	r := newRoom(t)
	a, b := one(t, "a", "1/1m"), one(t, "b", "1/1m")
	r.from(a, of("mine", 3), "")
	r.refused("another database", b, of("theirs", 9), "")
	r.refused("another database, of one that is not there", b, of("theirs", 9), "third")
	r.refused("none", b, redissource.Origin{}, "")
	r.refused("an older copy", b, of("mine", 2), "")
	r.refused("a copy with another set", b, of("mine", 3), "")

	r.from(a, of("mine", 3), "") // it may have been lost, and come back
	r.from(b, of("mine", 4), "")
	r.from(a, of("theirs", 1), "mine")
	r.refused("the one that gave way", b, of("mine", 5), "")

	// The version is compared first: what has changed since it was looked at is not replaced.
	var conflict *redissource.ConflictError
	if _, err := r.PublishFrom(t.Context(), b, "1.x", of("mine", 5), "theirs"); !errors.As(err, &conflict) {
		t.Error(err)
	}

	// A repeated call finds what it has published itself.
	there, _ := r.Published(t.Context())
	first, err := r.PublishFrom(t.Context(), b, there.Version, of("theirs", 2), "")
	again, err2 := r.PublishFrom(t.Context(), b, there.Version, of("theirs", 2), "")
	if err := errors.Join(err, err2); err != nil || first != again {
		t.Errorf("%q and again %q, %v", first, again, err)
	}
	if _, err := r.PublishFrom(t.Context(), b, there.Version, of("other", 2), ""); !errors.As(err, &conflict) {
		t.Errorf("another database took it for its own: %v", err)
	}
}

// What Next says before is what is published, over nothing and over each version.
func TestNextIsTheVersionOfASet(t *testing.T) {
	r := newRoom(t)
	expected := ""
	for i := range 3 {
		set := one(t, fmt.Sprint("p", i), "1/1m")
		next, err := r.Next(set, expected)
		if err != nil {
			t.Fatal(err)
		}
		if expected = r.from(set, of("mine", int64(i)), ""); next != expected {
			t.Errorf("%q is published, and was to be %q", expected, next)
		}
	}

	if next, err := r.Next(one(t, "p", "1/1m"), "x.y"); next != "" || err != nil {
		t.Errorf("after what is no version: %q, %v", next, err)
	}
	if _, err := r.Next(policy.Set{{}}, ""); err == nil {
		t.Error("a set that cannot be published has a version")
	}
}

func TestPublishFromRefusesWhatIsNoOrigin(t *testing.T) {
	r := newRoom(t)
	for _, origin := range []redissource.Origin{{Database: "two words"}, {Database: "A"}, {Revision: 1},
		{Database: "a", Revision: -1}, {Database: strings.Repeat("a", 65)}} {
		if _, err := r.PublishFrom(t.Context(), one(t, "a", "1/1m"), "", origin, ""); err == nil ||
			!strings.Contains(err.Error(), "is no origin of a set") {
			t.Errorf("%+v: %v", origin, err)
		}
	}
}

// Whatever the field holds, it is the origin of the present version or none.
func TestAnythingElseIsNoOrigin(t *testing.T) {
	r := newRoom(t)
	version := r.from(one(t, "a", "1/1m"), of("mine", 3), "")
	for _, text := range []string{"", "x", "V", "V mine", "V mine -1", "V mine 1e3", "V mine 3 4", "V <b> 3",
		"V mine " + strings.Repeat("9", 400), "V " + strings.Repeat("m", 1<<20) + " 3", "2.x mine 3", "\xff\n mine 3"} {
		text = strings.Replace(text, "V", version, 1)
		if err := r.client.HSet(t.Context(), r.key, "origin", text).Err(); err != nil {
			t.Fatal(err)
		}
		got, err := r.Published(t.Context())
		if err != nil || got != (redissource.Published{Version: version}) {
			t.Errorf("%.40q: %+v, %v", text, got, err)
		}

		// The server reads it alike.
		if version, err = r.PublishFrom(t.Context(), one(t, "a", "1/1m"), version, of("own", 1), ""); err != nil {
			t.Fatalf("%.40q: %v", text, err)
		}
	}
}

// publishBefore publishes as the version did that wrote no origin.
const publishBefore = `
local current = redis.call('HGET', KEYS[1], 'version') or ''
if current ~= ARGV[1] then
  return {current, 0}
end
local number = tonumber(string.match(current, '^%d+') or '0')
local version = string.format('%d', number + 1) .. '.' .. ARGV[2]
redis.call('HSET', KEYS[1], 'version', version, 'data', ARGV[3])
redis.pcall('PUBLISH', ARGV[4], version)
return {version, 1}
`

// sum is the digest that a version ends with.
func sum(data []byte) string {
	d := sha256.Sum256(data)
	return hex.EncodeToString(d[:8])
}

// A console of the version before and one of this version publish in turns. Applications of both
// follow each of the sets.
func TestSnapshotsOfTheVersionBefore(t *testing.T) {
	r := newRoom(t)
	f := follow(t, newLimiter(t, nil), r, policy.Options{OnMissing: policy.OnMissingWait})
	version := ""
	for i := range 4 {
		set := one(t, fmt.Sprint("p", i), "1/1m")
		data, err := policy.EncodeJSON(set)
		if err != nil {
			t.Fatal(err)
		}

		if i%2 == 0 {
			version = r.from(set, of("mine", int64(i)), "")
		} else {
			reply, err := r.client.Eval(t.Context(), publishBefore, []string{r.key}, version, sum(data), data,
				strings.TrimSuffix(r.key, "snapshot")+"changed").Slice()
			if err != nil || reply[1] != int64(1) {
				t.Fatalf("%v, %v", reply, err)
			}
			version = reply[0].(string)

			// The origin of the set before is not taken for that of this one.
			if got, err := r.Published(t.Context()); err != nil || got != (redissource.Published{Version: version}) {
				t.Errorf("%+v, %v", got, err)
			}
		}

		// An application of this version has it, and one of the version before finds what it looks
		// for: a version that ends with the digest of the data, and data that it can read.
		eventually(t, "the set is in force", func() bool { return f.Status().Version == version })
		fields, err := r.client.HMGet(t.Context(), r.key, "version", "data").Result()
		if err != nil || fields[0] != version || fields[1] != string(data) ||
			!strings.HasSuffix(version, "."+sum(data)) {
			t.Errorf("%v, %v", fields, err)
		}
	}
	if rules := f.Status().Policies; rules != 1 {
		t.Errorf("%d rules", rules)
	}
}

// A report has what is left out as far as there is room for it.
func TestReportsOfWhatIsLeftOut(t *testing.T) {
	r := newRoom(t)
	long := policy.Instance{ID: "i", Process: "p", App: "shop", Version: "1.x", Can: &policy.Abilities{User: true}}
	for n := range 20 {
		long.LeftOut = append(long.LeftOut, policy.LeftOut{Policy: fmt.Sprint("p", n), Version: 3,
			Reason: strings.Repeat("<", 256), Kept: true, InForce: 2})
	}
	if err := r.Report(t.Context(), long); err != nil {
		t.Fatal(err)
	}
	list, err := r.Instances(t.Context())
	if err != nil || len(list) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	got := list[0]
	if n := len(got.LeftOut); n < 5 || n+got.MoreLeftOut != 20 || got.LeftOut[0] != long.LeftOut[0] || !got.Can.User {
		t.Errorf("%+v", got)
	}
}

// Consoles of the version before read a report as theirs, and a report of an instance of that
// version says nothing of what is left out.
func TestReportsOfTheVersionBefore(t *testing.T) {
	r := newRoom(t)
	now := policy.Instance{ID: "i", Process: "p", App: "shop", Version: "1.x", Can: &policy.Abilities{User: true},
		LeftOut: []policy.LeftOut{{Policy: "p", Reason: "x"}}}
	if err := r.Report(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	hash := strings.TrimSuffix(r.key, "snapshot") + "instances"
	text, err := r.client.HGet(t.Context(), hash, "p").Bytes()
	var before struct {
		ID, Process, App, Version, Refused, Error, Store string
		Clock                                            int64
	}
	if err2 := json.Unmarshal(text, &before); err != nil || err2 != nil || before.ID != "i" || before.Version != "1.x" {
		t.Errorf("%+v, %v, %v", before, err, err2)
	}

	const old = `{"id":"i","process":"p","app":"shop","version":"1.x","store":"store","clock":7}`
	if err := r.client.HSet(t.Context(), hash, "p", old).Err(); err != nil {
		t.Fatal(err)
	}
	list, err := r.Instances(t.Context())
	if err != nil || list[0].Can != nil || list[0].LeftOut != nil ||
		list[0].Version != "1.x" {
		t.Errorf("%+v, %v", list, err)
	}
}
