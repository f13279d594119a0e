package core_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
)

var errDown = errors.New("down")

// holds F2, I7
func TestWhenNobodyCanDecideTheConfigurationDoes(t *testing.T) {
	ok := func() core.Rule { return rule(t, "a", "5/1s") }
	rows := []struct {
		name  string
		store core.Store
		rule  func() core.Rule
		want  string
	}{
		{"the store fails", brokenStore(func() error { return errDown }), ok, "down"},
		{"the store panics", brokenStore(func() error { panic("a\nb") }), ok, `store: panic: "a\nb"`},
		{"the key function panics", newStore(), func() core.Rule {
			r := ok()
			r.Key = func(core.Request) (string, bool) { panic("k") }
			return r
		}, `rule 0 "a": panic: "k"`},
		{"the cost function panics", newStore(), func() core.Rule {
			r := ok()
			r.Cost = func(core.Request) int64 { panic(errDown) }
			return r
		}, `rule 0 "a": panic: "down"`},
		{"the cost is negative", newStore(), func() core.Rule {
			r := ok()
			r.Cost = func(core.Request) int64 { return -1 }
			return r
		}, `rule 0 "a": the cost is negative`},
		{"the override panics", newStore(), func() core.Rule {
			r := ok()
			r.Override = func(string) (core.Limit, bool) { panic("o") }
			return r
		}, `rule 0 "a": panic: "o"`},
		{"the override is not valid", newStore(), func() core.Rule {
			r := ok()
			r.Override = func(string) (core.Limit, bool) { return core.Limit{}, true }
			return r
		}, `rule 0 "a": the limit from Override: quota 0 is not positive` + "\nperiod 0s is below 1ms"},
	}
	for _, row := range rows {
		for failure, want := range map[core.Failure]core.Outcome{core.FailOpen: core.Pass, core.FailClosed: core.Failed} {
			t.Run(row.name, func(t *testing.T) {
				var told []error
				l := configured(t, core.Config{Store: row.store, Rules: []core.Rule{row.rule()}, OnStoreError: failure,
					OnError: func(_ context.Context, err error) { told = append(told, err) }})
				a := l.Admit(&fakeRequest{})
				defer a.Done(200)
				if a.Outcome() != want {
					t.Errorf("%s, want %s", a.Outcome(), want)
				}
				if len(told) != 1 || told[0].Error() != row.want {
					t.Errorf("told %q, want %q", told, row.want)
				}
			})
		}
	}
}

func TestAFailureIs503AndNever429(t *testing.T) {
	l := configured(t, core.Config{Store: brokenStore(func() error { return errDown }),
		Rules: []core.Rule{rule(t, "a", "5/1s")}, OnStoreError: core.FailClosed})
	a := l.Admit(&fakeRequest{})
	defer a.Done(503)
	if a.Outcome().Status() != 503 || a.RetryAfter() != 1 || len(a.Violated()) != 0 {
		t.Errorf("status %d, retry after %d, violated %v", a.Outcome().Status(), a.RetryAfter(), a.Violated())
	}
	if got, want := lines(a), "Retry-After: 1\nCache-Control: no-store\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got, want := string(a.Problem()), `{"type":"about:blank","title":"Service Unavailable","status":503}`; got != want {
		t.Errorf("got %s", got)
	}
}

func TestFailingOpenLeavesNoHeaders(t *testing.T) {
	l := limiter(t, brokenStore(func() error { return errDown }), rule(t, "a", "5/1s"))
	a := l.Admit(&fakeRequest{})
	defer a.Done(200)
	if got := lines(a); got != "" || a.Problem() != nil || a.NeedsContext() || a.NeedsStatus() {
		t.Errorf("headers %q, body %q", got, a.Problem())
	}
}

func TestANilLimiterFailsClosed(t *testing.T) {
	var l *core.Limiter
	a := l.Admit(&fakeRequest{})
	defer a.Done(503)
	if a.Outcome() != core.Failed || lines(a) != "Retry-After: 1\nCache-Control: no-store\n" {
		t.Errorf("%s with %q", a.Outcome(), lines(a))
	}
}

func TestTakeReturnsTheErrorAndFollowsTheConfiguration(t *testing.T) {
	for failure, want := range map[core.Failure]bool{core.FailOpen: true, core.FailClosed: false} {
		l := configured(t, core.Config{Store: brokenStore(func() error { return errDown }),
			Rules: []core.Rule{rule(t, "a", "5/1s")}, OnStoreError: failure})
		g, err := l.Take(context.Background(), "k", 1)
		if !errors.Is(err, errDown) || g.Allowed() != want {
			t.Errorf("%v, allowed %t", err, g.Allowed())
		}
		if err := g.Refund(context.Background()); err != nil {
			t.Errorf("refund of nothing: %v", err)
		}
		if _, err := l.Peek(context.Background(), "k"); !errors.Is(err, errDown) {
			t.Errorf("Peek: %v", err)
		}
		if err := l.Reset(context.Background(), "k"); !errors.Is(err, errDown) {
			t.Errorf("Reset: %v", err)
		}
	}
}

func TestAPanicKeepsItsStackAndItsError(t *testing.T) {
	l := limiter(t, brokenStore(func() error { panic(errDown) }), rule(t, "a", "5/1s"))
	_, err := l.Take(context.Background(), "k", 1)
	p, ok := errors.AsType[*core.PanicError](err)
	if !ok || !errors.Is(err, errDown) || !strings.Contains(string(p.Stack), "failure_test.go") {
		t.Errorf("%v", err)
	}
}

// recording notes events.
type recording []core.Event

func (r *recording) Observe(_ context.Context, e core.Event) { *r = append(*r, e) }

func TestTheObserverIsToldOfEveryRuleThatApplies(t *testing.T) {
	var seen recording
	l := configured(t, core.Config{Store: newStore(), Observer: &seen, Rules: []core.Rule{
		rule(t, "wide", "9/1m"), withOnLimit(rule(t, "dark", "1/1m fixed-window"), core.Shadow), rule(t, "two", "2/1m fixed-window"),
		{Name: "other", Limit: limit(t, "1/1s"), Key: func(core.Request) (string, bool) { return "", false }},
	}})
	for range 3 {
		admit(l)
	}
	want := []struct {
		rule    string
		allowed bool
		outcome core.Outcome
	}{
		{"wide", true, core.Pass}, {"dark", true, core.Pass}, {"two", true, core.Pass},
		{"wide", true, core.Pass}, {"dark", false, core.Pass}, {"two", true, core.Pass},
		{"wide", true, core.Refused}, {"dark", false, core.Refused}, {"two", false, core.Refused},
	}
	if len(seen) != len(want) {
		t.Fatalf("%d events, want %d", len(seen), len(want))
	}
	for i, w := range want {
		e := seen[i]
		if e.Rule != w.rule || e.Decision.Allowed != w.allowed || e.Outcome != w.outcome || e.Err != nil {
			t.Errorf("event %d is %+v, want %+v", i, e, w)
		}
	}
	if seen[1].OnLimit != core.Shadow {
		t.Errorf("OnLimit %s", seen[1].OnLimit)
	}
}

func TestTheObserverIsToldOfFailures(t *testing.T) {
	var seen recording
	r := rule(t, "a", "5/1s")
	r.Key = func(core.Request) (string, bool) { panic("k") }
	l := configured(t, core.Config{Store: newStore(), Observer: &seen, Rules: []core.Rule{r}, OnStoreError: core.FailClosed})
	admit(l)
	if len(seen) != 1 || seen[0].Rule != "a" || seen[0].Outcome != core.Failed || seen[0].Err == nil {
		t.Errorf("seen %+v", seen)
	}
}

type panicking struct{}

func (panicking) Observe(context.Context, core.Event) { panic("observer") }

func TestPanicsOfHooksHarmNobody(t *testing.T) {
	var told []error
	l := configured(t, core.Config{Store: newStore(), Observer: panicking{}, Rules: []core.Rule{rule(t, "a", "1/1s")},
		OnError: func(_ context.Context, err error) { told = append(told, err); panic("hook") }})
	if got := admit(l); got != core.Pass {
		t.Errorf("%s", got)
	}
	if got := admit(l); got != core.Refused {
		t.Errorf("%s", got)
	}
	if len(told) != 2 || told[0].Error() != `Observer: panic: "observer"` {
		t.Errorf("told %v", told)
	}
}
