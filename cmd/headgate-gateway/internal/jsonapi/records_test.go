package jsonapi

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// After a failure nothing waits for Redis for a second, and then one caller does.
func TestRedisIsTriedByOneCallerASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &redisRecords{timeout: 20 * time.Millisecond}
		var calls atomic.Int64
		hang := func(ctx context.Context) error {
			calls.Add(1)
			<-ctx.Done()
			return ctx.Err()
		}

		round := func(f func(context.Context) error, want int64) {
			t.Helper()
			calls.Store(0)
			var all sync.WaitGroup
			var away atomic.Int64
			for range 10 {
				all.Go(func() {
					if errors.Is(r.call(t.Context(), f), errAway) {
						away.Add(1)
					}
				})
			}

			all.Wait()
			if calls.Load() != want || away.Load() != 10-want {
				t.Errorf("%d calls and %d without one, want %d of 10", calls.Load(), away.Load(), want)
			}
		}

		// The first ten do not know of the failure yet, and all hang.
		round(hang, 10)
		round(hang, 0)

		// One caller tries again, and no other waits with it.
		time.Sleep(awayPause)
		round(hang, 1)

		time.Sleep(awayPause)

		// One success ends the pause for all.
		ok := func(context.Context) error { return nil }
		if err := r.call(t.Context(), ok); err != nil {
			t.Error(err)
		}
		round(func(context.Context) error { calls.Add(1); return nil }, 10)

		// The deadline of the caller counts, and its end does not.
		soon, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		gone, leave := context.WithCancel(t.Context())
		leave()
		begun := time.Now()
		if err := r.call(gone, ok); err != nil {
			t.Error(err)
		}
		if err := r.call(soon, hang); !errors.Is(err, context.DeadlineExceeded) ||
			time.Since(begun) != 5*time.Millisecond {
			t.Errorf("%v after %s", err, time.Since(begun))
		}
	})
}
