package limiter

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
)

// silent is a store that never answers in time.
type silent struct{ calls int }

func (s *silent) Apply(context.Context, []core.Op, []core.Decision) error {
	s.calls++
	return context.DeadlineExceeded
}

// The bound is the one that docs/promises.md names.
func TestReleaseQueueIsBounded(t *testing.T) {
	const bound = 4096
	synctest.Test(t, func(t *testing.T) {
		s := &silent{}
		l := MustNew(Config{Store: s})
		op := core.Op{Verb: core.Refund, Lease: "lease",
			Limit: core.Limit{Algorithm: core.Concurrency, Quota: 1, Period: 5 * time.Second}}

		for range bound + 100 {
			l.addReleases([]core.Op{op})
		}

		l.releases.mu.Lock()
		n := len(l.releases.queued)
		l.releases.mu.Unlock()
		if n != bound {
			t.Errorf("%d are kept, want %d", n, bound)
		}

		// The leases of 5 s have expired long since, so that none is kept or tried any longer.
		time.Sleep(time.Minute)
		synctest.Wait()

		l.releases.mu.Lock()
		defer l.releases.mu.Unlock()
		if l.releases.queued != nil || l.releases.busy || s.calls != 5 {
			t.Errorf("%d are left after their time and %d calls, timer %t", len(l.releases.queued), s.calls,
				l.releases.busy)
		}
	})
}
