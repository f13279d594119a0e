package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/store/memstore"
)

// worlds are three limiters on one clock that differ in what the rule under test is.
type worlds struct {
	now                    time.Time
	partial, force, shadow *limiter.Limiter
}

// newWorlds returns limiters with the rule in force for a share of the keys, for all and for none,
// each beside a second rule.
func newWorlds(t *testing.T, r limiter.Rule, share core.Share) *worlds {
	t.Helper()
	w := &worlds{now: epoch}
	open := func(r limiter.Rule) *limiter.Limiter {
		beside := rule(t, "beside", "40/2s sliding-log")
		beside.Key = byHeader
		return configured(t, limiter.Config{Rules: []limiter.Rule{r, beside},
			Store: memstore.MustNew(memstore.Options{Clock: func() int64 { return w.now.UnixMicro() }})})
	}
	w.force = open(r)

	dark := r
	dark.OnLimit = limiter.Shadow
	w.shadow = open(dark)
	r.Enforce = share
	w.partial = open(r)
	return w
}

// A key is limited as by a rule in force, or as by one in Shadow, in every way of asking.
func TestEnforceIsForAShareOfTheKeys(t *testing.T) {
	plain := rule(t, "a", "3/1s")
	plain.Key = byHeader

	banning := plain
	banning.Ban = core.MustParseBan("3/1m for 2s max 1m")
	degrade := withOnLimit(plain, limiter.Degrade)

	overridden := plain
	overridden.Override = func(_ context.Context, key string) (core.Limit, bool, error) {
		if key == "key7" {
			return core.Limit{}, false, errors.New("down")
		}
		return core.MustParseLimit("5/1s"), key > "key4", nil
	}
	overridden.OnStoreError = limiter.FailClosed

	listed := plain
	listed.Access = keyfuncs.MustAccess(keyfuncs.Lists{
		Deny: keyfuncs.Callers{Keys: []string{"key1", "key2", "key3", "key6"}}})

	for name, r := range map[string]limiter.Rule{"plain": plain, "ban": banning, "degrade": degrade,
		"override": overridden, "access": listed} {
		t.Run(name, func(t *testing.T) {
			w, random, counts := newWorlds(t, r, 5000), rand.New(rand.NewPCG(3, 5)), [2]int{}
			for range 3000 {
				w.now = w.now.Add(time.Duration(random.IntN(60)) * time.Millisecond)
				key := fmt.Sprint("key", random.IntN(10))
				reference, i := w.shadow, 0
				if core.Share(5000).Has("a", key) {
					reference, i = w.force, 1
				}
				counts[i]++
				wantSame(t, w.partial, reference, key, random.IntN(5))
			}
			if counts[0] < 500 || counts[1] < 500 {
				t.Errorf("%d requests", counts)
			}
		})
	}
}

// wantSame asks two limiters the same in one of several ways.
func wantSame(t *testing.T, got, want *limiter.Limiter, key string, way int) {
	t.Helper()
	ask := func(l *limiter.Limiter) string {
		switch way {
		case 0:
			a := l.Admit(keyed(key))
			defer a.Done(200)
			return fmt.Sprint(a.Outcome(), a.Status(), a.Degraded(), lines(a), a.Result().Violated())
		case 1:
			d, err := l.Allow(t.Context(), key, 1)
			return fmt.Sprint(d, err)
		case 2:
			list, err := l.PeekRequest(keyed(key))
			return fmt.Sprint(list, err)
		case 3:
			a := l.AdmitParts(t.Context(), []limiter.Part{{Request: keyed(key), Cost: 1}})
			defer a.Done(200)
			return fmt.Sprint(a.Outcome(), a.Result().Decisions(), a.Result().Violated())
		}
		res, err := l.Take(t.Context(), key, 2)
		return fmt.Sprint(res.Allowed(), res.Banned(), res.Denied(), res.RetryAfter(), res.Decisions(),
			res.Violated(), err)
	}
	if g, w := ask(got), ask(want); g != w {
		t.Fatalf("way %d, %s:\n%s, want\n%s", way, key, g, w)
	}
}

// A ban from before is lifted, and a reset is of all, also for a key that the rule is not in force
// for.
func TestEnforceAndBansOfKeys(t *testing.T) {
	r := banning(t, "a", "1/1h")
	r.Enforce = 1
	key := "k"
	for n := 0; r.Enforce.Has("a", key); n++ {
		key = fmt.Sprint("k", n)
	}

	l := newLimiter(t, newStore(), r)
	r.Enforce = 0
	if err := l.SetRules([]limiter.Rule{r}); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		_, _ = l.Take(t.Context(), key, 1)
	}
	if res, _ := l.Take(t.Context(), key, 1); !res.Banned() {
		t.Fatal("the key is not banned")
	}

	r.Enforce = 1
	if err := l.SetRules([]limiter.Rule{r}); err != nil {
		t.Fatal(err)
	}
	if res, _ := l.Take(t.Context(), key, 1); !res.Allowed() {
		t.Error("a key for which the rule is not in force is refused")
	}

	if err := l.Lift(t.Context(), "a", key); err != nil {
		t.Error(err)
	}
	r.Enforce = 0
	if err := l.SetRules([]limiter.Rule{r}); err != nil {
		t.Fatal(err)
	}
	if res, _ := l.Take(t.Context(), key, 1); res.Allowed() || res.Banned() {
		t.Errorf("after the lift: allowed %t, banned %t", res.Allowed(), res.Banned())
	}
}
