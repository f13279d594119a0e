package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/headgate/headgate/core"
)

// latency is how long the fakes of these tests take. It is no distance.
const latency = minGap / 2

// slow answers after the latency, or when the context ends.
func slow(ctx context.Context, _ int) error { return after(ctx, latency) }

// stuck never answers.
func stuck(ctx context.Context, _ int) error { return after(ctx, time.Hour) }

func after(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// each runs f for the callers a, b, c ..., which come in this order, and waits
// for all.
func each(n int, f func(i int, key string)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i, string(rune('a'+i))) })
		synctest.Wait()
	}
	all.Wait()
}

// idle checks that no step waits and that no call is in flight.
func idle(t *testing.T, s *Store) {
	t.Helper()
	synctest.Wait()
	s.dispatcher.queue.mu.Lock()
	defer s.dispatcher.queue.mu.Unlock()
	if l := &s.dispatcher.queue.whole; l.batches != 0 || l.ops != 0 || l.first != nil || l.last != nil ||
		len(s.dispatcher.queue.slots) != 0 {
		t.Errorf("calls go on: %+v, %d slots", l, len(s.dispatcher.queue.slots))
	}
}

func TestQueueSendsFewCallersAtOnceAndOthersTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{wait: slow}
		s := faked(t, f, Options{Batch: 4})

		remaining := make([]int64, 9)
		start := time.Now()
		took := make([]time.Duration, 9)

		each(9, func(i int, key string) {
			d, err := takeOne(context.Background(), s, key)
			if err != nil || !d.Allowed || d.At != 7 || d.ResetAfter != 5*time.Microsecond {
				t.Errorf("%s: %+v, %v", key, d, err)
			}
			remaining[i], took[i] = d.Remaining, time.Since(start)
		})

		// Two calls at once; four of the others fill a call, and the last three wait for the first
		// end.
		if got, want := fmt.Sprint(f.seen()), "[[a] [b] [c d e f] [g h i]]"; got != want {
			t.Errorf("calls %s, want %s", got, want)
		}

		for i, d := range took {
			if want := latency * time.Duration(1+i/6); d != want {
				t.Errorf("caller %d took %v, want %v", i, d, want)
			}
		}

		if slices.Sort(remaining); remaining[0] != 1 || remaining[8] != 9 || len(slices.Compact(remaining)) != 9 {
			t.Errorf("each has an answer of its own: %v", remaining)
		}
	})
}

// Four calls are under way at once. The four callers after them fill two, and the
// last waits for one of these, although four calls have ended before. No two end at the
// same instant: it might be sent between them.
func TestQueueSendsFullCallsAtOnceUpToMaxFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{wait: func(ctx context.Context, n int) error {
			return after(ctx, latency+time.Duration(n)*time.Microsecond)
		}}

		s := faked(t, f, Options{Batch: 2})

		took, start := make([]time.Duration, 11), time.Now()
		each(11, func(i int, key string) {
			if _, err := takeOne(context.Background(), s, key); err != nil {
				t.Errorf("%s: %v", key, err)
			}
			took[i] = time.Since(start)
		})

		if got, want := fmt.Sprint(f.seen()), "[[a] [b] [c d] [e f] [g h] [i j] [k]]"; got != want {
			t.Errorf("calls %s, want %s", got, want)
		}

		// The callers end in order of their calls: the ten of the first calls after one latency,
		// the last after two.
		for i, d := range took {
			if want := latency * time.Duration(1+(i+4)/10+i/10); d.Truncate(latency) != want {
				t.Errorf("caller %d took %v, want %v", i, d, want)
			}
		}

		idle(t, s)
	})
}

func TestQueueNeedsNoGoroutineForSingleCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		s := faked(t, f, Options{})

		for range 10 {
			// One after the other: no step waits, so each is a call, and nothing runs between them.
			if _, err := takeOne(context.Background(), s, "a"); err != nil {
				t.Fatal(err)
			}
			idle(t, s)
		}

		if got := f.sizes(); len(got) != 10 {
			t.Errorf("%d calls", len(got))
		}
	})
}

// All come at once, and nothing answers: the first two calls end at their
// deadline, which is that of the others too, and those are never sent.
func TestQueueCallersLeaveAtTheirOwnDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{wait: stuck}
		s := faked(t, f, Options{})

		start := time.Now()
		var all sync.WaitGroup
		for i := range 200 {
			all.Go(func() {
				// Every second caller has a time of its own, each a tenth of a millisecond longer.
				ctx, want := context.Background(), DefaultTimeout
				if i%2 == 1 {
					want = time.Duration(i) * 100 * time.Microsecond
					own, cancel := context.WithTimeout(ctx, want)
					defer cancel()
					ctx = own
				}

				_, err := takeOne(ctx, s, "k")
				if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took != want {
					t.Errorf("caller %d: %v after %v, want %v", i, err, took, want)
				}
			})
		}

		all.Wait()
		time.Sleep(2 * DefaultTimeout) // until the last call has ended
		idle(t, s)

		// No call was larger than a batch, however many waited.
		for _, size := range f.sizes() {
			if size > DefaultBatch {
				t.Errorf("a call of %d steps", size)
			}
		}
	})
}

func TestQueueDropsCallersThatLeaveBeforeTheSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The first two are under way while c, d and e wait. d leaves before a call ends.
		f := &fake{wait: slow}
		s := faked(t, f, Options{})
		each(5, func(i int, key string) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if key == "d" {
				time.AfterFunc(latency/2, cancel)
			}

			_, err := takeOne(ctx, s, key)
			if (key == "d") != errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", key, err)
			}
		})

		if got, want := fmt.Sprint(f.seen()), "[[a] [b] [c e]]"; got != want {
			t.Errorf("calls %s, want %s", got, want)
		}
	})
}

// A caller that leaves a batch gets its error at once, its memory is no longer
// written, and the others of the batch get their answers.
func TestBatchCallerThatLeavesTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{wait: slow}
		s := faked(t, f, Options{})

		start := time.Now()
		each(5, func(i int, key string) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()

			// Two by two they would be sent at once and after one latency; c, d and e share the
			// second call.
			want := latency * time.Duration(min(1+i/maxBatches, 2))

			// d leaves in the middle of the call that has its step.
			if key == "d" {
				want = latency * 3 / 2
				time.AfterFunc(want, cancel)
			}

			// The key's memory is the caller's, which may use it again when Apply has returned.
			key = strings.Clone(key)
			out := make([]core.Decision, 1)
			ops := []core.Op{{Rule: "r", Key: key, Limit: core.Limit{Quota: 1000, Period: 1e9}, Cost: 1}}

			err := s.Apply(ctx, ops, out)
			if took := time.Since(start); took != want {
				t.Errorf("%s took %v, want %v", key, took, want)
			}

			if i == 3 {
				ops[0] = core.Op{} // is the caller's own again
				time.Sleep(latency)
				if !errors.Is(err, context.Canceled) || out[0] != (core.Decision{}) {
					t.Errorf("%v, %+v", err, out[0])
				}
			} else if err != nil || !out[0].Allowed {
				t.Errorf("%s: %v, %+v", key, err, out[0])
			}
		})

		if got, want := fmt.Sprint(f.seen()), "[[a] [b] [c d e]]"; got != want {
			t.Errorf("calls %s, want %s", got, want)
		}
	})
}

// A call has more time than its waiters, because the client drops the connection of a call that
// ends before its answer. Its waiters wait no longer for that.
func TestBatchGoesOnWithoutItsCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan time.Duration, 10)
		start := time.Now()

		// The first two calls are answered, and the one of the waiting callers hangs.
		f := &fake{wait: func(ctx context.Context, n int) error {
			if n <= maxBatches {
				return slow(ctx, n)
			}
			err := stuck(ctx, n)
			ended <- time.Since(start)
			return err
		}}

		s := faked(t, f, Options{Timeout: time.Second})
		each(4, func(i int, key string) {
			want := time.Duration(i+1) * 10 * time.Millisecond
			ctx, cancel := context.WithTimeout(context.Background(), want)
			defer cancel()

			takeOne(ctx, s, key)
			if took := time.Since(start); i >= maxBatches && took != want {
				t.Errorf("%s waited for %v, want %v", key, took, want)
			}
		})

		// The call ends with its own patience, counted from when it was sent.
		if got, want := <-ended, latency+patienceOf(time.Second); got != want {
			t.Errorf("the call of c and d, which wait until 30 and 40 ms, ended after %v, want %v", got, want)
		}
	})
}

// After an error which proves that nothing ran, the batch is sent again without the
// callers that have left meanwhile.
func TestBatchIsSentAgainWithoutCallersThatLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The call for three meets a server that loads, twice.
		f := &fake{wait: func(ctx context.Context, n int) error {
			if err := slow(ctx, n); err != nil || n <= maxBatches || n > maxBatches+2 {
				return err
			}
			return fault("LOADING Redis is loading the dataset in memory")
		}}

		s := faked(t, f, Options{})
		each(5, func(i int, key string) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if key == "d" {
				time.AfterFunc(latency*3/2, cancel)
			}

			if _, err := takeOne(ctx, s, key); (err != nil) != (key == "d") {
				t.Errorf("%s: %v", key, err)
			}
		})

		// After d has left, the repeated calls are about c and e.
		if got, want := fmt.Sprint(f.seen()), "[[a] [b] [c d e] [c e] [c e]]"; got != want {
			t.Errorf("calls %s, want %s", got, want)
		}
	})
}

func TestBatchErrorIsThatOfAllItsCallers(t *testing.T) {
	// An error of the server that nothing but the server can mend is repeated for none.
	synctest.Test(t, func(t *testing.T) {
		full := fault("MISCONF Redis is configured to save RDB snapshots, but it is currently not able to persist on disk.")
		f := &fake{wait: func(ctx context.Context, n int) error { slow(ctx, n); return full }}

		s := faked(t, f, Options{})
		each(6, func(_ int, key string) {
			if _, err := takeOne(context.Background(), s, key); !errors.Is(err, full) {
				t.Errorf("%s: %v", key, err)
			}
		})

		if got, want := fmt.Sprint(f.sizes()), "[1 1 4]"; got != want {
			t.Errorf("calls of %s steps, want %s", got, want)
		}
	})
}

// No caller could recover a panic of the goroutine that sends for others.
func TestBatchPanicIsAnErrorOfItsCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The hook panics in the call that is sent for c, d and e by a goroutine of the store.
		f := &fake{wait: func(ctx context.Context, n int) error {
			if n > maxBatches {
				panic("a hook's fault")
			}
			return slow(ctx, n)
		}}

		s := faked(t, f, Options{})
		each(5, func(i int, key string) {
			_, err := takeOne(context.Background(), s, key)
			if fails := i >= maxBatches; fails != (err != nil && strings.Contains(err.Error(), "a hook's fault")) {
				t.Errorf("%s: %v", key, err)
			}
		})

		// The calls are accounted for, so later steps are sent.
		idle(t, s)
	})
}

// A panic in the caller's own call reaches the caller, and ends the batch.
func TestBatchEndsAfterAPanicInACallersCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{wait: func(context.Context, int) error { panic("a hook's fault") }}
		s := faked(t, f, Options{})

		// One call more than may be under way: each has to have freed its place.
		for range maxBatches + 1 {
			func() {
				defer func() {
					if recover() == nil {
						t.Error("the panic is lost")
					}
				}()
				takeOne(context.Background(), s, "k")
			}()
		}

		idle(t, s)
	})
}

func TestBatchIsMeasuredInOperations(t *testing.T) {
	// Three operations to a step: a step is never split, so smaller batches hold one each.
	for batch, want := range map[int]string{2: "[3 3 3 3 3 3]", 5: "[3 3 3 3 3 3]", 6: "[3 3 6 6]", 12: "[3 3 12]"} {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{wait: slow}

			s := faked(t, f, Options{Batch: batch})
			each(6, func(_ int, key string) {
				var ops []core.Op
				for _, rule := range []string{"p", "q", "r"} {
					ops = append(ops, core.Op{Rule: rule, Key: key, Limit: core.Limit{Quota: 1000, Period: 1e9},
						Cost: 1})
				}

				if err := s.Apply(context.Background(), ops, make([]core.Decision, 3)); err != nil {
					t.Error(err)
				}
			})

			if got := fmt.Sprint(f.sizes()); got != want {
				t.Errorf("with %d: calls of %s operations, want %s", batch, got, want)
			}
		})
	}
}

func TestBatchOfOneSendsEveryStepAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{wait: slow}
		s := faked(t, f, Options{Batch: 1})
		start := time.Now()
		each(6, func(_ int, key string) { takeOne(context.Background(), s, key) })
		if got := fmt.Sprint(f.sizes()); got != "[1 1 1 1 1 1]" || time.Since(start) != latency {
			t.Errorf("calls of %s steps, %v", got, time.Since(start))
		}
	})
}

// The instant of a batch is read once, when it is sent.
func TestBatchHasOneInstant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{wait: slow}
		reads := 0
		s := faked(t, f, Options{Clock: func() int64 { reads++; return int64(reads) }})
		each(6, func(_ int, key string) { takeOne(context.Background(), s, key) })
		if want := len(f.sizes()); reads != want || want != 3 {
			t.Errorf("%d readings for %d calls", reads, want)
		}
	})
}

// While a slot moves to another node, a script of several keys cannot run.
func TestSlotThatMovesIsAskedStepByStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Only the call for several fails. Alone, each step can be decided.
		f := &fake{wait: func(ctx context.Context, n int) error {
			slow(ctx, n)
			if n == maxBatches+1 {
				return fault("TRYAGAIN Multiple keys request during rehashing of slot")
			}
			return nil
		}}

		s := faked(t, f, Options{})
		each(5, func(_ int, key string) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if key == "d" {
				time.AfterFunc(latency*3/2, cancel)
			}

			if d, err := takeOne(ctx, s, key); d.Allowed == (key == "d") {
				t.Errorf("%s: %v", key, err)
			}
		})

		// d has left by the time of its turn, and is not sent.
		if got, want := fmt.Sprint(f.seen()), "[[a] [b] [c] [c d e] [e]]"; got != want {
			t.Errorf("calls %s, want %s", got, want)
		}
	})
}

// The keys of one step may be on two nodes for some time. The other steps are
// answered at once, and this one when its keys are together.
func TestSlotThatMovesDelaysNoOtherStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The third call is for all three, the fifth and the seventh for d alone.
		f := &fake{wait: func(ctx context.Context, n int) error {
			slow(ctx, n)
			if n == 3 || n == 5 || n == 7 {
				return fault("TRYAGAIN Multiple keys request during rehashing of slot")
			}
			return nil
		}}

		s := faked(t, f, Options{})
		start := time.Now()
		took := make([]time.Duration, 5)
		each(5, func(i int, key string) {
			if d, err := takeOne(context.Background(), s, key); err != nil || !d.Allowed {
				t.Errorf("%s: %+v, %v", key, d, err)
			}
			took[i] = time.Since(start)
		})

		if got, want := fmt.Sprint(f.seen()), "[[a] [b] [c] [c d e] [d] [d] [d] [e]]"; got != want {
			t.Errorf("calls %s, want %s", got, want)
		}

		// a and b; the call for three; one each for c, d and e; d twice more, after
		// pauses of 1 and 2 ms.
		first, third := 5*latency, 7*latency+3*time.Millisecond
		if want := []time.Duration{latency, latency, first, third, first}; !slices.Equal(took, want) {
			t.Errorf("took %v, want %v", took, want)
		}
		idle(t, s)
	})
}

// A framework's strings may change as soon as their request has ended, and a
// batch may read the step of a caller that has left.
func TestWaiterOwnsItsStep(t *testing.T) {
	key, lease := []byte("key"), []byte("lease")
	ops := []core.Op{{Rule: "r", Key: unsafe.String(&key[0], len(key)),
		Lease: unsafe.String(&lease[0], len(lease)), Cost: 2}}
	w := newWaiter().(*waiter)
	w.copyOps(ops)
	key[0], lease[0], ops[0] = 'x', 'x', core.Op{}
	if want := (core.Op{Rule: "r", Key: "key", Lease: "lease", Cost: 2}); len(w.ops) != 1 || w.ops[0] != want ||
		len(w.out) != 1 {
		t.Errorf("%+v, room for %d", w.ops, len(w.out))
	}
}

// A waiter is woken exactly at its deadline, whatever its timer runs for: an earlier step of the
// waiter, whose deadline was before this one or after it.
func TestWaiterIsWokenAtItsDeadline(t *testing.T) {
	for _, row := range []struct{ before, deadline time.Duration }{
		{0, 50 * time.Millisecond},
		{50 * time.Millisecond, 60 * time.Millisecond},
		{50 * time.Millisecond, 50 * time.Millisecond},
		{50 * time.Millisecond, 20 * time.Millisecond},
		{10 * time.Millisecond, 500 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			q, l := &queue{}, &lane{}
			w, start := newWaiter().(*waiter), time.Now()

			// The step before is done at once, and leaves its timer.
			if row.before > 0 {
				wait(q, l, w, start.Add(row.before))
				b := new(batch)
				q.fill(l, b)
				q.markDone(b)
				w.signals <- doneSignal
				if err := w.wait(t.Context()); err != nil || !time.Now().Equal(start) {
					t.Errorf("%v after %v", err, time.Since(start))
				}
			}

			wait(q, l, w, start.Add(row.deadline))
			if err := w.wait(t.Context()); err != context.DeadlineExceeded || time.Since(start) != row.deadline {
				t.Errorf("%v after %v, want the deadline after %v", err, time.Since(start), row.deadline)
			}

			// It is told once, also if the timer fires again.
			q.expire(w)
			if n := len(w.signals); n != 0 {
				t.Errorf("%d signals more", n)
			}
		})
	}
}

// A waiter that is done finds its answer behind the signal that its time was over.
func TestWaiterFindsItsAnswerBehindTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, l := &queue{}, &lane{}
		w := newWaiter().(*waiter)
		wait(q, l, w, time.Now().Add(time.Millisecond))

		time.Sleep(time.Millisecond)
		synctest.Wait()
		b := new(batch)
		q.fill(l, b)
		q.markDone(b)
		w.signals <- doneSignal

		if err := w.wait(t.Context()); err != context.DeadlineExceeded {
			t.Errorf("%v, want the deadline first", err)
		}
		if was := q.leave(w); was != done {
			t.Errorf("left at stage %d", was)
		}
		w.waitAnswered()

		// Its timer changes nothing any more.
		q.extend(w, time.Now().Add(time.Millisecond), time.Now())
		time.Sleep(time.Second)
		if n := len(w.signals); n != 0 {
			t.Errorf("%d signals more", n)
		}
	})
}

// wait puts w into the queue of the lane, until the deadline.
func wait(q *queue, l *lane, w *waiter, deadline time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.linkLocked(l, w)
	q.watchLocked(w, deadline, time.Now())
}
