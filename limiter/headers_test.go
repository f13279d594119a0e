package limiter_test

import (
	"context"
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
)

// lines renders the headers of one admission of k, as "Name: value".
func lines(a *limiter.Admission) string {
	var b strings.Builder
	for _, h := range a.Headers() {
		b.WriteString(h.Name + ": " + h.Value + "\n")
	}
	return b.String()
}

func withOnLimit(r limiter.Rule, a limiter.Action) limiter.Rule {
	r.OnLimit = a
	return r
}

func TestHeadersAreExactlyThese(t *testing.T) {
	burst, daily := rule(t, "burst", "2/1m fixed-window"), rule(t, "daily", "1000/1d fixed-window")
	rows := []struct {
		name  string
		style limiter.HeaderStyle
		rules []limiter.Rule
		takes int
		want  string
	}{
		{"both styles by default", 0, []limiter.Rule{burst}, 1,
			"X-Ratelimit-Limit: 2\nX-Ratelimit-Remaining: 1\nX-Ratelimit-Reset: 1800000060\n" +
				"Ratelimit-Policy: \"burst\";q=2;w=60\nRatelimit: \"burst\";r=1;t=60\n"},
		{"seconds left", limiter.XRateLimitDelta, []limiter.Rule{burst}, 1,
			"X-Ratelimit-Limit: 2\nX-Ratelimit-Remaining: 1\nX-Ratelimit-Reset: 60\n"},
		{"none", limiter.NoHeaders, []limiter.Rule{burst}, 1, ""},
		{"none, for a refusal", limiter.NoHeaders, []limiter.Rule{burst}, 3,
			"Retry-After: 60\nCache-Control: no-store\n"},
		{"no rules", 0, nil, 1, ""},
		{"the most exhausted first", limiter.XRateLimit | limiter.Draft8, []limiter.Rule{daily, burst}, 1,
			"X-Ratelimit-Limit: 2\nX-Ratelimit-Remaining: 1\nX-Ratelimit-Reset: 1800000060\n" +
				"Ratelimit-Policy: \"daily\";q=1000;w=86400, \"burst\";q=2;w=60\n" +
				"Ratelimit: \"burst\";r=1;t=60, \"daily\";r=999;t=86400\n"},
		{"a refusal", limiter.Draft8, []limiter.Rule{daily, burst}, 3,
			"Retry-After: 60\nCache-Control: no-store\n" +
				"Ratelimit-Policy: \"daily\";q=1000;w=86400, \"burst\";q=2;w=60\n" +
				"Ratelimit: \"burst\";r=0;t=60, \"daily\";r=998;t=86400\n"},
		{"over the limit before empty", limiter.Draft8,
			[]limiter.Rule{rule(t, "even", "3/1m fixed-window"), withOnLimit(rule(t, "over", "2/1m fixed-window"), limiter.Degrade)}, 3,
			"Ratelimit-Policy: \"even\";q=3;w=60, \"over\";q=2;w=60\nRatelimit: \"over\";r=0;t=60, \"even\";r=0;t=60\n"},
		{"shadow rules are not seen", 0, []limiter.Rule{withOnLimit(burst, limiter.Shadow)}, 3, ""},
		{"shadow beside another", limiter.Draft8, []limiter.Rule{withOnLimit(burst, limiter.Shadow), daily}, 3,
			"Ratelimit-Policy: \"daily\";q=1000;w=86400\nRatelimit: \"daily\";r=997;t=86400\n"},
		{"leases", limiter.Draft8, []limiter.Rule{rule(t, "jobs", "20 concurrent ttl=30s")}, 1,
			"Ratelimit-Policy: \"jobs\";q=20;qu=\"concurrent-requests\"\nRatelimit: \"jobs\";r=19\n"},
		{"a burst of its own", limiter.XRateLimit | limiter.Draft8, []limiter.Rule{rule(t, "b", "10/1s burst=20")}, 1,
			"X-Ratelimit-Limit: 20\nX-Ratelimit-Remaining: 19\nX-Ratelimit-Reset: 1800000001\n" +
				"Ratelimit-Policy: \"b\";q=10;w=1\nRatelimit: \"b\";r=19;t=1\n"},
		{"a window that is not in whole seconds", limiter.Draft8, []limiter.Rule{rule(t, "b", "10/1500ms fixed-window")}, 1,
			"Ratelimit-Policy: \"b\";q=10\nRatelimit: \"b\";r=9;t=2\n"},
		{"integers of 15 digits", limiter.Draft8, []limiter.Rule{rule(t, "b", "4000000000000000/1d fixed-window")}, 1,
			"Ratelimit-Policy: \"b\";q=999999999999999;w=86400\nRatelimit: \"b\";r=999999999999999;t=86400\n"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			l := configured(t, limiter.Config{Store: newStore(), Rules: row.rules, Headers: row.style})
			var got string
			for range row.takes {
				a := l.Admit(get())
				got = lines(a)
				a.Done(200)
			}
			if got != row.want {
				t.Errorf("got\n%swant\n%s", got, row.want)
			}
		})
	}
}

func TestHeadersResetIsByTheStoresClock(t *testing.T) {
	s := newStore()
	s.now = func() time.Time { return epoch.Add(300 * time.Millisecond) }
	l := configured(t, limiter.Config{Store: s, Rules: []limiter.Rule{rule(t, "a", "5/10s fixed-window")}, Headers: limiter.XRateLimit})
	a := l.Admit(get())
	defer a.Done(200)
	want := "X-Ratelimit-Limit: 5\nX-Ratelimit-Remaining: 4\nX-Ratelimit-Reset: 1800000011\n"
	if got := lines(a); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestSetHeadersReplacesWhatIsThere(t *testing.T) {
	l := configured(t, limiter.Config{Store: newStore(), Rules: []limiter.Rule{rule(t, "a", "5/10s")}, Headers: limiter.Draft8})
	a := l.Admit(get())
	defer a.Done(200)
	h := map[string][]string{"Ratelimit": {"forged", "twice"}, "Vary": {"Origin"}}
	a.SetHeaders(h)
	if len(h) != 4 || !l.Counted(h) {
		t.Errorf("no mark in %v", h)
	}
	maps.DeleteFunc(h, func(name string, _ []string) bool { return strings.Contains(name, " ") }) // the mark is never sent
	want := map[string][]string{"Ratelimit": {`"a";r=4;t=2`}, "Ratelimit-Policy": {`"a";q=5;w=10`}, "Vary": {"Origin"}}
	if !reflect.DeepEqual(h, want) {
		t.Errorf("got %v", h)
	}
	h["Ratelimit-Policy"] = append(h["Ratelimit-Policy"], "more")
	if h["Ratelimit"][0] != `"a";r=4;t=2` {
		t.Error("appending to one header changes another")
	}
}

// An answer may be written in three ways.
func TestEachHeaderIsTheSameAsInTheList(t *testing.T) {
	custom := func([]limiter.RuleDecision) []limiter.Header {
		return []limiter.Header{{Name: "x-a", Value: "1"}, {Name: "X-B", Value: ""}}
	}
	for takes := range 3 {
		l := configured(t, limiter.Config{Store: newStore(), CustomHeaders: custom, Rules: []limiter.Rule{
			rule(t, "a", "2/10s fixed-window"), rule(t, "b", "100/1h"), rule(t, "c", "3 concurrent ttl=1s")}})
		for range takes {
			admit(l)
		}
		a := l.Admit(get())
		h, each := map[string][]string{}, ""
		a.EachHeader(func(name string, value []byte) { each += name + ": " + string(value) + "\n" })
		a.SetHeaders(h)
		if list := lines(a); each != list || each == "" {
			t.Errorf("one by one\n%sin the list\n%s", each, list)
		}
		for _, want := range a.Headers() {
			if got := h[want.Name]; len(got) != 1 || got[0] != want.Value {
				t.Errorf("%s: %q, want %q", want.Name, got, want.Value)
			}
		}
		a.Done(200)
	}
}

func TestHeadersAreOneLine(t *testing.T) {
	l := configured(t, limiter.Config{
		Store: newStore(), Headers: limiter.NoHeaders, Rules: []limiter.Rule{rule(t, "a", "5/10s fixed-window")},
		CustomHeaders: func([]limiter.RuleDecision) []limiter.Header {
			return []limiter.Header{{Name: "X-A", Value: "1\r\nSet-Cookie: b=2"}}
		},
	})
	a := l.Admit(get())
	defer a.Done(200)
	if got, want := lines(a), "X-A: 1  Set-Cookie: b=2\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestHeadersDescribeOnlyRulesThatApply(t *testing.T) {
	post := rule(t, "posts", "2/1m fixed-window")
	post.Key = func(r core.Request) (string, bool) { return "", r.Method() == "POST" }
	l := configured(t, limiter.Config{Store: newStore(), Headers: limiter.Draft8,
		Rules: []limiter.Rule{post, rule(t, "all", "10/1m fixed-window")}})
	a := l.Admit(get())
	defer a.Done(200)
	if got, want := lines(a), "Ratelimit-Policy: \"all\";q=10;w=60\nRatelimit: \"all\";r=9;t=60\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestCustomHeadersComeOnTop(t *testing.T) {
	l := configured(t, limiter.Config{
		Store: newStore(), Headers: limiter.NoHeaders,
		Rules: []limiter.Rule{rule(t, "wide", "9/1m fixed-window"), rule(t, "tight", "2/1m fixed-window"),
			withOnLimit(rule(t, "hidden", "1/1m"), limiter.Shadow)},
		CustomHeaders: func(list []limiter.RuleDecision) []limiter.Header {
			names := ""
			for _, d := range list {
				names += d.Rule + " "
			}
			return []limiter.Header{{Name: "x-rules", Value: names}}
		},
	})
	a := l.Admit(get())
	defer a.Done(200)
	if got, want := lines(a), "X-Rules: tight wide \n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCustomHeadersPanicIsReported(t *testing.T) {
	var reported []error
	l := configured(t, limiter.Config{
		Store: newStore(), Headers: limiter.XRateLimitDelta, Rules: []limiter.Rule{rule(t, "a", "5/10s fixed-window")},
		OnError:       func(_ context.Context, err error) { reported = append(reported, err) },
		CustomHeaders: func([]limiter.RuleDecision) []limiter.Header { panic("oops\n") },
	})
	a := l.Admit(get())
	defer a.Done(200)
	if got, want := lines(a), "X-Ratelimit-Limit: 5\nX-Ratelimit-Remaining: 4\nX-Ratelimit-Reset: 10\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if len(reported) != 1 || reported[0].Error() != `panic: "oops\n"` {
		t.Errorf("reported %v", reported)
	}
}

func TestProblemNamesTheViolatedRules(t *testing.T) {
	l := newLimiter(t, newStore(), rule(t, "burst", "1/90s fixed-window"), rule(t, "wide", "100/1m"),
		rule(t, "daily", "1/1d fixed-window"), withOnLimit(rule(t, "dark", "1/1d fixed-window"), limiter.Shadow))
	admit(l)
	a := l.Admit(get())
	defer a.Done(429)
	want := `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",` +
		`"title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,` +
		`"detail":"Retry after 86400 seconds.","violated-policies":["burst","daily"]}`
	if got := string(a.Problem()); got != want || !json.Valid([]byte(got)) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if answer, ok := a.Answer(); !ok || answer.Status != 429 || string(answer.Body) != want {
		t.Errorf("answer %d %s, %t", answer.Status, answer.Body, ok)
	}
	if a.Outcome() != limiter.Refused || a.Outcome().Status() != 429 || a.RetryAfter() != 86400 {
		t.Errorf("%s, retry after %d", a.Outcome(), a.RetryAfter())
	}
}

func TestRetryAfterIsRoundedUpAndAtLeastOne(t *testing.T) {
	rows := map[string]int64{"1/1ms": 1, "1/1s": 1, "1/1001ms": 2, "1/1999ms": 2, "1/2s": 2}
	for text, want := range rows {
		l := newLimiter(t, newStore(), rule(t, "a", text))
		admit(l)
		a := l.Admit(get())
		if got := a.RetryAfter(); got != want {
			t.Errorf("%s: %d, want %d", text, got, want)
		}
		a.Done(429)
	}
}

func TestRetryAfterIsAbsentForImpossibleCosts(t *testing.T) {
	r := rule(t, "a", "5/1s")
	r.Cost = func(core.Request) int64 { return 6 }
	l := configured(t, limiter.Config{Store: newStore(), Rules: []limiter.Rule{r}, Headers: limiter.NoHeaders})
	a := l.Admit(get())
	defer a.Done(429)
	if got, want := lines(a), "Cache-Control: no-store\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	want := `"detail":"The request asks for more than the quota can ever hold.","violated-policies":["a"]}`
	if got := string(a.Problem()); !strings.HasSuffix(got, want) || !json.Valid([]byte(got)) {
		t.Errorf("got %s", got)
	}
}
