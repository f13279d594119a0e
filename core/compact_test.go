package core_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/core"
)

// start is 2025-01-01 00:00:00 UTC.
const start = int64(1_735_689_600_000_000)

// compactLimit draws a limit under which a key is two numbers, and the microseconds in which a
// round or a window of it passes.
func compactLimit(t *rapid.T) (l core.Limit, round int64) {
	burst := rapid.SampledFrom([]int64{0, 1, 2, 5, 300}).Draw(t, "burst")

	switch rapid.IntRange(0, 3).Draw(t, "form") {
	case 0: // a unit comes back every whole number of microseconds
		every := rapid.SampledFrom([]int64{1, 2, 7, 1000, 999_983, 86_400_000_000}).Draw(t, "every")
		quota := rapid.Int64Range((1000+every-1)/every, (1000+every-1)/every+9).Draw(t, "quota")
		return core.Limit{Quota: quota, Period: micros(quota * every), Burst: burst}, every
	case 1: // or several units in a number of microseconds that they do not divide
		quota := rapid.SampledFrom([]int64{3, 7, 9, 30, 999, 1003}).Draw(t, "quota")
		period := rapid.SampledFrom([]int64{1000, 1001, 1_000_000, 60_000_001}).Draw(t, "period")
		return core.Limit{Quota: quota, Period: micros(period), Burst: burst}, period / quota
	case 2:
		l = core.Limit{Algorithm: core.TokenBucket, Burst: burst}
	case 3:
		l = core.Limit{Algorithm: core.FixedWindow, Aligned: rapid.Bool().Draw(t, "aligned")}
	}

	round = rapid.SampledFrom([]int64{1000, 1001, 1_000_000, 86_400_000_000}).Draw(t, "period")
	l.Quota, l.Period = rapid.SampledFrom([]int64{1, 2, 3, 10, 301}).Draw(t, "quota"), micros(round)
	return l, round
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// moves draws the time until the next step, which often lands on or beside an
// instant at which units come back.
func moves(t *rapid.T, round int64) int64 {
	return rapid.SampledFrom([]int64{0, 1, -1, 3 * round, -3 * round, 400 * round}).Draw(t, "move") +
		rapid.SampledFrom([]int64{0, round, round - 1, round + 1}).Draw(t, "more")
}

func TestCompactTakeDecidesAsDecide(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Compact is the short way of the memory store's hot path; what it cannot decide it leaves
		// to Decide.
		l, round := compactLimit(t)
		if err := l.Validate(); err != nil {
			t.Fatal(err)
		}
		if c := l.Compact(); !c.Valid() {
			t.Fatalf("%v is left to Decide", l)
		}

		st, now := core.State{Limit: l}, start
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			now += moves(t, round)
			cost := rapid.SampledFrom([]int64{1, 1, 1, 2, 3, 299, 301, 1 << 62}).Draw(t, "cost")
			books := rapid.IntRange(0, 9).Draw(t, "book") == 0 && l.Books()
			takeBothWays(t, &st, core.Op{Key: "key", Limit: l, Cost: cost}, now, books)
		}
	})
}

// takeBothWays compares what Compact and Decide make of a Take, which may book its units. Compact
// returns the state and does not write it: Decide's is the one that goes on.
func takeBothWays(t *rapid.T, st *core.State, op core.Op, now int64, books bool) {
	t.Helper()
	l, before := &op.Limit, *st
	c := l.Compact()

	// Fields of an earlier decision have to be overwritten: callers reuse the slice.
	got := core.Decision{Allowed: true, Origin: 7, Wait: 7, RetryAfter: 7, At: 7}
	used, mark, good := c.Take(st.Used, st.Mark, now, op.Cost, &got)

	// A Take that may wait is not for the short way, so its answer is not looked at. Every other
	// one within the capacity has to be decided by it, or the path would be fast and unused.
	if books {
		op.MaxWait, good = time.Hour, false
	} else if !good && now >= c.Began(st.Used, st.Mark) && inUse(t, st, l, now) <= l.Capacity() {
		t.Fatalf("%+v at %d is left to Decide", st, now)
	}

	want := make([]core.Decision, 1)
	st.Changed = false
	core.Decide([]core.Op{op}, []*core.State{st}, now, want)

	if !good {
		return
	}
	if got != want[0] || got.Allowed != st.Changed {
		t.Fatalf("%v: %d units of %+v at %d, changed %v\n got %+v\nwant %+v",
			l, op.Cost, before, now, st.Changed, got, want[0])
	}
	if got.Allowed {
		keepsAsDecided(t, &c, st, used, mark, now)

		// A Take that did not happen, because its step was refused, leaves what a Peek saw before.
		c.Untake(used, mark, op.Cost, &got)
		p := peek(&before, l, now)
		if got.Remaining != p.Remaining || got.ResetAfter != p.ResetAfter || got.Taken != 0 {
			t.Fatalf("%v: undone %+v, peeked %+v of %+v at %d", l, got, p, before, now)
		}
	}
}

// keepsAsDecided checks the used and mark of an allowed Take, of which Decide has made st.
func keepsAsDecided(t *rapid.T, c *core.Compact, st *core.State, used, mark, now int64) {
	t.Helper()
	if used != st.Used || mark != st.Mark || st.Over != 0 {
		t.Fatalf("%d used since %d, want %+v", used, mark, st)
	}
	if used > c.MaxUsed() || c.Began(used, mark) > now {
		t.Fatalf("%d used of at most %d, begun at %d, now %d", used, c.MaxUsed(), c.Began(used, mark), now)
	}
}

// peek returns what a Peek sees of a copy of the state.
func peek(st *core.State, l *core.Limit, now int64) core.Decision {
	looked, d := *st, make([]core.Decision, 1)
	core.Decide([]core.Op{{Verb: core.Peek, Limit: *l}}, []*core.State{&looked}, now, d)
	return d[0]
}

// inUse returns how many units are in use, more than the capacity among them: a Peek under a limit
// with a larger burst sees them all.
func inUse(t *rapid.T, st *core.State, l *core.Limit, now int64) int64 {
	t.Helper()
	wide, looked := *l, *st
	if l.Algorithm == core.FixedWindow {
		return st.Used
	}
	wide.Burst = 100_000
	looked.Limit.Burst = wide.Burst
	return wide.Burst - peek(&looked, &wide, now).Remaining
}

func TestCompactFreshIsWhenDecideSaysSo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Up to five units are owed beyond the capacity, a state that is left to Decide.
		l, round := compactLimit(t)
		c, now := l.Compact(), start
		st := core.State{Limit: l, Mark: start, Used: rapid.Int64Range(1, l.Capacity()+5).Draw(t, "used")}
		now += moves(t, round)

		// The instant may lie before Mark, after a clock that stepped back.
		got, good := c.Fresh(st.Used, st.Mark, now)
		over := inUse(t, &st, &l, now) > l.Capacity() && (l.Algorithm != core.FixedWindow || now < st.Mark)
		if due := now >= c.Began(st.Used, start) && !over; good != due {
			t.Fatalf("%v: %+v at %d: decided %v, want %v", l, st, now, good, due)
		}

		// A Peek of the same state says when nothing of it is used any more.
		op, d := core.Op{Verb: core.Peek, Limit: l}, make([]core.Decision, 1)
		core.Decide([]core.Op{op}, []*core.State{&st}, now, d)
		if want := d[0].At + d[0].ResetAfter.Microseconds(); good && got != want {
			t.Fatalf("%v of %+v is fresh at %d, want %d", l, st, got, want)
		}
	})
}

func TestCompactIsOfKeysOfTwoNumbersAndAList(t *testing.T) {
	listed := map[string]bool{"5/1s sliding-window": true, "5/1s sliding-log": true, "5 concurrent ttl=1m": true,
		"5/month": true}
	for text, want := range map[string]bool{
		"10/1s":             true,
		"1/1h burst=3":      true,
		"3/7s":              true,
		"2000000/1s":        true,
		"5/1s fixed-window": true, "5/1s fixed-window aligned": true,
		"5/1s token-bucket burst=3": true,

		// A product of the burst and the odd period is above 2^63.
		"1000003/9599h": false,

		"5/1s sliding-window": true, "5/1s sliding-log": true, "5 concurrent ttl=1m": true, "5/month": true,
	} {
		l := mustParse(t, text)
		c := l.Compact()
		if c.Valid() != want {
			t.Errorf("%s: %v, want %v", text, c.Valid(), want)
		}
		if want && !l.Algorithm.MayBeCompact() {
			t.Errorf("%s: its algorithm has no compact limits", text)
		}
		if c.Listed() != listed[text] || l.Algorithm.Listed() != listed[text] {
			t.Errorf("%s: a list %v, of its algorithm %v, want %v",
				text, c.Listed(), l.Algorithm.Listed(), listed[text])
		}
	}
}
