package storetest

import (
	"fmt"
	"sort"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/core"
)

// A world is one key under one limit, used by one property.
type world struct {
	t     *rapid.T
	store core.Store
	clock *Clock
	limit core.Limit
	ban   *core.Ban
	key   string
	named []int64 // instants that decisions have named
	lease int
}

// every runs a property on many random limits of the algorithms, or of all
// algorithms if none is named, each on a key of its own.
func every(t *testing.T, f Factory, property func(w *world), of ...core.Algorithm) {
	t.Helper()
	if len(of) == 0 {
		of = append(windowed(), core.Concurrency)
	}

	// Each run has a key of its own, so that none sees the units of another.
	for _, a := range of {
		t.Run(a.String(), func(t *testing.T) {
			clock := NewClock()
			s := f(t, clock)
			runs := 0

			rapid.Check(t, func(rt *rapid.T) {
				runs++
				if a == core.CalendarWindow {
					clock.Set(drawTurn(rt))
				} else {
					clock.Set(Epoch + rapid.Int64Range(0, 48*3600*1e6).Draw(rt, "start"))
				}
				property(&world{t: rt, store: s, clock: clock, limit: drawLimit(rt, a),
					key: fmt.Sprint("k", runs)})
			})
		})
	}
}

// windowed returns all algorithms but that of leases.
func windowed() []core.Algorithm {
	return []core.Algorithm{core.GCRA, core.FixedWindow, core.SlidingLog, core.SlidingWindow, core.TokenBucket,
		core.CalendarWindow}
}

// drawLimit draws a valid limit of the algorithm, in some cases one of the
// families.
func drawLimit(t *rapid.T, a core.Algorithm) core.Limit {
	var known []core.Limit
	for _, family := range families() {
		if family[0].Algorithm == a {
			known = append(known, family...)
		}
	}
	if rapid.IntRange(0, 2).Draw(t, "known") == 0 {
		return rapid.SampledFrom(known).Draw(t, "limit")
	}
	if a == core.CalendarWindow {
		return drawCalendar(t)
	}

	// Few periods, so that a limit often changes to one of the same period.
	made := rapid.Custom(func(t *rapid.T) core.Limit {
		periods := []time.Duration{time.Millisecond, 7 * time.Millisecond, time.Second, 7 * time.Second,
			time.Minute, time.Hour, 24 * time.Hour}
		l := core.Limit{Algorithm: a, Quota: rapid.Int64Range(1, 20).Draw(t, "quota"),
			Period: rapid.SampledFrom(periods).Draw(t, "period")}

		switch a {
		case core.GCRA, core.TokenBucket:
			l.Burst = rapid.Int64Range(0, 30).Draw(t, "burst")
		case core.SlidingWindow:
			l.Segments = rapid.SampledFrom([]int{0, 1, 2, 4, 5, 20}).Draw(t, "segments")
		case core.FixedWindow:
			l.Aligned = rapid.Bool().Draw(t, "aligned")
		}

		if l.MaxDebt() > 0 {
			l.Debt = rapid.Int64Range(0, 30).Draw(t, "debt")
		}
		return l
	})
	return made.Filter(func(l core.Limit) bool { return l.Validate() == nil }).Draw(t, "limit")
}

// op returns an op on the key, with a new lease.
func (w *world) op(verb core.Verb, cost int64) core.Op {
	w.lease++
	return core.Op{Verb: verb, Rule: "rule", Key: w.key, Limit: w.limit, Ban: w.ban, Cost: cost,
		Lease: fmt.Sprint(w.key, "-", w.lease)}
}

// apply carries out ops, with the windows of their calendars.
func (w *world) apply(ops ...core.Op) []core.Decision {
	for i := range ops {
		ops[i].Windows = windowsAt(&ops[i].Limit, w.clock.Now())
	}
	return apply(w.t, w.store, ops...)
}

// do carries out one op.
func (w *world) do(op core.Op) core.Decision {
	d := w.apply(op)[0]
	for _, span := range []time.Duration{d.RetryAfter, d.ResetAfter, d.Wait} {
		if span > 0 && span != core.Never {
			w.named = append(w.named, w.clock.Now()+span.Microseconds())
		}
	}
	return d
}

func (w *world) take(cost int64) core.Decision { return w.do(w.op(core.Take, cost)) }

func (w *world) peek(cost int64) core.Decision { return w.do(w.op(core.Peek, cost)) }

// move lets time pass: none, a microsecond, until an instant that was named or
// just before or after it, or up to two periods.
func (w *world) move() {
	now, kind := w.clock.Now(), rapid.IntRange(0, 5).Draw(w.t, "move")
	switch {
	case kind == 0:
		w.clock.Set(now + 1)
	case kind <= 2 && len(w.named) > 0:
		recent := w.named[max(0, len(w.named)-6):]
		to := rapid.SampledFrom(recent).Draw(w.t, "named") + rapid.Int64Range(-1, 1).Draw(w.t, "off")
		w.clock.Set(max(now, to))
	case kind == 3:
		w.clock.Set(now + rapid.Int64Range(0, 2*periodOf(&w.limit).Microseconds()).Draw(w.t, "later"))
	}
}

// cost draws 1 and the capacity often, and never more than the capacity.
func (w *world) cost() int64 {
	capacity := w.limit.Capacity()
	if rapid.IntRange(0, 4).Draw(w.t, "unit") > 0 {
		return rapid.Int64Range(1, min(3, capacity)).Draw(w.t, "cost")
	}
	return rapid.SampledFrom([]int64{capacity, max(1, capacity/2), max(1, capacity-1)}).Draw(w.t, "share")
}

// An admission is the units of a granted take and the instant from which they
// may be used.
type admission struct{ at, n int64 }

// arrive sends up to n takes, and a debit now and then, and returns the admitted takes in
// the order of their use.
func (w *world) arrive(n int) (admitted []admission) {
	for range rapid.IntRange(0, n).Draw(w.t, "arrivals") {
		w.move()
		if w.limit.MaxDebt() > 0 && rapid.IntRange(0, 9).Draw(w.t, "debit") == 0 {
			w.do(w.op(core.Debit, 3*w.cost()))
		}

		op := w.op(core.Take, w.cost())
		if rapid.IntRange(0, 3).Draw(w.t, "waits") == 0 {
			wait := rapid.Int64Range(0, periodOf(&w.limit).Microseconds()).Draw(w.t, "wait")
			op.MaxWait = min(core.MaxBooking, time.Duration(wait)*time.Microsecond)
		}
		if d := w.do(op); d.Allowed {
			admitted = append(admitted, admission{d.At + d.Wait.Microseconds(), op.Cost})
		}
	}

	// A take that waits is used after those which came later and did not.
	sort.SliceStable(admitted, func(i, j int) bool { return admitted[i].at < admitted[j].at })
	return admitted
}

// refill bounds how long a key that is not booked takes to become fresh, after
// any history.
func refill(l core.Limit) time.Duration {
	switch l.Algorithm {
	case core.TokenBucket:
		return time.Duration((l.Capacity()+l.Quota-1)/l.Quota) * l.Period
	case core.GCRA:
		period, quota, _ := l.ScriptArgs()
		whole := l.Capacity() / quota * period
		part := l.Capacity() % quota // in two steps, as the product may not fit
		return time.Duration(whole+ceilMulDiv(part, period, quota)) * time.Microsecond
	case core.SlidingWindow:
		return l.Period + width(l)
	}

	_, longest := spansOf(&l)
	return longest
}

// width returns the length of a segment.
func width(l core.Limit) time.Duration {
	return l.Period / time.Duration(l.SegmentCount())
}
