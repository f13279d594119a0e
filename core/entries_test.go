package core_test

import (
	"cmp"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/core"
)

// entries are Takes by themselves, each with the limit under which it was taken. It is the
// reference of the logs and segments, which keep them together.
type entries []entry

type entry struct {
	at, n int64
	limit core.Limit
}

// end returns the instant from which the entry no longer counts.
func (e *entry) end() int64 {
	if e.limit.Algorithm == core.SlidingLog {
		return e.at + e.limit.Period.Microseconds()
	}
	return (e.at/e.width()+1)*e.width() + e.limit.Period.Microseconds()
}

// width is the microseconds of a segment.
func (e *entry) width() int64 {
	return e.limit.Period.Microseconds() / cmp.Or(int64(e.limit.Segments), core.DefaultSegments)
}

// used returns the units that count at the instant: those of a log, and those of each
// segment by its overlap, rounded up.
func (list entries) used(now int64) (n int64) {
	type segment struct{ end, width, period int64 }
	segments := map[segment]int64{}
	for i := range list {
		switch e := &list[i]; {
		case e.end() <= now:
		case e.limit.Algorithm == core.SlidingLog:
			n += e.n
		default:
			segments[segment{e.end(), e.width(), e.limit.Period.Microseconds()}] += e.n
		}
	}
	for s, units := range segments {
		overlap := min(s.width, s.end-now)
		n += (units*overlap + s.width - 1) / s.width
	}
	return n
}

// reset returns the span until nothing counts any longer.
func (list entries) reset(now int64) (span int64) {
	for i := range list {
		if list[i].n > 0 {
			span = max(span, list[i].end()-now)
		}
	}
	return span
}

// A unit counts until it would have ended under the limit under which it was taken, whatever
// the limits of later operations are, and a decision says exactly when a cost fits.
func TestUnitsEndUnderTheLimitOfTheirTake(t *testing.T) {
	families := [][]core.Limit{
		limits(t, "6/3s sliding-log", "6/50s sliding-log", "3/7s sliding-log", "6/1ms sliding-log"),
		limits(t, "6/4s sliding-window segments=4", "9/4s sliding-window segments=2", "6/40s sliding-window", "7/3s sliding-window segments=3",
			"6/4s sliding-window segments=4 debt=9"),
	}
	rapid.Check(t, func(t *rapid.T) {
		family := rapid.SampledFrom(families).Draw(t, "family")
		var taken entries
		state, now := &core.State{}, int64(1_700_000_000_000_000)
		for range rapid.IntRange(1, 40).Draw(t, "operations") {
			now += rapid.SampledFrom([]int64{0, 1, 250_000, 999_999, 1_000_000, 2_500_000, 11_000_000}).Draw(t, "span")
			l := rapid.SampledFrom(family).Draw(t, "limit")
			op := core.Op{Verb: rapid.SampledFrom([]core.Verb{core.Take, core.Take, core.Take, core.Peek, core.Refund}).Draw(t, "verb"), Limit: l, Cost: rapid.Int64Range(1, 3).Draw(t, "cost")}
			i := -1
			if op.Verb == core.Refund {
				if len(taken) == 0 {
					continue
				}
				i = rapid.IntRange(0, len(taken)-1).Draw(t, "take")
				op.Limit, op.At, op.Cost = taken[i].limit, taken[i].at, taken[i].n
			}
			before := clone(state)
			d := decide(state, now, op)
			if op.Verb == core.Refund {
				taken[i].n = 0
			}
			used := taken.used(now)
			fits := used+op.Cost <= op.Limit.Quota
			switch {
			case op.Verb == core.Refund:
			case d.Allowed != fits:
				t.Fatalf("%d used, %+v of %v: %+v", used, op, op.Limit, d)
			case op.Verb == core.Take && fits:
				taken = append(taken, entry{now, op.Cost, op.Limit})
				used = taken.used(now)
			case !fits:
				at := now + d.RetryAfter.Microseconds()
				if taken.used(at)+op.Cost > op.Limit.Quota || taken.used(at-1)+op.Cost <= op.Limit.Quota {
					t.Fatalf("%+v of %v: %+v, but %d are used then, and %d before", op, op.Limit, d, taken.used(at), taken.used(at-1))
				}
			}
			if want := max(0, op.Limit.Quota-used); d.Remaining != want || d.ResetAfter != time.Duration(taken.reset(now))*time.Microsecond {
				t.Fatalf("%+v of %v: %+v, want %d remaining, reset %d", op, op.Limit, d, want, taken.reset(now))
			}
			if op.Verb == core.Peek || !d.Allowed {
				if state.Changed {
					t.Fatalf("%+v changed %+v", op, before)
				}
				state = before // as a store leaves it
			}
			state.Changed = false
		}
	})
}

// limits parses limits.
func limits(t testing.TB, texts ...string) (list []core.Limit) {
	t.Helper()
	for _, text := range texts {
		list = append(list, mustParse(t, text))
	}
	return list
}
