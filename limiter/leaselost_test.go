package limiter_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/events"
)

// losses notes when a limiter reported a lost lease, and the texts.
type losses struct {
	began time.Time

	mu    sync.Mutex
	at    []time.Duration
	texts []string
}

func newLosses() *losses { return &losses{began: time.Now()} }

func (l *losses) note(_ context.Context, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if errors.Is(err, limiter.ErrLeaseLost) {
		l.at, l.texts = append(l.at, time.Since(l.began)), append(l.texts, err.Error())
	}
}

func (l *losses) want(t *testing.T, at ...time.Duration) {
	t.Helper()
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Equal(l.at, at) {
		t.Errorf("lost at %v, want %v: %q", l.at, at, l.texts)
	}
}

const ms = time.Millisecond

func TestLeaseLostWhileTheStoreIsAway(t *testing.T) {
	for _, cancels := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			lost, lines, began := newLosses(), &test.Log{}, time.Now()
			s := newTicking()
			// Two outages: from 400 ms to 2.5 s, and from 5 to 7 s.
			l := configured(t, limiter.Config{
				Store: storeFunc(func(ctx context.Context, ops []core.Op, out []core.Decision) error {
					at := time.Since(began)
					if at > 400*ms && at < 2500*ms || at > 5*time.Second && at < 7*time.Second {
						return errDown
					}
					return s.Apply(ctx, ops, out)
				}),
				Rules: []limiter.Rule{rule(t, "jobs", "1 concurrent ttl=900ms")}, OnError: lost.note,
				CancelOnLostLease: cancels, Logger: plain(lines),
			})
			defer l.Close()

			// The renewals come each 300 ms. That at 300 ms is the last that succeeds, so the lease
			// is held until 1.2 s.
			a := l.Admit(get())
			ctx := limiter.NewContext(t.Context(), a)

			time.Sleep(1200*ms - 1)
			lost.want(t)
			if ctx.Err() != nil {
				t.Error("canceled while the lease is held")
			}

			time.Sleep(time.Nanosecond) // 900 ms after the renewal at 300 ms
			lost.want(t, 1200*ms)
			if got := context.Cause(ctx); errors.Is(got, limiter.ErrLeaseLost) != cancels ||
				errors.Is(got, errDown) != cancels {
				t.Errorf("the cause is %v, canceled %t", got, cancels)
			}

			// The lease is had again, and lost again: each loss is reported once, the log counts
			// them in one line.
			time.Sleep(1600 * ms) // the renewal at 2.7 s takes it anew
			wantLeft(t, l, "k", 0)
			time.Sleep(5 * time.Second) // the last renewal before the second outage is at 4.8 s
			lost.want(t, 1200*ms, 5700*ms)

			if n := strings.Count(lines.String(), "a lease was not renewed in time"); n != 1 {
				t.Errorf("%d lines: %s", n, lines.String())
			}

			a.Done(200)
			wantLeft(t, l, "k", 1)
			if cancels && ctx.Err() == nil || !cancels && ctx.Err() != nil {
				t.Errorf("after the request: %v", ctx.Err())
			}
		})
	}
}

// A lease is renewed at each third of its ttl, so it outlasts one renewal that fails.
func TestLeaseIsRenewedAtEachThirdOfItsTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var renewals []time.Duration
		lost, s, began := newLosses(), newTicking(), time.Now()
		l := configured(t, limiter.Config{
			Store: storeFunc(func(ctx context.Context, ops []core.Op, out []core.Decision) error {
				// The renewal at 300 ms fails. It is the only one.
				at := time.Since(began)
				if at > 0 && ops[0].Verb == core.Take {
					renewals = append(renewals, at)
				}
				if at == 300*ms {
					return errDown
				}
				return s.Apply(ctx, ops, out)
			}),
			Rules: []limiter.Rule{rule(t, "jobs", "1 concurrent ttl=900ms")}, OnError: lost.note,
		})

		a := l.Admit(get())
		time.Sleep(1400 * ms)
		// At 600 ms the lease of 900 ms is still held, so that one failure costs nothing.
		lost.want(t)
		wantLeft(t, l, "k", 0)

		a.Done(200)
		if want := []time.Duration{300 * ms, 600 * ms, 900 * ms, 1200 * ms}; !slices.Equal(renewals, want) {
			t.Errorf("renewed at %v, want %v", renewals, want)
		}
	})
}

// The store has forgotten the lease, and another request has taken its units.
func TestLeaseLostToAnother(t *testing.T) {
	for _, row := range []struct {
		action   limiter.Action
		canceled bool
	}{{limiter.Reject, true}, {limiter.Wait(time.Second), true}, {limiter.Degrade, false}, {limiter.Shadow, false}} {
		synctest.Test(t, func(t *testing.T) {
			lost := newLosses()
			first, second := rule(t, "jobs", "1 concurrent ttl=900ms"), rule(t, "others", "1 concurrent ttl=3s")
			first.OnLimit = row.action
			second.Key = func(core.Request) (string, bool) { return "other", true }
			l := configured(t, limiter.Config{Store: newTicking(), Rules: []limiter.Rule{first, second},
				OnError: lost.note, CancelOnLostLease: true})

			a := l.Admit(get())
			ctx := limiter.NewContext(t.Context(), a)

			// The store forgets the lease, and another takes it before the first renewal at 300 ms.
			if err := l.Reset(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
			if res, _ := l.Take(t.Context(), "k", 1); !res.Allowed() {
				t.Fatal("refused")
			}

			// Only a rule that refuses can say that the request must end. Under a soft one it goes
			// on without a lease.
			time.Sleep(300 * ms)
			lost.want(t, 300*ms)
			if want := `rule 0 "jobs": headgate: a lease ended before its request: others hold its units`; strings.Join(lost.texts, "") != want {
				t.Errorf("%q, want %q", lost.texts, want)
			}

			if got := errors.Is(context.Cause(ctx), limiter.ErrLeaseLost); got != row.canceled {
				t.Errorf("%s: the cause is %v", row.action, context.Cause(ctx))
			}

			time.Sleep(10 * time.Second) // the lease of the other rule goes on, and this one was taken anew
			lost.want(t, 300*ms)
			wantLeft(t, l, "other", 1, 0)
			wantLeft(t, l, "k", 0, 1)

			a.Done(200)
			wantLeft(t, l, "other", 1, 1)
		})
	}
}

// A renewal that comes too late takes the lease anew, but another may have held it.
func TestLeaseLostByALateRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost, s := newLosses(), newTicking()
		var slow atomic.Bool
		// The first renewal is sent at 300 ms and answered at 1.3 s, when the lease has been over
		// for 400 ms.
		l := configured(t, limiter.Config{
			Store: storeFunc(func(_ context.Context, ops []core.Op, out []core.Decision) error {
				if slow.Swap(false) {
					time.Sleep(time.Second)
				}
				return s.Apply(context.Background(), ops, out)
			}),
			Rules: []limiter.Rule{rule(t, "jobs", "1 concurrent ttl=900ms")}, OnError: lost.note,
			CancelOnLostLease: true,
		})

		a := l.Admit(get())
		slow.Store(true)
		time.Sleep(time.Minute)
		lost.want(t, 1300*ms)
		// It was lost before the handler's context was made.
		if err := context.Cause(limiter.NewContext(t.Context(), a)); !errors.Is(err, limiter.ErrLeaseLost) {
			t.Errorf("the cause is %v", err)
		}

		a.Done(200)
	})
}

// A call that hangs is ended when the lease ends, so that the loss is reported at once.
func TestLeaseLostWhileTheStoreHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost, s := newLosses(), newTicking()
		var hangs atomic.Bool
		l := configured(t, limiter.Config{
			Store: storeFunc(func(ctx context.Context, ops []core.Op, out []core.Decision) error {
				if hangs.Load() {
					<-ctx.Done()
					return ctx.Err()
				}
				return s.Apply(ctx, ops, out)
			}),
			Rules: []limiter.Rule{rule(t, "jobs", "1 concurrent ttl=900ms")}, OnError: lost.note,
		})

		a := l.Admit(get())
		// The renewal at 300 ms hangs. Its call is ended with the lease, at 900 ms.
		hangs.Store(true)
		time.Sleep(900 * ms)
		lost.want(t, 900*ms)

		// Later renewals take the lease anew, which is no second loss.
		hangs.Store(false)
		time.Sleep(2 * time.Second)
		lost.want(t, 900*ms)

		a.Done(200)
	})
}

func TestLeaseReleasedByItsHandlerIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := newLosses()
		l := configured(t, limiter.Config{Store: newTicking(), OnError: lost.note, CancelOnLostLease: true,
			Rules: []limiter.Rule{rule(t, "jobs", "1 concurrent ttl=900ms")}})

		a := l.Admit(get())
		ctx := limiter.NewContext(t.Context(), a)
		// A minute is many times the ttl, and nothing is renewed: the handler has given the lease
		// back.
		if err := a.Result().Release(t.Context()); err != nil {
			t.Fatal(err)
		}

		time.Sleep(time.Minute)
		lost.want(t)
		if ctx.Err() != nil {
			t.Error(context.Cause(ctx))
		}

		a.Done(200)
		if context.Cause(ctx) != context.Canceled {
			t.Errorf("the cause after the request is %v", context.Cause(ctx))
		}
	})
}

// remote is a store whose calls may take long.
type remote struct {
	*mapStore
	call time.Duration
}

func (r remote) Report() events.Report { return events.Report{MaxCall: r.call} }

func TestLeaseTTLIsLongEnoughForRenewals(t *testing.T) {
	for _, row := range []struct {
		store core.Store
		ttl   string
		want  string
	}{
		// A third of the ttl has to be long enough for a call of the store, and 33 ms at least.
		{newStore(), "100ms", ""},
		{newStore(), "99ms", "100ms"},
		{remote{newStore(), 50 * ms}, "150ms", ""},
		{remote{newStore(), 50 * ms}, "149ms", "150ms"},
		{remote{newStore(), 10 * ms}, "99ms", "100ms"},
	} {
		r := rule(t, "jobs", "1 concurrent ttl="+row.ttl)
		_, err := limiter.New(limiter.Config{Store: row.store, Rules: []limiter.Rule{r}})

		got, want := "", ""
		if err != nil {
			got = err.Error()
		}
		if row.want != "" {
			want = `rule 0 "jobs": ttl ` + row.ttl + " is below " + row.want +
				", so a lease could end before the store has renewed it"
		}

		if got != want {
			t.Errorf("%q, want %q", got, want)
		}

		// The same bound holds for a limit that comes from Override, where it is an error of the
		// request.
		own := r.Limit
		r.Limit.Period, r.Override = time.Minute,
			func(context.Context, string) (core.Limit, bool, error) { return own, true, nil }
		l := newLimiter(t, row.store, r)
		if _, err := l.Take(t.Context(), "k", 1); (err != nil) != (want != "") {
			t.Errorf("ttl %s from Override: %v", row.ttl, err)
		}
	}
}
