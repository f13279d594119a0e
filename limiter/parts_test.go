package limiter_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/events"
)

// fields is a request of which only the headers in it are known.
type fields struct {
	test.Request
	lacked bool
}

func (f *fields) Header(name string) []string {
	lines := f.Request.Header(name)
	f.lacked = f.lacked || len(lines) == 0
	return lines
}

func (f *fields) Lacked() bool {
	was := f.lacked
	f.lacked = false
	return was
}

func part(verb core.Verb, cost int64, headers ...string) limiter.Part {
	f := &fields{}
	f.Headers = map[string][]string{}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, "=")
		f.Headers[name] = []string{value}
	}
	return limiter.Part{Request: f, Verb: verb, Cost: cost}
}

func byHeaderNamed(t *testing.T, name, text, header string) limiter.Rule {
	r := rule(t, name, text)
	r.Key = keyfuncs.Header(header)
	return r
}

// admitParts returns the outcome, and for each part the decisions of its rules: name, + or -
// for allowed, and what remains.
func admitParts(l *limiter.Limiter, parts ...limiter.Part) string {
	a := l.AdmitParts(context.Background(), parts)
	defer a.Done(0)
	text := a.Outcome().String()
	for i := range parts {
		text += " |"
		for _, d := range a.PartDecisions(i, nil) {
			sign := "-"
			if d.Decision.Allowed {
				sign = "+"
			}
			text += fmt.Sprintf(" %s%s%d", d.Rule, sign, d.Decision.Remaining)
		}
	}
	return text
}

type partsStep struct {
	parts []limiter.Part
	want  string
}

func checkParts(t *testing.T, l *limiter.Limiter, steps []partsStep) {
	t.Helper()
	for i, s := range steps {
		if got := admitParts(l, s.parts...); got != s.want {
			t.Errorf("step %d: %q, want %q", i, got, s.want)
		}
	}
}

func list(parts ...limiter.Part) []limiter.Part { return parts }

func TestAdmitParts(t *testing.T) {
	take := core.Take
	// The second request is refused by b, so that a keeps the two units for the third.
	t.Run("a part that is refused costs no other part anything", func(t *testing.T) {
		l := newLimiter(t, newStore(), byHeaderNamed(t, "a", "3/1h fixed-window", "A"),
			byHeaderNamed(t, "b", "1/1h fixed-window", "B"))
		checkParts(t, l, []partsStep{
			{list(part(take, 1, "A=x"), part(take, 1, "B=x")), "pass | a+2 | b+0"},
			{list(part(take, 1, "A=x"), part(take, 1, "B=x")), "refused | a+2 | b-0"},
			{list(part(take, 2, "A=x")), "pass | a+0"},
		})
	})
	t.Run("a rule applies once for each key, and once only", func(t *testing.T) {
		// Of two parts of one key the larger cost counts, and both see what is left after it.
		l := newLimiter(t, newStore(), byHeaderNamed(t, "a", "9/1h fixed-window", "A"))
		checkParts(t, l, []partsStep{
			{list(part(take, 1, "A=x"), part(take, 3, "A=x"), part(take, 2, "A=y")), "pass | a+6 | a+6 | a+7"},
			{list(part(take, 3, "A=x"), part(take, 1, "A=x")), "pass | a+3 | a+3"},
		})
	})
	t.Run("a rule does not apply to a part that lacks its key", func(t *testing.T) {
		l := newLimiter(t, newStore(), byHeaderNamed(t, "a", "9/1h fixed-window", "A"),
			byHeaderNamed(t, "b", "9/1h fixed-window", "B"))
		checkParts(t, l, []partsStep{{list(part(take, 1, "A=x"), part(take, 1), part(take, 1, "A=x", "B=x")),
			"pass | a+8 | | a+8 b+8"}})
	})
	t.Run("a rate replaces quota and period, and keeps the count", func(t *testing.T) {
		// Three of nine units are taken, so that a rate of three has none left. The nine are in
		// force again for parts without a rate.
		l := newLimiter(t, newStore(), byHeaderNamed(t, "a", "9/1h fixed-window", "A"))
		lower, none := part(take, 1, "A=x"), part(take, 1, "A=x")
		lower.Rate, none.Rate = &core.Limit{Quota: 3, Period: time.Hour}, &core.Limit{Period: time.Hour}
		checkParts(t, l, []partsStep{
			{list(part(take, 2, "A=x")), "pass | a+7"},
			{list(lower), "pass | a+0"},
			{list(lower), "refused | a-0"},
			{list(part(take, 1, "A=x")), "pass | a+5"},
			// A rate without a quota refuses every unit.
			{list(part(take, 1, "A=y"), none), "refused | |"},
			{list(part(core.Peek, 1, "A=y")), "pass | a+9"},
		})
	})
	t.Run("a denied part is named", func(t *testing.T) {
		denying := byHeaderNamed(t, "b", "9/1h fixed-window", "B")
		access, err := keyfuncs.NewAccess(keyfuncs.Lists{Deny: keyfuncs.Callers{Keys: []string{"x"}}})
		if err != nil {
			t.Fatal(err)
		}
		denying.Access = access

		l := newLimiter(t, newStore(), byHeaderNamed(t, "a", "9/1h fixed-window", "A"), denying)
		// The part before the denied one is not charged.
		a := l.AdmitParts(context.Background(), list(part(take, 1, "A=x"), part(take, 1, "B=x")))
		defer a.Done(0)
		if a.DeniedPart() != 1 || !a.Result().Denied() || !slices.Equal(a.Violated(), []string{"b"}) {
			t.Errorf("part %d, denied %t, by %q; want part 1, by b", a.DeniedPart(), a.Result().Denied(), a.Violated())
		}
		checkParts(t, l, []partsStep{{list(part(core.Peek, 1, "A=x")), "pass | a+9"}})
	})
	t.Run("a refund gives units back", func(t *testing.T) {
		// The second refund is of more than was taken, and gives back what was.
		l := newLimiter(t, newStore(), byHeaderNamed(t, "a", "3/1h fixed-window", "A"))
		checkParts(t, l, []partsStep{
			{list(part(take, 3, "A=x")), "pass | a+0"},
			{list(part(core.Refund, 2, "A=x")), "pass | a+2"},
			{list(part(core.Refund, 9, "A=x")), "pass | a+3"},
		})
	})
	t.Run("a mistake of a part fails the request", func(t *testing.T) {
		// The step cannot be carried out, so the rule decides by its OnStoreError. Other mistakes
		// leave the part out.
		failing := byHeaderNamed(t, "a", "3/1h sliding-log", "A")
		failing.OnStoreError = limiter.FailClosed
		l := newLimiter(t, newStore(), failing)
		checkParts(t, l, []partsStep{{list(part(core.Debit, 1, "A=x")), "failed |"},
			{list(part(core.Lift, 1, "A=x")), "pass |"},
			{list(part(take, -1, "A=x")), "pass |"}})
	})
	t.Run("headers have each rule once", func(t *testing.T) {
		l := newLimiter(t, newStore(), byHeaderNamed(t, "a", "9/1h fixed-window", "A"),
			byHeaderNamed(t, "b", "9/1h fixed-window", "B"))
		a := l.AdmitParts(context.Background(), list(part(take, 1, "A=x"), part(take, 2, "A=y")))
		defer a.Done(0)

		want := []limiter.Header{{Name: "Ratelimit-Policy", Value: `"a";q=9;w=3600`},
			{Name: "Ratelimit", Value: `"a";r=7;t=3600`}}
		if got := a.Headers(); len(got) < 2 || !slices.Equal(got[len(got)-2:], want) {
			t.Errorf("headers %q, want %q at the end", got, want)
		}
	})
}

func TestAdmitPartsChecks(t *testing.T) {
	for _, text := range []string{"3/1h", "3/1h token-bucket", "3/1h fixed-window", "3/1h sliding-window", "3/month",
		"6/1h burst=3"} {
		t.Run(text, func(t *testing.T) {
			l := newLimiter(t, newStore(), byHeaderNamed(t, "a", text, "A"))
			// A check asks for no units. It fails only for a key in debt.
			check := part(core.Peek, 0, "A=x")
			checkParts(t, l, []partsStep{
				{list(check), "pass | a+3"},
				{list(part(core.Take, 3, "A=x")), "pass | a+0"},
				{list(check), "pass | a+0"},
				{list(part(core.Debit, 1, "A=x")), "pass | a+0"},
				{list(check), "refused | a-0"},
				// The take beside the check is refused with it, and charges nothing.
				{list(part(core.Take, 1, "A=y"), check), "refused | a+3 | a-0"},
				{list(part(core.Peek, 1, "A=y")), "pass | a+3"},
				{list(part(core.Refund, 1, "A=x")), "pass | a+0"},
				{list(check), "pass | a+0"},
			})
		})
	}
	t.Run("without debt a check passes", func(t *testing.T) {
		l := newLimiter(t, newStore(), byHeaderNamed(t, "a", "3/1h sliding-log", "A"))
		checkParts(t, l, []partsStep{{list(part(core.Take, 3, "A=x")), "pass | a+0"},
			{list(part(core.Peek, 0, "A=x")), "pass | a+0"}})
	})
	t.Run("beside a take of the same count a check asks nothing more", func(t *testing.T) {
		l := newLimiter(t, newStore(), byHeaderNamed(t, "a", "3/1h", "A"))
		checkParts(t, l, []partsStep{
			{list(part(core.Peek, 0, "A=x"), part(core.Take, 1, "A=x")), "pass | a+2 | a+2"},
			{list(part(core.Take, 1, "A=x"), part(core.Peek, 0, "A=x")), "pass | a+1 | a+1"},
		})
	})
}

// The observer hears of a request in parts once. A rule is there once for each of its counts,
// and a correction is no decision but units that were given back or debited.
func TestAdmitPartsEvents(t *testing.T) {
	take, peek, refund, debit := core.Take, core.Peek, core.Refund, core.Debit
	shadow := byHeaderNamed(t, "s", "1/1h fixed-window", "S")
	shadow.OnLimit = limiter.Shadow
	// A rate without a quota refuses, here under a rule in shadow.
	none := part(take, 1, "S=z")
	none.Rate = &core.Limit{Period: time.Hour}

	seen, told := &recorder{}, []string{}
	l := configured(t, limiter.Config{
		Store: newStore(), Observer: seen,
		Rules: []limiter.Rule{byHeaderNamed(t, "a", "4/1h fixed-window", "A"),
			byHeaderNamed(t, "b", "9/1h fixed-window", "B"), shadow},
		Hooks: &events.Hooks{Units: func(u events.Units) {
			told = append(told, fmt.Sprintln(u.Rule, u.Key, u.Flow, u.Units))
		}},
	})
	for _, row := range []struct {
		parts []limiter.Part
		want  string // the verdict on the request, and of each rule the key, verdict, cost and charge
		units string
	}{
		{list(part(take, 1, "A=x"), part(take, 3, "A=x"), part(take, 2, "A=y")),
			"allowed: a x allowed 3 3: a y allowed 2 2", ""},
		// A refund or a debit is reported as units, not as a decision.
		{list(part(refund, 2, "A=x"), part(take, 3, "B=x")), "allowed: b x allowed 3 3", "a x refunded 2\n"},
		{list(part(refund, 1, "A=x")), "allowed", "a x refunded 1\n"},
		{list(part(debit, 5, "A=x"), part(take, 1, "B=x")), "allowed: b x allowed 1 1", "a x debited 5\n"},
		// Peeks cost their units and charge none.
		{list(part(peek, 2, "A=y"), part(peek, 0, "B=x")), "allowed: a y allowed 2 0: b x allowed 0 0", ""},
		// What a check refuses, the others are charged for a moment only, which nobody hears of.
		{list(part(peek, 0, "A=x"), part(take, 2, "B=x")), "refused: a x refused 0 0: b x overruled 2 0", ""},
		// A correction is carried out though the request is refused.
		{list(part(take, 3, "A=y"), part(refund, 1, "B=x"), part(take, 1, "B=y")),
			"refused: a y refused 3 0: b y overruled 1 0", "b x refunded 1\n"},
		// Two counts of one rule are two entries, also of a rule in shadow.
		{list(part(take, 1, "S=x"), part(take, 1, "S=y")), "allowed: s x allowed 1 1: s y allowed 1 1", ""},
		{list(part(take, 1, "S=x"), part(take, 1, "B=x")), "shadow_refused: s x shadow_refused 1 0: b x allowed 1 1",
			""},
		{list(none, part(take, 1, "B=x")), "shadow_refused: b x allowed 1 1: s z shadow_refused 0 0", ""},
		{nil, "allowed", ""},
	} {
		told = nil
		l.AdmitParts(t.Context(), row.parts).Done(0)

		got := seen.take()
		if len(got) != 1 {
			t.Fatalf("%q: told %d times, want once", row.want, len(got))
		}

		text := got[0].Verdict.String()
		for _, r := range got[0].Rules {
			text += fmt.Sprint(": ", r.Name, " ", r.Key, " ", r.Verdict, " ", r.Cost, " ", r.Charged)
		}

		if units := strings.Join(told, ""); text != row.want || units != row.units {
			t.Errorf("%q and units %q, want %q and %q", text, units, row.want, row.units)
		}
	}
}

// Rules that a store did not decide about are told with their own limits, and a correction that
// was not carried out is not told.
func TestAdmitPartsEventsOfAnOutage(t *testing.T) {
	seen, told := &recorder{}, 0
	open, other := byHeaderNamed(t, "a", "4/1h fixed-window", "A"), byHeaderNamed(t, "b", "9/1h fixed-window", "B")
	open.OnStoreError = limiter.FailOpen
	for _, row := range []struct {
		store core.Store
		mode  limiter.FailureMode // of the other rule
		want  string
	}{
		// The fallback decides about b, or no store about either.
		{standby{fallback: newStore()}, limiter.FailLocal,
			"failed_open: b allowed 9/1h fixed-window: a failed_open 4/1h fixed-window"},
		{brokenStore(func() error { return errDown }), limiter.FailOpen,
			"failed_open: a failed_open 4/1h fixed-window: b failed_open 9/1h fixed-window"},
	} {
		l := configured(t, limiter.Config{
			Store: row.store, Observer: seen, Rules: []limiter.Rule{open, other}, OnStoreError: row.mode,
			Logger: slog.New(slog.DiscardHandler),
			Hooks:  &events.Hooks{Units: func(events.Units) { told++ }},
		})

		l.AdmitParts(t.Context(),
			list(part(core.Peek, 0, "A=x"), part(core.Debit, 1, "A=y"), part(core.Take, 1, "B=x"))).Done(0)
		for _, e := range seen.take() {
			text := e.Verdict.String()
			for _, r := range e.Rules {
				text += fmt.Sprint(": ", r.Name, " ", r.Verdict, " ", r.Limit)
			}
			if text != row.want || told != 0 {
				t.Errorf("%q and %d corrections, want %q and none", text, told, row.want)
			}
		}
	}
}
