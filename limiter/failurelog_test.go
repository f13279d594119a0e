package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/store/failover"
	"github.com/headgate/headgate/store/memstore"
)

// plain returns a logger that writes lines without their time.
func plain(log *test.Log) *slog.Logger {
	return slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// wantLog fails unless the lines are exactly want.
func wantLog(t testing.TB, log *test.Log, want ...string) {
	t.Helper()
	text := ""
	for _, line := range want {
		text += line + "\n"
	}
	if got := log.String(); got != text {
		t.Errorf("got\n%swant\n%s", got, text)
	}
}

const outageLine = `level=WARN msg="headgate: the store cannot decide, so OnStoreError does"`

// The default settings, but for the logger: the first error is a line at once, the
// others are a count a minute, and their end is a line too.
func TestFailureLogOfAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log test.Log
		down := true
		well := newTicking()

		l := configured(t, limiter.Config{Logger: plain(&log), Rules: []limiter.Rule{rule(t, "a", "1/1h")},
			Store: brokenStore(func() error {
				if down {
					return errDown
				}
				return well.Apply(context.Background(), nil, nil)
			})})
		defer l.Close()

		if admit(l) != limiter.Pass {
			t.Error("refused")
		}

		// The first error is a line at once.
		first := outageLine + ` passed=1 error=down`
		wantLog(t, &log, first)

		// 2077 requests in 16.6 s: within the minute they are only counted.
		for range 2077 {
			admit(l)
			time.Sleep(8 * time.Millisecond)
		}
		wantLog(t, &log, first)

		// The count comes when the minute is over.
		time.Sleep(time.Minute)
		counted := outageLine + ` times=2077 within=1m0s passed=2077 error=down`
		wantLog(t, &log, first, counted)

		down = false
		time.Sleep(time.Minute)
		ended := `level=INFO msg="headgate: for a minute no more: the store cannot decide, so OnStoreError does"`
		wantLog(t, &log, first, counted, ended)

		// The next outage is news again. Close writes what was counted by then, and no timer writes
		// after it.
		down = true
		admit(l)
		admit(l)
		l.Close()
		wantLog(t, &log, first, counted, ended, first, outageLine+` times=1 passed=1 error=down`)
		time.Sleep(time.Hour)
		wantLog(t, &log, first, counted, ended, first, outageLine+` times=1 passed=1 error=down`)
	})
}

// Each kind of error has its lines.
func TestFailureLogTellsKindsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log test.Log
		bad := rule(t, "bad", "1/1h")
		bad.Key = func(core.Request) (string, bool) { panic("k") }
		l := configured(t, limiter.Config{Store: brokenStore(func() error { return errDown }), Logger: plain(&log),
			Rules: []limiter.Rule{bad, rule(t, "a", "1/1h")}, Observer: observerFunc(func() { panic("o") })})

		// Three kinds: of a rule, of the store, and of a function of the program. The others of
		// each kind are counted.
		for range 3 {
			admit(l)
		}

		wantLog(t, &log,
			`level=WARN msg="headgate: a rule cannot be evaluated, so its OnStoreError decides" passed=1 rule=bad error="rule 0 \"bad\": panic: \"k\""`,
			outageLine+` passed=1 error=down`,
			`level=WARN msg="headgate: a function of the program panicked" error="the observer: panic: \"o\""`)
	})
}

// observerFunc is called for each event.
type observerFunc func()

func (f observerFunc) Observe(context.Context, *events.Request) { f() }

// However many rules fail over time, the kinds are bounded.
func TestFailureLogIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log test.Log
		l := configured(t, limiter.Config{Store: newStore(), Logger: plain(&log)})

		for i := range 100 {
			bad := rule(t, fmt.Sprint("r", i), "1/1h")
			bad.Key = func(core.Request) (string, bool) { panic("k") }
			if err := l.SetRules([]limiter.Rule{bad}); err != nil {
				t.Fatal(err)
			}
			admit(l)
		}

		if n := strings.Count(log.String(), "\n"); n != 65 {
			t.Errorf("%d lines, want one for each of 64 rules, and one for the others", n)
		}
	})
}

func TestFailureLogLeavesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log test.Log
		gone, leave := context.WithCancel(t.Context())
		leave()
		c := limiter.Config{Store: newStore(), Logger: plain(&log), Rules: []limiter.Rule{rule(t, "a", "1/1h")}}
		configured(t, c).Admit(&test.Request{Ctx: gone}).Done(503) // the client has left

		// A logger that discards everything gets no lines either, here or from a timer.
		c.Store, c.Logger = brokenStore(func() error { return errDown }), slog.New(slog.DiscardHandler)
		admit(configured(t, c))

		wantLog(t, &log)
	})
}

// In an outage OnError and the Observer hear of each decision of the fallback, and why
// the fallback made it. The log has one line.
func TestFallbackDecisionsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log test.Log
		var errs []error
		var seen recorder
		down := errDown
		memory := memstore.MustNew(memstore.Options{})
		s := failover.MustNew(brokenStore(func() error { return down }),
			failover.Options{Fallback: memory, Logger: slog.New(slog.DiscardHandler)})
		defer s.Close()

		l := configured(t, limiter.Config{Store: s, Logger: plain(&log), Rules: []limiter.Rule{rule(t, "a", "10/1h")},
			OnError: func(_ context.Context, err error) { errs = append(errs, err) }, Observer: &seen})

		// The fallback has ten units: twelve requests are ten that pass and two that are refused,
		// all decided by it.
		for range 12 {
			admit(l)
		}

		told := seen.take()
		if len(errs) != 12 || len(told) != 12 {
			t.Fatalf("%d errors and %d events", len(errs), len(told))
		}

		for i := range 12 {
			if !errors.Is(errs[i], core.ErrFallback) || !errors.Is(errs[i], errDown) {
				t.Errorf("reported %v", errs[i])
			}
			if e := told[i]; !e.Fallback || !e.Rules[0].Decision.Fallback || e.Err != nil ||
				e.Verdict.Passes() != (i < 10) {
				t.Errorf("observed %+v", e)
			}
		}

		wantLog(t, &log, `level=WARN msg="headgate: the store cannot decide, so its fallback does" local=1 error="the fallback of the store decides: down"`)
	})
}

// Where some rules of a limiter fail open, the fallback decides about a request that none of
// these apply to, and passes what it decides about others.
func TestFailureLogCountsByFate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log test.Log
		open, local := rule(t, "open", "9/1h"), rule(t, "local", "9/1h")
		open.OnStoreError = limiter.FailOpen
		// Of five requests two are for /open, which pass undecided by that rule.
		open.Key = func(r core.Request) (string, bool) { return "k", r.Path() == "/open" }

		l := configured(t, limiter.Config{Store: standby{newStore()}, Logger: plain(&log),
			Rules: []limiter.Rule{open, local}})
		for _, path := range []string{"/", "/open", "/", "/open", "/"} {
			l.Admit(&test.Request{URLPath: path}).Done(200)
		}

		l.Close()
		wantLog(t, &log, outageLine+` local=1 error=down`, outageLine+` times=4 passed=2 local=2 error=down`)
	})
}

// recovering is down until it is told otherwise. Its fallback is a store of its own.
type recovering struct {
	down            *atomic.Bool
	store, fallback core.Store
}

func (s recovering) Apply(ctx context.Context, ops []core.Op, out []core.Decision) error {
	if s.down.Load() {
		return errDown
	}
	return s.store.Apply(ctx, ops, out)
}

func (s recovering) Back() (core.Standby, func()) {
	return core.Standby{Store: s, Strict: s, Fallback: s.fallback}, nil
}

// The store comes back while a request waits for a slot of the fallback. When the
// request asks again, every rule counts it, also those that fail open.
func TestWaitAsksAllRulesAgainAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		down.Store(true)
		// local is decided by the fallback, and open and last are not decided, while the store is
		// down.
		open, local, last := rule(t, "open", "5/1h"), rule(t, "local", "1/1s fixed-window"), rule(t, "last", "7/1h")
		open.OnStoreError, local.OnStoreError, last.OnStoreError = limiter.FailOpen, limiter.FailLocal, limiter.FailOpen

		s := recovering{&down, newTicking(), newTicking()}
		l := newLimiter(t, s, open, local, last)
		// The only unit of local in this second.
		if _, err := l.Take(t.Context(), "k", 1); !errors.Is(err, errDown) {
			t.Fatal(err)
		}

		// The store is back after half a second, while the request waits for the next window of the
		// fallback.
		time.AfterFunc(500*time.Millisecond, func() { down.Store(false) })
		res, err := l.TakeWithin(t.Context(), "k", 1, time.Minute)
		if err != nil || !res.Allowed() || res.Undecided() || res.Waited() != time.Second {
			t.Errorf("allowed %t, undecided %t, waited %s, %v", res.Allowed(), res.Undecided(), res.Waited(), err)
		}

		var names []string
		for _, d := range res.Decisions() {
			names = append(names, fmt.Sprint(d.Rule, " ", d.Decision.Remaining))
		}
		// All three rules are counted by the store: before, it had counted none.
		if got := strings.Join(names, ", "); got != "open 4, local 0, last 6" {
			t.Errorf("decided by %s", got)
		}

		if err := res.Refund(t.Context()); err != nil {
			t.Error(err)
		}
		wantLeft(t, l, "k", 5, 1, 7)
	})
}
