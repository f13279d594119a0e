package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/events"
)

var errDown = errors.New("down")

func TestFailureModeDecidesWithoutAStore(t *testing.T) {
	// A fault of the store leaves all rules undecided, and one in the functions of a rule that
	// rule. Either way OnStoreError decides, and OnError hears of it once.
	ok := func() limiter.Rule { return rule(t, "a", "5/1s") }
	rows := []struct {
		name  string
		store core.Store
		rule  func() limiter.Rule
		want  string
	}{
		{"the store fails", brokenStore(func() error { return errDown }), ok, "down"},
		{"the store panics", brokenStore(func() error { panic("a\nb") }), ok, `store: panic: "a\nb"`},
		{"the key function panics", newStore(), func() limiter.Rule {
			r := ok()
			r.Key = func(core.Request) (string, bool) { panic("k") }
			return r
		}, `rule 0 "a": panic: "k"`},
		{"the cost function panics", newStore(), func() limiter.Rule {
			r := ok()
			r.Cost = func(core.Request) int64 { panic(errDown) }
			return r
		}, `rule 0 "a": panic: "down"`},
		{"the cost is negative", newStore(), func() limiter.Rule {
			r := ok()
			r.Cost = func(core.Request) int64 { return -1 }
			return r
		}, `rule 0 "a": the cost is negative`},
		{"the override panics", newStore(), func() limiter.Rule {
			r := ok()
			r.Override = func(context.Context, string) (core.Limit, bool, error) { panic("o") }
			return r
		}, `rule 0 "a": panic: "o"`},
		{"the override is not valid", newStore(), func() limiter.Rule {
			r := ok()
			r.Override = func(context.Context, string) (core.Limit, bool, error) { return core.Limit{}, true, nil }
			return r
		}, `rule 0 "a": the limit from Override: quota 0 is not positive; period 0s is below 1ms`},
	}

	for _, row := range rows {
		for failure, want := range map[limiter.FailureMode]limiter.Outcome{
			limiter.FailOpen: limiter.Pass, limiter.FailClosed: limiter.Failed} {
			t.Run(row.name, func(t *testing.T) {
				var reported []error
				l := configured(t, limiter.Config{Store: row.store, Rules: []limiter.Rule{row.rule()},
					OnStoreError: failure,
					OnError:      func(_ context.Context, err error) { reported = append(reported, err) }})

				a := l.Admit(get())
				defer a.Done(200)
				if a.Outcome() != want {
					t.Errorf("%s, want %s", a.Outcome(), want)
				}

				if len(reported) != 1 || reported[0].Error() != row.want {
					t.Errorf("reported %q, want %q", reported, row.want)
				}
			})
		}
	}
}

func TestFailureModeClosedAnswers503(t *testing.T) {
	l := configured(t, limiter.Config{Store: brokenStore(func() error { return errDown }),
		Rules: []limiter.Rule{rule(t, "a", "5/1s")}, OnStoreError: limiter.FailClosed})
	a := l.Admit(get())
	defer a.Done(503)
	if a.Status() != 503 || a.RetryAfter() != 1 || len(a.Violated()) != 0 {
		t.Errorf("status %d, retry after %d, violated %v", a.Status(), a.RetryAfter(), a.Violated())
	}

	if got, want := lines(a), "Retry-After: 1\nCache-Control: no-store\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	// The problem names no policy, as none was violated.
	want := `{"type":"about:blank","title":"Service Unavailable","status":503}`
	if got := string(a.Problem()); got != want {
		t.Errorf("got %s", got)
	}
}

// standby has a fallback; the store itself is down.
type standby struct{ fallback core.Store }

var errFallback = errors.New("no fallback either")

func (s standby) Apply(ctx context.Context, ops []core.Op, out []core.Decision) error {
	return s.fallback.Apply(ctx, ops, out)
}

func (s standby) Back() (core.Standby, func()) {
	return core.Standby{Store: s, Strict: brokenStore(func() error { return errDown }), Fallback: s.fallback}, nil
}

// Each row has the failure modes of the limiter and of its rules, which admit one
// request each, and the outcomes of two requests.
func TestFailureModeOfEachRule(t *testing.T) {
	const def, open, closed, local = limiter.FailDefault, limiter.FailOpen, limiter.FailClosed, limiter.FailLocal
	pass, refused, failed := []limiter.Outcome{limiter.Pass, limiter.Pass},
		[]limiter.Outcome{limiter.Pass, limiter.Refused}, []limiter.Outcome{limiter.Failed, limiter.Failed}
	rows := []struct {
		limiter limiter.FailureMode
		rules   []limiter.FailureMode
		shadow  []bool
		want    []limiter.Outcome
		errs    int // that are reported
	}{
		// One rule: its own mode, or else that of the limiter, or else the fallback that the store
		// has.
		{def, []limiter.FailureMode{def}, nil, refused, 0},
		{def, []limiter.FailureMode{local}, nil, refused, 0},
		{def, []limiter.FailureMode{open}, nil, pass, 2},
		{def, []limiter.FailureMode{closed}, nil, failed, 2},
		{open, []limiter.FailureMode{def}, nil, pass, 2},
		{open, []limiter.FailureMode{local}, nil, refused, 0},
		{closed, []limiter.FailureMode{def}, nil, failed, 2},
		{closed, []limiter.FailureMode{open}, nil, pass, 2},
		{closed, []limiter.FailureMode{local}, nil, refused, 0},
		// Two rules: what one lets pass the other may refuse. Only a decision of the fallback is no
		// error.
		{local, []limiter.FailureMode{def, def}, nil, refused, 0},
		{def, []limiter.FailureMode{open, local}, nil, refused, 2},
		{def, []limiter.FailureMode{local, open}, nil, refused, 2},
		{def, []limiter.FailureMode{open, open}, nil, pass, 2},
		{def, []limiter.FailureMode{local, open, closed}, nil, failed, 2},
		// A rule in shadow refuses nothing, also if it could not be decided and is to fail closed.
		{open, []limiter.FailureMode{closed, local}, []bool{true, false}, refused, 2},
		{open, []limiter.FailureMode{closed}, []bool{true}, pass, 2},
		{closed, []limiter.FailureMode{def, def}, []bool{true, true}, pass, 2},
		{closed, []limiter.FailureMode{local}, []bool{true}, pass, 0},
	}
	for i, row := range rows {
		// The store is down, and its fallback has room for one request of each rule.
		var reported []error
		c := limiter.Config{Store: standby{newStore()}, OnStoreError: row.limiter,
			OnError: func(_ context.Context, err error) { reported = append(reported, err) }}
		for j, failure := range row.rules {
			r := rule(t, string(rune('a'+j)), "1/1h")
			r.OnStoreError = failure
			if row.shadow != nil && row.shadow[j] {
				r.OnLimit = limiter.Shadow
			}
			c.Rules = append(c.Rules, r)
		}

		l := configured(t, c)
		if got := []limiter.Outcome{admit(l), admit(l)}; !slices.Equal(got, row.want) {
			t.Errorf("row %d: %v, want %v", i, got, row.want)
		}
		if len(reported) != row.errs {
			t.Errorf("row %d: reported %v", i, reported)
		}
	}
}

func TestFailureModeWhenTheFallbackFailsToo(t *testing.T) {
	rows := map[limiter.FailureMode]limiter.Outcome{
		// The fallback is to decide and fails too: then the rule follows the mode of the limiter,
		// and passes unless that is FailClosed.
		limiter.FailDefault: limiter.Pass, limiter.FailOpen: limiter.Pass, limiter.FailLocal: limiter.Pass,
		limiter.FailClosed: limiter.Failed,
	}
	for failure, want := range rows {
		for _, mixed := range []bool{false, true} {
			local := rule(t, "local", "1/1h")
			local.OnStoreError = limiter.FailLocal
			c := limiter.Config{Store: standby{brokenStore(func() error { return errFallback })}, OnStoreError: failure,
				Rules: []limiter.Rule{local}}
			if mixed {
				open := rule(t, "open", "1/1h")
				open.OnStoreError = limiter.FailOpen
				c.Rules = append(c.Rules, open)
			}

			l := configured(t, c)
			if got := admit(l); got != want {
				t.Errorf("%s, mixed %t: %s, want %s", failure, mixed, got, want)
			}
			// Beside a rule that fails open the store itself was asked, so its error is there too.
			if _, err := l.Take(t.Context(), "k", 1); !errors.Is(err, errFallback) || errors.Is(err, errDown) != mixed {
				t.Errorf("%s, mixed %t: %v", failure, mixed, err)
			}
		}
	}
}

func TestFailureModeAnswersDescribeDecidedRules(t *testing.T) {
	open, local := rule(t, "open", "1/1m fixed-window"), rule(t, "local", "2/1m fixed-window")
	open.OnStoreError = limiter.FailOpen
	// The store is down: local is decided by the fallback, and open passes undecided.
	var seen recorder
	l := configured(t, limiter.Config{Store: standby{newStore()}, Rules: []limiter.Rule{open, local},
		Headers: limiter.Draft8, Observer: &seen})

	// The headers describe the rule that was decided, and no other: there is no number for open.
	a := l.Admit(get())
	defer a.Done(200)
	want := "Ratelimit-Policy: \"local\";q=2;w=60\nRatelimit: \"local\";r=1;t=60\n"
	if got := lines(a); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}

	// The event has both, with the error at the rule that it hit.
	told := seen.take()
	if len(told) != 1 || told[0].Verdict != events.FailedOpen || !errors.Is(told[0].Err, errDown) {
		t.Fatalf("%+v", told)
	}
	if got := verdicts(told[0]); got != "failed_open: local allowed, open failed_open" ||
		!errors.Is(told[0].Rules[1].Err, errDown) || told[0].Rules[0].Err != nil {
		t.Errorf("%s: %+v", got, told)
	}

	// The same holds for Take.
	res, err := l.Take(t.Context(), "k", 1)
	if !errors.Is(err, errDown) || !errors.Is(err, limiter.ErrUndecided) || !res.Allowed() || !res.Undecided() ||
		len(res.Decisions()) != 1 {
		t.Errorf("%v, %v", res.Decisions(), err)
	}
}

func TestFailureModeMistakesAreNamed(t *testing.T) {
	bad := rule(t, "bad", "1/1s")
	bad.OnStoreError = limiter.FailLocal
	odd := rule(t, "odd", "1/1s")
	odd.OnStoreError = 9

	c := limiter.Config{Store: newStore(), OnStoreError: limiter.FailLocal, Rules: []limiter.Rule{bad, odd}}
	want := "OnStoreError: the store has no fallback that could decide\n" +
		`rule 0 "bad": OnStoreError: the store has no fallback that could decide` + "\n" +
		`rule 1 "odd": OnStoreError: 9 is not known`
	// Neither a store without Back nor one whose Back has no fallback will do.
	for _, store := range []core.Store{newStore(), standby{}} {
		c.Store = store
		if _, err := limiter.New(c); err == nil || err.Error() != want {
			t.Errorf("got\n%v\nwant\n%s", err, want)
		}
	}

	// A set with a mistake is refused as a whole, and the rules of before stay in force.
	l := newLimiter(t, newStore(), rule(t, "a", "1/1h"))
	if err := l.SetRules([]limiter.Rule{bad}); err == nil {
		t.Error("SetRules has taken a bad rule")
	}
	admit(l)
	if got := admit(l); got != limiter.Refused {
		t.Errorf("%s after a bad set", got)
	}
}

func TestSetRulesChangesFailureModes(t *testing.T) {
	r := rule(t, "a", "1/1h")
	l := newLimiter(t, standby{newStore()}, r)

	r.OnStoreError = limiter.FailClosed
	if err := l.SetRules([]limiter.Rule{r}); err != nil {
		t.Fatal(err)
	}
	if got := admit(l); got != limiter.Failed {
		t.Errorf("%s", got)
	}

	r.OnStoreError = limiter.FailLocal
	if err := l.SetRules([]limiter.Rule{r}); err != nil {
		t.Fatal(err)
	}
	// The unit is taken from the fallback, where none was used before.
	if got := admit(l); got != limiter.Pass {
		t.Errorf("%s", got)
	}
}

func TestRuleThatFailsLeavesOthersInForce(t *testing.T) {
	broken := rule(t, "broken", "9/1h")
	broken.Key = func(core.Request) (string, bool) { panic("k") }
	// The limit of "a" is 1: the second request is refused by it, unless the broken rule has ended
	// it before.
	rows := map[limiter.FailureMode]map[limiter.Action][]limiter.Outcome{
		limiter.FailOpen: {limiter.Reject: {limiter.Pass, limiter.Refused},
			limiter.Shadow: {limiter.Pass, limiter.Refused}},
		limiter.FailClosed: {limiter.Reject: {limiter.Failed, limiter.Failed},
			limiter.Degrade: {limiter.Failed, limiter.Failed},
			limiter.Shadow:  {limiter.Pass, limiter.Refused}},
	}
	for failure, byAction := range rows {
		for onLimit, want := range byAction {
			// The order of the rules makes no difference to the outcome.
			for _, first := range []bool{true, false} {
				broken.OnStoreError, broken.OnLimit = failure, onLimit
				rules := []limiter.Rule{broken, rule(t, "a", "1/1h")}
				if !first {
					slices.Reverse(rules)
				}

				var reported []error
				l := configured(t, limiter.Config{Store: newStore(), Rules: rules,
					OnError: func(_ context.Context, err error) { reported = append(reported, err) }})
				if got := []limiter.Outcome{admit(l), admit(l)}; !slices.Equal(got, want) {
					t.Errorf("%s %s, first %t: %v, want %v", failure, onLimit, first, got, want)
				}
				// One error for each of the two requests.
				if len(reported) != 2 {
					t.Errorf("%s %s: reported %v", failure, onLimit, reported)
				}
			}
		}
	}
}

func TestOverrideFailureIsReturnedByTake(t *testing.T) {
	broken := rule(t, "broken", "9/1h")
	broken.Override = func(context.Context, string) (core.Limit, bool, error) { panic("o") }
	l := newLimiter(t, newStore(), broken, rule(t, "a", "1/1h"))
	// The rule beside it takes its only unit and then refuses; the error is the same for both.
	for _, want := range []bool{true, false} {
		res, err := l.Take(t.Context(), "k", 1)
		if res.Allowed() != want || !res.Undecided() || !errors.Is(err, limiter.ErrUndecided) ||
			!strings.HasSuffix(err.Error(), `: rule 0 "broken": panic: "o"`) {
			t.Errorf("allowed %t, %v", res.Allowed(), err)
		}
	}

	if _, err := l.Peek(t.Context(), "k"); err == nil {
		t.Error("Peek")
	}
	if err := l.Reset(t.Context(), "k"); err == nil {
		t.Error("Reset")
	}
}

// A client could otherwise avoid being counted by hanging up.
func TestFailureModeRefusesClientsThatLeft(t *testing.T) {
	ctx, leave := context.WithCancel(context.Background())
	leave()

	l := newLimiter(t, newStore(), rule(t, "a", "1/1h"))
	a := l.Admit(&test.Request{Ctx: ctx})
	defer a.Done(503)
	if a.Outcome() != limiter.Failed {
		t.Errorf("%s", a.Outcome())
	}

	open, local := rule(t, "open", "1/1h"), rule(t, "local", "1/1h")
	// A fallback in memory could decide for the client that has left, but it is not asked either.
	open.OnStoreError = limiter.FailOpen
	asked := 0
	l = newLimiter(t, standby{brokenStore(func() error { asked++; return nil })}, open, local)

	b := l.Admit(&test.Request{Ctx: ctx})
	defer b.Done(503)
	if b.Outcome() != limiter.Failed || asked != 0 {
		t.Errorf("%s, and the fallback was asked %d times", b.Outcome(), asked)
	}
}

// hint is an error with a RetryAfter.
type hint time.Duration

func (h hint) Error() string             { return "later" }
func (h hint) RetryAfter() time.Duration { return time.Duration(h) }

func TestRetryAfterOfAFailureIsThatOfItsError(t *testing.T) {
	// Whole seconds, rounded up, and at least one.
	rows := map[time.Duration]string{0: "1", -time.Second: "1", time.Millisecond: "1", time.Second: "1",
		time.Second + 1: "2"}
	for after, want := range rows {
		l := configured(t, limiter.Config{Store: brokenStore(
			func() error { return fmt.Errorf("wrapped: %w", hint(after)) }),
			OnStoreError: limiter.FailClosed, Rules: []limiter.Rule{rule(t, "a", "1/1h")}})
		a := l.Admit(get())
		if got := lines(a); got != "Retry-After: "+want+"\nCache-Control: no-store\n" {
			t.Errorf("after %s: %s", after, got)
		}
		a.Done(503)
	}
}

func TestPeekFollowsTheFailureMode(t *testing.T) {
	r := rule(t, "a", "1/1h")
	l := newLimiter(t, standby{newStore()}, r)
	wantLeft(t, l, "k", 1)

	r.OnStoreError = limiter.FailClosed
	if err := l.SetRules([]limiter.Rule{r}); err != nil {
		t.Fatal(err)
	}
	// Peek shows what a request would meet: under FailClosed that is the error.
	if _, err := l.Peek(t.Context(), "k"); !errors.Is(err, errDown) {
		t.Error(err)
	}
	if err := l.Reset(t.Context(), "k"); err != nil { // a Standby keeps it for later
		t.Error(err)
	}
}

func TestFailureModeString(t *testing.T) {
	want := []string{"default", "open", "closed", "local", "unknown failure mode"}
	for i, text := range want {
		if got := limiter.FailureMode(i).String(); got != text {
			t.Errorf("%d is %q", i, got)
		}
	}
}

func TestFailureModeOpenSendsNoHeaders(t *testing.T) {
	l := newLimiter(t, brokenStore(func() error { return errDown }), rule(t, "a", "5/1s"))
	a := l.Admit(get())
	defer a.Done(200)
	if got := lines(a); got != "" || a.Problem() != nil || a.NeedsContext() || a.NeedsStatus() {
		t.Errorf("headers %q, body %q", got, a.Problem())
	}
}

func TestNilLimiterFailsClosed(t *testing.T) {
	var l *limiter.Limiter
	a := l.Admit(get())
	defer a.Done(503)
	if a.Outcome() != limiter.Failed || lines(a) != "Retry-After: 1\nCache-Control: no-store\n" {
		t.Errorf("%s with %q", a.Outcome(), lines(a))
	}
}

func TestTakeReturnsErrorsAndFollowsConfig(t *testing.T) {
	for failure, want := range map[limiter.FailureMode]bool{limiter.FailOpen: true, limiter.FailClosed: false} {
		l := configured(t, limiter.Config{Store: brokenStore(func() error { return errDown }),
			Rules: []limiter.Rule{rule(t, "a", "5/1s")}, OnStoreError: failure})
		res, err := l.Take(context.Background(), "k", 1)
		if !errors.Is(err, errDown) || !errors.Is(err, limiter.ErrUndecided) || res.Allowed() != want ||
			!res.Undecided() {
			t.Errorf("%v, allowed %t, undecided %t", err, res.Allowed(), res.Undecided())
		}
		if err := res.Refund(context.Background()); err != nil {
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

func TestPanicErrorKeepsStackAndError(t *testing.T) {
	l := newLimiter(t, brokenStore(func() error { panic(errDown) }), rule(t, "a", "5/1s"))
	_, err := l.Take(context.Background(), "k", 1)
	var p *limiter.PanicError
	if !errors.As(err, &p) || !errors.Is(err, errDown) || !strings.Contains(string(p.Stack), "failuremode_test.go") {
		t.Errorf("%v", err)
	}
}

type panicking struct{}

func (panicking) Observe(context.Context, *events.Request) { panic("observer") }

// sometimesPanicking panics after it was told of the first request.
type sometimesPanicking struct{ rules []int }

func (s *sometimesPanicking) Observe(_ context.Context, e *events.Request) {
	if s.rules = append(s.rules, len(e.Rules)); len(s.rules) > 1 {
		panic("observer")
	}
}

// The event of a request has its own rules alone, also after an observer has panicked.
func TestAnEventHasNothingOfTheOneBefore(t *testing.T) {
	var o sometimesPanicking
	l := configured(t, limiter.Config{Store: newStore(), Observer: &o, Rules: []limiter.Rule{rule(t, "a", "9/1s")},
		OnError: func(context.Context, error) {}})
	for range 5 {
		admit(l)
	}
	if !slices.Equal(o.rules, []int{1, 1, 1, 1, 1}) {
		t.Errorf("the events have %v rules", o.rules)
	}
}

func TestHookPanicsAreHarmless(t *testing.T) {
	var reported []error
	l := configured(t, limiter.Config{Store: newStore(), Observer: panicking{},
		Rules:   []limiter.Rule{rule(t, "a", "1/1s")},
		OnError: func(_ context.Context, err error) { reported = append(reported, err); panic("hook") }})
	if got := admit(l); got != limiter.Pass {
		t.Errorf("%s", got)
	}
	if got := admit(l); got != limiter.Refused {
		t.Errorf("%s", got)
	}
	if len(reported) != 2 || reported[0].Error() != `the observer: panic: "observer"` {
		t.Errorf("reported %v", reported)
	}
}
