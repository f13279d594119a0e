package core

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// silent is a store that never answers in time.
type silent struct{ calls int }

func (s *silent) Apply(context.Context, []Op, []Decision) error {
	s.calls++
	return context.DeadlineExceeded
}

func TestArrearsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &silent{}
		l := MustNew(Config{Store: s})
		op := Op{Verb: Refund, Lease: "lease", Limit: Limit{Algorithm: Concurrency, Quota: 1, Period: 5 * time.Second}}
		for range maxArrears + 100 {
			l.owe([]Op{op})
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
