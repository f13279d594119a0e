package redisstore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
)

// callOf returns the number of the call that failed with err, or 0.
func callOf(err error) uint64 {
	var e interface{ Call() uint64 }
	if !errors.As(err, &e) {
		return 0
	}
	return e.Call()
}

// ending is how and when a caller's Apply ended.
type ending struct {
	after            time.Duration // since the test began
	silent, overload bool
	failed           bool // a call has a number
}

// endings has a caller come at each instant, and returns how each ended.
func endings(t *testing.T, s *Store, at ...time.Duration) []ending {
	t.Helper()
	ends := make([]ending, len(at))
	start := time.Now()
	var all sync.WaitGroup
	for i, d := range at {
		time.Sleep(d - time.Since(start))
		synctest.Wait()
		all.Go(func() {
			_, err := takeOne(context.Background(), s, "k")
			ends[i] = ending{time.Since(start), errors.Is(err, core.ErrSilent), errors.Is(err, core.ErrOverload), callOf(err) > 0}
		})
	}
	all.Wait()
	return ends
}

// failed, silent and overloaded are the endings of callers at an instant.
func failed(at time.Duration) ending     { return ending{after: at, failed: true} }
func isSilent(at time.Duration) ending   { return ending{after: at, failed: true, silent: true} }
func overloaded(at time.Duration) ending { return ending{after: at, overload: true} }

// answering returns what answers the first n calls after the latency, and no other.
func answering(n int) func(context.Context, int) error {
	return func(ctx context.Context, call int) error {
		if call <= n {
			return slow(ctx, call)
		}
		return stuck(ctx, call)
	}
}

// A server that never answers costs callers seven fifths of the timeout, once. Then a call at
// a time asks it.
func TestSilenceCostsCallersAtMostSevenFifths(t *testing.T) {
	for _, row := range []struct {
		name    string
		answers int // before the silence
		at      []time.Duration
		want    []ending
	}{
		{"one after the other", 1, []time.Duration{0, 50 * ms, 100 * ms},
			[]ending{failed(50 * ms), isSilent(70 * ms), isSilent(150 * ms)}},
		{"one that overlaps", 1, []time.Duration{0, 30 * ms},
			[]ending{failed(50 * ms), isSilent(70 * ms)}},
		{"others that wait behind two", 1, []time.Duration{0, 1 * ms, 2 * ms, 10 * ms, 40 * ms},
			[]ending{failed(50 * ms), failed(51 * ms), overloaded(52 * ms), overloaded(60 * ms), overloaded(70 * ms)}},
		{"callers while a call asks", 1, []time.Duration{0, 60 * ms, 80 * ms, 90 * ms, 110 * ms},
			[]ending{failed(50 * ms), isSilent(70 * ms), isSilent(130 * ms), isSilent(90 * ms), isSilent(110 * ms)}},
		{"a server that has never answered", 0, []time.Duration{0, 50 * ms, 60 * ms},
			[]ending{failed(50 * ms), isSilent(100 * ms), isSilent(70 * ms)}},
		{"a second later", 1, []time.Duration{0, 2000 * ms},
			[]ending{failed(50 * ms), failed(2050 * ms)}},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := faked(t, &fake{wait: answering(row.answers)}, Options{})
				for range row.answers {
					if _, err := takeOne(t.Context(), s, "k"); err != nil {
						t.Fatal(err)
					}
				}
				if got := endings(t, s, row.at...); !slices.Equal(got, row.want) {
					t.Errorf("%+v\nwant %+v", got, row.want)
				}
				time.Sleep(time.Second)
				idle(t, s)
			})
		})
	}
}
