package limiter

import (
	"context"
	"github.com/headgate/headgate/core"
	"testing"
	"testing/synctest"
	"time"
)

// silent is a store that never answers in time.
type silent struct{ calls int }

func (s *silent) Apply(context.Context, []core.Op, []core.Decision) error {
	s.calls++
	return context.DeadlineExceeded
}

func TestArrearsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &silent{}
		l := MustNew(Config{Store: s})
		op := core.Op{Verb: core.Refund, Lease: "lease", Limit: core.Limit{Algorithm: core.Concurrency, Quota: 1, Period: 5 * time.Second}}
		for range maxArrears + 100 {
			l.owe([]core.Op{op})
		}
		l.arrears.mu.Lock()
		n := len(l.arrears.owed)
		l.arrears.mu.Unlock()
		if n != maxArrears {
			t.Errorf("%d are kept, want %d", n, maxArrears)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		l.arrears.mu.Lock()
		defer l.arrears.mu.Unlock()
		if l.arrears.owed != nil || l.arrears.busy || s.calls != 5 {
			t.Errorf("%d are left after their time and %d calls, timer %t", len(l.arrears.owed), s.calls, l.arrears.busy)
		}
	})
}
