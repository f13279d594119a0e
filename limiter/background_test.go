package limiter_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/store/memstore"
)

// distant is a store whose answers to refunds take a time, whatever the context.
type distant struct {
	core.Store
	away     time.Duration
	answered atomic.Int32 // refunds
}

func newDistant(away time.Duration) *distant { return &distant{Store: newTicking(), away: away} }

func (d *distant) Apply(ctx context.Context, ops []core.Op, out []core.Decision) error {
	if ops[0].Verb == core.Refund {
		time.Sleep(d.away)
		defer d.answered.Add(1)
	}
	return d.Store.Apply(ctx, ops, out)
}

// wantTook fails unless f takes exactly the time.
func wantTook(t *testing.T, what string, want time.Duration, f func()) {
	t.Helper()
	begin := time.Now()
	f()
	if took := time.Since(begin); took != want {
		t.Errorf("%s took %s, want %s", what, took, want)
	}
}

const away = 20 * time.Millisecond

func TestReleaseCostsTheAnswerNothing(t *testing.T) {
	for name, end := range leaseEnds {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLimiter(t, newDistant(away), rule(t, "jobs", "1 concurrent ttl=1h"))
				ctx, leave := context.WithCancel(t.Context())
				r := get()
				// The client has left, so the context of the request is over when the lease is
				// released.
				r.Ctx = ctx
				a := l.Admit(r)

				leave()
				// The answer waits for no round trip: the release makes it in the background.
				wantTook(t, "the end", 0, func() { end(a) })
				wantTook(t, "the release", away, l.AwaitReleases)
				wantLeft(t, l, "k", 1)
			})
		})
	}
}

func TestReleaseIsAwaitedByClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newDistant(away), rule(t, "jobs", "2 concurrent ttl=1h"))

		a, b := l.Admit(get()), l.Admit(get())
		wantTook(t, "the end", 0, func() { a.Done(200) })
		// Close waits for the release of a. b ends later, and then its own end has to wait.
		wantTook(t, "Close", away, func() { _ = l.Close() })
		wantLeft(t, l, "k", 1)
		wantTook(t, "the end of a request after Close", away, func() { b.Done(200) })
		wantLeft(t, l, "k", 2)
		wantTook(t, "a second Close", 0, func() { _ = l.Close() })
	})
}

func TestReleaseIsAwaitedByCloseForASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newDistant(time.Minute), rule(t, "jobs", "1 concurrent ttl=1h"))
		l.Admit(get()).Done(200)
		wantTook(t, "Close", time.Second, func() { _ = l.Close() })
		time.Sleep(time.Minute)
	})
}

func TestReleasesUnderWayAreBounded(t *testing.T) {
	const bound = 1024

	synctest.Test(t, func(t *testing.T) {
		s := newDistant(away)
		// More leases than releases may be under way.
		l := newLimiter(t, s, rule(t, "jobs", "2000 concurrent ttl=1h"))
		for range bound {
			a := l.Admit(get())
			wantTook(t, "the end", 0, func() { a.Done(200) })
		}

		// The one above the bound is released by its own request, which waits for it.
		a := l.Admit(get())
		wantTook(t, "the end of one more", away, func() { a.Done(200) })

		synctest.Wait()
		if n := s.answered.Load(); n != bound+1 {
			t.Errorf("%d leases were released, want %d", n, bound+1)
		}
	})
}

// A store in memory has answered before a goroutine could have asked it.
func TestReleaseInMemoryIsDoneWithTheRequest(t *testing.T) {
	for name, s := range map[string]core.Store{"no store": nil,
		"a memory store": memstore.MustNew(memstore.Options{})} {
		l := newLimiter(t, s, rule(t, "jobs", "1 concurrent ttl=1h"))
		for range 100 {
			a := l.Admit(get())
			if a.Outcome() != limiter.Pass {
				t.Fatalf("%s: %s", name, a.Outcome())
			}
			a.Done(200)
		}
	}
}

// A client that was told that its login succeeded finds all its attempts.
func TestRefundIfIsDoneBeforeTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failures := rule(t, "failures", "5/24h fixed-window")
		failures.RefundIf = func(status int) bool { return status == 200 }

		l := newLimiter(t, newDistant(away), failures, rule(t, "jobs", "1 concurrent ttl=1h"))
		a := l.Admit(get())
		wantTook(t, "the end", away, func() { a.Done(200) })
		wantLeft(t, l, "k", 5, 1)
	})
}
