package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
)

// A lane that decides one operation a millisecond, with so many that wait, turns away who
// would wait for longer than it has left.
func TestQueueTurnsAwayWhomItCannotServe(t *testing.T) {
	now := time.Unix(0, 0)

	// Twenty ends, each 10ms after the one before and of ten operations: one a millisecond.
	busy := func() rate {
		var r rate
		for i := range 20 {
			r.record(10, true, now.Add(time.Duration(i-19)*10*ms))
		}
		return r
	}

	for _, row := range []struct {
		name        string
		rate        rate
		queue, sent int
		left        time.Duration
		later       time.Duration
		shed        bool
	}{
		// As many as a batch holds are never too many, and one more is if the calls in flight take
		// all the time.
		{"one batch", busy(), 10, 20, 20 * ms, 0, false},
		{"one more", busy(), 11, 20, 20 * ms, 0, true},
		// A quarter of the time is kept in reserve: of 66.7ms only 50 are to be filled.
		{"just in time", busy(), 28, 20, 200 * ms / 3, 0, false},
		{"just too late", busy(), 30, 20, 200 * ms / 3, 0, true},
		// What is older than a second says nothing of now.
		{"a second after the last end", busy(), 1000, 20, 50 * ms, time.Second, true},
		{"longer after it", busy(), 1000, 20, 50 * ms, time.Second + 1, false},
		{"nothing is known", rate{}, 1000, 20, 50 * ms, 0, false},
	} {
		q := queue{maxOps: 10}
		l := &lane{ops: row.queue, sent: row.sent, rate: row.rate}
		if got := q.shedsLocked(l, 1, row.left, now.Add(row.later)); got != row.shed {
			t.Errorf("%s: turned away %v, want %v", row.name, got, row.shed)
		}
	}
}

// A pause is no time in which the lane decided little, and neither is one in which nothing
// waited.
func TestRateCountsOnlyTheTimeInWhichOthersWait(t *testing.T) {
	now := time.Unix(0, 0)

	var r rate
	end := func(after time.Duration, ops int, waiting bool) {
		now = now.Add(after)
		r.record(ops, waiting, now)
	}

	// Ten operations each ten milliseconds, with others waiting all the time.
	end(0, 10, true)
	for range 10 {
		end(10*ms, 10, true)
	}

	// The queue was empty for half a second.
	end(10*ms, 10, false)
	end(500*ms, 10, true) // nothing waited until it began

	if !r.within(49, 50*ms, now) || r.within(51, 50*ms, now) {
		t.Errorf("%+v is not one operation a millisecond", r)
	}

	// After two seconds without an end nothing is known.
	end(2*time.Second, 10, true)
	if r.ends != 0 || !r.within(1000, ms, now) {
		t.Errorf("%+v after a pause", r)
	}
}

// A server decides four operations a millisecond, so 200 in the time of a call. Of 400 callers
// those who would be too late get their answer at once, and no other is late, except for the
// first, before the rate is known.
func TestCallersWhoWouldBeLateAreToldAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		work := make(chan struct{}, 1) // one call at a time
		s := faked(t, &fake{wait: func(ctx context.Context, n int) error {
			work <- struct{}{}
			defer func() { <-work }()
			return after(context.WithoutCancel(ctx), ms)
		}}, Options{Batch: 4})

		var shed, late, decided atomic.Int64
		var all sync.WaitGroup
		start := time.Now()

		// 400 callers ask without pause, which is more than the server can decide.
		for i := range 400 {
			all.Go(func() {
				for time.Since(start) < time.Second {
					begun := time.Now()
					_, err := takeOne(context.Background(), s, fmt.Sprint(i))

					// An error at once is a caller turned away, and a later one a caller who waited
					// in vain.
					switch took := time.Since(begun); {
					case err == nil:
						decided.Add(1)
					case !errors.Is(err, core.ErrOverload):
						t.Error(err)
					case took == 0:
						shed.Add(1)
					default:
						late.Add(1)
					}
					time.Sleep(ms)
				}
			})
		}

		all.Wait()

		// Nine tenths of what the server can decide in a second is decided.
		if shed.Load() == 0 || late.Load() > 400 || decided.Load() < 3600 {
			t.Errorf("%d decided, %d late, %d turned away", decided.Load(), late.Load(), shed.Load())
		}

		time.Sleep(time.Second)
		idle(t, s)
	})
}

// A lane that serves all in time turns no caller away, however many there are.
func TestNobodyIsTurnedAwayBeforeItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// A millisecond for each call, and a call takes all who wait.
		s := faked(t, &fake{wait: func(ctx context.Context, _ int) error { return after(ctx, ms) }}, Options{})
		var all sync.WaitGroup
		for i := range 1000 {
			all.Go(func() {
				for range 50 {
					if _, err := takeOne(context.Background(), s, fmt.Sprint(i)); err != nil {
						t.Error(err)
					}
				}
			})
		}

		all.Wait()
		idle(t, s)
	})
}

// slowRate is that of a lane which decides an operation in 50 ms.
func slowRate() (r rate) {
	now := time.Now()
	for i := range 11 {
		r.record(1, true, now.Add(time.Duration(i-10)*50*ms))
	}
	return r
}

func TestTurningAwayAllocatesNothing(t *testing.T) {
	s := faked(t, &fake{}, Options{})
	l := &s.dispatcher.queue.whole
	l.batches, l.ops, l.rate = maxBatches, 1000, slowRate()
	l.rate.last = time.Now().Add(time.Hour) // however long the test takes
	ops, out := unit(), make([]core.Decision, 1)
	if n := testing.AllocsPerRun(100, func() {
		if err := s.Apply(context.Background(), ops, out); !errors.Is(err, core.ErrOverload) {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
