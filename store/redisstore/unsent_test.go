package redisstore

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/store/failover"
	"github.com/headgate/headgate/store/memstore"
)

var errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}

// fates are what may become of a step. Each step is asked for by the store that it gets, which
// is over a fake that behaves so.
var fates = map[string]struct {
	wait   func(context.Context, int) error // of the fake
	before func(*Store)                     // what comes before the step
	unsent bool
}{
	"turned away": {before: func(s *Store) {
		l := &s.dispatcher.queue.whole
		l.batches, l.ops, l.rate = maxBatches, 1000, slowRate()
	}, unsent: true},
	"left while it waited": {
		before: func(s *Store) { s.dispatcher.queue.laneLocked(anySlot).batches = maxBatches }, unsent: true,
	},
	"left when it was sent": {wait: func(ctx context.Context, n int) error {
		if n == 1 {
			return after(ctx, 10*ms)
		}
		return after(ctx, time.Hour)
	}, before: fill},
	"before a door that is shut": {wait: func(context.Context, int) error { return errRefused },
		before: func(s *Store) { _, _ = takeOne(context.Background(), s, "other") }, unsent: true},
	"refused by the server's machine": {wait: func(context.Context, int) error { return errRefused }, unsent: true},
	"refused by a server that loads": {wait: func(context.Context, int) error {
		return unasked("LOADING it is")
	}, unsent: true},
	"its connection broke": {wait: func(context.Context, int) error { return io.EOF }},
	"not answered":         {wait: func(ctx context.Context, _ int) error { return after(ctx, time.Hour) }},
}

// fill has as many calls in flight as may be.
func fill(s *Store) {
	for range maxBatches {
		go func() { _, _ = takeOne(context.Background(), s, "other") }()
	}
	synctest.Wait()
}

// isUnsent asks an error as a failover does.
func isUnsent(err error) bool {
	var e interface{ Unsent() bool }
	return errors.As(err, &e) && e.Unsent()
}

// The error of a step says whether it was certainly not carried out. A failover over the
// store then keeps a refund for later, and repeats none that may have been carried out.
func TestErrorSaysWhetherAStepWasSent(t *testing.T) {
	for name, row := range fates {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				// The store's own error, once.
				s := fated(t, &fake{wait: row.wait})
				defer time.Sleep(time.Minute)
				if row.before != nil {
					row.before(s)
				}
				if _, err := takeOne(t.Context(), s, "k"); err == nil || isUnsent(err) != row.unsent {
					t.Errorf("%v: unsent %v, want %v", err, isUnsent(err), row.unsent)
				}
			})

			// The same failure under a failover, of which a refund must survive exactly if it was
			// not carried out.
			inBubble(t, func(t *testing.T) {
				s := fated(t, &fake{wait: row.wait})
				defer time.Sleep(time.Minute)
				f := failover.MustNew(s, failover.Options{Fallback: memstore.MustNew(memstore.Options{}),
					Logger: slog.New(slog.DiscardHandler)})
				defer f.Close()

				if row.before != nil {
					row.before(s)
				}

				// The take that is given back is of long ago, so that memory does not know it.
				undo := core.Op{Verb: core.Refund, Rule: "r", Key: "k", Limit: limit(t, "1000/1s"), Cost: 1,
					At: 1 << 50}

				err := f.Apply(t.Context(), []core.Op{undo}, make([]core.Decision, 1))
				if n := f.Stats().Waits; (err == nil) != row.unsent || (n == 1) != row.unsent {
					t.Errorf("%v, %d refunds wait, want %v", err, n, row.unsent)
				}
			})
		})
	}
}

// fated returns a store over the fake, whose server lets no client connect.
func fated(t *testing.T, f *fake) *Store {
	f.connect = func(context.Context) error { return io.EOF }
	return faked(t, f, Options{})
}

func TestStepWhoseContextHadEndedWasNotSent(t *testing.T) {
	s := faked(t, &fake{}, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := takeOne(ctx, s, "k"); !errors.Is(err, context.Canceled) || !isUnsent(err) {
		t.Errorf("%v, unsent %v", err, isUnsent(err))
	}
}

// The failure of a call that was not made says nothing about a step that was sent in another,
// and that of one which was sent nothing about a step that waited.
func TestFailureOfAnotherCallDoesNotSayWhetherAStepWasSent(t *testing.T) {
	for was, want := range map[stage]bool{queued: true, filled: false} {
		// A step in the queue was in no call, and one in a call may have been sent.
		for _, err := range []error{unsent(io.EOF), &shutError{io.EOF}, maybeSent(io.EOF), failedCall(io.EOF)} {
			if got := leftAt(was, err, nil, nil); isUnsent(got) != want || !errors.Is(got, io.EOF) {
				t.Errorf("stage %d, %#v: unsent %v", was, err, !want)
			}
		}
		if leftAt(was, nil, nil, nil) != nil {
			t.Error("no error became one")
		}
	}

	late := &lateCall{&unreachable{errRefused}, time.Now(), nil} // the server cannot be dialled any more
	if isUnsent(ofCall(late)) || !isUnsent(ofCall(errRefused)) {
		t.Error("a late call counts as not sent")
	}
}

// A step about several subjects may have been carried out for one of them.
func TestStepOfSeveralSubjectsMayHaveBeenSentInPart(t *testing.T) {
	// The second call, for the second subject, cannot be made.
	f := &fake{wait: func(_ context.Context, n int) error {
		if n == 2 {
			return errRefused
		}
		return nil
	}}

	s := faked(t, f, Options{})
	s.servers.sharded = true
	ops := []core.Op{
		{Verb: core.Refund, Rule: "r", Key: "a", Limit: limit(t, "1000/1s"), Cost: 1, At: 1 << 50},
		{Verb: core.Refund, Rule: "r", Key: "b", Limit: limit(t, "1000/1s"), Cost: 1, At: 1 << 50},
	}

	// After the first part was sent, the step counts as possibly sent.
	if err := s.Apply(t.Context(), ops, make([]core.Decision, 2)); !errors.Is(err, syscall.ECONNREFUSED) ||
		isUnsent(err) {
		t.Errorf("after one part: %v, unsent %v", err, isUnsent(err))
	}

	f.mu.Lock()
	f.calls = f.calls[:1] // so that the next is the second
	f.mu.Unlock()
	if err := s.Apply(t.Context(), ops, make([]core.Decision, 2)); !isUnsent(err) {
		t.Errorf("before any part: %v", err)
	}
}

// A server that loads until the time is over is named as the cause, also if the last call
// found no time at all.
func TestErrorAfterARetryNamesTheCauseBefore(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		// The first call hears that the server loads, and the second nothing.
		s := faked(t, &fake{wait: func(ctx context.Context, n int) error {
			if n == 1 {
				return unasked("LOADING it is")
			}
			return after(ctx, time.Hour)
		}}, Options{})

		_, err := takeOne(t.Context(), s, "k")
		if want := "redisstore: no answer in time: context deadline exceeded, after redisstore: LOADING it is"; err == nil || err.Error() != want || isUnsent(err) {
			t.Errorf("%v\nwant %s", err, want)
		}

		time.Sleep(time.Minute)
	})
}

// A step that was sent, and whose caller has left, tells its decisions once to who follows it,
// whether he does so before they come or after. A step that fails tells nothing.
func TestStepWhoseCallerHasLeftTellsItsDecisions(t *testing.T) {
	const answered = 60 * ms // after the call began; its caller leaves at 50
	for name, row := range map[string]struct {
		follow time.Duration // since the caller came
		fails  bool
		want   int
	}{
		// Whether it is followed before or after the answer at 60ms, and whether there is one.
		"followed at once":               {follow: 50 * ms, want: 1},
		"followed after the answer":      {follow: 100 * ms, want: 1},
		"followed at once, and it fails": {follow: 50 * ms, fails: true},
		"followed after it has failed":   {follow: 100 * ms, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				s := fated(t, &fake{wait: func(ctx context.Context, n int) error {
					if n <= maxBatches {
						return after(ctx, 10*ms)
					}
					err := after(ctx, answered)
					if row.fails {
						return io.EOF
					}
					return err
				}})
				defer time.Sleep(time.Minute)
				fill(s)

				begun := time.Now()
				_, err := takeOne(t.Context(), s, "k")
				if took := time.Since(begun); took != 50*ms {
					t.Fatalf("the caller left after %v: %v", took, err)
				}
				var pending *pendingError
				if !errors.As(err, &pending) || isUnsent(err) {
					t.Fatalf("%v", err)
				}

				time.Sleep(row.follow - 50*ms)
				told := 0
				pending.WhenDecided(func(ops []core.Op, out []core.Decision) {
					told++
					if len(ops) != 1 || ops[0].Key != "k" || len(out) != 1 || !out[0].Allowed {
						t.Errorf("%+v: %+v", ops, out)
					}
				})
				time.Sleep(time.Second)
				synctest.Wait()
				if told != row.want {
					t.Errorf("told %d times, want %d", told, row.want)
				}
			})
		})
	}
}
