// Results that are settled.

package limiter_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
)

// tokens is what a request has used.
func tokens(n int64) map[string]int64 { return map[string]int64{"tokens": n} }

func settle(t *testing.T, res *limiter.Result, actual map[string]int64) {
	t.Helper()
	if err := res.Settle(context.Background(), actual); err != nil {
		t.Error(err)
	}
}

func TestSettleLeavesWhatWasUsed(t *testing.T) {
	for _, text := range []string{"100/1h", "100/1h token-bucket", "100/1h fixed-window", "100/1h sliding-window"} {
		// 40 units are taken of 100. Less, the same, and more may have been used, also more than
		// the limit holds.
		for used, want := range map[int64]struct {
			left  int64
			reset time.Duration // of GCRA
		}{
			// The reset says what left cannot: the debt under GCRA, 36 s for each unit over the
			// limit and at most another 100 units.
			0: {100, 0}, 10: {90, 6 * time.Minute}, 40: {60, 24 * time.Minute},
			41:  {59, 24*time.Minute + 36*time.Second},
			100: {0, time.Hour}, 150: {0, 90 * time.Minute}, 250: {0, 2 * time.Hour},
		} {
			s := newStore()
			l := newLimiter(t, s, rule(t, "tokens", text))
			res, _ := l.Take(t.Context(), "k", 40)
			settle(t, res, tokens(used))

			wantLeft(t, l, "k", want.left)
			if list, _ := l.Peek(t.Context(), "k"); text == "100/1h" && list[0].Decision.ResetAfter != want.reset {
				t.Errorf("%d used of 40 taken: fresh after %s, want %s", used, list[0].Decision.ResetAfter, want.reset)
			}

			// The take, two peeks, and the settlement if there was a difference. Neither a second
			// one nor a refund asks the store.
			calls := 2 + min(1, max(used-40, 40-used))
			settle(t, res, tokens(99))
			if err := res.Refund(t.Context()); err != nil || s.calls != int(calls+1) {
				t.Errorf("%s: %d used in %d calls, want %d; %v", text, used, s.calls, calls+1, err)
			}

			wantLeft(t, l, "k", want.left)
		}
	}
}

// What time has given back is not given back again.
func TestSettleIsAsOfTheTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newTicking(), rule(t, "tokens", "10/10s"))
		res, _ := l.Take(t.Context(), "k", 8)
		other, _ := l.Take(t.Context(), "k", 1)

		// In two seconds time gives 2 units back, so that of the 6 that were not used only 4 more
		// come.
		time.Sleep(2 * time.Second)
		settle(t, res, tokens(2))
		wantLeft(t, l, "k", 7)

		settle(t, other, tokens(6))
		wantLeft(t, l, "k", 2)
	})
}

func TestSettleIsOneStepWithTheLeases(t *testing.T) {
	s := newStore()
	l := newLimiter(t, s, rule(t, "requests", "9/1h"), rule(t, "tokens", "100/1h"), rule(t, "seconds", "100/1h"),
		rule(t, "jobs", "3 concurrent ttl=1m"))
	res, _ := l.Take(t.Context(), "k", 3)

	wantLeft(t, l, "k", 6, 97, 97, 0)
	// Both settlements and the release of the lease are one call of the store.
	calls := s.calls
	settle(t, res, map[string]int64{"tokens": 20, "seconds": 1})
	if s.calls != calls+1 {
		t.Errorf("%d calls", s.calls-calls)
	}

	wantLeft(t, l, "k", 6, 80, 99, 3)
	// The leases ended with Settle, so that Release has nothing to do.
	if err := res.Release(t.Context()); err != nil || s.calls != calls+2 {
		t.Errorf("the leases are released a second time: %v", err)
	}
}

// A Result about which nothing was decided, as one of a wrong argument is, has nothing to settle.
func TestNothingToSettle(t *testing.T) {
	l := configured(t, limiter.Config{Store: newStore(), Rules: []limiter.Rule{rule(t, "tokens", "10/1h")}})
	wrong, _ := l.Take(t.Context(), "k", -1)
	none, _ := l.TakeRequest(nil)
	for i, res := range []*limiter.Result{wrong, none, {}, nil} {
		if err := res.Settle(t.Context(), tokens(1)); i < 3 && !errors.Is(err, core.ErrOp) {
			t.Errorf("result %d: %v", i, err)
		}
	}
}

func TestSettleNamesEveryMistake(t *testing.T) {
	s := newStore()
	free := rule(t, "free", "5/1h")
	free.Cost = func(core.Request) int64 { return 0 }
	nobody := rule(t, "nobody", "5/1h")
	nobody.Key = func(core.Request) (string, bool) { return "", false }
	l := configured(t, limiter.Config{Store: s, KeepResult: true, Rules: []limiter.Rule{
		rule(t, "tokens", "10/1h"), rule(t, "log", "10/1h sliding-log"), rule(t, "jobs", "3 concurrent ttl=1m"),
		free, nobody,
	}})

	// Each entry is wrong in its own way, and one error names them all.
	a := l.Admit(get())
	err := a.Result().Settle(t.Context(),
		map[string]int64{"tokens": -1, "log": 2, "jobs": 1, "free": 1, "nobody": 1, "typo": 1})
	for _, want := range []string{
		`rule "tokens": -1 units cannot be used`,
		`rule "log": 2 units are more than the 1 charged, and 10/1h sliding-log has no debt`,
		`rule "jobs": leases are released, not settled`, `rule "free": it charged nothing that could be settled`,
		`rule "nobody": it charged nothing that could be settled`,
		`rule "typo": it charged nothing that could be settled`,
	} {
		if !errors.Is(err, core.ErrOp) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, without %q", err, want)
		}
	}

	if s.calls != 1 {
		t.Errorf("%d calls", s.calls)
	}

	// Nothing was settled, so a corrected report still can be.
	settle(t, a.Result(), map[string]int64{"tokens": 4, "log": 1})
	a.Done(200)
	wantLeft(t, l, "k", 6, 9, 3, 5, 5)

	a = l.Admit(get())
	settle(t, a.Result(), map[string]int64{"log": 0})
	a.Done(200)
	wantLeft(t, l, "k", 5, 9, 3, 5, 5)

	refused, _ := l.Take(t.Context(), "k", 11)
	if err := refused.Settle(t.Context(), tokens(1)); !errors.Is(err, core.ErrOp) {
		t.Errorf("of a refused request: %v", err)
	}
	if err := limiter.FromContext(t.Context()).Settle(t.Context(), tokens(1)); !errors.Is(err, core.ErrOp) ||
		!strings.Contains(err.Error(), "KeepResult") {
		t.Errorf("without a result: %v", err)
	}
}

// A soft rule over its limit charged nothing, and a store that failed decided nothing.
func TestSettleSkipsWhatPassedUncounted(t *testing.T) {
	shadow := rule(t, "tokens", "10/1h")
	shadow.OnLimit = limiter.Shadow

	s := newStore()
	l := newLimiter(t, s, shadow, rule(t, "seconds", "100/1h"))
	res, _ := l.Take(t.Context(), "k", 11)
	settle(t, res, map[string]int64{"tokens": 3, "seconds": 20})
	wantLeft(t, l, "k", 10, 80)

	broken := newLimiter(t, brokenStore(func() error { return errDown }), rule(t, "tokens", "10/1h"))
	res, err := broken.Take(t.Context(), "k", 1)
	if !res.Allowed() || !errors.Is(err, limiter.ErrUndecided) {
		t.Fatalf("%v", err)
	}
	settle(t, res, tokens(3))
	if err := res.Settle(t.Context(), map[string]int64{"typo": 3}); !errors.Is(err, core.ErrOp) {
		t.Errorf("a rule that does not exist: %v", err)
	}
}

// A handler reports for all of its callers, also for those whom a rule does not limit.
func TestSettleSkipsCallersWhomAccessExempts(t *testing.T) {
	s := newStore()
	shadow := listed(t, "seconds", "100/1h")
	shadow.OnLimit = limiter.Shadow

	l := newLimiter(t, s, rule(t, "requests", "9/1h"), listed(t, "tokens", "100/1h"), shadow)
	// Bob is limited by all three rules. Carol is exempt from the two with lists: what is reported
	// for them is skipped, without a call.
	for key, want := range map[string][]int64{"bob": {8, 60, 93}, "carol": {8}} {
		if err := l.Reset(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		res, _ := l.Take(t.Context(), key, 1)

		calls := s.calls
		settle(t, res, map[string]int64{"tokens": 40, "seconds": 7})
		if n := s.calls - calls; n != len(want)/2 {
			t.Errorf("%s: %d calls", key, n)
		}

		wantLeft(t, l, key, want...)
		// A name that no rule has is a mistake for either, and the only one that is named.
		if err := res.Settle(t.Context(), map[string]int64{"tokens": 40, "typo": 1}); !errors.Is(err, core.ErrOp) ||
			strings.Contains(err.Error(), "tokens") {
			t.Errorf("%s: %v", key, err)
		}
	}

	// In shadow a denial refuses nothing. The rule has charged nothing and is skipped.
	l = newLimiter(t, s, rule(t, "requests", "9/1h"), shadow)
	res, _ := l.Take(t.Context(), "mallory", 1)
	settle(t, res, map[string]int64{"requests": 4, "seconds": 7})
	wantLeft(t, l, "mallory", 5)

	// A denied caller was charged nothing, so whatever is reported is a mistake.
	l = newLimiter(t, s, listed(t, "requests", "9/1h"), listed(t, "tokens", "100/1h"))
	res, _ = l.Take(t.Context(), "mallory", 1)
	if err := res.Settle(t.Context(), map[string]int64{"tokens": 1, "requests": 1}); !errors.Is(err, core.ErrOp) ||
		!strings.Contains(err.Error(), `"tokens"`) || !strings.Contains(err.Error(), `"requests"`) {
		t.Errorf("a denied caller: %v", err)
	}
}

// The handler reports, and the end of the request settles, in one step with the leases and
// with what RefundIf gives back. The client may have left before.
func TestSettleOfARequestIsCarriedOutAtItsEnd(t *testing.T) {
	for status, want := range map[int][]int64{200: {8, 73, 3}, 503: {9, 73, 3}} {
		s := newStore()
		requests, estimate := rule(t, "requests", "9/1h"), rule(t, "tokens", "100/1h")
		// The request estimates 50 tokens and then uses 27.
		estimate.Cost = func(core.Request) int64 { return 50 }
		for _, r := range []*limiter.Rule{&requests, &estimate} {
			r.RefundIf = func(status int) bool { return status == limiter.StatusClientLeft }
		}
		l := configured(t, limiter.Config{Store: s, KeepResult: true,
			Rules: []limiter.Rule{requests, estimate, rule(t, "jobs", "3 concurrent ttl=1m")}})

		ctx, leave := context.WithCancel(t.Context())
		r := get()
		r.Ctx = ctx
		a := l.Admit(r)
		if a.NeedsContext() {
			ctx = limiter.NewContext(ctx, a)
		}

		// The client leaves, and the handler reports twice: the first report counts.
		leave()
		used := tokens(27)
		settle(t, limiter.FromContext(ctx), used)
		used["tokens"] = 98 // the map may be used for the next request
		settle(t, limiter.FromContext(ctx), tokens(99))

		// Until the end of the request the estimate of 50 is charged.
		wantLeft(t, l, "k", 8, 50, 2)
		calls := s.calls
		a.Done(status)
		l.AwaitReleases()
		// The settlement, the refund and the release are one call.
		if s.calls != calls+1 {
			t.Errorf("%d calls at the end", s.calls-calls)
		}

		wantLeft(t, l, "k", want...)
	}
}

// A body that is streamed after the middleware has returned is settled at once.
func TestSettleAfterTheEndOfARequestIsCarriedOutAtOnce(t *testing.T) {
	l := configured(t, limiter.Config{Store: newStore(), KeepResult: true,
		Rules: []limiter.Rule{rule(t, "tokens", "100/1h"), rule(t, "jobs", "1 concurrent ttl=1m")}})
	a := l.Admit(get())
	res := a.Result()
	a.Done(200)
	settle(t, res, tokens(31))
	wantLeft(t, l, "k", 69, 1)
}

// What RefundIf has given back is not settled, neither at once nor with the connection.
func TestSettleAfterRefundIfDoesNothing(t *testing.T) {
	for _, used := range []int64{0, 31, 80} {
		estimate := rule(t, "tokens", "100/1h fixed-window")
		estimate.Cost = func(core.Request) int64 { return 50 }
		estimate.RefundIf = func(status int) bool { return status == 101 }
		l := configured(t, limiter.Config{Store: newStore(), KeepResult: true,
			Rules: []limiter.Rule{estimate, rule(t, "jobs", "20 concurrent ttl=1m")}})

		other, _ := l.Take(t.Context(), "k", 20)
		// 20 units were used by another request, so 80 are left whenever the estimate is given
		// back.
		if err := other.Release(t.Context()); err != nil {
			t.Error(err)
		}

		for name, end := range leaseEnds {
			a := l.Admit(get())
			res := a.Result()
			if name == "request" {
				a.Done(101)
			} else {
				end(a)
			}
			// RefundIf has given the estimate back, so the report comes too late.
			settle(t, res, tokens(used))
			wantLeft(t, l, "k", 80, 20)
		}

		for _, before := range []bool{false, true} {
			// A report before the end of the request takes the place of the refund.
			near, _ := net.Pipe()
			a := l.Admit(get())
			c, res := a.HoldConn(near), a.Result()
			if before {
				settle(t, res, tokens(used))
			}
			a.Done(101)
			settle(t, res, tokens(used+1))
			_ = c.Close()

			if before {
				wantLeft(t, l, "k", 80-used, 20)
			} else {
				wantLeft(t, l, "k", 80, 20)
			}
		}
	}
}

// The connection that a handler has taken over is settled when it is closed, in one step
// with its lease, and at once after that.
func TestSettleOfAConnectionIsCarriedOutWhenItIsClosed(t *testing.T) {
	for _, settled := range []string{"in the handler", "after it", "after the connection"} {
		s := newStore()
		l := newLimiter(t, s, rule(t, "tokens", "100/1h"), rule(t, "jobs", "1 concurrent ttl=1m"))
		a := l.Admit(get())
		res := a.Result()

		report := func(when string) {
			if when == settled {
				settle(t, res, tokens(31))
			}
		}

		near, _ := net.Pipe()
		c := a.HoldConn(near)
		report("in the handler")
		a.Done(101)
		report("after it")

		// While the connection is open its charge and its lease stay.
		wantLeft(t, l, "k", 99, 0)
		calls := s.calls
		_ = c.Close()
		l.AwaitReleases()
		if s.calls != calls+1 {
			t.Errorf("%s: %d calls", settled, s.calls-calls)
		}

		report("after the connection")
		wantLeft(t, l, "k", 69, 1)
	}
}

// A worker whose context has ended settles all the same.
func TestSettleAfterTheEndOfItsContext(t *testing.T) {
	l := newLimiter(t, newStore(), rule(t, "tokens", "100/1h"), rule(t, "jobs", "30 concurrent ttl=1m"))
	ctx, cancel := context.WithCancel(t.Context())
	res, _ := l.Take(ctx, "k", 10)
	cancel()
	if err := res.Settle(ctx, tokens(4)); err != nil {
		t.Error(err)
	}
	wantLeft(t, l, "k", 96, 30)
}

// Of Settle and Refund the first counts, rule by rule.
func TestSettleAndRefundExcludeEachOther(t *testing.T) {
	l := newLimiter(t, newStore(), rule(t, "tokens", "100/1h"), rule(t, "requests", "100/1h"))
	res, _ := l.Take(t.Context(), "a", 10)
	settle(t, res, tokens(4))
	if err := res.Refund(t.Context()); err != nil {
		t.Error(err)
	}
	wantLeft(t, l, "a", 96, 100)

	res, _ = l.Take(t.Context(), "b", 10)
	if err := res.Refund(t.Context()); err != nil {
		t.Error(err)
	}
	settle(t, res, tokens(4))
	wantLeft(t, l, "b", 100, 100)

	l = configured(t, limiter.Config{Store: newStore(), KeepResult: true,
		Rules: []limiter.Rule{rule(t, "tokens", "100/1h"), rule(t, "requests", "100/1h")}})
	a := l.Admit(get())
	settle(t, a.Result(), tokens(4))
	if err := a.Result().Refund(t.Context()); err != nil {
		t.Error(err)
	}
	// The refund gives the unit of requests back at once. The tokens wait for the end of the
	// request, as settled before.
	wantLeft(t, l, "k", 99, 100)

	a.Done(200)
	wantLeft(t, l, "k", 96, 100)
}

// Whichever of many comes first, the units are settled or refunded once.
func TestSettleIsDoneOnceByManyCallers(t *testing.T) {
	l := configured(t, limiter.Config{Store: newStore(), KeepResult: true,
		Rules: []limiter.Rule{rule(t, "tokens", "1000/1h fixed-window")}})
	for range 200 {
		if err := l.Reset(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		a := l.Admit(get())

		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() { settle(t, a.Result(), tokens(int64(100*i))) })
		}
		all.Go(func() {
			if err := a.Result().Refund(t.Context()); err != nil {
				t.Error(err)
			}
		})
		all.Go(func() { a.Done(200) })

		all.Wait()
		l.AwaitReleases()
		// One of the reports, or the refund, which leaves 1000.
		if n := left(t, l, "k")[0]; !slices.Contains([]int64{1000, 900, 800, 700}, n) {
			t.Fatalf("%d left", n)
		}
	}
}

// The store may or may not have settled. It is not asked again, but the lease is released
// when the store is back.
func TestSettleThatFailsKeepsTheChargeAndFreesTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			mu   sync.Mutex
			sent [][]core.Op
			down atomic.Bool
			s    = newTicking()
		)
		l := newLimiter(t, storeFunc(func(ctx context.Context, ops []core.Op, out []core.Decision) error {
			mu.Lock()
			sent = append(sent, slices.Clone(ops))
			mu.Unlock()
			if down.Load() {
				return errDown
			}
			return s.Apply(ctx, ops, out)
		}), rule(t, "tokens", "100/1h fixed-window"), rule(t, "jobs", "1 concurrent ttl=1h"))

		res, _ := l.Take(t.Context(), "k", 1)
		// The store fails within the settlement, so it may or may not have happened.
		down.Store(true)
		if err := res.Settle(t.Context(), tokens(30)); !errors.Is(err, errDown) {
			t.Error(err)
		}

		down.Store(false)
		// A second try could settle twice, so there is none. But the lease must come back before
		// its hour is over.
		settle(t, res, tokens(30))
		time.Sleep(time.Second)
		wantLeft(t, l, "k", 99, 1)

		mu.Lock()
		defer mu.Unlock()
		// The take, the settlement with the release, the release alone, and the Peek of this test.
		if len(sent) != 4 || len(sent[1]) != 2 || len(sent[2]) != 1 || sent[2][0].Rule != "jobs" {
			t.Errorf("the store was sent %+v", sent)
		}
	})
}

// In any order of many requests at once, the units counted are the units used.
func TestSettleCountsExactlyWhatManyRequestsUsed(t *testing.T) {
	l := limiter.MustNew(limiter.Config{Rules: []limiter.Rule{rule(t, "tokens", "1000000/24h fixed-window")}})
	var (
		all  sync.WaitGroup
		used atomic.Int64
	)
	for i := range int64(200) {
		all.Go(func() {
			res, err := l.Take(t.Context(), "k", 700)
			if err != nil || !res.Allowed() {
				t.Errorf("%v", err)
			}
			n := i * i % 1500
			used.Add(n)
			settle(t, res, tokens(n))
		})
	}
	all.Wait()

	wantLeft(t, l, "k", 1_000_000-used.Load())
}
