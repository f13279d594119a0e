package prefetch_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/store/prefetch"
)

// admission is units that were admitted at an instant.
type admission struct{ at, units int64 }

// No span admits more than the algorithm allows by itself, however many units the
// instances hold.
func TestSpanAdmitsAtMostTheAlgorithmsBound(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		// Limits of each algorithm that can be taken ahead, with and without a burst.
		text := rapid.SampledFrom([]string{
			"200/1s", "100/1s burst=40", "700/7s burst=30", "50/300ms token-bucket", "100/1s token-bucket burst=150",
			"90/500ms fixed-window", "80/1s fixed-window aligned", "90/day tz=Europe/Berlin",
		}).Draw(r, "limit")

		l := limit(t, text)
		w := newWorld(t)

		// The first burst falls on or beside a turn of the window, where two windows' units may
		// meet.
		w.clock.Add(turn(l, w.clock.Now()))
		instances := []*prefetch.Store{w.instance(64), w.instance(16), w.instance(4)}

		var log []admission
		for range rapid.IntRange(1, 60).Draw(r, "bursts") {
			s := instances[rapid.IntRange(0, 2).Draw(r, "instance")]
			cost := rapid.Int64Range(1, 3).Draw(r, "cost")

			// Bursts make keys busy, and pauses let what is held become stale.
			for range rapid.IntRange(1, 60).Draw(r, "takes") {
				if w.apply(s, take(l, cost))[0].Allowed {
					log = append(log, admission{w.clock.Now(), cost})
				}
			}

			w.clock.Add(time.Duration(rapid.Int64Range(0, 400_000).Draw(r, "pause")) * time.Microsecond)
		}

		// Every span between two admissions is looked at, with the bound of the algorithm alone.
		if from, to, n, ceiling := worst(l, log); n > ceiling {
			r.Fatalf("%s: %d units within %d µs, at most %d are allowed", text, n, to-from, ceiling)
		}
	})
}

// turn returns the time until two seconds before the present window of a calendar ends, or 0.
func turn(l core.Limit, now int64) time.Duration {
	w := l.Windows(now)
	if w == nil {
		return 0
	}
	return time.Duration(w[4]-now)*time.Microsecond - 2*time.Second
}

// worst returns the span that is farthest above, or nearest to, what is allowed.
func worst(l core.Limit, log []admission) (from, to, n, ceiling int64) {
	over := int64(-1 << 62)
	for i := range log {
		var sum int64
		for j := i; j < len(log); j++ {
			sum += log[j].units
			if allowed := bound(l, log[i].at, log[j].at); sum-allowed > over {
				over, from, to, n, ceiling = sum-allowed, log[i].at, log[j].at, sum, allowed
			}
		}
	}
	return from, to, n, ceiling
}

// bound returns the most that the algorithm admits from one instant to another, both
// included.
func bound(l core.Limit, from, to int64) int64 {
	period, span := l.Period.Microseconds(), to-from

	switch {
	case l.Algorithm == core.GCRA:
		return l.Capacity() + span*l.Quota/period
	case l.Algorithm == core.TokenBucket:
		return l.Capacity() + (span/period+1)*l.Quota
	case l.Algorithm == core.CalendarWindow:
		// A window for each turn in the span, and the one in which it begins.
		n := int64(1)
		for _, end := range l.Windows(from) {
			if from < end && end <= to {
				n++
			}
		}
		return n * l.Quota
	case l.Aligned:
		return (to/period - from/period + 1) * l.Quota
	}
	// Anchored windows do not overlap.
	return (span/period + 2) * l.Quota
}
