package policy_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store/memstore"
)

// A ban is of a key or of a prefix, and a key's own entry comes before that of a prefix. The limit
// of a key is there again when its ban ends.
func TestOverridesBanKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := time.Now()
		ban := func(d time.Duration) policy.Override { return policy.Override{BannedUntil: from.Add(d)} }
		p := byUser(t, "api")
		p.Limit = limit(t, "10/1h")
		p.Overrides = map[string]policy.Override{
			"acme:1": ban(time.Minute),
			"acme:2": {Limit: limit(t, "3/1h"), BannedUntil: from.Add(time.Minute)},
			"acme:3": {Limit: limit(t, "5/1h")},
			"acme:4": ban(time.Second), "acme:*": ban(2 * time.Minute),
		}
		compiled, err := policy.Compile(p.Apps[0], policy.Set{p},
			policy.Bindings{User: keyfuncs.UserID(userOf)})
		if err != nil {
			t.Fatal(err)
		}
		l := limiter.MustNew(limiter.Config{Rules: compiled.Rules(), Store: memstore.MustNew(memstore.Options{})})
		t.Cleanup(func() { l.Close() })

		// Each row is what a request meets at once, after a minute, and after two: how long it is
		// banned, or else the capacity of its limit.
		for key, want := range map[string][3]any{
			"acme:1": {time.Minute, time.Minute, int64(10)}, // then under the ban of the prefix
			"acme:2": {time.Minute, int64(3), int64(3)},
			"acme:3": {int64(5), int64(5), int64(5)},
			"acme:4": {time.Second, time.Minute, int64(10)},
			"acme:5": {2 * time.Minute, time.Minute, int64(10)},
			"other":  {int64(10), int64(10), int64(10)},
		} {
			for i := range want {
				at := from.Add(time.Duration(i) * time.Minute)
				got := any(p.LimitOf(key, at).Capacity())
				if end := p.BanOf(key, at); !end.IsZero() {
					got = end.Sub(at)
				}
				if got != want[i] {
					t.Errorf("%s after %d minutes: %v, want %v", key, i, got, want[i])
				}
			}
		}

		peekBanned(t, &p, l, from)
	})
}

// peekBanned has the limiter agree with the policy about each key, at once, after a minute and
// after two.
func peekBanned(t *testing.T, p *policy.Policy, l *limiter.Limiter, from time.Time) {
	t.Helper()
	for i := range 3 {
		time.Sleep(time.Until(from.Add(time.Duration(i) * time.Minute)))
		for _, key := range []string{"acme:1", "acme:2", "acme:3", "acme:4", "acme:5", "other"} {
			now := time.Now()
			list, err := l.Peek(t.Context(), key)
			if err != nil || len(list) != 1 {
				t.Fatal(err, list)
			}

			d, end := list[0].Decision, p.BanOf(key, now)
			if d.Banned != !end.IsZero() || d.Banned && d.RetryAfter != end.Sub(now) ||
				!d.Banned && list[0].Limit != p.LimitOf(key, now) {
				t.Errorf("%s after %d minutes: %+v", key, i, list[0])
			}
		}
	}
}

// A ban beside a policy is in force and lifted like every override, and leaves the limit of its
// key.
func TestFollowPutsBansBesidePoliciesInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &besideSource{}
		a := byUser(t, "a")
		a.Overrides = map[string]policy.Override{"own": {Limit: limit(t, "9/1m")}}
		s.publish("1", a)
		s.change("a/own=banned until 2000-01-01T00:00:10Z", "a/eve=banned until 2000-01-01T01:00:00Z, then 5/1m")
		f, want := followBeside(t, s, quiet())

		want("own a:banned")
		want("eve a:banned")
		want("bob a:100")

		s.change("a/eve=5/1m", "a/bob=banned until 2000-01-01T01:00:00Z")
		pollTwice()
		want("eve a:5")
		want("bob a:banned")

		time.Sleep(time.Until(time.Date(2000, 1, 1, 0, 0, 10, 0, time.UTC)) - time.Microsecond)
		want("own a:banned")
		time.Sleep(time.Microsecond)
		want("own a:9")

		if got := f.Status().Overrides; got.LeftOut != 0 || got.Err != nil || got.Count != 3 {
			t.Errorf("%+v", got)
		}
	})
}

// What a ban without a limit lets through counts under the limit of the prefix or the plan.
func TestBanLeavesTheOtherLimitsOfAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := byUser(t, "api")
		p.Limit = limit(t, "10/1h debt=10")
		p.Plans, p.PlanBy = map[string]core.Limit{"pro": limit(t, "500/1h debt=500")}, "user"
		until := time.Now().Add(time.Minute)
		p.Overrides = map[string]policy.Override{
			"acme:*": {Limit: limit(t, "1000/1h debt=1000")},
			"acme:1": {BannedUntil: until}, "planned": {BannedUntil: until},
		}

		pro := func(context.Context, string) (string, error) { return "pro", nil }
		compiled, err := policy.Compile(p.Apps[0], policy.Set{p}, policy.Bindings{User: keyfuncs.UserID(userOf),
			Plans: map[string]policy.PlanFunc{"user": pro}})
		if err != nil {
			t.Fatal(err)
		}
		l := limiter.MustNew(limiter.Config{Rules: compiled.Rules(), Store: memstore.MustNew(memstore.Options{})})
		defer l.Close()

		for key, limit := range map[string]string{"acme:1": "1000/1h debt=1000", "planned": "500/1h debt=500"} {
			list, err := l.Debit(t.Context(), key, 400)
			if err != nil || len(list) != 1 || list[0].Decision.Taken != 400 || list[0].Limit.String() != limit {
				t.Errorf("%s: %+v, %v", key, list, err)
			}
		}
	})
}
