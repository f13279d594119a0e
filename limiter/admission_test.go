package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/limiter"
)

func TestDegradeLetsPassAndMarks(t *testing.T) {
	l := newLimiter(t, newStore(), withOnLimit(rule(t, "soft", "1/1m fixed-window"), limiter.Degrade),
		rule(t, "hard", "2/1m fixed-window"))
	want := []struct {
		outcome  limiter.Outcome
		degraded bool
	}{{limiter.Pass, false}, {limiter.Pass, true}, {limiter.Refused, false}}

	for i, w := range want {
		a := l.Admit(get())
		// Only a degraded request needs the context: the handler reads there what to leave out.
		if a.Outcome() != w.outcome || a.Degraded() != w.degraded || a.NeedsContext() != w.degraded {
			t.Errorf("request %d: %s, degraded %t, needs context %t", i, a.Outcome(), a.Degraded(), a.NeedsContext())
		}
		if v := a.Violated(); w.outcome == limiter.Refused && (len(v) != 1 || v[0] != "hard") {
			t.Errorf("violated %v", v)
		}
		a.Done(200)
	}
}

func TestShadowCountsButRefusesNoRequest(t *testing.T) {
	l := newLimiter(t, newStore(), withOnLimit(rule(t, "dark", "2/1m fixed-window"), limiter.Shadow))
	for i, want := range []int64{1, 0, 0, 0} {
		a := l.Admit(get())
		if a.Outcome() != limiter.Pass || a.Degraded() || a.NeedsContext() {
			t.Errorf("request %d: %s, degraded %t", i, a.Outcome(), a.Degraded())
		}
		a.Done(200)
		wantLeft(t, l, "k", want)
	}
}

func TestContextHasEveryLimiterAround(t *testing.T) {
	outer := newLimiter(t, newStore(), withOnLimit(rule(t, "soft", "1/1m"), limiter.Degrade))
	inner := newLimiter(t, newStore(), rule(t, "jobs", "5 concurrent ttl=1m"))

	admit(outer)
	a := outer.Admit(get())
	defer a.Done(200)
	ctx := limiter.NewContext(context.Background(), a)
	b := inner.Admit(&test.Request{Ctx: ctx})
	defer b.Done(200)
	// b joins those of the context with NewContext, and only then sees that a is degraded.
	if b.Degraded() {
		t.Error("degraded before it is in the context")
	}

	ctx = limiter.NewContext(ctx, b)
	if limiter.FromContext(ctx) != b.Result() || !b.Degraded() || !limiter.Degraded(ctx) {
		t.Error("the inner limiter hides what the outer one says")
	}

	key, value := b.ContextValue()
	if set := context.WithValue(context.Background(), key, value); limiter.FromContext(set) != b.Result() {
		t.Error("a context with the value of ContextValue does not have the result")
	}
}

func TestContextWithoutAdmissionIsNotDegraded(t *testing.T) {
	res := limiter.FromContext(context.Background())
	if res != nil || res.Degraded() || limiter.Degraded(context.Background()) {
		t.Error("degraded")
	}
	if held, err := res.Renew(context.Background()); !held || err != nil {
		t.Errorf("held %t, %v", held, err)
	}
	if res.Release(context.Background()) != nil || res.Refund(context.Background()) != nil ||
		res.Decisions() != nil || res.Allowed() {
		t.Error("a nil Result does something")
	}
}

func TestKeepResultHasEveryResultInTheContext(t *testing.T) {
	for _, keep := range []bool{false, true} {
		l := configured(t, limiter.Config{Store: newStore(),
			Rules: []limiter.Rule{rule(t, "a", "2/1h fixed-window")}, KeepResult: keep})

		a := l.Admit(get())
		if a.NeedsContext() != keep {
			t.Errorf("keep %t: needs context %t", keep, a.NeedsContext())
		}
		if !keep {
			a.Done(200)
			continue
		}

		res := limiter.FromContext(limiter.NewContext(context.Background(), a))
		a.Done(200)
		admit(l) // must not reuse the result that the context refers to
		if got := summary(res.Decisions()); got != "a 1" || !res.Allowed() || res.Degraded() {
			t.Errorf("%q, allowed %t, degraded %t", got, res.Allowed(), res.Degraded())
		}

		if refused := l.Admit(get()); refused.NeedsContext() {
			t.Error("a refused request needs a context")
		}
	}
}

func TestAdmitPreflight(t *testing.T) {
	origin, method := []string{"https://a.example"}, []string{"PUT"}
	preflight := test.Request{Verb: "OPTIONS",
		Headers: map[string][]string{"Origin": origin, "Access-Control-Request-Method": method}}
	// Of five units one is taken, unless the request is skipped.
	rows := []struct {
		name    string
		skip    bool
		request test.Request
		want    int64
	}{
		{"counted by default", false, preflight, 4},
		{"skipped", true, preflight, 5},
		{"no origin", true, test.Request{Verb: "OPTIONS",
			Headers: map[string][]string{"Access-Control-Request-Method": method}}, 4},
		{"no method asked for", true, test.Request{Verb: "OPTIONS", Headers: map[string][]string{"Origin": origin}}, 4},
		{"a GET in disguise", true, test.Request{Verb: "GET",
			Headers: map[string][]string{"Origin": origin, "Access-Control-Request-Method": method}}, 4},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			l := configured(t, limiter.Config{Store: newStore(), SkipPreflights: row.skip,
				Rules: []limiter.Rule{rule(t, "a", "5/1m")}})

			a := l.Admit(&row.request)
			// A request that is skipped was counted by no rule, so it has no headers.
			if a.Outcome() != limiter.Pass || (len(a.Headers()) == 0) != (row.want == 5) {
				t.Errorf("%s with headers %v", a.Outcome(), a.Headers())
			}

			a.Done(204)
			wantLeft(t, l, "k", row.want)
		})
	}
}

func TestRefundIfGivesBackByStatus(t *testing.T) {
	failed := rule(t, "failures", "5/1m fixed-window")
	failed.RefundIf = func(status int) bool { return status < 400 }
	l := newLimiter(t, newStore(), failed, rule(t, "all", "9/1m fixed-window"))
	for _, status := range []int{200, 401, 302, 500} {
		a := l.Admit(get())
		if !a.NeedsStatus() {
			t.Error("the status is not asked for")
		}
		a.Done(status)
	}
	wantLeft(t, l, "k", 3, 5)
}

func TestRefundIfSkipsRulesThatTookNothing(t *testing.T) {
	soft := withOnLimit(rule(t, "soft", "1/1m fixed-window"), limiter.Degrade)
	soft.RefundIf = func(int) bool { return true }

	l := newLimiter(t, newStore(), soft)
	// The first takes the only unit, the second passes over the limit and takes none.
	first := l.Admit(get())
	second := l.Admit(get())
	if second.NeedsStatus() {
		t.Error("the status is asked for")
	}
	second.Done(200)
	wantLeft(t, l, "k", 0)

	first.Done(200)
	wantLeft(t, l, "k", 1)
}

func TestRefundIfDoesNotRepeatTheHandlersRefund(t *testing.T) {
	r := rule(t, "a", "5/1m fixed-window")
	r.RefundIf = func(int) bool { return true }
	l := newLimiter(t, newStore(), r)
	if _, err := l.Take(context.Background(), "k", 2); err != nil {
		t.Fatal(err)
	}
	a := l.Admit(get())
	if err := a.Result().Refund(context.Background()); err != nil {
		t.Fatal(err)
	}
	a.Done(200)
	wantLeft(t, l, "k", 3)
}

func TestRefundIfPanicIsReported(t *testing.T) {
	var reported []error
	bad, good := rule(t, "bad", "5/1m fixed-window"), rule(t, "good", "5/1m fixed-window")
	bad.RefundIf = func(int) bool { panic("r") }
	good.RefundIf = func(int) bool { return true }
	l := configured(t, limiter.Config{Store: newStore(), Rules: []limiter.Rule{bad, good},
		OnError: func(_ context.Context, err error) { reported = append(reported, err) }})

	admit(l)
	wantLeft(t, l, "k", 4, 5)
	if len(reported) != 1 || reported[0].Error() != `rule 0 "bad": panic: "r"` {
		t.Errorf("reported %v", reported)
	}
}

// A template that panics is reported, and the answer is that without a template.
func TestTemplatePanicIsReported(t *testing.T) {
	fails := func(*limiter.Admission) limiter.Answer { panic("t") }
	down := brokenStore(func() error { return errors.New("down") })
	for name, row := range map[string]struct {
		store  core.Store
		onOver limiter.Action
		status int // 0 if the handler answers
	}{
		"refused":  {newStore(), limiter.Reject, 429},
		"failed":   {down, limiter.Reject, 503},
		"degraded": {newStore(), limiter.Degrade, 0},
	} {
		var reported []string
		r := rule(t, "a", "1/1h")
		r.OnLimit = row.onOver
		l := configured(t, limiter.Config{Store: row.store, Rules: []limiter.Rule{r}, OnStoreError: limiter.FailClosed,
			Refused: fails, Failed: fails, Degraded: fails,
			OnError: func(_ context.Context, err error) { reported = append(reported, err.Error()) }})

		// The first request spends the unit, so that the second meets the template.
		l.Admit(get()).Done(200)
		reported = nil
		a := l.Admit(get())
		answer, ok := a.Answer()
		if ok != (row.status != 0) || answer.Status != row.status {
			t.Errorf("%s: %+v, %v", name, answer, ok)
		}

		if want := `a template of an answer: panic: "t"`; !slices.Contains(reported, want) {
			t.Errorf("%s: reported %q", name, reported)
		}

		a.Done(a.Status())
	}
}

func TestRefundIfWorksAfterTheClientLeft(t *testing.T) {
	r := rule(t, "a", "5/1m fixed-window")
	r.RefundIf = func(int) bool { return true }
	l := newLimiter(t, newStore(), r)
	ctx, leave := context.WithCancel(context.Background())
	a := l.Admit(&test.Request{Ctx: ctx})
	leave()
	a.Done(499)
	wantLeft(t, l, "k", 5)
}

func TestOverrideGivesAKeyItsOwnLimit(t *testing.T) {
	tiers := map[string]string{"free": "1/1m fixed-window", "paid": "3/1h fixed-window", "slots": "2 concurrent ttl=1m"}
	r := rule(t, "tier", "2/1m fixed-window")
	r.Key = byHeader
	r.Override = func(_ context.Context, key string) (core.Limit, bool, error) {
		text, ok := tiers[key]
		if !ok {
			return core.Limit{}, false, nil
		}
		return limit(t, text), true, nil
	}
	l := configured(t, limiter.Config{Store: newStore(), Rules: []limiter.Rule{r}, Headers: limiter.Draft8})

	rows := []struct{ key, policy string }{
		// Two requests of paid count in one state, and every other tier in its own.
		{"free", `"tier";q=1;w=60`}, {"paid", `"tier";q=3;w=3600`}, {"none", `"tier";q=2;w=60`},
		{"paid", `"tier";q=3;w=3600`}, {"slots", `"tier";q=2;qu="concurrent-requests"`},
	}

	for _, row := range rows {
		a := l.Admit(keyed(row.key))
		if got := a.Headers()[0].Value; got != row.policy {
			t.Errorf("%s: %s, want %s", row.key, got, row.policy)
		}
		a.Done(200)
	}

	wantLeft(t, l, "free", 0)
	wantLeft(t, l, "paid", 1)
	wantLeft(t, l, "none", 1)
	wantLeft(t, l, "slots", 2)
}

func TestOverrideBeyondTheCacheWorks(t *testing.T) {
	r := rule(t, "a", "1/1m")
	n := int64(0)
	r.Override = func(context.Context, string) (core.Limit, bool, error) {
		n++
		return core.Limit{Algorithm: core.FixedWindow, Quota: 1000 + n, Period: limit(t, "1/1m").Period}, true, nil
	}

	l := configured(t, limiter.Config{Store: newStore(), Rules: []limiter.Rule{r}, Headers: limiter.NoHeaders})
	for range 200 {
		admit(l)
	}

	wantLeft(t, l, "k", 1001)
	if got := l.RememberedOverrides(); got != 128 {
		t.Errorf("%d limits remembered, want 128", got)
	}
}

func TestAdmissionRecycledRemembersNothing(t *testing.T) {
	r := rule(t, "a", "1/1m fixed-window")
	r.Key = byHeader
	r.RefundIf = func(status int) bool { return status == 500 }
	l := newLimiter(t, newStore(), r)

	fresh := func() string {
		a := l.Admit(keyed("other"))
		defer a.Done(500)
		return lines(a)
	}

	want := fresh()
	// The admission of the busy request is used again for the next, with other headers and another
	// status.
	for range 10 {
		a := l.Admit(keyed("busy"))
		_ = lines(a)
		a.Done(200)
		if got := fresh(); got != want {
			t.Fatalf("got\n%swant\n%s", got, want)
		}
	}
}

// A recycled admission keeps the memory for the rules of the earlier request.
func TestAdmissionKeepsAlternatingRulesApart(t *testing.T) {
	posts, all := rule(t, "posts", "5/1m fixed-window"), rule(t, "all", "9/1h fixed-window")
	posts.Key = func(r core.Request) (string, bool) { return "p", r.Method() == "POST" }
	posts.Cost = func(core.Request) int64 { return 2 }
	posts.OnLimit = limiter.Degrade
	all.RefundIf = func(status int) bool { return status == 500 }

	l := newLimiter(t, newStore(), posts, all)
	// GET meets one rule and POST two, one with a cost of 2. All share the memory of one admission.
	for i, want := range []string{"all 8", "posts 3 all 7", "all 6", "posts 1 all 5", "posts 1 over all 4", "all 3"} {
		method := "GET"
		if strings.Contains(want, "posts") {
			method = "POST"
		}

		a := l.Admit(&test.Request{Verb: method})
		got := ""
		for _, d := range a.Result().Decisions() {
			over := ""
			if !d.Decision.Allowed {
				over = " over"
			}
			got += fmt.Sprintf(" %s %d%s", d.Rule, d.Decision.Remaining, over)
		}

		if got != " "+want {
			t.Errorf("request %d: got%s, want %s", i, got, want)
		}
		a.Done(200)
	}
}

type nothing struct{}

func (nothing) Apply(_ context.Context, ops []core.Op, out []core.Decision) error {
	for i := range ops {
		out[i] = core.Decision{Allowed: true, Remaining: 7, ResetAfter: 1, At: 1}
	}
	return nil
}

func BenchmarkAdmitWithHeaders(b *testing.B) {
	l := newLimiter(b, nothing{}, rule(b, "a", "10/1m"))
	var r core.Request = get()
	b.ReportAllocs()
	for b.Loop() {
		a := l.Admit(r)
		_ = a.Headers()
		a.Done(200)
	}
}
