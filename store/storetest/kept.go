package storetest

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
)

// Kept sends random histories of takes, debits, refunds, peeks and changes of the limit
// through the store, and checks a bound: in any span t that ends with a Take, the units
// that are charged and not refunded are at most the largest burst and the largest rate
// times t, and under TokenBucket one refill more. In a span that ends with a Debit they are
// at most the largest debt more. The histories follow from the seed. Refunds are of Takes
// and Debits since the limit changed last, whole or in parts and in any order. The clock
// steps back now and then, after which the sum begins anew. Under go test -short a tenth of
// the histories are sent.
func Kept(t *testing.T, histories int, seed uint64, f Factory) {
	t.Helper()
	if testing.Short() {
		histories /= 10
	}
	for _, a := range []core.Algorithm{core.GCRA, core.TokenBucket} {
		t.Run(a.String(), func(t *testing.T) {
			clock := NewClock()
			s := f(t, clock)

			for n := 0; n < histories; n += together {
				var all []*kept
				for i := range min(together, histories-n) {
					all = append(all, newKept(s, clock, a, seed, uint64(n+i)))
				}
				playKept(t, all, clock, rand.New(rand.NewPCG(seed, uint64(n))))
			}
		})
	}
}

// together is how many histories of [Kept] are played side by side. They share the clock,
// so that a store across a network may decide their steps in one call.
const together = 40

// playKept plays the histories.
func playKept(t *testing.T, all []*kept, clock *Clock, r *rand.Rand) {
	t.Helper()
	clock.Set(Epoch + r.Int64N(1e9))
	for range 10 + r.IntN(50) {
		back := moveKept(clock, r, pick(r, all).named)

		// All take their step at the same instant.
		var steps sync.WaitGroup
		for _, k := range all {
			steps.Go(func() { k.step(back) })
		}
		steps.Wait()

		for _, k := range all {
			if k.fault != "" {
				t.Fatalf("%s: %s\n%s", k.op.Key, k.fault, k.steps())
			}
		}
	}
}

// moveKept sets the clock, now and then to one of the named instants or one beside it, and
// reports whether it stepped back.
func moveKept(clock *Clock, r *rand.Rand, named []int64) (back bool) {
	now := clock.Now()
	switch n := r.IntN(20); {
	case n < 8:
	case n < 12 && len(named) > 0:
		clock.Set(max(now, pick(r, named)+r.Int64N(3)-1))
	case n < 18:
		clock.Set(now + r.Int64N(pick(r, []int64{3, 1e4, 1e6, 3e6})))
	case n == 19 && r.IntN(4) == 0:
		clock.Set(now - 1 - r.Int64N(pick(r, []int64{1, 1e6, 1e8})))
	}
	return clock.Now() < now
}

// kept is one history on one key.
type kept struct {
	r      *rand.Rand
	store  core.Store
	clock  *Clock
	op     core.Op
	limits []core.Limit
	taken  []keptTake // Takes and Debits
	first  int        // index in taken of the first since the clock stepped back
	named  []int64    // instants at which decisions said that something changes
	done   []keptTake // all operations

	changed int // index in taken of the first since the limit changed

	fault string // what is wrong, or ""
}

// keptTake is an operation and its decision. Of its units, n are not refunded.
type keptTake struct {
	op core.Op
	d  core.Decision
	n  int64
}

func newKept(s core.Store, clock *Clock, a core.Algorithm, seed, n uint64) *kept {
	k := &kept{r: rand.New(rand.NewPCG(seed, n)), store: s, clock: clock}
	k.op = core.Op{Rule: "kept", Key: fmt.Sprint(a, seed, "-", n)}

	// Limits that share the first one's period differ in quota, burst and debt alone.
	periods := []time.Duration{time.Millisecond, 7 * time.Millisecond, time.Second, 10 * time.Second}
	for len(k.limits) < 1+int(n%3) {
		l := core.Limit{Algorithm: a, Quota: 1 + k.r.Int64N(12), Period: pick(k.r, periods),
			Burst: k.r.Int64N(15), Debt: k.r.Int64N(8)}
		if len(k.limits) == 0 || k.r.IntN(2) == 0 {
			l.Period = time.Second
		}
		k.limits = append(k.limits, l)
	}

	k.op.Limit = k.limits[0]
	return k
}

// step does the next of the history, after the clock stepped back or not.
func (k *kept) step(back bool) {
	if back {
		k.first = len(k.taken)
	}

	k.op.Limit = pick(k.r, k.limits)
	op := k.op
	switch n := k.r.IntN(9); {
	case n < 3:
		k.refund()
		return
	case n == 3:
		op.Verb = core.Peek
	case n == 4:
		op.Verb = core.Debit
	}

	op.Cost = 1 + k.r.Int64N(pick(k.r, []int64{1, 3, op.Limit.Capacity()}))
	op.UpTo = op.Verb == core.Take && k.r.IntN(8) == 0
	d := k.do(op)
	if d.Taken == 0 {
		return
	}

	// Only units that were charged may exceed the bound.
	if n := len(k.taken); n > 0 && k.taken[n-1].op.Limit != op.Limit {
		k.changed = n
	}
	k.taken = append(k.taken, keptTake{op, d, d.Taken})
	k.fault = cmp.Or(k.fault, k.excess())
}

func (k *kept) do(op core.Op) core.Decision {
	out := make([]core.Decision, 1)
	if err := k.store.Apply(context.Background(), []core.Op{op}, out); err != nil {
		k.fault = err.Error()
	}

	// The latest instants at which something changes are where the clock goes next.
	d := out[0]
	for _, span := range []time.Duration{d.RetryAfter, d.ResetAfter} {
		if span > 0 && span != core.Never {
			k.named = append(k.named, d.At+span.Microseconds())
		}
	}
	k.named = k.named[max(0, len(k.named)-8):]
	k.done = append(k.done, keptTake{op: op, d: d})
	return d
}

// steps returns what the history has done, to be read after a failure.
func (k *kept) steps() string {
	var b strings.Builder
	for _, t := range k.done {
		fmt.Fprintf(&b, "at %dus %s %s cost=%d upto=%v at=%dus reset=%s -> %s\n", t.d.At-Epoch,
			t.op.Verb, t.op.Limit, t.op.Cost, t.op.UpTo, t.op.At-Epoch, t.op.ResetAfter, decisionText(t.d))
	}
	return b.String()
}

// refund gives back some of the units of a recent Take or Debit, under any of the limits.
func (k *kept) refund() {
	recent := k.taken[max(k.first, k.changed):]
	recent = recent[max(0, len(recent)-6):]
	if len(recent) == 0 {
		return
	}

	// A part of the units leaves the others to a later refund.
	t := &recent[k.r.IntN(len(recent))]
	op := t.op.Refund(t.d)
	op.Limit, op.Cost = k.op.Limit, t.n
	if t.n > 1 && k.r.IntN(3) == 0 {
		op.Cost = 1 + k.r.Int64N(t.n)
	}
	if op.Cost > 0 {
		t.n -= op.Cost
		k.do(op)
	}
}

// excess describes a span that ends now in which too many units were kept, or returns "".
func (k *kept) excess() string {
	var sum int64
	end, debt := k.clock.Now(), k.debt()
	for i := len(k.taken) - 1; i >= k.first; i-- {
		t := &k.taken[i]
		sum += t.n
		if bound := k.bound(end-t.d.At) + debt; sum > bound {
			return fmt.Sprintf("%d units are kept in %dµs, more than %d", sum, end-t.d.At, bound)
		}
	}
	return ""
}

// debt returns how many units more than by Takes may be in use after the latest operation.
func (k *kept) debt() (most int64) {
	if k.taken[len(k.taken)-1].op.Verb == core.Debit {
		for i := range k.limits {
			most = max(most, k.limits[i].MaxDebt())
		}
	}
	return most
}

// bound returns the most that may be kept in a span of microseconds.
func (k *kept) bound(span int64) int64 {
	var burst, refill, rate int64
	for _, l := range k.limits {
		period := l.Period.Microseconds()
		burst = max(burst, l.Capacity())
		rate = max(rate, span*l.Quota/period)
		if l.Algorithm == core.TokenBucket {
			refill = max(refill, l.Quota)
		}
	}
	return burst + refill + rate
}
