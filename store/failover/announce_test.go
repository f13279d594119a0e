package failover

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// OnChange closes the store, at either change.
func TestOnChangeMayClose(t *testing.T) {
	for _, at := range []State{Open, Closed} {
		t.Run(at.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s *Store
				closed := 0
				f := newFake()
				s = over(t, f, Options{OnChange: func(_ string, state State) {
					if state == at {
						closed++
						s.Close()
					}
				}})

				// The hook closes the store from within the change that it is told of, which must
				// not wait for itself.
				openNow(t, s, f)
				f.rise()
				time.Sleep(time.Second)
				synctest.Wait()

				// After Close the breaker stays as it was: the return is heard of only if the store
				// was still open.
				if closed != 1 || s.State() != at {
					t.Errorf("closed %d times, and the breaker is %s", closed, s.State())
				}
			})
		})
	}
}

// angry is a log handler that panics.
type angry struct{ slog.Handler }

func (angry) Enabled(context.Context, slog.Level) bool { return true }
func (angry) Handle(context.Context, slog.Record) error {
	panic("logger")
}

func TestLoggerPanicIsHarmless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reported []State
		f := newFake()
		s := over(t, f, Options{Logger: slog.New(angry{}), OnChange: func(_ string, state State) {
			reported = append(reported, state)
		}})
		defer s.Close()

		// Both changes reach OnChange, although each line panics in the logger before.
		openNow(t, s, f)
		comeBack(t, s, f)
		synctest.Wait()

		if len(reported) != 2 {
			t.Errorf("OnChange was called with %v", reported)
		}
	})
}

// A refund that would have to wait for a store that is closed is lost, and says so.
func TestRefundAfterCloseIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := over(t, f, Options{Fallback: memory()})
		op := take(t, "k", "12/1h", 1)

		// One refund waits for the primary, and the other is asked for after Close.
		a, b := undo(op, one(t, s, op)), undo(op, one(t, s, op))
		openNow(t, s, f)
		one(t, s, a)

		s.Close()

		// The one that waited can no longer be made.
		if got := s.Stats(); got.Waits != 0 || got.Lost != 1 {
			t.Errorf("after Close: %+v", got)
		}

		// The later one says both that the store is closed and why it could not be made at once.
		_, err := try(s, b)
		if !errors.Is(err, ErrClosed) || !errors.Is(err, ErrOpen) ||
			err.Error() != "failover: the store is closed: failover: the primary store is bypassed: down" {
			t.Errorf("%v", err)
		}

		if got := s.Stats(); got.Waits != 0 || got.Lost != 2 {
			t.Errorf("after a refund: %+v", got)
		}
	})
}
