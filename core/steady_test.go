package core_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/core"
)

// start is 2025-01-01 00:00:00 UTC.
const start = int64(1_735_689_600_000_000)

// wholeLimit draws a limit under which a unit comes back every whole number of
// microseconds.
func wholeLimit(t *rapid.T) core.Limit {
	every := rapid.SampledFrom([]int64{1, 2, 7, 1000, 999_983, 86_400_000_000}).Draw(t, "every")
	quota := rapid.Int64Range((1000+every-1)/every, (1000+every-1)/every+9).Draw(t, "quota")
	return core.Limit{
		Quota:  quota,
		Period: time.Duration(quota*every) * time.Microsecond,
		Burst:  rapid.SampledFrom([]int64{0, 1, 2, 5, 300}).Draw(t, "burst"),
	}
}

// moves draws the time until the next step, which often lands on or beside an
// instant at which units come back.
func moves(t *rapid.T, every int64) int64 {
	return rapid.SampledFrom([]int64{0, 1, -1, 3 * every, -3 * every, 400 * every}).Draw(t, "move") +
		rapid.SampledFrom([]int64{0, every, every - 1, every + 1}).Draw(t, "more")
}

func TestSteadyTakeDecidesAsDecide(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Steady is the short way of the memory store's hot path; what it cannot decide it leaves
		// to Decide.
		l := wholeLimit(t)
		if err := l.Validate(); err != nil {
			t.Fatal(err)
		}

		g, st, now := l.Steady(), core.State{Limit: l}, start
		if g.Every == 0 {
			t.Fatalf("%v is left to Decide", l)
		}

		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			now += moves(t, g.Every)
			op := core.Op{Key: "key", Limit: l, Cost: rapid.SampledFrom([]int64{1, 1, 1, 2, 3, 299, 301,
				1 << 62}).Draw(t, "cost")}

			// Fields of an earlier decision have to be overwritten: callers reuse the slice.
			got := core.Decision{Allowed: true, Origin: 7, Wait: 7, RetryAfter: 7, At: 7} // of an earlier step
			used, mark, good := g.Take(st.Used, st.Mark, now, op.Cost, &got)
			before := st

			// A Take that may wait is not for the short way, so its answer is not looked at. Every
			// other one within the capacity has to be decided by it, or the path would be fast and
			// unused.
			if rapid.IntRange(0, 9).Draw(t, "book") == 0 {
				op.MaxWait, good = time.Hour, false
			} else if !good && now >= st.Mark && st.Used-(now-st.Mark)/g.Every <= g.Capacity {
				t.Fatalf("%+v at %d is left to Decide", st, now)
			}

			want := make([]core.Decision, 1)
			st.Changed = false
			core.Decide([]core.Op{op}, []*core.State{&st}, now, want)

			// Steady returns the state and does not write it: Decide's is the one that goes on.
			switch {
			case !good:
			case got != want[0]:
				t.Fatalf("%v: %d units of %+v at %d\n got %+v\nwant %+v", l, op.Cost, before, now, got, want[0])
			case got.Allowed && (used != st.Used || mark != st.Mark || st.Over != 0), got.Allowed != st.Changed:
				t.Fatalf("%v: %d units of %+v at %d: %d used since %d, want %+v", l, op.Cost, before, now, used, mark,
					st)
			}
		}
	})
}

func TestSteadyFreshIsWhenDecideSaysSo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Up to five units are owed beyond the capacity, a state that is left to Decide.
		l := wholeLimit(t)
		g, now := l.Steady(), start
		st := core.State{Limit: l, Mark: start, Used: rapid.Int64Range(1, l.Capacity()+5).Draw(t, "used")}
		now += moves(t, g.Every)

		// The instant may lie before Mark, after a clock that stepped back.
		got, good := g.Fresh(st.Used, st.Mark, now)
		if due := now >= start && st.Used-(now-start)/g.Every <= g.Capacity; good != due {
			t.Fatalf("%+v at %d: decided %v, want %v", st, now, good, due)
		}

		// A Peek of the same state says when nothing of it is used any more.
		op, d := core.Op{Verb: core.Peek, Limit: l}, make([]core.Decision, 1)
		core.Decide([]core.Op{op}, []*core.State{&st}, now, d)
		if want := d[0].At + d[0].ResetAfter.Microseconds(); good && got != want {
			t.Fatalf("%v of %+v is fresh at %d, want %d", l, st, got, want)
		}
	})
}

func TestSteadyIsGCRAInWholeMicroseconds(t *testing.T) {
	for text, want := range map[string]core.Steady{
		"10/1s":             {Every: 100_000, Capacity: 10},
		"1/1h burst=3":      {Every: 3_600_000_000, Capacity: 3},
		"3/7s":              {},
		"2000000/1s":        {},
		"5/1s fixed-window": {},
	} {
		l := mustParse(t, text)
		if got := l.Steady(); got != want {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}
}
