package redissource_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/redissource"
)

// byTenant is a set of one policy that counts by users.
func byTenant(t testing.TB, name string) policy.Set {
	t.Helper()
	l, err := core.ParseLimit("100/1h")
	if err != nil {
		t.Fatal(err)
	}
	return policy.Set{{Name: name, Apps: []string{"shop"}, Limit: l, Key: "user"}}
}

// openAt returns a source and the prefix of its keys.
func openAt(t testing.TB, client redis.UniversalClient) (*redissource.Source, string) {
	t.Helper()
	prefix := redistest.Prefix(t)
	s, err := redissource.New(client, redissource.Options{Prefix: prefix, Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	return s, prefix + "{policies}:"
}

// changeOf reads a change of the policy "api" such as "acme=5/1h" or "acme=".
func changeOf(text string) policy.OverrideChange {
	key, value, _ := strings.Cut(text, "=")
	return policy.OverrideChange{Policy: "api", Key: key, Text: value}
}

func change(t testing.TB, s *redissource.Source, texts ...string) {
	t.Helper()
	var list []policy.OverrideChange
	for _, text := range texts {
		list = append(list, changeOf(text))
	}
	if err := s.PublishOverrides(t.Context(), redissource.OverrideBatch{Changes: list}); err != nil {
		t.Fatal(err)
	}
}

// counting counts what a follower reads.
type counting struct {
	*redissource.Source
	sets, whole, single atomic.Int64
}

func (c *counting) Load(ctx context.Context, known string) (policy.Snapshot, error) {
	s, err := c.Source.Load(ctx, known)
	if err == nil {
		c.sets.Add(1)
	}
	return s, err
}

func (c *counting) OverrideChanges(ctx context.Context, known string) (policy.OverrideChanges, error) {
	changes, err := c.Source.OverrideChanges(ctx, known)
	c.single.Add(int64(len(changes.Changes)))
	return changes, err
}

func (c *counting) ReadOverrides(ctx context.Context, name string, add func([]policy.OverrideChange)) error {
	c.whole.Add(1)
	return c.Source.ReadOverrides(ctx, name, add)
}

// instance is one that follows a source, each with a limiter of its own.
type instance struct {
	limiter  *limiter.Limiter
	follower *policy.Follower
	source   *counting
}

func newInstance(t testing.TB, s *redissource.Source, o policy.Options) *instance {
	t.Helper()
	i := &instance{limiter: newLimiter(t, nil), source: &counting{Source: s}}
	o.Timeout = patience
	user := keyfuncs.UserID(func(context.Context) (string, bool) { return "", false })
	f, err := policy.Follow(t.Context(), i.limiter, "shop", policy.Bindings{User: user}, i.source, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	i.follower = f
	return i
}

// quota returns that of a key now.
func (i *instance) quota(t testing.TB, key string) int64 {
	t.Helper()
	list, err := i.limiter.Peek(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return list[0].Limit.Quota
}

// has reports whether a key has a quota, as in "acme 5".
func (i *instance) has(t testing.TB, want string) bool {
	key, quota, _ := strings.Cut(want, " ")
	return fmt.Sprint(i.quota(t, key)) == quota
}

// A change is in force in two instances soon after it is published, by the notification: they poll
// once an hour. After the start neither the set of policies is read again nor all overrides.
func TestOverrideIsInForceInAllInstancesAtOnce(t *testing.T) {
	addr := redistest.Addr(t)
	s, prefix := openAt(t, dial(t, addr))
	publish(t, s, byTenant(t, "api"), "")
	change(t, s, "first=1/1h")
	a := newInstance(t, s, policy.Options{Poll: time.Hour})
	b := newInstance(t, s, policy.Options{Poll: time.Hour})

	// Subscriptions are made in the background, and a message before them is lost.
	eventually(t, "both hear", func() bool {
		n, err := dial(t, addr).Publish(t.Context(), prefix+"changed", "none").Result()
		return err == nil && n == 2
	})

	var longest time.Duration
	for i, step := range []struct{ change, want string }{
		{"acme:1=500/1h until 2126-12-04T17:00:00Z", "acme:1 500"},
		{"acme:*=300/1h", "acme:2 300"},
		{"acme:1=600/1h", "acme:1 600"},
		{"acme:1=", "acme:1 300"},
		{"acme:*=", "acme:2 100"},
		{"acme:3=700/1h until 2020-12-04T17:00:00Z", "acme:3 100"},
	} {
		begin := time.Now()
		change(t, s, step.change)
		eventually(t, step.change, func() bool { return a.has(t, step.want) && b.has(t, step.want) })
		if i != 5 {
			longest = max(longest, time.Since(begin))
		}
	}
	t.Logf("both instances knew each change after %v at the longest", longest)
	test.AtMost(t, "a change in both instances", longest, time.Second)

	for _, i := range []*instance{a, b} {
		eventually(t, "the last change", func() bool { return i.source.single.Load() == 6 })
		if i.source.sets.Load() != 1 || i.source.whole.Load() != 1 {
			t.Errorf("%d sets and %d times all overrides were read, want 1 and 1", i.source.sets.Load(),
				i.source.whole.Load())
		}
	}
}

// Ten thousand changes are applied one by one: neither the set nor the overrides are read again.
func TestTenThousandOverridesAreChangedWithoutAReload(t *testing.T) {
	s := open(t, dial(t, redistest.Addr(t)))
	publish(t, s, byTenant(t, "api"), "")
	change(t, s, "acme=5/1h")
	i := newInstance(t, s, policy.Options{Poll: 10 * time.Millisecond})

	const n, batch = 10_000, 100
	for first := 0; first < n; first += batch {
		var texts []string
		for k := range batch {
			texts = append(texts, fmt.Sprintf("tenant:%d=%d/1h", (first+k)%5000, 1000+first+k))
		}
		change(t, s, texts...)
		for i.source.single.Load() < int64(first+batch-1000) {
			time.Sleep(time.Millisecond) // what is kept for those who are late is bounded
		}
	}
	eventually(t, "all changes", func() bool { return i.source.single.Load() == n })
	eventually(t, "the last change", func() bool { return i.has(t, "tenant:4999 10999") })

	if i.source.sets.Load() != 1 || i.source.whole.Load() != 1 {
		t.Errorf("%d sets and %d times all overrides were read, want 1 and 1", i.source.sets.Load(),
			i.source.whole.Load())
	}
	if is := i.follower.Status().Overrides; is.Count != 5001 || is.LeftOut != 0 || is.Err != nil {
		t.Errorf("%+v", is)
	}
}

// changesSince returns what has changed after a version: the changes, or which policies have to be
// read and which not.
func changesSince(t testing.TB, s *redissource.Source, known string) (text, version string) {
	t.Helper()
	c, err := s.OverrideChanges(t.Context(), known)
	switch {
	case err != nil:
		t.Fatal(err)
	case c.Missed:
		slices.Sort(c.Stale)
		return fmt.Sprint("read ", c.Stale, " and not ", c.Same), c.Version
	}
	return fmt.Sprint(c.Changes), c.Version
}

// wantChanges fails unless that is what has changed, and returns the version after it.
func wantChanges(t testing.TB, s *redissource.Source, known, want string) (version string) {
	t.Helper()
	got, version := changesSince(t, s, known)
	if got != want {
		t.Errorf("%s, want %s", got, want)
	}
	return version
}

// published returns the overrides of the policy "api".
func published(t testing.TB, s *redissource.Source) map[string]string {
	t.Helper()
	read := map[string]string{}
	err := s.ReadOverrides(t.Context(), "api", func(list []policy.OverrideChange) {
		for _, c := range list {
			read[c.Key] = c.Text
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return read
}

// An instance that has missed more than Redis keeps reads only the overrides that are others, and
// so it does after Redis has lost the versions.
func TestMissedOverridesAreReadByPolicy(t *testing.T) {
	client := dial(t, redistest.Addr(t))
	s, prefix := openAt(t, client)
	change(t, s, "acme=5/1h")
	err := s.PublishOverrides(t.Context(), redissource.OverrideBatch{
		Changes: []policy.OverrideChange{{Policy: "other", Key: "acme", Text: "6/1h"}}})
	if err != nil {
		t.Fatal(err)
	}

	known := wantChanges(t, s, "", "read [api other] and not []")
	for first := range 5 {
		var texts []string
		for k := range 1000 {
			texts = append(texts, fmt.Sprintf("t%d=7/1h", first*1000+k))
		}
		change(t, s, texts...)
	}

	known = wantChanges(t, s, known, "read [api] and not [other]")
	if read := published(t, s); len(read) != 5001 || read["acme"] != "5/1h" || read["t4999"] != "7/1h" {
		t.Errorf("%d are published", len(read))
	}

	// The last ones are known one by one.
	change(t, s, "x=1/1h")
	change(t, s, "x=", "y=2/1h")
	known = wantChanges(t, s, known, "[{api x 1/1h} {api x } {api y 2/1h}]")
	wantChanges(t, s, known, "[]")

	// A policy that has none any more is named no longer. Another epoch is another history.
	change(t, s, "=")
	known = wantChanges(t, s, "", "read [other] and not []")
	wantChanges(t, s, "ABC.1", "read [other] and not []")

	// What Redis has lost stays in force.
	keys, _, err := client.Scan(t.Context(), 0, prefix+"overrides:*", 1000).Result()
	if err != nil || len(keys) == 0 {
		t.Fatal(keys, err)
	}
	if err := client.Del(t.Context(), keys...).Err(); err != nil {
		t.Fatal(err)
	}
	if again := wantChanges(t, s, known, "[]"); again != known {
		t.Errorf("the version is %s, and was %s", again, known)
	}
}

// ofDatabase returns an origin.
func ofDatabase(database string, revision int64) redissource.Origin {
	return redissource.Origin{Database: database, Revision: revision}
}

// wantPublished fails unless changes are published, or refused with an error such as
// redissource.ErrOverridesLost. An OwnerError stands for any.
func wantPublished(t testing.TB, s *redissource.Source, b redissource.OverrideBatch, text string, want error) {
	t.Helper()
	b.Changes = []policy.OverrideChange{changeOf(text)}
	err := s.PublishOverrides(t.Context(), b)
	var owner *redissource.OwnerError
	if errors.As(err, &owner) && errors.As(want, &owner) {
		return
	}
	if !errors.Is(err, want) {
		t.Errorf("%s of %+v: %v, want %v", text, b.From, err, want)
	}
}

// The database that owns the policies publishes the overrides. A batch counts once, and replaces
// nothing but what it was made for.
func TestOverridesHaveTheOwnerOfThePolicies(t *testing.T) {
	s := open(t, dial(t, redistest.Addr(t)))
	first, err := s.PublishFrom(t.Context(), byTenant(t, "api"), "", ofDatabase("aaa", 3), "")
	if err != nil {
		t.Fatal(err)
	}

	// A program without a database may publish some before the database has, which has nothing to
	// continue then.
	type batch = redissource.OverrideBatch
	of := func(revision int64, expected, label string) batch {
		return batch{From: ofDatabase("aaa", revision), Expected: expected, Label: label}
	}
	wantPublished(t, s, batch{}, "z=1/1h", nil)
	wantPublished(t, s, of(1, "", "A"), "a=1/1h", redissource.ErrOverridesLost)

	// While they are written, an instance keeps what it has.
	begin := of(1, "", "A")
	begin.Reset, begin.More = true, true
	wantPublished(t, s, begin, "a=1/1h", nil)
	wantChanges(t, s, "E.7", "[]")
	wantPublished(t, s, of(2, "A", "B"), "b=1/1h", nil)
	wantChanges(t, s, "E.7", "read [api] and not []")

	// The same batch again does nothing. One before it, and that of a copy, find another label,
	// also to begin anew.
	wantPublished(t, s, of(2, "A", "B"), "b=2/1h", nil)
	wantPublished(t, s, of(1, "", "A"), "a=", redissource.ErrOverridesLost)
	wantPublished(t, s, of(3, "A", "X"), "a=", redissource.ErrOverridesLost)
	wantPublished(t, s, begin, "c=1/1h", redissource.ErrOverridesLost)
	if got := fmt.Sprint(published(t, s)); got != "map[a:1/1h b:1/1h]" {
		t.Error(got)
	}
	want := redissource.Published{Version: "B", Origin: ofDatabase("aaa", 2)}
	if is, err := s.PublishedOverrides(t.Context()); err != nil || is != want {
		t.Errorf("%+v, %v", is, err)
	}
	wantPublished(t, s, of(4, "B", "C"), "b=1/1h", nil)

	// Another database is refused, also with a reset, and so is a program without one.
	theirs := func(reset bool) batch {
		return batch{From: ofDatabase("bbb", 9), Expected: "C", Label: "D", Reset: reset}
	}
	wantPublished(t, s, batch{}, "c=1/1h", redissource.ErrOverridesLost)
	wantPublished(t, s, batch{Reset: true}, "c=1/1h", redissource.ErrOverridesLost)
	wantPublished(t, s, theirs(false), "c=1/1h", &redissource.OwnerError{})
	wantPublished(t, s, theirs(true), "c=1/1h", &redissource.OwnerError{})

	// It may once it has taken over the policies, and begins anew.
	if _, err := s.PublishFrom(t.Context(), byTenant(t, "api"), first, ofDatabase("bbb", 1), "aaa"); err != nil {
		t.Fatal(err)
	}
	wantPublished(t, s, theirs(false), "c=1/1h", redissource.ErrOverridesLost)
	wantPublished(t, s, theirs(true), "c=1/1h", nil)
	if got := fmt.Sprint(published(t, s)); got != "map[c:1/1h]" {
		t.Error(got)
	}
}

// The hundred thousandth override of a policy is published, and the next one is an error that
// changes nothing, unless another one goes with it. One of a hundred thousand is found.
func TestOverridesOfAPolicyAreBounded(t *testing.T) {
	client := dial(t, redistest.Addr(t))
	s := open(t, client)
	publish(t, s, byTenant(t, "api"), "")
	for first := 0; first < policy.MaxOverridesBeside; first += 1000 {
		var texts []string
		for k := range 1000 {
			texts = append(texts, fmt.Sprintf("t%d=%d/1h", first+k, 200+k))
		}
		change(t, s, texts...)
	}

	full := func(texts ...string) error {
		var list []policy.OverrideChange
		for _, text := range texts {
			list = append(list, changeOf(text))
		}
		return s.PublishOverrides(t.Context(), redissource.OverrideBatch{Changes: list})
	}
	err := full("t1=1/1h", "more=1/1h")
	if !errors.Is(err, redissource.ErrTooManyOverrides) ||
		err.Error() != `redissource: policy "api": a policy has at most 100000 overrides` {
		t.Fatal(err)
	}

	begin := time.Now()
	i := newInstance(t, s, policy.Options{Poll: 10 * time.Millisecond})
	t.Logf("a start with %d overrides took %v", i.follower.Status().Overrides.Count, time.Since(begin))
	if is := i.follower.Status().Overrides; is.Count != policy.MaxOverridesBeside || i.source.whole.Load() != 1 {
		t.Errorf("%+v", is)
	}
	for want, missing := range map[string]bool{"t1 201": false, "t99999 1199": false, "more 100": false} {
		if i.has(t, want) == missing {
			t.Error(want)
		}
	}

	// The first is there already, and a place that is given up may be taken.
	for _, texts := range [][]string{{"t1=1/1h"}, {"t1=2/1h", "t2="}, {"more=1/1h"}, {"=", "more=7/1h"}} {
		if err := full(texts...); err != nil {
			t.Errorf("%q: %v", texts, err)
		}
	}
	eventually(t, "all were removed", func() bool { return i.has(t, "t99999 100") && i.has(t, "more 7") })
	if i.source.whole.Load() != 1 {
		t.Errorf("they were read %d times, want 1", i.source.whole.Load())
	}
}

func TestPublishOverridesRefusesWhatNoPolicyHas(t *testing.T) {
	s := open(t, dial(t, redistest.Addr(t)))
	many := make([]policy.OverrideChange, 1001)
	for i := range many {
		many[i] = changeOf(fmt.Sprintf("k%d=1/1h", i))
	}
	for want, list := range map[string][]policy.OverrideChange{
		"1001 changes are more than 1000":                                   many,
		`policy "": it is not the name of a policy`:                         {{Key: "a"}},
		`policy "a{b}": it is not the name of a policy`:                     {{Policy: "a{b}", Key: "a"}},
		`policy "api": the key is empty`:                                    {changeOf("=1/1h")},
		`policy "api": the key is not UTF-8, so no policy can hold it`:      {changeOf("\xff=1/1h")},
		`policy "api": a key is changed twice, or before all are removed`:   {changeOf("a=1/1h"), changeOf("a=")},
		`policy "api": a key is changed twice, or before all are removed\n`: {changeOf("a=1/1h"), changeOf("=")},
		`policy "api": the key has 513 bytes, more than 512`:                {changeOf(strings.Repeat("k", 513) + "=1/1h")},
		`policy "api": "2026-12-04" has no time and no zone; write, say, 2026-12-04T17:00:00Z`: {
			changeOf("a=1/1h until 2026-12-04")},
	} {
		err := s.PublishOverrides(t.Context(), redissource.OverrideBatch{Changes: list})
		if err == nil || err.Error() != "redissource: "+strings.TrimSuffix(want, `\n`) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for name, bad := range map[string]redissource.OverrideBatch{
		"an origin that is none": {From: redissource.Origin{Database: "A"}, Label: "L"},
		"no label":               {From: ofDatabase("aaa", 1)},
		"a label of 65 bytes":    {From: ofDatabase("aaa", 1), Label: strings.Repeat("l", 65)},
	} {
		bad.Reset = true
		if err := s.PublishOverrides(t.Context(), bad); err == nil || errors.Is(err, redissource.ErrOverridesLost) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What another program has written into Redis is left out alone, and the change that mends it is
// enough.
func TestForeignOverridesAreLeftOutAlone(t *testing.T) {
	client := dial(t, redistest.Addr(t))
	s, prefix := openAt(t, client)
	publish(t, s, byTenant(t, "api"), "")
	change(t, s, "acme=500/1h", "other=5/1h fixed-window")
	hash := prefix + "overrides:of:api"
	foreign := map[string]string{"bad": "\x00\xff", "": "7/1h", strings.Repeat("k", 600): "7/1h",
		"\xfe": "7/1h", "sha256:*": "7/1h", "zero": "0/1h"}
	for key, text := range maps.All(foreign) {
		if err := client.HSet(t.Context(), hash, key, text).Err(); err != nil {
			t.Fatal(err)
		}
	}

	i := newInstance(t, s, policy.Options{Poll: 10 * time.Millisecond})
	if is := i.follower.Status().Overrides; is.Count != 1 || is.LeftOut != 7 || is.Reason == "" {
		t.Errorf("%+v", is)
	}
	for _, want := range []string{"acme 500", "bad 100", "other 100", "zero 100"} {
		if !i.has(t, want) {
			t.Errorf("want %s", want)
		}
	}

	change(t, s, "bad=9/1h")
	eventually(t, "it is mended", func() bool { return i.has(t, "bad 9") })
	if is := i.follower.Status().Overrides; is.Count != 2 || is.LeftOut != 6 {
		t.Errorf("%+v", is)
	}
}

// The entries of the log that another program has broken cost one reading as a whole.
func TestForeignLogOfOverridesIsNotTrusted(t *testing.T) {
	client := dial(t, redistest.Addr(t))
	s, prefix := openAt(t, client)
	change(t, s, "acme=5/1h")
	known, err := s.OverrideChanges(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	change(t, s, "acme=6/1h")
	if err := client.LSet(t.Context(), prefix+"overrides:log", 0, "{").Err(); err != nil {
		t.Fatal(err)
	}
	c, err := s.OverrideChanges(t.Context(), known.Version)
	if err != nil || !c.Missed || fmt.Sprint(c.Stale) != "[api]" {
		t.Errorf("%+v, %v", c, err)
	}
}

// A server that takes the place of one with later changes has their numbers for others. Instances
// that know the lost changes read all of them again.
func TestOverridesAfterAServerHasLostChanges(t *testing.T) {
	client := dial(t, redistest.Addr(t))
	s, prefix := openAt(t, client)
	publish(t, s, byTenant(t, "api"), "")
	change(t, s, "acme=200/1h")

	// This is what a replica had when its primary died.
	keys, err := client.Keys(t.Context(), prefix+"overrides:*").Result()
	if err != nil {
		t.Fatal(err)
	}
	replica := map[string]string{}
	for _, key := range keys {
		if replica[key], err = client.Dump(t.Context(), key).Result(); err != nil {
			t.Fatal(err)
		}
	}

	for name, later := range map[string][]string{"none": nil, "one": {"zed=9/1h"}, "two": {"zed=9/1h", "other=8/1h"}} {
		change(t, s, "acme=300/1h")
		i := newInstance(t, s, policy.Options{Poll: 10 * time.Millisecond})
		if !i.has(t, "acme 300") {
			t.Fatalf("%s: the instance does not know the change", name)
		}

		for key, value := range replica {
			if err := client.RestoreReplace(t.Context(), key, 0, value).Err(); err != nil {
				t.Fatal(err)
			}
		}
		for _, text := range later {
			change(t, s, text)
		}

		eventually(t, name+": the lost change is forgotten", func() bool { return i.has(t, "acme 200") })
		if later != nil {
			eventually(t, name+": the new change is known", func() bool { return i.has(t, "zed 9") })
		}
	}
}
