package prefetch_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/headgate/headgate/core"
)

// slow is a store whose answer to the next step is on the way until it may arrive.
type slow struct {
	core.Store
	arrive chan struct{}
}

func (s *slow) Apply(ctx context.Context, ops []core.Op, out []core.Decision) error {
	err := s.Store.Apply(ctx, ops, out)
	if s.arrive != nil {
		arrive := s.arrive
		s.arrive = nil
		<-arrive
	}
	return err
}

// answer is the result of a call.
type answer struct {
	over bool
	core.Decision
}

// begin begins a call, and returns when it is over or waits.
func begin(ctx context.Context, t *testing.T, s core.Store, op core.Op) *answer {
	a := new(answer)
	go func() {
		out := make([]core.Decision, 1)
		if err := s.Apply(ctx, []core.Op{op}, out); err != nil {
			t.Error(err)
		}
		*a = answer{true, out[0]}
	}()
	synctest.Wait()
	return a
}

// A unit that the store has granted and that has not arrived yet is available.
func TestRetryWaitsForUnitsOnTheirWay(t *testing.T) {
	// The caller waits for the unit, or leaves while it waits.
	for _, leaves := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			s, l := w.instance(64), limit(t, "20/1h")

			// After seven Takes the key is busy, so the eighth takes one ahead. Its answer is held
			// up.
			for range 7 {
				w.apply(s, take(l, 1))
			}

			arrive := make(chan struct{})
			w.inner.Store = &slow{w.inner.Store, arrive}
			begin(t.Context(), t, s, take(l, 1)) // and one ahead

			// The store has nothing left, but one unit is on its way to this instance.
			if d := w.apply(w.inner, take(l, 11))[0]; !d.Allowed || d.Remaining != 0 {
				t.Fatalf("another instance got %+v", d)
			}

			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			late := begin(ctx, t, s, take(l, 1))

			if late.over {
				t.Fatalf("answered %+v while a unit was on its way", late.Decision)
			}

			if leaves {
				leave()
				synctest.Wait()
			}

			close(arrive)
			synctest.Wait()

			// It is handed to the caller that waits, and nothing is handed to one that left.
			if !late.over || late.Allowed == leaves {
				t.Errorf("left %t: %+v", leaves, late)
			}
		})
	}
}

// Units that another call gives back while the store refuses are available.
func TestRetryAfterUnitsWentBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s, l := w.instance(64), limit(t, "40/1h")

		// Nine units are used, and the hold is at the point where two are taken ahead.
		for range 7 + 1 + 1 {
			w.apply(s, take(l, 1))
		}

		// Four are left in the store, of which the next Take uses one and takes two.
		w.apply(w.inner, take(l, 40-9-4))
		w.apply(s, take(l, 1)) // and two ahead, of four

		arrive := make(chan struct{})
		w.inner.Store = &slow{w.inner.Store, arrive}
		begin(t.Context(), t, s, take(l, 4)) // is refused, and two go back

		// Three are in the store: one that was left, and the two that went back. All are spent
		// elsewhere.
		if n := w.spend(w.inner, l); n != 3 {
			t.Fatalf("%d units were left, want 3", n)
		}

		calls := w.inner.calls.Load()

		// A Take asks the store, which answers late; meanwhile a unit is given back.
		late := begin(t.Context(), t, s, take(l, 1))
		w.apply(w.inner, core.Op{Verb: core.Refund, Rule: "rule", Key: "key", Limit: l, Cost: 1})
		close(arrive)
		synctest.Wait()

		// The refusal was overtaken by the refund, so the store is asked again.
		if n := w.inner.calls.Load() - calls; n < 3 || !late.over || !late.Allowed {
			t.Errorf("%+v after %d calls", late, n)
		}
	})
}

// A step waits neither for a call that moves no units nor for one that brings
// units of a Soft op.
func TestRetrySkipsCallsThatMoveNoUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s, l := w.instance(64), limit(t, "20/1h")

		// The limit is used up, and the instance knows it.
		w.spend(s, l)
		w.spend(s, l)

		arrive := make(chan struct{})
		w.inner.Store = &slow{w.inner.Store, arrive}

		// A call is on its way that can bring nothing, so the second Take is answered at once.
		begin(t.Context(), t, s, take(l, 1))
		if a := begin(t.Context(), t, s, take(l, 1)); !a.over || a.Allowed {
			t.Errorf("%+v under a limit that is used up", a)
		}

		close(arrive)

		// A Soft op may bring units, but a hard op's step is not for them.
		soft := take(limit(t, "20/1h"), 1)
		soft.Key, soft.Soft = "soft", true
		for range 7 {
			w.apply(s, soft)
		}

		arrive = make(chan struct{})
		w.inner.Store = &slow{w.inner.Store, arrive}
		begin(t.Context(), t, s, soft)

		if n := w.spend(w.inner, l); n != 0 {
			t.Fatalf("%d units are left", n)
		}

		// The step has a hard op that fits and a Soft one that does not: it is admitted without a
		// wait.
		hard := take(l, 1)
		hard.Key = "hard"
		other := soft
		other.Cost = 20

		out := make([]core.Decision, 2)
		if err := s.Apply(t.Context(), []core.Op{hard, other}, out); err != nil || !out[0].Allowed ||
			out[1].Allowed || out[0].Remaining != 19 {
			t.Errorf("%+v, %v", out, err)
		}
		close(arrive)
	})
}
