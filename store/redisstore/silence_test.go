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
		// All goroutines rest before the next caller comes, so that the order is the same each
		// time.
		time.Sleep(d - time.Since(start))
		synctest.Wait()
		all.Go(func() {
			_, err := takeOne(context.Background(), s, string(rune('a'+i)))
			ends[i] = ending{time.Since(start), errors.Is(err, core.ErrSilent),
				errors.Is(err, core.ErrOverload), callOf(err) > 0}
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

// A server that never answers costs callers seven fifths of the timeout, once. Then they are
// turned away at once, until a trial may ask it.
func TestSilenceCostsCallersAtMostSevenFifths(t *testing.T) {
	for _, row := range []struct {
		name    string
		answers int // before the silence
		at      []time.Duration
		want    []ending
	}{
		// The silence begins with the first call that is not answered, at 0, and lasts until 70ms
		// for all.
		{"one after the other", 1, []time.Duration{0, 50 * ms, 100 * ms},
			[]ending{failed(50 * ms), isSilent(70 * ms), isSilent(100 * ms)}},
		{"one that overlaps", 1, []time.Duration{0, 30 * ms},
			[]ending{failed(50 * ms), isSilent(70 * ms)}},
		// Those behind two calls wait for an answer, and are turned away by this process and not by
		// the server.
		{"others that wait behind two", 1, []time.Duration{0, 1 * ms, 2 * ms, 10 * ms, 40 * ms},
			[]ending{failed(50 * ms), failed(51 * ms), overloaded(52 * ms), overloaded(60 * ms), overloaded(70 * ms)}},
		{"callers while a call asks", 1, []time.Duration{0, 60 * ms, 80 * ms, 90 * ms, 110 * ms},
			[]ending{failed(50 * ms), isSilent(70 * ms), isSilent(80 * ms), isSilent(90 * ms), isSilent(110 * ms)}},
		// A server that was never heard has a trial first.
		{"a server that has never answered", 0, []time.Duration{0, 50 * ms, 60 * ms},
			[]ending{failed(50 * ms), isSilent(100 * ms), isSilent(70 * ms)}},
		// A second later the silence is over for the next caller, which asks anew.
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

// All callers of a failed call get its number, and no other call has it.
func TestCallersOfACallShareItsNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := fault("MISCONF the disk is full")
		f := &fake{wait: func(ctx context.Context, n int) error { _ = slow(ctx, n); return down }}
		s := faked(t, f, Options{})

		numbers := make([]uint64, 6)
		each(6, func(i int, key string) {
			_, err := takeOne(context.Background(), s, key)
			if numbers[i] = callOf(err); !errors.Is(err, down) || errors.Is(err, core.ErrOverload) {
				t.Errorf("%s: %v", key, err)
			}
		})

		// a and b have calls of their own, and the others share one.
		a, b, c := numbers[0], numbers[1], numbers[2]
		if a == 0 || b == 0 || c == 0 || a == b || b == c || a == c ||
			!slices.Equal(numbers[2:], []uint64{c, c, c, c}) {
			t.Errorf("numbers %d", numbers)
		}
	})
}

// Any reply ends the silence: the next call that fails has the whole timeout, and is not that
// of a silent server.
func TestReplyEndsTheSilence(t *testing.T) {
	for name, reply := range map[string]error{"a decision": nil, "an error": fault("MISCONF the disk is full")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// Only the third call is answered, with a decision or an error.
				s := faked(t, &fake{wait: func(ctx context.Context, n int) error {
					if n == 3 {
						return reply
					}
					return stuck(ctx, n)
				}}, Options{})

				got := endings(t, s, 0, 50*ms, 300*ms, 350*ms)
				want := []ending{failed(50 * ms), isSilent(100 * ms), {300 * ms, false, false, reply != nil},
					failed(400 * ms)}

				if !slices.Equal(got, want) {
					t.Errorf("%+v\nwant %+v", got, want)
				}
			})
		})
	}
}

// A call that is late by 20 ms fails its own caller, and its connection is kept for the others
// that wait: they get their decision.
func TestCallersBehindALateCallGetTheirDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		s := faked(t, &fake{wait: func(ctx context.Context, n int) error {
			return after(ctx, max(0, 65*ms-time.Since(start)))
		}}, Options{})
		got := endings(t, s, 0, 1*ms, 20*ms, 30*ms, 40*ms)
		want := []ending{failed(50 * ms), failed(51 * ms), {after: 65 * ms}, {after: 65 * ms}, {after: 65 * ms}}
		if !slices.Equal(got, want) {
			t.Errorf("%+v\nwant %+v", got, want)
		}
	})
}

// The failure of a call whose callers have all left is that of the next caller. The callers
// wait until 70 ms, because the silence began at 0, and the call goes on until 120 ms.
func TestFailureThatNoCallerGotIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := faked(t, &fake{wait: stuck}, Options{})
		got := endings(t, s, 0, 1*ms, 30*ms, 125*ms, 126*ms)
		want := []ending{failed(50 * ms), failed(51 * ms), overloaded(70 * ms), isSilent(125 * ms), isSilent(126 * ms)}
		if !slices.Equal(got, want) {
			t.Errorf("%+v\nwant %+v", got, want)
		}
	})
}

// A caller whose own time ends before that of a call says nothing about the server.
func TestCallersOwnTimeIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := faked(t, &fake{wait: stuck}, Options{})
		each(4, func(_ int, key string) {
			ctx, cancel := context.WithTimeout(context.Background(), 10*ms)
			defer cancel()
			_, err := takeOne(ctx, s, key)
			if !errors.Is(err, core.ErrOverload) || !errors.Is(err, context.DeadlineExceeded) || callOf(err) != 0 {
				t.Errorf("%s: %v", key, err)
			}
		})
		time.Sleep(time.Second) // until the last call has ended
	})
}

// A waiter whose timer fires late waits again for as long as it was late, at most the timeout,
// and takes a result that is there.
func TestWaiterWhoseTimerIsLateWaitsAgain(t *testing.T) {
	for _, row := range []struct {
		late, answered, took time.Duration
		decided              bool
	}{
		// How late the timer is, when the result comes, and what the caller gets for it.
		{late: 1 * ms, answered: time.Hour, took: 0},
		{late: 30 * ms, answered: time.Hour, took: 30 * ms},
		{late: 30 * ms, answered: 29 * ms, took: 29 * ms, decided: true},
		// A stop of ten seconds gives no more than the timeout of 50ms.
		{late: 10 * time.Second, answered: time.Hour, took: 50 * ms},
		{late: 10 * time.Second, answered: 0, took: 0, decided: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := faked(t, &fake{}, Options{})

			ops := unit()

			// A waiter in the queue, as Apply would put it there.
			w := newWaiter().(*waiter)
			w.copyOps(ops)
			s.dispatcher.queue.mu.Lock()
			s.dispatcher.queue.linkLocked(&s.dispatcher.queue.whole, w)
			s.dispatcher.queue.watchLocked(w, time.Now().Add(-row.late), time.Now())
			s.dispatcher.queue.mu.Unlock()

			time.AfterFunc(row.answered, func() {
				b := new(batch)
				if s.dispatcher.queue.fill(&s.dispatcher.queue.whole, b) {
					s.dispatcher.deliver(b)
				}
			})

			// The deadline was row.late ago.
			synctest.Wait()
			start := time.Now()
			_, err := s.dispatcher.await(t.Context(), &s.servers.single, w, start, start.Add(-row.late), ops,
				make([]core.Decision, 1))

			if took := time.Since(start); took != row.took || (err == nil) != row.decided || err != nil &&
				!errors.Is(err, core.ErrOverload) {
				t.Errorf("late by %v: %v after %v, want %v after %v", row.late, err, took, row.decided, row.took)
			}

			time.Sleep(2 * time.Hour)
		})
	}
}

// A call that the process ended late is no failure of the server, and no silence.
func TestCallThatEndsLateIsOurs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The call of 50ms ends 25ms late each time, which the process notices.
		late := 25 * ms
		s := faked(t, &fake{wait: func(ctx context.Context, n int) error {
			err := stuck(ctx, n)
			time.Sleep(late)
			return err
		}}, Options{})

		got := endings(t, s, 0, 100*ms)
		want := []ending{overloaded(75 * ms), overloaded(175 * ms)}
		if !slices.Equal(got, want) {
			t.Errorf("%+v\nwant %+v", got, want)
		}

		// On time again. The first call after that is still under the lateness before.
		late = onTime
		if got, want := endings(t, s, 0), []ending{overloaded(52 * ms)}; !slices.Equal(got, want) {
			t.Errorf("soon after, and without a connection: %+v\nwant %+v", got, want)
		}

		if got, want := endings(t, s, 0), []ending{failed(52 * ms)}; !slices.Equal(got, want) {
			t.Errorf("later: %+v\nwant %+v", got, want)
		}
	})
}

// A process that is late by a moment for each call finds out that the server is silent: it
// costs callers 70 ms, and four times the moment for each of four calls.
func TestProcessThatIsAlwaysLateNoticesASilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The first call is answered; from the second on the process is 3ms late for each end.
		answer := answering(1)
		s := faked(t, &fake{wait: func(ctx context.Context, n int) error {
			err := answer(ctx, n)
			if n > 1 {
				time.Sleep(3 * ms)
			}
			return err
		}}, Options{})

		if _, err := takeOne(t.Context(), s, "k"); err != nil {
			t.Fatal(err)
		}

		got := endings(t, s, 0, 53*ms, 85*ms, 97*ms, 109*ms)
		want := []ending{overloaded(53 * ms), overloaded(85 * ms), overloaded(97 * ms), overloaded(109 * ms),
			isSilent(121 * ms)}

		if !slices.Equal(got, want) {
			t.Errorf("%+v\nwant %+v", got, want)
		}
	})
}
