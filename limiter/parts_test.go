package limiter_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
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

type admitted struct {
	parts []limiter.Part
	want  string
}

func checkParts(t *testing.T, l *limiter.Limiter, steps []admitted) {
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
	t.Run("a part that is refused costs no other part anything", func(t *testing.T) {
		l := newLimiter(t, newStore(), byHeaderNamed(t, "a", "3/1h fixed-window", "A"), byHeaderNamed(t, "b", "1/1h fixed-window", "B"))
		checkParts(t, l, []admitted{
			{list(part(take, 1, "A=x"), part(take, 1, "B=x")), "pass | a+2 | b+0"},
			{list(part(take, 1, "A=x"), part(take, 1, "B=x")), "refused | a+2 | b-0"},
			{list(part(take, 2, "A=x")), "pass | a+0"},
		})
	})
	t.Run("a rule applies once for each key, and once only", func(t *testing.T) {
		l := newLimiter(t, newStore(), byHeaderNamed(t, "a", "9/1h fixed-window", "A"))
		checkParts(t, l, []admitted{
			{list(part(take, 1, "A=x"), part(take, 3, "A=x"), part(take, 2, "A=y")), "pass | a+6 | a+6 | a+7"},
			{list(part(take, 3, "A=x"), part(take, 1, "A=x")), "pass | a+3 | a+3"},
		})
	})
	t.Run("a rule does not apply to a part that lacks its key", func(t *testing.T) {
		l := newLimiter(t, newStore(), byHeaderNamed(t, "a", "9/1h fixed-window", "A"), byHeaderNamed(t, "b", "9/1h fixed-window", "B"))
		checkParts(t, l, []admitted{{list(part(take, 1, "A=x"), part(take, 1), part(take, 1, "A=x", "B=x")), "pass | a+8 | | a+8 b+8"}})
	})
	t.Run("a rate replaces quota and period, and keeps the count", func(t *testing.T) {
		l := newLimiter(t, newStore(), byHeaderNamed(t, "a", "9/1h fixed-window", "A"))
		lower, none := part(take, 1, "A=x"), part(take, 1, "A=x")
		lower.Rate, none.Rate = &core.Limit{Quota: 3, Period: time.Hour}, &core.Limit{Period: time.Hour}
		checkParts(t, l, []admitted{
			{list(part(take, 2, "A=x")), "pass | a+7"},
			{list(lower), "pass | a+0"},
			{list(lower), "refused | a-0"},
			{list(part(take, 1, "A=x")), "pass | a+5"},
			{list(part(take, 1, "A=y"), none), "refused | |"},
			{list(part(core.Peek, 1, "A=y")), "pass | a+9"},
		})
	})
	t.Run("a denied part is named", func(t *testing.T) {
		denying := byHeaderNamed(t, "b", "9/1h fixed-window", "B")
		var err error
		if denying.Access, err = keyfuncs.NewAccess(keyfuncs.Lists{Deny: keyfuncs.Callers{Keys: []string{"x"}}}); err != nil {
			t.Fatal(err)
		}
		l := newLimiter(t, newStore(), byHeaderNamed(t, "a", "9/1h fixed-window", "A"), denying)
		a := l.AdmitParts(context.Background(), list(part(take, 1, "A=x"), part(take, 1, "B=x")))
		defer a.Done(0)
		if a.DeniedPart() != 1 || !a.Result().Denied() || !slices.Equal(a.Violated(), []string{"b"}) {
			t.Errorf("part %d, denied %t, by %q; want part 1, by b", a.DeniedPart(), a.Result().Denied(), a.Violated())
		}
		checkParts(t, l, []admitted{{list(part(core.Peek, 1, "A=x")), "pass | a+9"}})
	})
	t.Run("a refund gives units back", func(t *testing.T) {
		l := newLimiter(t, newStore(), byHeaderNamed(t, "a", "3/1h fixed-window", "A"))
		checkParts(t, l, []admitted{
			{list(part(take, 3, "A=x")), "pass | a+0"},
			{list(part(core.Refund, 2, "A=x")), "pass | a+2"},
			{list(part(core.Refund, 9, "A=x")), "pass | a+3"},
		})
	})
	t.Run("a mistake of a part fails the request", func(t *testing.T) {
		failing := byHeaderNamed(t, "a", "3/1h sliding-log", "A")
		failing.OnStoreError = limiter.FailClosed
		l := newLimiter(t, newStore(), failing)
		checkParts(t, l, []admitted{{list(part(core.Debit, 1, "A=x")), "failed |"}, {list(part(core.Lift, 1, "A=x")), "pass |"},
			{list(part(take, -1, "A=x")), "pass |"}})
	})
	t.Run("headers have each rule once", func(t *testing.T) {
		l := newLimiter(t, newStore(), byHeaderNamed(t, "a", "9/1h fixed-window", "A"), byHeaderNamed(t, "b", "9/1h fixed-window", "B"))
		a := l.AdmitParts(context.Background(), list(part(take, 1, "A=x"), part(take, 2, "A=y")))
		defer a.Done(0)
		want := []limiter.Header{{Name: "Ratelimit-Policy", Value: `"a";q=9;w=3600`}, {Name: "Ratelimit", Value: `"a";r=7;t=3600`}}
		if got := a.Headers(); len(got) < 2 || !slices.Equal(got[len(got)-2:], want) {
			t.Errorf("headers %q, want %q at the end", got, want)
		}
	})
}

func TestAdmitPartsChecks(t *testing.T) {
	for _, text := range []string{"3/1h", "3/1h token-bucket", "3/1h fixed-window", "3/1h sliding-window", "3/month", "6/1h burst=3"} {
		t.Run(text, func(t *testing.T) {
			l := newLimiter(t, newStore(), byHeaderNamed(t, "a", text, "A"))
			check := part(core.Peek, 0, "A=x")
			checkParts(t, l, []admitted{
				{list(check), "pass | a+3"},
				{list(part(core.Take, 3, "A=x")), "pass | a+0"},
				{list(check), "pass | a+0"},
				{list(part(core.Debit, 1, "A=x")), "pass | a+0"},
				{list(check), "refused | a-0"},
				{list(part(core.Take, 1, "A=y"), check), "refused | a+3 | a-0"},
				{list(part(core.Peek, 1, "A=y")), "pass | a+3"},
				{list(part(core.Refund, 1, "A=x")), "pass | a+0"},
				{list(check), "pass | a+0"},
			})
		})
	}
	t.Run("without debt a check passes", func(t *testing.T) {
		l := newLimiter(t, newStore(), byHeaderNamed(t, "a", "3/1h sliding-log", "A"))
		checkParts(t, l, []admitted{{list(part(core.Take, 3, "A=x")), "pass | a+0"}, {list(part(core.Peek, 0, "A=x")), "pass | a+0"}})
	})
	t.Run("beside a take of the same count a check asks nothing more", func(t *testing.T) {
		l := newLimiter(t, newStore(), byHeaderNamed(t, "a", "3/1h", "A"))
		checkParts(t, l, []admitted{
			{list(part(core.Peek, 0, "A=x"), part(core.Take, 1, "A=x")), "pass | a+2 | a+2"},
			{list(part(core.Take, 1, "A=x"), part(core.Peek, 0, "A=x")), "pass | a+1 | a+1"},
		})
	})
}
