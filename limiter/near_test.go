package limiter_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/store/memstore"
)

// warning returns a rule that warns from the share on.
func warning(t testing.TB, name, text string, share core.Share) limiter.Rule {
	t.Helper()
	r := rule(t, name, text)
	r.Warn = share
	return r
}

// remaining returns what the key has left under each rule.
func remaining(t *testing.T, l *limiter.Limiter, key string) (units []int64) {
	t.Helper()
	list, err := l.Peek(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range list {
		units = append(units, d.Decision.Remaining)
	}
	return units
}

// The events are those that follow from what a key has left before and after each request.
func TestNearIsReportedOnEachWayUp(t *testing.T) {
	texts := []string{"10/1s", "10/1m burst=3", "9/2s fixed-window", "12/3s sliding-window segments=3",
		"11/2s sliding-log", "7/1s token-bucket"}
	shares := []core.Share{0, 1, 5000, 8000, 9999}
	random := rand.New(rand.NewPCG(7, 11))
	seen := 0

	for round := range 60 {
		rules := make([]limiter.Rule, 1+random.IntN(3))
		for i := range rules {
			rules[i] = warning(t, fmt.Sprint("r", i), texts[random.IntN(len(texts))],
				shares[random.IntN(len(shares))])
			rules[i].OnLimit = []limiter.Action{limiter.Reject, limiter.Degrade, limiter.Shadow}[random.IntN(3)]
		}

		now := epoch
		var got, want []string
		l := configured(t, limiter.Config{
			Store: memstore.MustNew(memstore.Options{Clock: func() int64 { return now.UnixMicro() }}),
			Hooks: &events.Hooks{Near: func(e events.Near) {
				got = append(got, fmt.Sprint(e.Rule, e.Key, e.Limit.Quota, e.Remaining))
			}}, Rules: rules})

		for n := range 200 {
			now = now.Add(time.Duration(random.IntN(400)) * time.Millisecond)
			key, cost := fmt.Sprint("key", random.IntN(2)), int64(random.IntN(4))
			before := remaining(t, l, key)
			allowed, near, asked := takeOrAllow(t, l, key, cost, n%2 == 0)
			after := remaining(t, l, key)

			// A crossing is from above the bound to it, or below.
			wantNear := false
			for i, r := range rules {
				bound := r.Limit.Capacity() - r.Warn.Of(r.Limit.Capacity())
				if r.Warn == 0 || !allowed {
					continue
				}
				if before[i] > bound && after[i] <= bound {
					want = append(want, fmt.Sprint(r.Name, key, r.Limit.Quota, after[i]))
				}
				wantNear = wantNear || after[i] <= bound && r.OnLimit != limiter.Shadow
			}
			if asked && near != wantNear {
				t.Fatalf("round %d: Near is %t with %d left of %+v", round, near, after, rules)
			}
		}

		if !slices.Equal(got, want) {
			t.Fatalf("round %d: the events are %q, want %q of %+v", round, got, want, rules)
		}
		seen += len(got)
	}
	if seen < 500 {
		t.Errorf("%d events are too few to tell", seen)
	}
}

// takeOrAllow takes units by Take or by Allow, which knows nothing of Near.
func takeOrAllow(t *testing.T, l *limiter.Limiter, key string, cost int64, withResult bool) (
	allowed, near, asked bool) {

	t.Helper()
	if !withResult {
		d, err := l.Allow(t.Context(), key, cost)
		if err != nil {
			t.Fatal(err)
		}
		return d.Allowed, false, false
	}
	res, err := l.Take(t.Context(), key, cost)
	if err != nil {
		t.Fatal(err)
	}
	return res.Allowed(), res.Near(), true
}

// A request that another rule refuses takes nothing, and what Settle charges is no request.
func TestNearOfRequestsThatTakeNothing(t *testing.T) {
	var got []string
	l := configured(t, limiter.Config{Hooks: &events.Hooks{Near: func(e events.Near) {
		got = append(got, fmt.Sprint(e.Rule, " ", e.Remaining))
	}}, Rules: []limiter.Rule{warning(t, "a", "10/1h fixed-window", 5000), rule(t, "b", "4/1h fixed-window")}})

	for range 9 {
		res, err := l.Take(t.Context(), "k", 1)
		if err != nil || res.Near() {
			t.Fatal(res.Near(), err)
		}
	}
	if got != nil {
		t.Errorf("%q, and 6 are left", got)
	}

	res, err := l.TakeCosts(t.Context(), "k", map[string]int64{"a": 1, "b": 0}, 0)
	if err != nil || !res.Near() || !slices.Equal(got, []string{"a 5"}) {
		t.Errorf("%q, %v", got, err)
	}
	var none *limiter.Result
	if none.Near() || new(limiter.Result).Near() {
		t.Error("a result of nothing is near a limit")
	}
}

// A caller that leaves before its turn takes nothing.
func TestNearOfTurnsThatAreGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		heard := 0
		l := configured(t, limiter.Config{Store: memstore.MustNew(memstore.Options{}),
			Hooks: &events.Hooks{Near: func(events.Near) { heard++ }},
			Rules: []limiter.Rule{warning(t, "a", "2/1m", 5000)}})
		for range 2 {
			_, _ = l.Take(t.Context(), "k", 1)
		}

		ctx, leave := context.WithCancel(t.Context())
		time.AfterFunc(29900*time.Millisecond, leave)
		if res, err := l.TakeWithin(ctx, "k", 1, time.Minute); err == nil || res.Allowed() || res.Near() {
			t.Errorf("allowed %t, %v", res.Allowed(), err)
		}
		if heard != 1 {
			t.Errorf("heard %d times", heard)
		}
	})
}

// What a step has charged is given back where a Peek of it refuses.
func TestNearOfPartsThatAreGivenBack(t *testing.T) {
	heard := 0
	r := warning(t, "a", "2/1h fixed-window", 5000)
	r.Key = byHeader
	l := configured(t, limiter.Config{Hooks: &events.Hooks{Near: func(events.Near) { heard++ }},
		Rules: []limiter.Rule{r}})
	for range 2 {
		_, _ = l.Take(t.Context(), "used up", 1)
	}

	for _, row := range []struct {
		peek  string
		heard int
	}{{"used up", 1}, {"fresh", 2}} {
		a := l.AdmitParts(t.Context(), []limiter.Part{{Request: keyed("k"), Cost: 1},
			{Request: keyed(row.peek), Verb: core.Peek, Cost: 1}})
		a.Done(200)
		if heard != row.heard {
			t.Errorf("beside %s: heard %d times, want %d", row.peek, heard, row.heard)
		}
	}
}

func TestSharesOfRulesAreChecked(t *testing.T) {
	a, b := rule(t, "a", "1/1s"), rule(t, "b", "1/1s")
	a.Warn, a.Enforce, b.Warn, b.Enforce = core.Whole, core.Whole+1, core.Whole-1, core.Whole
	_, err := limiter.New(limiter.Config{Rules: []limiter.Rule{a, b}})

	want := "rule 0 \"a\": the share 100.01% of Enforce is more than 100%\n" +
		"rule 0 \"a\": the share 100% of Warn is not below 100%"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
