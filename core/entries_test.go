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
	return e.limit.Period.Microseconds() / cmp.Or(int64(e.limit.Segments), 10)
}

// used returns the units that count at the instant: those of a log, and those of each
// segment by its overlap, rounded up.
func (list entries) used(now int64) (n int64) {
	// Segments that end together and are equally long are one to the state, and are rounded up
	// once, not each.
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

// ledger holds a state to its entries.
type ledger struct {
	*rapid.T
	state *core.State
	taken entries
	now   int64
}

// ask has a Take or a Peek decided.
func (l *ledger) ask(op core.Op) {
	before := clone(l.state)
	d := decide(l.state, l.now, op)

	// The list is the oracle: it holds every unit that was taken, with its own end.
	fits := l.taken.used(l.now)+op.Cost <= op.Limit.Quota
	if d.Allowed != fits {
		l.Fatalf("%d used, %+v of %v: %+v", l.taken.used(l.now), op, op.Limit, d)
	}

	// RetryAfter is exact: the cost fits then, and not a microsecond before.
	if !fits {
		at := l.now + d.RetryAfter.Microseconds()
		then, sooner := l.taken.used(at), l.taken.used(at-1)
		if then+op.Cost > op.Limit.Quota || sooner+op.Cost <= op.Limit.Quota {
			l.Fatalf("%+v of %v: %+v, but %d are used then, and %d before", op, op.Limit, d, then, sooner)
		}
	}

	// A step that took nothing must not be written, nor may it change what a store keeps.
	if op.Verb == core.Take && fits {
		l.taken = append(l.taken, entry{l.now, op.Cost, op.Limit})
	} else if l.state.Changed {
		l.Fatalf("%+v changed %+v", op, before)
	} else {
		defer func() { l.state = before }() // as a store leaves it
	}
	l.gauge(op, d)
}

// refund undoes a Take.
func (l *ledger) refund(e *entry) {
	op := core.Op{Verb: core.Refund, Limit: e.limit, At: e.at, Cost: e.n}
	d := decide(l.state, l.now, op)
	e.n = 0
	l.gauge(op, d)
}

// gauge checks what remains.
func (l *ledger) gauge(op core.Op, d core.Decision) {
	l.state.Changed = false
	remaining, reset := max(0, op.Limit.Quota-l.taken.used(l.now)), l.taken.reset(l.now)
	if d.Remaining != remaining || d.ResetAfter != time.Duration(reset)*time.Microsecond {
		l.Fatalf("%+v of %v: %+v, want %d remaining, reset %d", op, op.Limit, d, remaining, reset)
	}
}

// A unit counts until it would have ended under the limit under which it was taken, whatever
// the limits of later operations are, and a decision says exactly when a cost fits.
func TestUnitsEndUnderTheLimitOfTheirTake(t *testing.T) {
	// Limits of one family share a state; each run changes among their periods, quotas and
	// segments.
	families := [][]core.Limit{
		limits(t, "6/3s sliding-log", "6/50s sliding-log", "3/7s sliding-log", "6/1ms sliding-log"),
		limits(t, "6/4s sliding-window segments=4", "9/4s sliding-window segments=2", "6/40s sliding-window",
			"7/3s sliding-window segments=3", "6/4s sliding-window segments=4 debt=9"),
	}

	verbs := []core.Verb{core.Take, core.Take, core.Take, core.Peek, core.Refund}
	rapid.Check(t, func(t *rapid.T) {
		family := rapid.SampledFrom(families).Draw(t, "family")
		l := &ledger{T: t, state: &core.State{}, now: 1_700_000_000_000_000}
		for range rapid.IntRange(1, 40).Draw(t, "operations") {
			// The spans lie on the borders of segments, beside them, and beyond the longest period.
			spans := []int64{0, 1, 250_000, 999_999, 1_000_000, 2_500_000, 11_000_000}
			l.now += rapid.SampledFrom(spans).Draw(t, "span")
			op := core.Op{
				Verb:  rapid.SampledFrom(verbs).Draw(t, "verb"),
				Limit: rapid.SampledFrom(family).Draw(t, "limit"),
				Cost:  rapid.Int64Range(1, 3).Draw(t, "cost"),
			}

			// A refund gives back any of the units taken, not only the latest.
			switch {
			case op.Verb != core.Refund:
				l.ask(op)
			case len(l.taken) > 0:
				l.refund(&l.taken[rapid.IntRange(0, len(l.taken)-1).Draw(t, "take")])
			}
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
