package core_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/core"
)

// listedKey is a key as a store keeps it: two numbers and a list.
type listedKey struct {
	limit      core.Limit // under which the list was written
	used, mark int64
	list       []byte
}

// open returns the state of the key.
func (k *listedKey) open() *core.State {
	c := k.limit.Compact()
	st := &core.State{Limit: k.limit}
	if k.list != nil {
		c.Unpack(k.used, k.mark, k.list, st)
	}
	return st
}

// isOf checks that the key holds what the state holds.
func (k *listedKey) isOf(t *rapid.T, want *core.State) {
	t.Helper()
	got := k.open()
	if !slices.Equal(got.Log, want.Log[want.Head:]) || got.Limit != want.Limit ||
		got.Used != want.Used || got.Mark != want.Mark || got.Slot != want.Slot {
		t.Fatalf("holds %+v, want %+v", got, want)
	}
}

// keep keeps a state, in a larger list if it needs one.
func (k *listedKey) keep(t *rapid.T, st *core.State) {
	t.Helper()
	k.limit = st.Limit
	c, ok := k.limit.Compact(), false
	if k.used, k.mark, ok = c.Pack(st, k.list); !ok {
		k.list = make([]byte, c.ListSize(st))
		if k.used, k.mark, ok = c.Pack(st, k.list); !ok {
			t.Fatalf("%d bytes have no room for %+v", len(k.list), st)
		}
	}
	k.isOf(t, st)
}

// listedLimits draws two limits of one algorithm, under which a key changes from one to the other.
func listedLimits(t *rapid.T) (both [2]core.Limit) {
	all := []core.Algorithm{core.SlidingLog, core.SlidingWindow, core.CalendarWindow}
	algorithm := rapid.SampledFrom(all).Draw(t, "algorithm")
	for i := range both {
		if algorithm == core.CalendarWindow {
			both[i] = core.Limit{Algorithm: algorithm}
			both[i].Calendar = rapid.SampledFrom([]string{"day", "day tz=Europe/Berlin", "week"}).Draw(t, "calendar")
			both[i].Quota = rapid.SampledFrom([]int64{1, 2, 10, 300, 1 << 51}).Draw(t, "quota")
			continue
		}
		l := core.Limit{Algorithm: algorithm, Period: micros(rapid.SampledFrom([]int64{2520, 5040}).Draw(t, "period"))}
		l.Quota = rapid.SampledFrom([]int64{1, 2, 10, 300, 1000}).Draw(t, "quota")
		if algorithm == core.SlidingWindow {
			l.Segments = rapid.SampledFrom([]int{0, 1, 2, 7, 60, 360}).Draw(t, "segments")

			// The largest is as many units as Decide counts of one segment.
			most := (1<<53 - 1) / (l.Period.Microseconds() / int64(l.SegmentCount()))
			l.Quota = rapid.SampledFrom([]int64{l.Quota, 70_000, 1 << 33, most}).Draw(t, "large quota")
			l.Debt = min(rapid.SampledFrom([]int64{0, l.Quota}).Draw(t, "debt"), most-l.Quota)
		}
		both[i] = l
	}
	return both
}

// roundOf returns the microseconds after which something of a key may change.
func roundOf(l *core.Limit) int64 {
	if l.NeedsWindows() {
		return (8 * time.Hour).Microseconds()
	}
	return l.Period.Microseconds() / 7
}

// listedOp draws an operation, most of which are Takes that TakeListed decides.
func listedOp(t *rapid.T, l *core.Limit, taken []core.Op) core.Op {
	costs := []int64{1, 1, 1, 2, 3, 254, l.Quota / 3, l.Quota/2 + 1, l.Quota, l.Quota + 1, 1 << 62}
	op := core.Op{Limit: *l, Cost: max(1, rapid.SampledFrom(costs).Draw(t, "cost"))}

	switch rapid.IntRange(0, 15).Draw(t, "verb") {
	case 0:
		op.Verb = core.Peek
	case 1:
		op.Verb = core.Reset
	case 2:
		op.Verb = core.Refund
	case 3:
		if op.Verb = core.Peek; l.Algorithm != core.SlidingLog {
			op.Verb = core.Debit
		}
	case 4:
		op.UpTo = true
	case 5:
		if len(taken) > 0 {
			op = rapid.SampledFrom(taken).Draw(t, "taken")
			op.Limit = *l
		}
	}
	return op
}

func TestListedTakeDecidesAsDecide(t *testing.T) {
	quick, peeked := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		limits, now := listedLimits(t), start
		k := listedKey{limit: limits[0]}
		want := core.State{Limit: limits[0]} // by Decide alone
		var taken []core.Op

		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			l := &limits[0]
			if rapid.IntRange(0, 19).Draw(t, "other limit") == 0 {
				l = &limits[1]
			}
			now += moves(t, roundOf(l))
			op := listedOp(t, l, taken)
			op.Windows = l.Windows(now)

			before := want
			d := make([]core.Decision, 1)
			want.Changed = false
			core.Decide([]core.Op{op}, []*core.State{&want}, now, d)
			if !want.Changed {
				want = before
			}

			peeked += k.peeks(t, &op, &want, now, d[0])
			plain := op.Verb == core.Take && !op.UpTo && k.limit == *l && want.None()
			if plain && k.takes(t, &op, now, d[0]) {
				quick++
			} else if want.Changed {
				k.keep(t, &want)
			}

			k.holds(t, &want, now)
			if op.Verb == core.Take && d[0].Allowed && len(taken) < 20 {
				taken = append(taken, op.Refund(d[0]))
			}
		}
	})

	// A few histories, as with -short, may have no such Peek.
	if min(quick/100, peeked) == 0 && !testing.Short() {
		t.Errorf("%d Takes and %d Peeks were decided without Decide", quick, peeked)
	}
}

// peeks compares PeekListed with the decision of Decide, for the units of the op and for none. It
// returns 1 if that decided, and 0 if it did not or the op is no such Peek.
func (k *listedKey) peeks(t *rapid.T, op *core.Op, st *core.State, now int64, want core.Decision) int {
	t.Helper()
	if op.Verb != core.Peek || k.limit != op.Limit || st.Changed || !st.None() {
		return 0
	}
	c, before := k.limit.Compact(), slices.Clone(k.list)
	got := core.Decision{Allowed: true, Origin: 7, Wait: 7, RetryAfter: 7, At: 7}
	nothing := got
	ok := c.PeekListed(k.used, k.mark, k.list, now, op.Cost, &got)
	if ok && got != want {
		t.Fatalf("%v: a peek of %d units of %+v at %d\n got %+v\nwant %+v", k.limit, op.Cost, k.open(), now, got, want)
	}
	want.Allowed, want.RetryAfter = true, 0
	if c.PeekListed(k.used, k.mark, k.list, now, 0, &nothing) != ok || ok && nothing != want {
		t.Fatalf("%v: a peek of nothing: %+v, want %+v", k.limit, nothing, want)
	}
	if !slices.Equal(before, k.list) {
		t.Fatalf("%v: a peek has changed the list", k.limit)
	}
	if !ok {
		return 0
	}
	return 1
}

// takes compares TakeListed with the decision of Decide. It reports whether that decided.
func (k *listedKey) takes(t *rapid.T, op *core.Op, now int64, want core.Decision) bool {
	t.Helper()
	c, before := k.limit.Compact(), *k
	before.list = slices.Clone(k.list)

	// Fields of an earlier decision have to be overwritten: callers reuse the slice.
	got := core.Decision{Allowed: true, Origin: 7, Wait: 7, RetryAfter: 7, At: 7}
	tried := got
	good := c.TryListed(k.used, k.mark, k.list, now, op.Cost, &tried)
	if !slices.Equal(k.list, before.list) {
		t.Fatalf("%v: a try of %d units has changed the list", k.limit, op.Cost)
	}
	// Where only room is missing, a longer list has it.
	if !good {
		good = k.triesLonger(t, &before, op, now, &tried)
	}
	ok := c.TakeListed(&k.used, &k.mark, k.list, now, op.Cost, &got)
	if ok && got != want {
		t.Fatalf("%v: %d units of %+v at %d\n got %+v\nwant %+v", k.limit, op.Cost, before.open(), now, got, want)
	}
	if good != ok || ok && tried != got {
		t.Fatalf("%v: tried %+v, %t, and got %+v, %t", k.limit, tried, good, got, ok)
	}

	if ok && got.Allowed {
		before.undone(t, op, now, tried)
	}

	changed := k.used != before.used || k.mark != before.mark || !slices.Equal(k.list, before.list)
	if changed != (ok && got.Allowed) {
		t.Fatalf("%v: decided %t, allowed %t, changed %t", k.limit, ok, got.Allowed, changed)
	}
	return ok
}

// triesLonger tries a Take with a longer list if the key needs one, and makes before the key with
// that list. It reports whether the Take was decided.
func (k *listedKey) triesLonger(t *rapid.T, before *listedKey, op *core.Op, now int64, tried *core.Decision) bool {
	t.Helper()
	if !k.grows(t, now) {
		return false
	}
	before.mark, before.list = k.mark, slices.Clone(k.list)
	c := k.limit.Compact()
	if !c.TryListed(k.used, k.mark, k.list, now, op.Cost, tried) {
		t.Fatalf("%v: a longer list has no room for %+v at %d", k.limit, k.open(), now)
	}
	return true
}

// grows makes the list longer if that is what it needs, with the same state. It reports whether it
// did.
func (k *listedKey) grows(t *rapid.T, now int64) bool {
	t.Helper()
	c, before := k.limit.Compact(), k.open()
	n := c.LongerSize(k.mark, k.list, now)
	if n == 0 {
		return false
	}

	// The same words begin at the first place of the longer list.
	longer := make([]byte, n)
	k.mark, k.list = c.MoveLog(k.mark, k.list, longer), longer
	k.isOf(t, before)
	return true
}

// undone checks that a Take which was tried and did not happen, because its step was refused,
// leaves what a Peek saw before.
func (k *listedKey) undone(t *rapid.T, op *core.Op, now int64, tried core.Decision) {
	t.Helper()
	c := k.limit.Compact()
	c.UntryListed(k.used, k.mark, k.list, op.Cost, &tried)

	p := peek(k.open(), &k.limit, now)
	if tried.Remaining != p.Remaining || tried.ResetAfter != p.ResetAfter || tried.Taken != 0 {
		t.Fatalf("%v: undone %+v, peeked %+v of %+v at %d", k.limit, tried, p, k.open(), now)
	}
}

// holds checks that the key holds exactly what the state holds, and when it is fresh.
func (k *listedKey) holds(t *rapid.T, want *core.State, now int64) {
	t.Helper()
	k.isOf(t, want)
	if k.used == 0 {
		return
	}

	// Before it began, a Peek would pull back what a clock that stepped back left in the future.
	c := k.limit.Compact()
	began, fresh := c.Span(k.mark, k.list)
	at := max(now, began)
	d := peek(k.open(), &k.limit, at)
	if want := at + d.ResetAfter.Microseconds(); max(fresh, at) != want {
		t.Fatalf("%v: %+v is fresh at %d, want %d", k.limit, k.open(), fresh, want)
	}
}

// A list that is full becomes longer wherever its ring begins, and has room for the next Take then.
func TestFullLogBecomesLonger(t *testing.T) {
	const words = 5
	l := mustParse(t, "100/1h sliding-log")
	c := l.Compact()
	for first := range words {
		// Each unit is of an instant of its own, and so has a word.
		now, list, used, mark := start, make([]byte, 8*words), int64(0), int64(0)
		take := func() bool {
			now++
			return c.TakeListed(&used, &mark, list, now, 1, &core.Decision{})
		}

		// The first ones end, so that the ring of the next begins after them.
		for range first {
			take()
		}

		now += time.Hour.Microseconds()
		for range words {
			take()
		}
		if take() {
			t.Fatalf("from word %d: a full list has room", first)
		}

		var before, after core.State
		c.Unpack(used, mark, list, &before)
		n := c.LongerSize(mark, list, now)
		if len(before.Log) != words || n <= 8*words {
			t.Fatalf("%d words, %d bytes for more", len(before.Log), n)
		}

		// What it holds stays as it is, and it does not become longer again before it is full.
		longer := make([]byte, n)
		mark = c.MoveLog(mark, list, longer)
		list = longer

		c.Unpack(used, mark, list, &after)
		if !slices.Equal(before.Log, after.Log) || !take() || c.LongerSize(mark, list, now+1) != 0 {
			t.Errorf("from word %d: %v, want %v", first, after.Log, before.Log)
		}
	}
}
