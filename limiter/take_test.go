package limiter_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
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
