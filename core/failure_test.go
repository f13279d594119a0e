package core_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
)

var errDown = errors.New("down")

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

// standby has a fallback; the store itself is down.
type standby struct{ fallback core.Store }

var errFallback = errors.New("no fallback either")

func (s standby) Apply(ctx context.Context, ops []core.Op, out []core.Decision) error {
	return s.fallback.Apply(ctx, ops, out)
}
func (s standby) Strict() core.Store   { return brokenStore(func() error { return errDown }) }
func (s standby) Fallback() core.Store { return s.fallback }

// Each row is the policies of the limiter and of its rules, which admit one
// request each, and what becomes of two requests.
func TestEachRuleSaysWhatHappensWhenTheStoreFails(t *testing.T) {
	const def, open, closed, local = core.FailDefault, core.FailOpen, core.FailClosed, core.FailLocal
	pass, refused, failed := []core.Outcome{core.Pass, core.Pass}, []core.Outcome{core.Pass, core.Refused}, []core.Outcome{core.Failed, core.Failed}
	rows := []struct {
		limiter core.Failure
		rules   []core.Failure
		shadow  []bool
		want    []core.Outcome
		errs    int // that are told
	}{
		{def, []core.Failure{def}, nil, refused, 0},
		{def, []core.Failure{local}, nil, refused, 0},
		{def, []core.Failure{open}, nil, pass, 2},
		{def, []core.Failure{closed}, nil, failed, 2},
		{open, []core.Failure{def}, nil, pass, 2},
		{open, []core.Failure{local}, nil, refused, 0},
		{closed, []core.Failure{def}, nil, failed, 2},
		{closed, []core.Failure{open}, nil, pass, 2},
		{closed, []core.Failure{local}, nil, refused, 0},
		{local, []core.Failure{def, def}, nil, refused, 0},
		{def, []core.Failure{open, local}, nil, refused, 2},
		{def, []core.Failure{local, open}, nil, refused, 2},
		{def, []core.Failure{open, open}, nil, pass, 2},
		{def, []core.Failure{local, open, closed}, nil, failed, 2},
		{open, []core.Failure{closed, local}, []bool{true, false}, refused, 2},
		{open, []core.Failure{closed}, []bool{true}, pass, 2},
		{closed, []core.Failure{def, def}, []bool{true, true}, pass, 2},
		{closed, []core.Failure{local}, []bool{true}, pass, 0},
	}
	for i, row := range rows {
		var told []error
		c := core.Config{Store: standby{newStore()}, OnStoreError: row.limiter,
			OnError: func(_ context.Context, err error) { told = append(told, err) }}
		for j, failure := range row.rules {
			r := rule(t, string(rune('a'+j)), "1/1h")
			r.OnStoreError = failure
			if row.shadow != nil && row.shadow[j] {
				r.OnLimit = core.Shadow
			}
			c.Rules = append(c.Rules, r)
		}
		l := configured(t, c)
		if got := []core.Outcome{admit(l), admit(l)}; !slices.Equal(got, row.want) {
			t.Errorf("row %d: %v, want %v", i, got, row.want)
		}
		if len(told) != row.errs {
			t.Errorf("row %d: told %v", i, told)
		}
	}
}

func TestWhenTheFallbackFailsTooTheLimiterDecides(t *testing.T) {
	rows := map[core.Failure]core.Outcome{
		core.FailDefault: core.Pass, core.FailOpen: core.Pass, core.FailLocal: core.Pass, core.FailClosed: core.Failed,
	}
	for failure, want := range rows {
		for _, mixed := range []bool{false, true} {
			local := rule(t, "local", "1/1h")
			local.OnStoreError = core.FailLocal
			c := core.Config{Store: standby{brokenStore(func() error { return errFallback })}, OnStoreError: failure,
				Rules: []core.Rule{local}}
			if mixed {
				open := rule(t, "open", "1/1h")
				open.OnStoreError = core.FailOpen
				c.Rules = append(c.Rules, open)
			}
			l := configured(t, c)
			if got := admit(l); got != want {
				t.Errorf("%s, mixed %t: %s, want %s", failure, mixed, got, want)
			}
			if _, err := l.Take(t.Context(), "k", 1); !errors.Is(err, errFallback) || errors.Is(err, errDown) != mixed {
				t.Errorf("%s, mixed %t: %v", failure, mixed, err)
			}
		}
	}
}

func TestAnswersSpeakOfTheRulesThatWereDecidedAlone(t *testing.T) {
	open, local := rule(t, "open", "1/1m fixed-window"), rule(t, "local", "2/1m fixed-window")
	open.OnStoreError = core.FailOpen
	var seen recording
	l := configured(t, core.Config{Store: standby{newStore()}, Rules: []core.Rule{open, local}, Headers: core.Draft8, Observer: &seen})
	a := l.Admit(&fakeRequest{})
	defer a.Done(200)
	want := "Ratelimit-Policy: \"local\";q=2;w=60\nRatelimit: \"local\";r=1;t=60\n"
	if got := lines(a); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if len(seen) != 2 || seen[0].Rule != "" || !errors.Is(seen[0].Err, errDown) || seen[1].Rule != "local" || seen[1].Err != nil {
		t.Errorf("%+v", seen)
	}
	g, err := l.Take(t.Context(), "k", 1)
	if !errors.Is(err, errDown) || !g.Allowed() || len(g.Decisions()) != 1 {
		t.Errorf("%v, %v", g.Decisions(), err)
	}
}

func TestMistakesInFailurePoliciesAreFoundByName(t *testing.T) {
	bad := rule(t, "bad", "1/1s")
	bad.OnStoreError = core.FailLocal
	odd := rule(t, "odd", "1/1s")
	odd.OnStoreError = 9
	c := core.Config{Store: newStore(), OnStoreError: core.FailLocal, Rules: []core.Rule{bad, odd}}
	want := "OnStoreError: the store has no fallback that could decide\n" +
		`rule 0 "bad": OnStoreError: the store has no fallback that could decide` + "\n" +
		`rule 1 "odd": OnStoreError: 9 is not known`
	for _, store := range []core.Store{newStore(), standby{}} {
		c.Store = store
		if _, err := core.New(c); err == nil || err.Error() != want {
			t.Errorf("got\n%v\nwant\n%s", err, want)
		}
	}
	l := limiter(t, newStore(), rule(t, "a", "1/1h"))
	if err := l.SetRules([]core.Rule{bad}); err == nil {
		t.Error("SetRules has taken a bad rule")
	}
	admit(l)
	if got := admit(l); got != core.Refused {
		t.Errorf("%s after a bad set", got)
	}
}

func TestSetRulesPutsFailurePoliciesInForce(t *testing.T) {
	r := rule(t, "a", "1/1h")
	l := limiter(t, standby{newStore()}, r)
	r.OnStoreError = core.FailClosed
	if err := l.SetRules([]core.Rule{r}); err != nil {
		t.Fatal(err)
	}
	if got := admit(l); got != core.Failed {
		t.Errorf("%s", got)
	}
	r.OnStoreError = core.FailLocal
	if err := l.SetRules([]core.Rule{r}); err != nil {
		t.Fatal(err)
	}
	if got := admit(l); got != core.Pass {
		t.Errorf("%s", got)
	}
}

func TestARuleThatCannotTellLeavesTheOthersInForce(t *testing.T) {
	broken := rule(t, "broken", "9/1h")
	broken.Key = func(core.Request) (string, bool) { panic("k") }
	rows := map[core.Failure]map[core.Overflow][]core.Outcome{
		core.FailOpen: {core.Reject: {core.Pass, core.Refused}, core.Shadow: {core.Pass, core.Refused}},
		core.FailClosed: {core.Reject: {core.Failed, core.Failed}, core.Degrade: {core.Failed, core.Failed},
			core.Shadow: {core.Pass, core.Refused}},
	}
	for failure, byOverflow := range rows {
		for overflow, want := range byOverflow {
			for _, first := range []bool{true, false} {
				broken.OnStoreError, broken.OnLimit = failure, overflow
				rules := []core.Rule{broken, rule(t, "a", "1/1h")}
				if !first {
					slices.Reverse(rules)
				}
				var told []error
				l := configured(t, core.Config{Store: newStore(), Rules: rules,
					OnError: func(_ context.Context, err error) { told = append(told, err) }})
				if got := []core.Outcome{admit(l), admit(l)}; !slices.Equal(got, want) {
					t.Errorf("%s %s, first %t: %v, want %v", failure, overflow, first, got, want)
				}
				if len(told) != 2 {
					t.Errorf("%s %s: told %v", failure, overflow, told)
				}
			}
		}
	}
}

func TestAnOverrideThatFailsIsReturnedByTake(t *testing.T) {
	broken := rule(t, "broken", "9/1h")
	broken.Override = func(string) (core.Limit, bool) { panic("o") }
	l := limiter(t, newStore(), broken, rule(t, "a", "1/1h"))
	for _, want := range []bool{true, false} {
		g, err := l.Take(t.Context(), "k", 1)
		if g.Allowed() != want || err == nil || err.Error() != `rule 0 "broken": panic: "o"` {
			t.Errorf("allowed %t, %v", g.Allowed(), err)
		}
	}
	if _, err := l.Peek(t.Context(), "k"); err == nil {
		t.Error("Peek")
	}
	if err := l.Reset(t.Context(), "k"); err == nil {
		t.Error("Reset")
	}
}

// Whoever hangs up while he is being counted would pass uncounted otherwise.
func TestTheRequestOfAClientThatHasLeftDoesNotPass(t *testing.T) {
	ctx, leave := context.WithCancel(context.Background())
	leave()
	l := limiter(t, newStore(), rule(t, "a", "1/1h"))
	a := l.Admit(&fakeRequest{ctx: ctx})
	defer a.Done(503)
	if a.Outcome() != core.Failed {
		t.Errorf("%s", a.Outcome())
	}
	open, local := rule(t, "open", "1/1h"), rule(t, "local", "1/1h")
	open.OnStoreError = core.FailOpen
	asked := 0
	l = limiter(t, standby{brokenStore(func() error { asked++; return nil })}, open, local)
	b := l.Admit(&fakeRequest{ctx: ctx})
	defer b.Done(503)
	if b.Outcome() != core.Failed || asked != 0 {
		t.Errorf("%s, and the fallback was asked %d times", b.Outcome(), asked)
	}
}

// hint is an error that knows when to come back.
type hint time.Duration

func (h hint) Error() string             { return "later" }
func (h hint) RetryAfter() time.Duration { return time.Duration(h) }

func TestRetryAfterOfAFailureIsWhatTheErrorKnows(t *testing.T) {
	rows := map[time.Duration]string{0: "1", -time.Second: "1", time.Millisecond: "1", time.Second: "1", time.Second + 1: "2"}
	for after, want := range rows {
		l := configured(t, core.Config{Store: brokenStore(func() error { return fmt.Errorf("wrapped: %w", hint(after)) }),
			OnStoreError: core.FailClosed, Rules: []core.Rule{rule(t, "a", "1/1h")}})
		a := l.Admit(&fakeRequest{})
		if got := lines(a); got != "Retry-After: "+want+"\nCache-Control: no-store\n" {
			t.Errorf("after %s: %s", after, got)
		}
		a.Done(503)
	}
}

func TestPeekSeesWhatTakeWouldMeet(t *testing.T) {
	r := rule(t, "a", "1/1h")
	l := limiter(t, standby{newStore()}, r)
	wantLeft(t, l, "k", 1)
	r.OnStoreError = core.FailClosed
	if err := l.SetRules([]core.Rule{r}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Peek(t.Context(), "k"); !errors.Is(err, errDown) {
		t.Error(err)
	}
	if err := l.Reset(t.Context(), "k"); err != nil { // which a Standby keeps for later
		t.Error(err)
	}
}

func TestFailuresSayWhatTheyAre(t *testing.T) {
	want := []string{"default", "open", "closed", "local", "unknown failure"}
	for i, text := range want {
		if got := core.Failure(i).String(); got != text {
			t.Errorf("%d is %q", i, got)
		}
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
	var p *core.PanicError
	if !errors.As(err, &p) || !errors.Is(err, errDown) || !strings.Contains(string(p.Stack), "failure_test.go") {
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
