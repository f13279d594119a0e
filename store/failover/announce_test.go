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
				openNow(t, s, f)
				f.rise()
				time.Sleep(time.Second)
				synctest.Wait()
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
		s := over(t, f, Options{Logger: slog.New(angry{}), OnChange: func(_ string,
			state State) {
			reported = append(reported, state)
		}})
		defer s.Close()
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
		a, b := undo(op, one(t, s, op)), undo(op, one(t, s, op))
		openNow(t, s, f)
		one(t, s, a)
		s.Close()
		if got := s.Stats(); got.Waits != 0 || got.Lost != 1 {
			t.Errorf("after Close: %+v", got)
		}
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
