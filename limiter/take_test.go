package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/store/memstore"
)

// A handle goes where programs expect the limiter of golang.org/x/time/rate.
var _ interface {
	Wait(ctx context.Context) error
	WaitN(ctx context.Context, n int) error
	Allow() bool
	AllowN(at time.Time, n int) bool
} = (*limiter.Limiter)(nil).For("")

func TestHandleTakesUnitsOfItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter.MustNew(limiter.Config{Rules: []limiter.Rule{rule(t, "a", "5/1s burst=5")}})
		defer l.Close()
		alice, bob := l.For("alice"), l.For("bob")

		// The instant of AllowN is not that of the store.
		past := time.Unix(0, 0)
		if !alice.Allow() || !alice.AllowN(past, 4) || alice.Allow() || alice.AllowN(past, 1) || !bob.AllowN(past, 5) {
			t.Error("five units of each key are not what is allowed")
		}
		if alice.AllowN(past, -1) {
			t.Error("a negative number was allowed")
		}

		begun := time.Now()
		for _, wait := range []error{alice.Wait(t.Context()), alice.WaitN(t.Context(), 2)} {
			if wait != nil {
				t.Error(wait)
			}
		}
		if got := time.Since(begun); got != 600*time.Millisecond {
			t.Errorf("three units took %s, want 600ms", got)
		}

		ctx, cancel := context.WithTimeout(t.Context(), 199*time.Millisecond)
		defer cancel()
		if err := alice.Wait(ctx); !errors.Is(err, limiter.ErrLimited) {
			t.Errorf("a unit that comes after the deadline: %v", err)
		}
	})
}

func TestCostsByRule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		atMost := rule(t, "most", "10/1s burst=10")
		atMost.CostAtMost = true
		l := limiter.MustNew(limiter.Config{Rules: []limiter.Rule{rule(t, "requests", "2/1m burst=2"),
			rule(t, "tokens", "100/1s burst=100"), atMost}})
		defer l.Close()

		// Each row follows those before: what it takes, and what is left of the three.
		for _, row := range []struct {
			costs   map[string]int64
			allowed bool
			waited  time.Duration
			taken   [3]int64
		}{
			{map[string]int64{"tokens": 80, "most": 900}, true, 0, [3]int64{1, 80, 10}},
			{map[string]int64{"tokens": 60, "most": 0}, true, 400 * time.Millisecond, [3]int64{1, 60, 0}},
			{map[string]int64{"tokens": 1, "requests": 0, "most": 1}, true, 10 * time.Millisecond, [3]int64{0, 1, 1}},
			{map[string]int64{"tokens": 1, "most": 1}, false, 0, [3]int64{}}, // the third request of a minute
			{map[string]int64{"tokens": 101, "requests": 0}, false, 0, [3]int64{}},
		} {
			res, err := l.TakeCosts(t.Context(), "k", row.costs, time.Second)
			if res.Allowed() != row.allowed || err != nil || res.Waited() != row.waited {
				t.Errorf("%v: %t after %s, %v, want %t after %s", row.costs, res.Allowed(), res.Waited(), err,
					row.allowed, row.waited)
			}
			for i, d := range res.Decisions() {
				if d.Decision.Taken != row.taken[i] {
					t.Errorf("%v: %d taken under %s, want %d", row.costs, d.Decision.Taken, d.Rule, row.taken[i])
				}
			}
		}

		if res, err := l.TakeCosts(t.Context(), "l", map[string]int64{"tokens": 100}, 0); !res.Allowed() || err != nil {
			t.Errorf("without a wait: %t, %v", res.Allowed(), err)
		}
		if res, err := l.TakeCosts(t.Context(), "l", map[string]int64{"tokens": 1}, 0); res.Allowed() || err != nil {
			t.Errorf("one more without a wait: %t, %v", res.Allowed(), err)
		}
	})
}

func TestCostsThatCannotBeTaken(t *testing.T) {
	l := limiter.MustNew(limiter.Config{Rules: []limiter.Rule{rule(t, "a", "5/1s"), rule(t, "b", "5/1s")}})
	defer l.Close()
	for _, row := range []struct {
		costs map[string]int64
		max   time.Duration
		want  string
	}{
		{map[string]int64{"a": -1, "b": -2, "c\n": 3}, 0, "invalid operation: rule \"a\": the cost -1 is negative\n" +
			"invalid operation: rule \"b\": the cost -2 is negative\n" +
			"invalid operation: no rule in force is called \"c\\n\""},
		{nil, -1, "invalid operation: the wait -1ns is not from 0 to 1h"},
	} {
		res, err := l.TakeCosts(t.Context(), "k", row.costs, row.max)
		if res.Allowed() || !errors.Is(err, core.ErrOp) || err.Error() != row.want {
			t.Errorf("%v: %v, want %s", row.costs, err, row.want)
		}
	}
	if d, err := l.Peek(t.Context(), "k"); err != nil || d[0].Decision.Remaining != 5 {
		t.Errorf("%+v, %v: something was taken", d, err)
	}
}

// twins are two limiters with the same rules, each over a memory of its own, on one clock. Of the
// first a Take keeps no more than it has to; the second counts top keys too, so its Takes keep all.
func twins(t *testing.T, now *time.Time, hooks func(i int) *events.Hooks, rules ...limiter.Rule) (
	twin [2]*limiter.Limiter) {
	t.Helper()
	for i := range twin {
		s := memstore.MustNew(memstore.Options{Clock: func() int64 { return now.UnixMicro() }})
		twin[i] = configured(t, limiter.Config{Store: s, Rules: rules, Top: i, Hooks: hooks(i)})
	}
	return twin
}

// toldBy returns all that a result tells.
func toldBy(t *testing.T, res *limiter.Result) string {
	t.Helper()
	return fmt.Sprint(res.Allowed(), res.Undecided(), res.Denied(), res.Banned(), res.Degraded(), res.Waited(),
		res.Decisions(), res.Violated(), res.RetryAfter(), res.HoldsLeases())
}

// use does one of the things that can be done with a result, and returns what came of it.
func use(t *testing.T, l *limiter.Limiter, res *limiter.Result, way int) string {
	t.Helper()
	ctx := t.Context()
	switch way {
	case 0:
		return fmt.Sprint(res.Refund(ctx))
	case 1:
		return fmt.Sprint(res.Settle(ctx, map[string]int64{"a": 1}))
	case 2:
		return fmt.Sprint(res.Settle(ctx, map[string]int64{"a": 99, "none": 1}))
	case 3:
		held, err := res.Renew(ctx)
		return fmt.Sprint(held, err, res.Release(ctx))
	case 4:
		data, err := res.MarshalBinary()
		if err != nil {
			return err.Error()
		}
		again, err := l.Restore(data)
		if err != nil {
			return err.Error()
		}
		return toldBy(t, again) + fmt.Sprint(again.Refund(ctx))
	}
	return ""
}

func TestTakeInMemoryAgreesWithOneThatKeepsAll(t *testing.T) {
	for name, rules := range map[string][]limiter.Rule{
		"none":    nil,
		"one":     {rule(t, "a", "5/1s")},
		"several": {rule(t, "a", "5/1s"), rule(t, "b", "7/2s fixed-window"), rule(t, "c", "11/5s sliding-log")},
		"soft": {withOnLimit(rule(t, "dark", "2/1s"), limiter.Shadow),
			withOnLimit(rule(t, "dim", "3/1s"), limiter.Degrade), rule(t, "a", "9/1s")},
	} {
		now, r := epoch, rand.New(rand.NewPCG(3, 4))
		var heard [2][]events.Units
		pair := twins(t, &now, func(i int) *events.Hooks {
			return &events.Hooks{Units: func(u events.Units) { heard[i] = append(heard[i], u) }}
		}, rules...)

		for n := range 2000 {
			now = now.Add(time.Duration(r.IntN(400)) * time.Millisecond)
			key, cost, first, second := fmt.Sprint(r.IntN(3)), int64(r.IntN(13)), r.IntN(6), r.IntN(6)

			var got [2]string
			for i, l := range pair {
				res, err := l.Take(t.Context(), key, cost)
				got[i] = fmt.Sprint(err, res.Allowed(), use(t, l, res, first), toldBy(t, res), use(t, l, res, second))
			}
			if got[0] != got[1] {
				t.Fatalf("%s, %d: %s\nwant %s", name, n, got[0], got[1])
			}
		}
		if !slices.Equal(heard[0], heard[1]) || name != "none" && len(heard[0]) == 0 {
			t.Errorf("%s: the hooks heard of %d corrections, want %d, the same", name, len(heard[0]), len(heard[1]))
		}
	}
}

// A result may be used by several goroutines at once, and its units are given back once.
func TestTakeInMemoryIsRefundedOnce(t *testing.T) {
	now := epoch
	l := twins(t, &now, func(int) *events.Hooks { return nil }, rule(t, "a", "10/1h"))[0]
	for range 100 {
		kept, err := l.Take(t.Context(), "k", 3)
		if err != nil || !kept.Allowed() {
			t.Fatal(kept.Allowed(), err)
		}
		res, err := l.Take(t.Context(), "k", 2)
		if err != nil {
			t.Fatal(err)
		}

		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if err := res.Refund(t.Context()); err != nil || len(res.Decisions()) != 1 {
					t.Error(err)
				}
			})
		}
		all.Wait()
		wantLeft(t, l, "k", 7)
		if err := kept.Refund(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// The result keeps the rules under which it was taken.
func TestTakeInMemoryIsRefundedAfterSetRules(t *testing.T) {
	now := epoch
	l := twins(t, &now, func(int) *events.Hooks { return nil }, rule(t, "a", "10/1h"))[0]
	res, err := l.Take(t.Context(), "k", 4)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.SetRules([]limiter.Rule{rule(t, "b", "5/1h"), rule(t, "a", "10/1h")}); err != nil {
		t.Fatal(err)
	}

	if d := res.Decisions(); len(d) != 1 || d[0].Rule != "a" || d[0].Decision.Remaining != 6 {
		t.Errorf("%+v", d)
	}
	if err := res.Refund(t.Context()); err != nil {
		t.Error(err)
	}
	wantLeft(t, l, "k", 5, 10)
}
