package limiter_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
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
		// The instants are those of the epoch, 1800000000, on which the store's clock stands.
		{"both styles by default", 0, []limiter.Rule{burst}, 1,
			"X-Ratelimit-Limit: 2\nX-Ratelimit-Remaining: 1\nX-Ratelimit-Reset: 1800000060\n" +
				"Ratelimit-Policy: \"burst\";q=2;w=60\nRatelimit: \"burst\";r=1;t=60\n"},
		{"seconds left", limiter.XRateLimitDelta, []limiter.Rule{burst}, 1,
			"X-Ratelimit-Limit: 2\nX-Ratelimit-Remaining: 1\nX-Ratelimit-Reset: 60\n"},
		{"none", limiter.NoHeaders, []limiter.Rule{burst}, 1, ""},
		{"none, for a refusal", limiter.NoHeaders, []limiter.Rule{burst}, 3,
			"Retry-After: 60\nCache-Control: no-store\n"},
		{"no rules", 0, nil, 1, ""},
		// The rule with the smallest share left comes first, and X-RateLimit shows no other.
		{"the most exhausted first", limiter.XRateLimit | limiter.Draft8, []limiter.Rule{daily, burst}, 1,
			"X-Ratelimit-Limit: 2\nX-Ratelimit-Remaining: 1\nX-Ratelimit-Reset: 1800000060\n" +
				"Ratelimit-Policy: \"daily\";q=1000;w=86400, \"burst\";q=2;w=60\n" +
				"Ratelimit: \"burst\";r=1;t=60, \"daily\";r=999;t=86400\n"},
		{"a refusal", limiter.Draft8, []limiter.Rule{daily, burst}, 3,
			"Retry-After: 60\nCache-Control: no-store\n" +
				"Ratelimit-Policy: \"daily\";q=1000;w=86400, \"burst\";q=2;w=60\n" +
				"Ratelimit: \"burst\";r=0;t=60, \"daily\";r=998;t=86400\n"},
		// The rule that refuses comes before one that is as empty and only degrades.
		{"the rule that refuses before one that degrades", limiter.XRateLimitDelta | limiter.Draft8,
			[]limiter.Rule{withOnLimit(rule(t, "cheap", "1/1m fixed-window"), limiter.Degrade),
				rule(t, "hourly", "2/1h fixed-window")}, 3,
			"Retry-After: 3600\nCache-Control: no-store\nX-Ratelimit-Limit: 2\nX-Ratelimit-Remaining: 0\nX-Ratelimit-Reset: 3600\n" +
				"Ratelimit-Policy: \"cheap\";q=1;w=60, \"hourly\";q=2;w=3600\nRatelimit: \"hourly\";r=0;t=3600, \"cheap\";r=0;t=60\n"},
		// Both are empty, but over is exceeded already.
		{"over the limit before empty", limiter.Draft8,
			[]limiter.Rule{rule(t, "even", "3/1m fixed-window"),
				withOnLimit(rule(t, "over", "2/1m fixed-window"), limiter.Degrade)}, 3,
			"Ratelimit-Policy: \"even\";q=3;w=60, \"over\";q=2;w=60\nRatelimit: \"over\";r=0;t=60, \"even\";r=0;t=60\n"},
		// Shadow rules are hidden in every style.
		{"shadow rules are not seen", 0, []limiter.Rule{withOnLimit(burst, limiter.Shadow)}, 3, ""},
		{"shadow beside another", limiter.Draft8, []limiter.Rule{withOnLimit(burst, limiter.Shadow), daily}, 3,
			"Ratelimit-Policy: \"daily\";q=1000;w=86400\nRatelimit: \"daily\";r=997;t=86400\n"},
		// A concurrency limit has no window, and one of 1.5 s none in whole seconds. Integers have
		// at most 15 digits.
		{"leases", limiter.Draft8, []limiter.Rule{rule(t, "jobs", "20 concurrent ttl=30s")}, 1,
			"Ratelimit-Policy: \"jobs\";q=20;qu=\"concurrent-requests\"\nRatelimit: \"jobs\";r=19\n"},
		{"a burst of its own", limiter.XRateLimit | limiter.Draft8, []limiter.Rule{rule(t, "b", "10/1s burst=20")}, 1,
			"X-Ratelimit-Limit: 20\nX-Ratelimit-Remaining: 19\nX-Ratelimit-Reset: 1800000001\n" +
				"Ratelimit-Policy: \"b\";q=10;w=1\nRatelimit: \"b\";r=19;t=1\n"},
		{"a window that is not in whole seconds", limiter.Draft8,
			[]limiter.Rule{rule(t, "b", "10/1500ms fixed-window")}, 1,
			"Ratelimit-Policy: \"b\";q=10\nRatelimit: \"b\";r=9;t=2\n"},
		{"integers of 15 digits", limiter.Draft8, []limiter.Rule{rule(t, "b", "4000000000000000/1d fixed-window")}, 1,
			"Ratelimit-Policy: \"b\";q=999999999999999;w=86400\nRatelimit: \"b\";r=999999999999999;t=86400\n"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			// Only the headers of the last of several requests count.
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
	l := configured(t, limiter.Config{Store: s, Rules: []limiter.Rule{rule(t, "a", "5/10s fixed-window")},
		Headers: limiter.XRateLimit})
	a := l.Admit(get())
	defer a.Done(200)
	want := "X-Ratelimit-Limit: 5\nX-Ratelimit-Remaining: 4\nX-Ratelimit-Reset: 1800000011\n"
	if got := lines(a); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestSetHeadersReplacesWhatIsThere(t *testing.T) {
	l := configured(t, limiter.Config{Store: newStore(), Rules: []limiter.Rule{rule(t, "a", "5/10s")},
		Headers: limiter.Draft8})
	a := l.Admit(get())
	defer a.Done(200)

	// A RateLimit of another program is replaced, and headers that are not of the limiter stay.
	h := map[string][]string{"Ratelimit": {"forged", "twice"}, "Vary": {"Origin"}}
	a.SetHeaders(h)
	a.LeaveMark(h)

	if len(h) != 4 || !l.Counted(h) {
		t.Errorf("no mark in %v", h)
	}
	// The map has the mark of the limiter, under a name that no server sends.
	maps.DeleteFunc(h, func(name string, _ []string) bool { // the mark is never sent
		return strings.Contains(name, " ")
	})
	want := map[string][]string{"Ratelimit": {`"a";r=4;t=2`}, "Ratelimit-Policy": {`"a";q=5;w=10`}, "Vary": {"Origin"}}
	if !reflect.DeepEqual(h, want) {
		t.Errorf("got %v", h)
	}

	// The values of all headers share one array. To append to one must not write into the next.
	h["Ratelimit-Policy"] = append(h["Ratelimit-Policy"], "more")
	if h["Ratelimit"][0] != `"a";r=4;t=2` {
		t.Error("appending to one header changes another")
	}
}

// The memory of the headers is allocated for several answers at once, and a handler may keep them.
func TestHeadersOfAnAnswerAreItsOwn(t *testing.T) {
	l := configured(t, limiter.Config{Store: newStore(), Rules: []limiter.Rule{rule(t, "a", "100/10s")}})
	var kept []map[string][]string
	var want []string
	for range 200 { // the later ones are refused, and have more headers
		a := l.Admit(get())
		h := map[string][]string{}
		a.SetHeaders(h)
		if answer, ok := a.Answer(); ok {
			a.SetAnswerHeaders(h, answer)
		}
		kept, want = append(kept, h), append(want, fmt.Sprint(h))
		a.Done(200)
	}

	for i, h := range kept {
		if got := fmt.Sprint(h); got != want[i] {
			t.Fatalf("answer %d is now\n%s, and was\n%s", i, got, want[i])
		}
	}
	if a, b := want[0], want[150]; a == b || !strings.Contains(b, limiter.ProblemType) {
		t.Errorf("the first answer is %s, and a refusal %s", a, b)
	}
}

// canonicalLines is an answer that copies bytes.
type canonicalLines string

func (c *canonicalLines) SetCanonical(name, value []byte) {
	*c += canonicalLines(string(name) + ": " + string(value) + "\n")
}

// Headers that are of one limiter alone are set without a list of them, and then have the list too.
func TestSetCanonicalWithoutAList(t *testing.T) {
	hidden := withOnLimit(rule(t, "hidden", "1/1h"), limiter.Shadow)
	for name, rules := range map[string][]limiter.Rule{
		"one rule": {rule(t, "a", "2/10s fixed-window")},
		"several":  {rule(t, "a", "2/10s fixed-window"), hidden, rule(t, "b", "100/1h")},
		"hidden":   {hidden},
	} {
		for _, style := range []limiter.HeaderStyle{limiter.XRateLimit, limiter.XRateLimitDelta | limiter.Draft8,
			limiter.Draft8, limiter.NoHeaders} {

			l := configured(t, limiter.Config{Store: newStore(), Headers: style, Rules: rules})
			for take := range 3 { // the last is refused, unless the rule is hidden
				a := l.Admit(get())
				var set canonicalLines
				a.SetCanonical(&set)
				retryAfter, problem := a.RetryAfter(), string(a.Problem())
				list := lines(a)
				bare := name == "hidden" || style == limiter.NoHeaders && a.Outcome() == limiter.Pass
				if string(set) != list || (list == "") != bare {
					t.Errorf("%s, take %d: as bytes\n%sin the list\n%s", name, take, set, list)
				}
				if a.RetryAfter() != retryAfter || string(a.Problem()) != problem {
					t.Errorf("%s, take %d: %d, %s\nand with the list %d, %s", name, take, retryAfter, problem,
						a.RetryAfter(), a.Problem())
				}
				if !l.CountedBy(a.Mark()) {
					t.Errorf("%s, take %d: no mark", name, take)
				}
				a.Done(200)
			}
		}
	}
}

// An answer may be written in four ways.
func TestEachHeaderIsTheSameAsInTheList(t *testing.T) {
	custom := func([]limiter.RuleDecision) []limiter.Header {
		return []limiter.Header{{Name: "x-a", Value: "1"}, {Name: "X-B", Value: ""}}
	}
	// The answers to a first request, to the one that takes the last unit of a, and to a refused
	// one.
	for takes := range 3 {
		l := configured(t, limiter.Config{Store: newStore(), CustomHeaders: custom, Rules: []limiter.Rule{
			rule(t, "a", "2/10s fixed-window"), rule(t, "b", "100/1h"), rule(t, "c", "3 concurrent ttl=1s")}})
		for range takes {
			admit(l)
		}

		a := l.Admit(get())
		h, each := map[string][]string{}, ""
		a.EachHeader(func(name string, value []byte) { each += name + ": " + string(value) + "\n" })
		var canonical canonicalLines
		a.SetCanonical(&canonical)
		a.SetHeaders(h)

		if list := lines(a); each != list || string(canonical) != list || each == "" {
			t.Errorf("one by one\n%sas bytes\n%sin the list\n%s", each, canonical, list)
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
	// The standard headers are there although the function for more of them panics.
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
	// Over their limits are a rule of 90 s and one of a day. wide has units left, and dark is in
	// shadow.
	l := newLimiter(t, newStore(), rule(t, "burst", "1/90s fixed-window"), rule(t, "wide", "100/1m"),
		rule(t, "daily", "1/1d fixed-window"), withOnLimit(rule(t, "dark", "1/1d fixed-window"), limiter.Shadow))
	admit(l)

	a := l.Admit(get())
	defer a.Done(429)
	// The longer of both waits is the one that helps.
	want := `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",` +
		`"title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,` +
		`"detail":"Retry after 86400 seconds.","violated-policies":["burst","daily"]}`
	if got := string(a.Problem()); got != want || !json.Valid([]byte(got)) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}

	if answer, ok := a.Answer(); !ok || answer.Status != 429 || string(answer.Body) != want {
		t.Errorf("answer %d %s, %t", answer.Status, answer.Body, ok)
	}
	if a.Outcome() != limiter.Refused || a.Status() != 429 || a.RetryAfter() != 86400 {
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
	// A cost of 6 never fits into 5, so no instant could be named.
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

// nestedHeaders returns the headers of the answer to a request that meets the limiters
// one after another, the outermost first. Each limiter is asked before as often as takes
// says.
func nestedHeaders(t *testing.T, limiters []*limiter.Limiter, takes []int) map[string][]string {
	t.Helper()
	h := map[string][]string{"Vary": {"Origin"}}
	for i, l := range limiters {
		for range takes[i] {
			admit(l)
		}
		a := l.Admit(get())
		a.SetHeaders(h)
		// A refused request goes no further in, so only one that passes leaves a mark.
		if a.Status() == 0 {
			a.LeaveMark(h)
		}
		a.Done(200)
	}

	maps.DeleteFunc(h, func(name string, _ []string) bool { return strings.Contains(name, " ") || name == "Vary" })
	return h
}

// linesOf renders headers in the order of their names.
func linesOf(h map[string][]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(h)) {
		b.WriteString(name + ": " + strings.Join(h[name], " | ") + "\n")
	}
	return b.String()
}

func TestNestedHeadersShowTheMostExhaustedRule(t *testing.T) {
	soft := withOnLimit(rule(t, "soft", "2/1m fixed-window"), limiter.Degrade)
	rows := []struct {
		name   string
		rules  [][]limiter.Rule
		styles []limiter.HeaderStyle
		takes  []int
		want   string
	}{
		// The share that is left decides, and not the number: 2 of 4 is less than 7 of 10, and 3 of
		// 10 less than 2 of 4.
		{"inside", [][]limiter.Rule{{rule(t, "service", "10/1m fixed-window")},
			{rule(t, "route", "4/10s fixed-window")}}, nil, []int{2, 1},
			"Ratelimit: \"route\";r=2;t=10, \"service\";r=7;t=60\nRatelimit-Policy: \"service\";q=10;w=60, \"route\";q=4;w=10\n" +
				"X-Ratelimit-Limit: 4\nX-Ratelimit-Remaining: 2\nX-Ratelimit-Reset: 1800000010\n"},
		{"outside", [][]limiter.Rule{{rule(t, "service", "10/1m fixed-window")},
			{rule(t, "route", "4/10s fixed-window")}}, nil, []int{6, 1},
			"Ratelimit: \"service\";r=3;t=60, \"route\";r=2;t=10\nRatelimit-Policy: \"service\";q=10;w=60, \"route\";q=4;w=10\n" +
				"X-Ratelimit-Limit: 10\nX-Ratelimit-Remaining: 3\nX-Ratelimit-Reset: 1800000060\n"},
		// Of equal shares that of the outer limiter comes first.
		{"both the same", [][]limiter.Rule{{rule(t, "service", "10/1m fixed-window")},
			{rule(t, "route", "20/10s fixed-window")}}, nil, []int{4, 9},
			"Ratelimit: \"service\";r=5;t=60, \"route\";r=10;t=10\nRatelimit-Policy: \"service\";q=10;w=60, \"route\";q=20;w=10\n" +
				"X-Ratelimit-Limit: 10\nX-Ratelimit-Remaining: 5\nX-Ratelimit-Reset: 1800000060\n"},
		// The rule that refuses comes before the soft one outside, and Retry-After is its own.
		{"a refusal inside", [][]limiter.Rule{{soft}, {rule(t, "route", "1/10s fixed-window")}}, nil, []int{2, 1},
			"Cache-Control: no-store\nRatelimit: \"route\";r=0;t=10, \"soft\";r=0;t=60\nRatelimit-Policy: \"soft\";q=2;w=60, \"route\";q=1;w=10\n" +
				"Retry-After: 10\nX-Ratelimit-Limit: 1\nX-Ratelimit-Remaining: 0\nX-Ratelimit-Reset: 1800000010\n"},
		// The rules of three limiters merge into one list by their shares.
		{"three, the middle one", [][]limiter.Rule{{rule(t, "a", "10/1m fixed-window")},
			{rule(t, "b", "10/1h fixed-window"), rule(t, "c", "99/1h fixed-window")},
			{rule(t, "d", "10/1s fixed-window")}}, nil, []int{1, 4, 3},
			"Ratelimit: \"b\";r=5;t=3600, \"c\";r=94;t=3600, \"a\";r=8;t=60, \"d\";r=6;t=1\n" +
				"Ratelimit-Policy: \"a\";q=10;w=60, \"b\";q=10;w=3600, \"c\";q=99;w=3600, \"d\";q=10;w=1\n" +
				"X-Ratelimit-Limit: 10\nX-Ratelimit-Remaining: 5\nX-Ratelimit-Reset: 1800003600\n"},
		{"the share is of the burst",
			[][]limiter.Rule{{rule(t, "a", "100/10s burst=4")}, {rule(t, "b", "3/10s fixed-window")}},
			[]limiter.HeaderStyle{limiter.Draft8, limiter.Draft8}, []int{0, 0},
			"Ratelimit: \"b\";r=2;t=10, \"a\";r=3;t=1\nRatelimit-Policy: \"a\";q=100;w=10, \"b\";q=3;w=10\n"},
		// Rules of one name, as the middlewares of two teams may have: the header has the more
		// exhausted of them, once.
		{"one name", [][]limiter.Rule{{rule(t, "default", "10/1m fixed-window")},
			{rule(t, "default", "4/10s fixed-window"), rule(t, "a", "9/1m fixed-window")}},
			nil, []int{0, 0},
			"Ratelimit: \"default\";r=3;t=10, \"a\";r=8;t=60\nRatelimit-Policy: \"default\";q=4;w=10, \"a\";q=9;w=60\n" +
				"X-Ratelimit-Limit: 4\nX-Ratelimit-Remaining: 3\nX-Ratelimit-Reset: 1800000010\n"},
		{"one name, outside", [][]limiter.Rule{{rule(t, "default", "2/1m fixed-window")},
			{rule(t, "default", "4/10s fixed-window"), rule(t, "a", "9/1m fixed-window")}},
			nil, []int{0, 0},
			"Ratelimit: \"default\";r=1;t=60, \"a\";r=8;t=60\nRatelimit-Policy: \"default\";q=2;w=60, \"a\";q=9;w=60\n" +
				"X-Ratelimit-Limit: 2\nX-Ratelimit-Remaining: 1\nX-Ratelimit-Reset: 1800000060\n"},
		// A limiter without headers neither adds nor hides anything.
		{"no headers outside", [][]limiter.Rule{{rule(t, "a", "2/1m fixed-window")},
			{rule(t, "b", "9/1m fixed-window")}},
			[]limiter.HeaderStyle{limiter.NoHeaders, limiter.Draft8}, []int{0, 0},
			"Ratelimit: \"b\";r=8;t=60\nRatelimit-Policy: \"b\";q=9;w=60\n"},
		{"no headers inside", [][]limiter.Rule{{rule(t, "a", "2/1m fixed-window")},
			{rule(t, "b", "9/1m fixed-window")}, {rule(t, "c", "3/1m fixed-window")}},
			[]limiter.HeaderStyle{limiter.Draft8, limiter.NoHeaders, limiter.Draft8}, []int{0, 0, 0},
			"Ratelimit: \"a\";r=1;t=60, \"c\";r=2;t=60\nRatelimit-Policy: \"a\";q=2;w=60, \"c\";q=3;w=60\n"},
		// Each style merges with its own kind.
		{"different styles", [][]limiter.Rule{{rule(t, "a", "9/1m fixed-window")}, {rule(t, "b", "2/1m fixed-window")},
			{rule(t, "c", "3/1m fixed-window")}},
			[]limiter.HeaderStyle{limiter.XRateLimitDelta, limiter.Draft8, limiter.XRateLimitDelta}, []int{0, 0, 0},
			"Ratelimit: \"b\";r=1;t=60\nRatelimit-Policy: \"b\";q=2;w=60\n" +
				"X-Ratelimit-Limit: 3\nX-Ratelimit-Remaining: 2\nX-Ratelimit-Reset: 60\n"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			var list []*limiter.Limiter
			for i, rules := range row.rules {
				c := limiter.Config{Store: newStore(), Rules: rules}
				if row.styles != nil {
					c.Headers = row.styles[i]
				}
				list = append(list, configured(t, c))
			}

			if got := linesOf(nestedHeaders(t, list, row.takes)); got != row.want {
				t.Errorf("got\n%swant\n%s", got, row.want)
			}
		})
	}
}

// Code between two limiters may change the headers of the first.
func TestNestedHeadersOfOthers(t *testing.T) {
	rows := []struct {
		name, header, value string
		want                string // the header afterwards
	}{
		// What the code between has written stays if it asks for a longer wait. What is shorter, or
		// cannot be read, is replaced.
		{"a longer Retry-After", "Retry-After", "120", "120"},
		{"a shorter Retry-After", "Retry-After", "9", "10"},
		{"a date", "Retry-After", "Mon, 23 Nov 2026 00:00:00 GMT", "10"},
		{"another RateLimit", "Ratelimit", "limit=10, remaining=5", `"b";r=0;t=10`},
		{"an endless RateLimit", "Ratelimit", `"a";r=99999999999999999999`, `"b";r=0;t=10`},
		{"an empty RateLimit", "Ratelimit", "", `"b";r=0;t=10`},
		{"another X-RateLimit-Limit", "X-Ratelimit-Limit", "many", "1"},
		{"a negative X-RateLimit-Remaining", "X-Ratelimit-Remaining", "-1", "0"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			outer, inner := newLimiter(t, newStore(), rule(t, "a", "9/1m fixed-window")),
				newLimiter(t, newStore(), rule(t, "b", "1/10s fixed-window"))

			admit(inner)
			// The outer limiter lets pass and leaves its mark.
			h := map[string][]string{}
			a := outer.Admit(get())
			defer a.Done(429)
			a.SetHeaders(h)
			a.LeaveMark(h)

			// Then the header is changed, and the inner limiter refuses for 10 s.
			h[row.header] = []string{row.value}
			b := inner.Admit(get())
			defer b.Done(429)
			b.SetHeaders(h)

			if got := h[row.header]; len(got) != 1 || got[0] != row.want {
				t.Errorf("%s: %q, want %q", row.header, got, row.want)
			}
			// The field and the header must agree, whatever was in the header before.
			if n, err := strconv.ParseInt(h["Retry-After"][0], 10, 64); err != nil || b.RetryAfter() != n {
				t.Errorf("retry after %d, the header says %q", b.RetryAfter(), h["Retry-After"])
			}
		})
	}
}

// An adapter whose framework copies values merges them by itself.
func TestMergeIsWhatSetHeadersDoes(t *testing.T) {
	list := []*limiter.Limiter{newLimiter(t, newStore(), rule(t, "a", "9/1m fixed-window")),
		newLimiter(t, newStore(), rule(t, "b", "2/10s fixed-window")),
		newLimiter(t, newStore(), rule(t, "c", "3/10s fixed-window"))}

	h, copied := map[string][]string{}, map[string]string{}
	// As such an adapter does it: the values are copied, and the mark is handed on in a variable.
	var mark *limiter.Mark
	for _, l := range list {
		if l.Counted(h) || l.CountedBy(mark) {
			t.Error("counted before")
		}
		a := l.Admit(get())
		defer a.Done(200)
		a.Merge(mark, func(name string) string { return copied[name] })
		a.EachHeader(func(name string, value []byte) { copied[name] = string(value) })
		mark = a.Mark()
	}

	for _, l := range list {
		if !l.CountedBy(mark) {
			t.Error("not counted")
		}
	}
	// Neither a limiter that saw nothing nor none at all has counted.
	if (*limiter.Limiter)(nil).CountedBy(mark) || newLimiter(t, newStore()).CountedBy(mark) {
		t.Error("counted by another")
	}

	want := map[string]string{"Ratelimit-Policy": `"a";q=9;w=60, "b";q=2;w=10, "c";q=3;w=10`,
		"Ratelimit":         `"b";r=1;t=10, "a";r=8;t=60, "c";r=2;t=10`,
		"X-Ratelimit-Limit": "2", "X-Ratelimit-Remaining": "1", "X-Ratelimit-Reset": "1800000010"}
	if !maps.Equal(copied, want) {
		t.Errorf("got %v", copied)
	}
}
