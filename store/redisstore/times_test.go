package redisstore

import (
	"context"
	"slices"
	"testing"
	"time"
)

// tries is how often a time is measured that is longer than it may be: a pause of
// the machine is no fault of the store. The last one counts.
const tries = 5

// median is that of nine calls, which a pause during a few of them does not move.
func median(call func()) time.Duration {
	var took []time.Duration
	for range 9 {
		start := time.Now()
		call()
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	return took[4]
}

// typical is the median, measured again while it is longer than most.
func typical(most time.Duration, call func()) (took time.Duration) {
	for range tries {
		if took = median(call); took <= most {
			break
		}
	}
	return took
}

// costsTheTimeout checks that a store in which nothing can be decided gives up at
// its timeout.
func costsTheTimeout(t testing.TB, what string, s *Store) {
	t.Helper()
	most := s.timeout + 20*time.Millisecond
	took := typical(most, func() {
		if _, err := takeOne(context.Background(), s, "k"); err == nil {
			t.Errorf("%s: a decision", what)
		}
	})
	t.Logf("%s: an error after %v", what, took)
	if took < s.timeout || took > most {
		t.Errorf("%s: an error after %v, not %v", what, took, s.timeout)
	}
}
