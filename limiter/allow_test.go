package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/store/memstore"
)

// Allow agrees with the result of a Take about the rule of the X-RateLimit headers, also where the
// store is in memory and only decides.
func TestAllowAgreesWithTake(t *testing.T) {
	stores := map[string]func(now *time.Time) core.Store{
		"map": func(now *time.Time) core.Store {
			s := newStore()
			s.now = func() time.Time { return *now }
			return s
		},
		"memory": func(now *time.Time) core.Store {
			return memstore.MustNew(memstore.Options{Clock: func() int64 { return now.UnixMicro() }})
		},
	}
	sets := map[string][]limiter.Rule{
		"one rule": {rule(t, "a", "5/1s")},
		"several":  {rule(t, "a", "3/1s"), rule(t, "b", "7/2s fixed-window"), rule(t, "c", "11/5s sliding-log")},
		"soft rules": {withOnLimit(rule(t, "dark", "1/1m"), limiter.Shadow),
			withOnLimit(rule(t, "dim", "2/1s"), limiter.Degrade), rule(t, "a", "6/2s")},
		"shadows": {withOnLimit(rule(t, "dark", "2/1s"), limiter.Shadow)},
		"none":    nil,
	}
	for name, rules := range sets {
		for kind, open := range stores {
			t.Run(name+" in "+kind, func(t *testing.T) {
				now := epoch
				a, b := newLimiter(t, open(&now), rules...), newLimiter(t, open(&now), rules...)
				wantAgreement(t, a, b, &now)
			})
		}
	}
}

// wantAgreement makes the same requests to two limiters, to one by Allow and to the other by Take,
// on clocks that agree.
func wantAgreement(t *testing.T, a, b *limiter.Limiter, now *time.Time) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	for n := range 2000 {
		*now = now.Add(time.Duration(r.IntN(700)) * time.Millisecond)
		key, cost := fmt.Sprint(r.IntN(3)), int64(r.IntN(9))

		got, err := a.Allow(t.Context(), key, cost)
		res, err2 := b.Take(t.Context(), key, cost)
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}

		if want := wantDecision(res); got != want {
			t.Fatalf("%d: %+v, want %+v", n, got, want)
		}
	}
}

// A clock of the program that panics is an error of the store, and no panic of Allow.
func TestAllowInMemoryReportsAPanicOfTheClock(t *testing.T) {
	s := memstore.MustNew(memstore.Options{Clock: func() int64 { panic("no time") }})
	l := newLimiter(t, s, rule(t, "a", "5/1h"))
	for range 2 {
		if d, err := l.Allow(t.Context(), "k", 1); !errors.Is(err, limiter.ErrUndecided) ||
			!strings.HasSuffix(err.Error(), `panic: "no time"`) || d != (core.Decision{Allowed: true}) {
			t.Errorf("%+v, %v", d, err)
		}
	}
}

// Rules that come later are in force for the next call of Allow.
func TestAllowInMemoryFollowsSetRules(t *testing.T) {
	l := newLimiter(t, memstore.MustNew(memstore.Options{}), rule(t, "a", "5/1h"))
	for _, want := range []struct {
		limit     string
		remaining int64
	}{{"5/1h", 4}, {"9/1h", 7}, {"2/1h", 0}} {
		if err := l.SetRules([]limiter.Rule{rule(t, "a", want.limit)}); err != nil {
			t.Fatal(err)
		}
		if d, err := l.Allow(t.Context(), "k", 1); err != nil || d.Remaining != want.remaining {
			t.Errorf("%s: %+v, %v", want.limit, d, err)
		}
	}
}

// wantDecision returns the decision that Allow has to return where Take returns res.
func wantDecision(res *limiter.Result) core.Decision {
	var d core.Decision
	least := 2.0
	// The rule with the least share left is shown. A refusal comes before what is only empty, and
	// the rule that refuses the request before all others.
	for _, rd := range res.Decisions() {
		part := float64(rd.Decision.Remaining) / float64(rd.Limit.Capacity())
		if !rd.Decision.Allowed {
			part--
		}
		if slices.Contains(res.Violated(), rd.Rule) {
			part--
		}
		if rd.OnLimit != limiter.Shadow && part < least {
			d, least = rd.Decision, part
		}
	}

	d.Allowed, d.RetryAfter = res.Allowed(), res.RetryAfter()
	return d
}

func TestAllowRefusesLeases(t *testing.T) {
	l := newLimiter(t, newStore(), rule(t, "a", "5/1h"), rule(t, "b", "2 concurrent ttl=1m"))
	if d, err := l.Allow(t.Context(), "k", 1); !errors.Is(err, core.ErrOp) || d != (core.Decision{}) {
		t.Errorf("%+v, %v", d, err)
	}
	wantLeft(t, l, "k", 5, 2)
	if d, err := l.Allow(t.Context(), "k", -1); !errors.Is(err, core.ErrOp) || d != (core.Decision{}) {
		t.Errorf("a negative cost: %+v, %v", d, err)
	}
}

// Requests and calls of Allow share a pool.
func TestAllowDoesNotBookAndRequestsStillWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newTicking(), waiting(t, "a", "1/1s", time.Minute))
		for i, want := range []time.Duration{0, time.Second} {
			got := admitAtOnce(l, 1, get())
			wantTally(t, got, map[arrival]int{{limiter.Pass, want}: 1})
			// Allow books no slot, and says so by a Wait of 0, though the requests beside it do.
			if d, err := l.Allow(t.Context(), "k", 1); err != nil || d.Allowed || d.Wait != 0 ||
				d.RetryAfter != time.Second {
				t.Errorf("after request %d: %+v, %v", i, d, err)
			}
		}
	})
}

func TestAllowReturnsErrorsAndFollowsConfig(t *testing.T) {
	for failure, want := range map[limiter.FailureMode]bool{limiter.FailOpen: true, limiter.FailClosed: false} {
		l := configured(t, limiter.Config{Store: brokenStore(func() error { return errDown }),
			Rules: []limiter.Rule{rule(t, "a", "5/1s")}, OnStoreError: failure})
		if d, err := l.Allow(t.Context(), "k", 1); !errors.Is(err, errDown) || !errors.Is(err, limiter.ErrUndecided) ||
			d != (core.Decision{Allowed: want}) {
			t.Errorf("%+v, %v", d, err)
		}
	}

	// A rule that cannot be evaluated passes, and the other decides: its unit is there for the
	// first call only.
	broken := rule(t, "broken", "9/1h")
	broken.Override = func(context.Context, string) (core.Limit, bool, error) { panic("o") }
	l := newLimiter(t, newStore(), broken, rule(t, "a", "1/1h"))
	for _, want := range []bool{true, false} {
		if d, err := l.Allow(t.Context(), "k", 1); d.Allowed != want || !errors.Is(err, limiter.ErrUndecided) ||
			!strings.HasSuffix(err.Error(), `: rule 0 "broken": panic: "o"`) {
			t.Errorf("%+v, %v", d, err)
		}
	}
}
