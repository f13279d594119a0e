package storetest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/core"
)

// takers is how many goroutines ask for one unit each of the quota.
const (
	takers = 100
	quota  = 37
)

// Contention tests that exactly as many concurrent callers are admitted as the
// quota has units.
func Contention(t *testing.T, f Factory) {
	for _, text := range []string{
		"37/1h", "37/1h burst=37", "37/1h fixed-window", "37/1h fixed-window aligned", "37/1h sliding-log",
		"37/1h sliding-window", "37/1h token-bucket", "37 concurrent ttl=1h", "37/month tz=Europe/Berlin start=15",
	} {
		t.Run(text, func(t *testing.T) { contend(t, f, limits(text), 0) })
	}

	// The scarcest of several rules decides, and the others lose no more than it admits.
	t.Run("three rules", func(t *testing.T) {
		contend(t, f, limits("60/1h", "37/1h sliding-log", "50/1h fixed-window"), 0)
	})
	t.Run("a minute, a day and a month", func(t *testing.T) {
		contend(t, f, limits("60/1m sliding-log", "37/day", "50/month tz=America/New_York"), 0)
	})

	t.Run("three rules and a soft one", func(t *testing.T) {
		contend(t, f, limits("60/1h", "37/1h token-bucket", "50 concurrent ttl=1h", "20/1h fixed-window"), 3)
	})
}

func limits(texts ...string) []core.Limit {
	ls := make([]core.Limit, len(texts))
	for i, text := range texts {
		l, err := core.ParseLimit(text)
		if err != nil {
			panic(err)
		}
		ls[i] = l
	}
	return ls
}

// contend runs the takers on all limits at once. The limits from index soft on,
// unless it is 0, are Soft. Afterwards every rule must have lost exactly the
// units that were admitted.
func contend(t *testing.T, f Factory, ls []core.Limit, soft int) {
	clock := NewClock()
	s := f(t, clock)
	var admitted, errs atomic.Int64
	admittedBy := make([]atomic.Int64, len(ls))

	// Under a lease's limit each taker has a lease of its own.
	var wg sync.WaitGroup
	for i := range takers {
		wg.Go(func() {
			ops := contenders(ls, soft, fmt.Sprintf("lease %d", i))
			out := make([]core.Decision, len(ops))
			if err := s.Apply(context.Background(), ops, out); err != nil {
				errs.Add(1)
				return
			}

			// A soft rule refuses no step, and charges those that it allows.
			for j := range out {
				if !out[j].Allowed && !ops[j].Soft {
					return
				}
			}
			admitted.Add(1)
			for j := range out {
				if out[j].Allowed {
					admittedBy[j].Add(1)
				}
			}
		})
	}
	wg.Wait()

	if errs.Load() != 0 || admitted.Load() != quota {
		t.Fatalf("%d of %d admitted and %d errors, not %d and 0", admitted.Load(), takers, errs.Load(), quota)
	}

	for j, op := range contenders(ls, soft, "peeker") {
		op.Verb = core.Peek
		left := op.Limit.Quota - admittedBy[j].Load()
		if d := apply(t, s, op)[0]; d.Remaining != left {
			t.Errorf("%s: %d remain, not %d", op.Limit, d.Remaining, left)
		}
	}
	if soft > 0 && admittedBy[soft].Load() != ls[soft].Quota {
		t.Errorf("the soft rule admitted %d, not %d", admittedBy[soft].Load(), ls[soft].Quota)
	}
}

func contenders(ls []core.Limit, soft int, lease string) []core.Op {
	ops := make([]core.Op, len(ls))
	for j, l := range ls {
		ops[j] = core.Op{Verb: core.Take, Soft: soft > 0 && j >= soft, Rule: fmt.Sprintf("rule%d", j),
			Key: "key", Limit: l, Windows: windowsAt(&l, Epoch), Cost: 1, Lease: lease}
	}
	return ops
}
