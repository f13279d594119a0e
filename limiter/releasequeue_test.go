package limiter_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
)

// outage is a store that is down between two instants, and notes when it was
// asked to end a lease.
type outage struct {
	*mapStore
	began       time.Time
	from, until time.Duration

	mu    sync.Mutex
	asked []time.Duration
}

func newOutage(from, until time.Duration) *outage {
	return &outage{mapStore: newTicking(), began: time.Now(), from: from, until: until}
}

func (o *outage) Apply(ctx context.Context, ops []core.Op, out []core.Decision) error {
	at := time.Since(o.began)
	if ops[0].Verb == core.Refund {
		o.mu.Lock()
		o.asked = append(o.asked, at)
		o.mu.Unlock()
	}
	if at >= o.from && at < o.until {
		return errDown
	}
	return o.mapStore.Apply(ctx, ops, out)
}

func TestReleaseQueueReleasesAfterAnOutage(t *testing.T) {
	for name, end := range leaseEnds {
		synctest.Test(t, func(t *testing.T) {
			s := newOutage(time.Second, 1500*time.Millisecond)
			l := newLimiter(t, s, rule(t, "jobs", "3 concurrent ttl=1h"))

			a, b := l.Admit(get()), l.Admit(get())
			// Both requests end as the outage begins, half a second before the store is back.
			time.Sleep(time.Second)
			end(a)
			end(b)

			time.Sleep(time.Hour / 2)
			synctest.Wait()
			wantLeft(t, l, "k", 3)

			ms := time.Millisecond
			// Two ends, and a pause that doubles from 100 ms on until the store is
			// back; then both are released at once.
			want := []time.Duration{1000 * ms, 1000 * ms, 1100 * ms, 1300 * ms, 1700 * ms, 1700 * ms}
			if !slices.Equal(s.asked, want) {
				t.Errorf("%s: asked at %v, want %v", name, s.asked, want)
			}
		})
	}
}

func TestReleaseQueueDropsExpiredLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newOutage(time.Second, time.Hour)
		l := newLimiter(t, s, rule(t, "jobs", "1 concurrent ttl=20s"))
		a := l.Admit(get())

		time.Sleep(time.Second)
		// The outage lasts longer than the lease, which ends by itself after 20 s.
		a.Done(200)
		time.Sleep(2 * time.Hour)
		synctest.Wait()

		// After 100 ms, 200, 400, 800, 1.6 s, 3.2 s, and every 5 s.
		if n := len(s.asked); n != 1+6+2 {
			t.Errorf("asked %d times, at %v", n, s.asked)
		}
	})
}

func TestReleaseQueueEndsWithClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newOutage(time.Second, time.Hour)
		l := newLimiter(t, s, rule(t, "jobs", "1 concurrent ttl=20s"))
		a := l.Admit(get())

		time.Sleep(time.Second)
		a.Done(200)
		_ = l.Close()
		time.Sleep(time.Minute)
		synctest.Wait()
		// Only the release at the end of the request has asked: Close drops the queue.
		if n := len(s.asked); n != 1 {
			t.Errorf("asked %d times, at %v", n, s.asked)
		}
	})
}

func TestRefundIsNotRepeatedAfterAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newOutage(time.Second, time.Hour)
		r := rule(t, "failures", "5/24h")
		r.RefundIf = func(status int) bool { return status == 200 }
		l := newLimiter(t, s, r)

		a := l.Admit(get())
		time.Sleep(time.Second)
		a.Done(200)

		time.Sleep(time.Minute)
		synctest.Wait()
		// A second refund could give units back twice, so it is not tried again.
		if n := len(s.asked); n != 1 {
			t.Errorf("asked %d times, at %v", n, s.asked)
		}
	})
}
