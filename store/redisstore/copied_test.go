package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/store/failover"
)

// copier is a Copier that remembers the keys of the steps of each call.
type copier struct {
	panics bool

	mu    sync.Mutex
	calls []string
}

func (c *copier) seen() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls
}

func (c *copier) Copy(steps []failover.Decided) {
	time.Sleep(time.Millisecond) // in which a caller that did not wait for the copies would go on
	call := ""
	for i := range steps {
		call += steps[i].Ops[0].Key
		steps[i].Copied = steps[i].Ops[0].Key != "e" // which it leaves to its caller
		steps[i].Out[0].Origin = 9
	}
	c.mu.Lock()
	c.calls = append(c.calls, call)
	c.mu.Unlock()
	if c.panics {
		panic("the copier")
	}
}

func takeCopied(ctx context.Context, s *Store, key string, c failover.Copier) (bool, core.Decision, error) {
	ops, out := []core.Op{{Rule: "r", Key: key, Limit: core.Limit{Quota: 1, Period: time.Second}, Cost: 1}},
		make([]core.Decision, 1)
	copied, err := s.ApplyCopied(ctx, ops, out, c)
	return copied, out[0], err
}

// The steps of a call are copied once, before any caller has its answer, and those that were sent
// alone are not.
func TestStepsOfACallAreCopiedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &copier{}
		s := faked(t, &fake{wait: slow}, Options{})
		each(7, func(i int, key string) {
			copied, d, err := takeCopied(t.Context(), s, key, c)
			if len(c.seen()) == 0 && i > 1 {
				t.Errorf("%s has its answer before the copies", key)
			}

			// The first two found no call in flight, or one.
			together := i > 1
			if err != nil || copied != (together && key != "e") || (d.Origin == 9) != together {
				t.Errorf("%s: copied %t, %+v, %v", key, copied, d, err)
			}
		})
		if got := fmt.Sprint(c.seen()); got != "[cdefg]" {
			t.Errorf("copied %s", got)
		}
		idle(t, s)
	})
}

// A caller that has left is not served, so its step is not copied. Nor is a step that failed, nor
// one for another Copier.
func TestStepsThatAreNotCopied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, other := &copier{}, &copier{}
		s := faked(t, &fake{wait: slow}, Options{})
		each(8, func(i int, key string) {
			ctx, by := t.Context(), failover.Copier(c)
			switch key {
			case "d":
				// It leaves while the call is on its way.
				with, cancel := context.WithTimeout(ctx, latency+latency/2)
				defer cancel()
				ctx = with
			case "f":
				by = other
			case "g":
				by = nil
			}
			copied, _, err := takeCopied(ctx, s, key, by)
			if (err != nil) != (key == "d") || copied != (key == "c" || key == "h") {
				t.Errorf("%s: copied %t, %v", key, copied, err)
			}
		})
		if got := fmt.Sprint(c.seen(), other.seen()); got != "[ceh] []" {
			t.Errorf("copied %s", got)
		}
		idle(t, s)
	})
}

// A Copier that panics, such as over a fallback of the program, takes no answer away.
func TestCopierThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &copier{panics: true}
		s := faked(t, &fake{wait: slow}, Options{})
		each(5, func(_ int, key string) {
			if _, d, err := takeCopied(t.Context(), s, key, c); err != nil || !d.Allowed {
				t.Errorf("%s: %+v, %v", key, d, err)
			}
		})
		idle(t, s)
	})
}

func TestFailedStepIsNotCopied(t *testing.T) {
	c := &copier{}
	var b batch
	for _, key := range []string{"a", "b", "c"} {
		w := newWaiter().(*waiter)
		w.copyOps([]core.Op{{Rule: "r", Key: key, Cost: 1}})
		w.copier = c
		b.add(w)
	}
	b.waiters[1].err = errors.New("unreadable")

	b.copyDecided()
	got := fmt.Sprint(c.seen(), b.waiters[0].copied, b.waiters[1].copied, b.waiters[2].copied)
	if got != "[ac] true false true" {
		t.Errorf("copied %s", got)
	}
}

// counts is a Copier without memory.
type counts struct{ steps int }

func (c *counts) Copy(steps []failover.Decided) { c.steps += len(steps) }

// A waiter and a batch that were used before need no memory, whatever the keys are.
func TestWaitingAllocatesNothing(t *testing.T) {
	ops := []core.Op{{Rule: "r", Key: "a longer key than the others have", Lease: "lease", Cost: 1},
		{Rule: "q", Key: "k", Cost: 1}}
	w, c, b := newWaiter().(*waiter), &counts{}, new(batch)
	if n := testing.AllocsPerRun(100, func() {
		w.copyOps(ops)
		w.copier = c
		b.add(w)
		b.copyDecided()
		b.clear()
	}); n != 0 || c.steps != 101 {
		t.Errorf("%v allocations, %d steps", n, c.steps)
	}
}
