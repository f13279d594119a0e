package api

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/observe/topkeys"
	"github.com/headgate/headgate/policy/stats"
)

var longKey = topkeys.Shorten(strings.Repeat("<k>", 4000))

// topOf has three keys of the application a. Those of c cannot be read.
func topOf(app string) (stats.Top, error) {
	if app != "a" {
		return stats.Top{}, errors.New("dial 10.0.0.1: refused")
	}
	return stats.Top{Instances: 2, Unread: 1, Rules: []topkeys.Rule{{Rule: "p", Refused: topkeys.Summary{
		From: noon.Add(-5 * time.Minute), To: noon, Total: 30, Floor: 2, Keys: []topkeys.Key{
			{Key: "<b>\x00", Count: 12, Error: 2, Since: noon}, {Key: "\xff", Count: 9, Since: noon},
			{Key: longKey, Count: 3, Since: noon}},
	}}}}, nil
}

func TestTopKeysAreOfTheActorsApps(t *testing.T) {
	w := newWorld(t, withRedis)
	a := w.ask("viewer", "GET", "/api/apps/a/top", nil).want(200)
	a.wantValue(float64(2), "instances")
	a.wantValue(float64(1), "unread")

	list, _ := a.get("policies").([]any)
	refused := at(list[0], "refused")
	keys, _ := at(refused, "keys").([]any)

	// The second key is no UTF-8, so its bytes come in base64. Two of the first 12 may be of other
	// keys.
	want := []object{
		{"key": "<b>\x00", "bytes": "", "shortened": false, "count": 12., "least": 10.,
			"since": noon.Format(time.RFC3339)},
		{"key": "", "bytes": "/w==", "shortened": false, "count": 9., "least": 9., "since": noon.Format(time.RFC3339)},
		{"key": longKey, "bytes": "", "shortened": true, "count": 3., "least": 3., "since": noon.Format(time.RFC3339)},
	}

	if at(refused, "total") != 30. || at(refused, "floor") != 2. || len(keys) != len(want) {
		t.Fatalf("%v", refused)
	}

	for i, k := range keys {
		for name, v := range want[i] {
			if at(k, name) != v {
				t.Errorf("place %d: %s is %v, want %v", i, name, at(k, name), v)
			}
		}
	}

	// The error of Redis, for the application c, has an address that is for the log.
	w.ask("stranger", "GET", "/api/apps/a/top", nil).want(404)
	away := w.ask("administrator", "GET", "/api/apps/c/top", nil).want(503)
	if strings.Contains(away.text, "10.0.0.1") {
		t.Errorf("the answer is %s", away.text)
	}
}

func TestBanIsImposed(t *testing.T) {
	w := newWorld(t)
	asked := w.asked(nil)

	// The ban may last 24 hours at most.
	ban := object{"after": "20/1m", "for": "10m", "max": "24h"}
	p := login(object{"key": "user", "ban": ban})
	w.ask("owner", "PUT", "/api/policies/banning", p, "If-None-Match", "*").want(201)
	const path = "/api/policies/banning/bans"

	// None of these bans a key.
	w.ask("viewer", "POST", path, object{"key": "x", "for": "10m"}).want(403)
	w.ask("stranger", "POST", path, object{"key": "x", "for": "10m"}).want(404)
	for _, text := range []string{"", "soon", "25h", "-1h", "1ms"} {
		w.ask("owner", "POST", path, object{"key": "x", "for": text}).wantField("for")
	}

	// A shortened key is none that an instance would look for.
	w.ask("owner", "POST", path, object{"key": longKey, "for": "10m"}).wantField("key")
	w.ask("owner", "POST", "/api/policies/p/bans", object{"key": "x", "for": "10m"}).wantField("key")

	if len(*asked) > 0 {
		t.Fatalf("%q", *asked)
	}

	w.ask("owner", "POST", path, object{"key": "a\x00\n<b>", "for": "24h"}).want(204)
	if !slices.Equal(*asked, []string{"impose banning a\x00\n<b>"}) {
		t.Errorf("%q", *asked)
	}

	// Under a policy without a ban of its own it is beside the policy, and listed with its author,
	// behind the one that the store has.
	w.ask("owner", "POST", "/api/policies/p/bans", object{"key": "192.0.2.1", "for": "10m", "comment": "c"}).want(204)
	bans := w.ask("viewer", "GET", "/api/policies/p/bans", nil).want(200)
	if list, _ := bans.get("bans").([]any); len(*asked) != 1 || len(list) != 2 || at(list[1], "key") != "192.0.2.1" ||
		at(list[1], "by") != "owner" {
		t.Errorf("%q, %s", *asked, bans.text)
	}
	w.ask("owner", "POST", "/api/policies/p/bans/lift", object{"key": "192.0.2.1"}).want(204)
	if got := w.ask("viewer", "GET", "/api/policies/p/bans", nil).want(200); len(got.get("bans").([]any)) != 1 {
		t.Errorf("after the lift: %s", got.text)
	}
}

func TestKeyIsAllowed(t *testing.T) {
	w := newWorld(t)
	const path = "/api/policies/p/key/allow"
	w.ask("owner", "POST", path, object{"key": "192.0.2.1"}).want(428)
	for range 2 { // a repeated request changes nothing
		w.ask("owner", "POST", path, object{"key": "192.0.2.1"}, "If-Match", `"1"`).want(200).wantValue(2., "version")
	}
	w.ask("owner", "POST", path, object{"key": "192.0.2.2"}, "If-Match", `"1"`).want(412)
	w.ask("owner", "POST", path, object{"key": "192.0.2.2", "version": 1}).want(409)
	got := w.ask("viewer", "GET", "/api/policies/p", nil).want(200)
	if keys, _ := got.get("access", "allow", "keys").([]any); !slices.Equal(keys, []any{"192.0.2.1"}) {
		t.Errorf("%v", keys)
	}
}

func TestKeyGetsALimitOfItsOwn(t *testing.T) {
	w := newWorld(t, withRedis)
	const path = "/api/policies/p/key/limit"

	own := object{"key": "192.0.2.1", "limit": "50/1m", "comment": "a partner"}
	w.ask("owner", "POST", path, own).want(428)
	w.ask("viewer", "POST", path, own, "If-Match", `"1"`).want(403)
	for range 2 { // a repeated request changes nothing
		got := w.ask("owner", "POST", path, own, "If-Match", `"1"`).want(200)
		got.wantValue(2., "version")
		got.wantValue("50/1m", "overrides", "192.0.2.1")
	}

	// The count of a key is by its own limit, and that of others by the policy's.
	count := w.ask("viewer", "POST", "/api/policies/p/key", object{"key": "192.0.2.1"}).want(200)
	count.wantValue("50/1m", "limit")
	count.wantValue(true, "own")
	count = w.ask("viewer", "POST", "/api/policies/p/key", object{"key": "192.0.2.2"}).want(200)
	count.wantValue("100/1m", "limit")
	count.wantValue(false, "own")

	// The mistakes are those of the service.
	w.ask("owner", "POST", path, object{"key": "192.0.2.2", "limit": "9/1m"}, "If-Match", `"1"`).want(412)
	w.ask("owner", "POST", path, object{"key": "192.0.2.2", "limit": "soon", "version": 2}).wantField("limit")
	w.ask("owner", "POST", path, object{"key": longKey, "limit": "9/1m", "version": 2}).wantField("key")

	got := w.ask("owner", "POST", path, object{"key": "192.0.2.1", "limit": "none", "version": 2}).want(200)
	if got.wantValue(3., "version"); got.get("overrides") != nil {
		t.Errorf("%v", got.get("overrides"))
	}

	history := w.ask("viewer", "GET", "/api/policies/p/history", nil).want(200)
	if notes := history.names("revisions", "note"); !slices.Equal(
		notes, []string{"a key has no limit of its own any longer", "a key has a limit of its own", ""}) {
		t.Errorf("%q", notes)
	}
	if comments := history.names("revisions", "comment"); comments[1] != "a partner" {
		t.Errorf("%q", comments)
	}
}
