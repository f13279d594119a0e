package limiter_test

import (
	"context"
	"errors"
	"net"
	"regexp"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/limiter"
)

func TestLeaseIdsAreFreshAndOnlyMadeWhenNeeded(t *testing.T) {
	ids := map[string]bool{}
	form := regexp.MustCompile(`^[0-9a-f]{32}$`)
	// Of three rules two are limits of leases. They share one id, and the other has none.
	l := newLimiter(t, storeFunc(func(_ context.Context, ops []core.Op, out []core.Decision) error {
		if ops[0].Lease != "" {
			t.Errorf("a lease %q without need", ops[0].Lease)
		}
		if ops[1].Lease != ops[2].Lease || !form.MatchString(ops[1].Lease) {
			t.Errorf("leases %q and %q", ops[1].Lease, ops[2].Lease)
		}
		ids[ops[1].Lease] = true
		return nothing{}.Apply(context.Background(), ops, out)
	}), rule(t, "a", "1/1s"), rule(t, "b", "1 concurrent ttl=1s"), rule(t, "c", "1 concurrent ttl=1s"))

	for range 1000 {
		if _, err := l.Take(context.Background(), "k", 1); err != nil {
			t.Fatal(err)
		}
	}

	if len(ids) != 1000 {
		t.Errorf("%d ids, want 1000", len(ids))
	}
}

func TestReleaseIsDoneOnceAndEndsRenewal(t *testing.T) {
	s := newStore()
	l := newLimiter(t, s, rule(t, "jobs", "2 concurrent ttl=1m"), rule(t, "all", "9/1m fixed-window"))

	ctx := context.Background()
	res, _ := l.Take(ctx, "k", 1)
	wantLeft(t, l, "k", 1, 8)
	if !res.HoldsLeases() {
		t.Error("a result that was not released holds no leases")
	}

	if held, err := res.Renew(ctx); !held || err != nil {
		t.Errorf("held %t, %v", held, err)
	}
	wantLeft(t, l, "k", 1, 8)

	// A second release must not free a lease that another has by then.
	for range 2 {
		if err := res.Release(ctx); err != nil {
			t.Fatal(err)
		}
		wantLeft(t, l, "k", 2, 8)
	}

	// What is released is not renewed, and the store not asked.
	calls := s.calls
	if held, err := res.Renew(ctx); held || err != nil || s.calls != calls {
		t.Errorf("held %t, %v after %d calls", held, err, s.calls-calls)
	}

	// The refund is of the other rule only, as the lease is released already.
	if err := res.Refund(ctx); err != nil {
		t.Fatal(err)
	}
	wantLeft(t, l, "k", 2, 9)
}

func TestReleaseCanBeRepeatedAfterAFailure(t *testing.T) {
	s, down := newStore(), false
	l := newLimiter(t, storeFunc(func(ctx context.Context, ops []core.Op, out []core.Decision) error {
		if down {
			return errDown
		}
		return s.Apply(ctx, ops, out)
	}), rule(t, "jobs", "2 concurrent ttl=1m"))

	res, _ := l.Take(context.Background(), "k", 1)
	// The failed release leaves the lease with the result, so it can be tried again.
	down = true
	if err := res.Release(context.Background()); !errors.Is(err, errDown) {
		t.Fatal(err)
	}

	down = false
	wantLeft(t, l, "k", 1)

	if err := res.Release(context.Background()); err != nil {
		t.Fatal(err)
	}
	wantLeft(t, l, "k", 2)
}

func TestLeaseTakenByAnotherIsNotHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newTicking(), rule(t, "jobs", "1 concurrent ttl=1s"))
		res, _ := l.Take(t.Context(), "k", 1)
		// The lease expires, and another request takes its unit.
		time.Sleep(time.Second)
		h, _ := l.Take(t.Context(), "k", 1)
		if !h.Allowed() {
			t.Fatal("an expired lease is held")
		}

		if held, err := res.Renew(t.Context()); held || err != nil {
			t.Errorf("held %t, %v", held, err)
		}

		// The release of the first must not end the lease of the second.
		if err := res.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantLeft(t, l, "k", 0)
	})
}

func TestLeaseLastsAsLongAsItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newTicking(), rule(t, "jobs", "1 concurrent ttl=3s"))

		a := l.Admit(get())
		if !a.HoldsLeases() || !a.NeedsContext() {
			t.Error("HoldsLeases is false")
		}

		// A hundred seconds are 33 times the ttl, for which the lease is renewed.
		for range 100 {
			time.Sleep(time.Second)
			wantLeft(t, l, "k", 0)
		}

		a.Done(200)
		wantLeft(t, l, "k", 1)
		if a.Renewing() {
			t.Error("the renewal goes on")
		}
	})
}

func TestLeaseIsNotHeldByARefusedRequest(t *testing.T) {
	l := newLimiter(t, newStore(), rule(t, "jobs", "5 concurrent ttl=3s"), rule(t, "rate", "1/1h"))
	a := l.Admit(get())
	b := l.Admit(get())

	if b.Outcome() != limiter.Refused || b.HoldsLeases() || b.NeedsContext() {
		t.Errorf("%s, holds %t", b.Outcome(), b.HoldsLeases())
	}
	// The rate refuses the second request, so that it has no lease to give back.
	wantLeft(t, l, "k", 4, 0)

	b.Done(429)
	a.Done(200)
	wantLeft(t, l, "k", 5, 0)
}

func TestRenewalDuringAReleaseHoldsNothing(t *testing.T) {
	s := newStore()
	var res *limiter.Result
	// The release comes while the renewal is on its way to the store.
	l := newLimiter(t, storeFunc(func(ctx context.Context, ops []core.Op, out []core.Decision) error {
		if res != nil && ops[0].Verb == core.Take {
			renewed := res
			res = nil
			if err := renewed.Release(ctx); err != nil { // overtakes the renewal
				t.Error(err)
			}
		}
		return s.Apply(ctx, ops, out)
	}), rule(t, "jobs", "1 concurrent ttl=1h"))

	lease, _ := l.Take(context.Background(), "k", 1)
	res = lease
	if held, err := lease.Renew(context.Background()); held || err != nil {
		t.Errorf("held %t, %v", held, err)
	}
	wantLeft(t, l, "k", 1)
}

func TestHoldConnHoldsTheLeaseUntilClose(t *testing.T) {
	for _, closedFirst := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l := newLimiter(t, newTicking(), rule(t, "jobs", "1 concurrent ttl=3s"))
			a := l.Admit(get())
			near, far := net.Pipe()
			defer far.Close()

			c := a.HoldConn(near)
			// The connection may be closed before the handler returns, or live on after the
			// request.
			if closedFirst {
				_ = c.Close()
				wantLeft(t, l, "k", 1)
				if a.Renewing() {
					t.Error("the renewal goes on")
				}
				a.Done(101)
			} else {
				a.Done(101)
				// Twenty seconds are several times the ttl.
				for range 20 {
					time.Sleep(time.Second)
					wantLeft(t, l, "k", 0)
				}
				_, _ = c.Close(), c.Close()
			}

			wantLeft(t, l, "k", 1)
			if a.Renewing() {
				t.Error("the renewal goes on")
			}
		})
	}
}

func TestHoldConnWithoutLeasesReturnsTheConn(t *testing.T) {
	l := newLimiter(t, newStore(), rule(t, "a", "1/1s"))
	a := l.Admit(get())
	defer a.Done(101)

	near, far := net.Pipe()
	defer far.Close()
	defer near.Close()
	if a.HoldConn(near) != near {
		t.Error("wrapped")
	}
}

func TestLeaseOutlastsTheWaitForAnotherRule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newTicking(), rule(t, "jobs", "2 concurrent ttl=1s"),
			waiting(t, "smooth", "1/10s burst=1", time.Minute))

		admit(l)
		a := l.Admit(get()) // the lease expires meanwhile, and is taken anew
		if a.Outcome() != limiter.Pass || a.Result().Waited() != 10*time.Second {
			t.Errorf("%s after %s", a.Outcome(), a.Result().Waited())
		}

		wantLeft(t, l, "k", 1, 0)
		a.Done(200)
		wantLeft(t, l, "k", 2, 0)
	})
}

func TestLeaseLostDuringAWaitIsARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Only GETs wait for a slot, so that a POST can take the lease of one that waits.
		jobs, smooth := rule(t, "jobs", "1 concurrent ttl=1s"), waiting(t, "smooth", "1/10s burst=1", time.Minute)
		smooth.Key = func(r core.Request) (string, bool) { return "k", r.Method() == "GET" }
		s := newTicking()
		l := newLimiter(t, s, jobs, smooth)

		admit(l)
		reserve(t, newLimiter(t, s, smooth), 10*time.Second) // so that l books far ahead too

		var wg sync.WaitGroup
		wg.Go(func() {
			a := l.Admit(get())
			defer a.Done(429)
			if v := a.Violated(); a.Outcome() != limiter.Refused || len(v) != 1 || v[0] != "jobs" ||
				a.RetryAfter() != 1 {
				t.Errorf("%s by %v, retry after %d", a.Outcome(), v, a.RetryAfter())
			}
		})

		// The lease of the one that waits has a ttl of 1 s and is not renewed during the wait:
		// after 5 s another takes it.
		time.Sleep(5 * time.Second)
		b := l.Admit(&test.Request{Verb: "POST"})
		if b.Outcome() != limiter.Pass {
			t.Errorf("%s", b.Outcome())
		}

		// At its instant the first finds its lease taken, and is refused by jobs.
		wg.Wait()
		b.Done(200)
		wantLeft(t, l, "k", 1, 1) // and the slot was given back
	})
}
