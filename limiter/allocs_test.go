//go:build !race

package limiter_test

import (
	"testing"

	"github.com/headgate/headgate/core"
)

// Under the race detector a sync.Pool drops some items.

func TestAdmissionAllocatesOnlyHeaderText(t *testing.T) {
	l := newLimiter(t, nothing{}, rule(t, "a", "10/1m"), rule(t, "b", "100/1h"))
	var r core.Request = get()
	got := testing.AllocsPerRun(1000, func() {
		a := l.Admit(r)
		_ = a.Headers()
		a.Done(200)
	})
	if got != 1 {
		t.Errorf("%v allocations, want 1", got)
	}
}

func TestTakeUpToAllocatesNothing(t *testing.T) {
	l := newLimiter(t, newStore(), rule(t, "a", "1000000/1m"), rule(t, "b", "1000000/1h"))
	take := func() {
		if n, err := l.TakeUpTo(t.Context(), "k", 2); err != nil || n != 2 {
			t.Errorf("%d, %v", n, err)
		}
	}
	take()
	if got := testing.AllocsPerRun(1000, take); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

func TestAllowAllocatesNothing(t *testing.T) {
	l := newLimiter(t, nothing{}, rule(t, "a", "10/1m"), rule(t, "b", "100/1h"))
	got := testing.AllocsPerRun(1000, func() {
		if d, err := l.Allow(t.Context(), "k", 1); err != nil || !d.Allowed {
			t.Errorf("%+v, %v", d, err)
		}
	})
	if got != 0 {
		t.Errorf("%v allocations", got)
	}
}
