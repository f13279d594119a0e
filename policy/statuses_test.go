package policy_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/policyyaml"
)

// answered returns how many units are left of ten after an answer with the status, under the
// policy that change has made.
func answered(t *testing.T, status int, change func(*policy.Policy)) int64 {
	t.Helper()
	p := valid(t, "p")
	p.Limit, p.Key = limit(t, "10/1h fixed-window"), "global"
	change(&p)

	c, err := policy.Compile("shop", policy.Set{p}, policy.Bindings{})
	if err != nil {
		t.Fatal(err)
	}

	// The limiter is asked for nothing after the answer, so what is left is what the answer cost.
	l := limiter.MustNew(limiter.Config{Rules: c.Rules()})
	h := nethttp.New(l)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))

	d, err := l.Allow(context.Background(), "all", 0)
	if err != nil {
		t.Fatal(err)
	}
	return d.Remaining
}

func TestAnswersGiveUnitsBack(t *testing.T) {
	refund := func(list ...string) func(*policy.Policy) {
		return func(p *policy.Policy) { p.Refund = list }
	}
	countOnly := func(list ...string) func(*policy.Policy) {
		return func(p *policy.Policy) { p.CountOnly = list }
	}

	for _, c := range []struct {
		change func(*policy.Policy)
		status int
		want   int64
	}{
		{func(*policy.Policy) {}, 200, 9},
		{func(p *policy.Policy) { p.Cost.Units = 1 }, 200, 9},
		{func(p *policy.Policy) { p.Cost.Units = 4 }, 200, 6},
		{refund("304", "5xx"), 200, 9},
		{refund("304", "5xx"), 303, 9},
		{refund("304", "5xx"), 304, 10},
		{refund("304", "5xx"), 305, 9},
		{refund("304", "5xx"), 499, 9},

		// A client that leaves chooses its status.
		{refund("4xx"), 498, 10},
		{refund("4xx"), 499, 9},
		{refund("4xx", "499"), 499, 10},
		{refund("499", "4xx"), 499, 10},
		{countOnly("401"), 499, 9},
		{countOnly("5xx"), 499, 9},
		{refund("304", "5xx"), 500, 10},
		{refund("304", "5xx"), 599, 10},
		{countOnly("401", "403"), 200, 10},
		{countOnly("401", "403"), 401, 9},
		{countOnly("401", "403"), 402, 10},
		{countOnly("401", "403"), 403, 9},
		{func(p *policy.Policy) { p.Cost.Units, p.CountOnly = 7, policy.Statuses{"4xx"} }, 404, 3},
		{func(p *policy.Policy) { p.Cost.Units, p.CountOnly = 7, policy.Statuses{"4xx"} }, 204, 10},
	} {
		if got := answered(t, c.status, c.change); got != c.want {
			t.Errorf("%d: %d left, want %d", c.status, got, c.want)
		}
	}
}

// Units stay taken where the answer is not seen, whatever the lists say.
func TestUnknownAnswersGiveNothingBack(t *testing.T) {
	for _, change := range []func(*policy.Policy){
		func(p *policy.Policy) { p.Refund = policy.Statuses{"1xx", "2xx", "3xx", "4xx", "5xx"} },
		func(p *policy.Policy) { p.CountOnly = policy.Statuses{"401"} },
	} {
		p := valid(t, "p")
		p.Key = "global"
		change(&p)

		c, err := policy.Compile("shop", policy.Set{p}, policy.Bindings{})
		if err != nil {
			t.Fatal(err)
		}

		for _, status := range []int{-1, 0, 99, 600, 1 << 30} {
			if c.Rules()[0].RefundIf(status) {
				t.Errorf("the status %d gives units back", status)
			}
		}
	}
}

func TestStatusesAreNumbersAndTexts(t *testing.T) {
	text := "policies:\n- name: p\n  apps: [shop]\n  limit: 5/1m\n  key: ip\n  refund: [304, 5xx, \"410\"]\n"
	set, err := policyyaml.Decode([]byte(text))
	if want := (policy.Statuses{"304", "5xx", "410"}); err != nil || !reflect.DeepEqual(set[0].Refund, want) {
		t.Fatalf("%v, %v", set, err)
	}

	back, err := policyyaml.Encode(set)
	if want := "  refund:\n  - 304\n  - \"5xx\"\n  - 410\n"; err != nil || !strings.Contains(string(back), want) {
		t.Errorf("%v\n%s", err, back)
	}
	if again, err := policyyaml.Decode(back); err != nil || !reflect.DeepEqual(again, set) {
		t.Errorf("%v\n%v", err, again)
	}

	for entries, want := range map[string]string{
		`"5xx"`:      "it is not a list of statuses such as [304, 5xx]",
		`[null]`:     `"null" is not a status such as 304 or 5xx`,
		`[[304]]`:    `"[304]" is not a status such as 304 or 5xx`,
		`[304.5]`:    `"304.5" is not a status such as 304, or a class such as 5xx`,
		`[3e2]`:      `"3e2" is not a status such as 304, or a class such as 5xx`,
		`[-304]`:     `"-304" is not a status such as 304, or a class such as 5xx`,
		`["0304"]`:   `"0304" is not a status such as 304, or a class such as 5xx`,
		`[600]`:      `"600" is not a status such as 304, or a class such as 5xx`,
		`[99]`:       `"99" is not a status such as 304, or a class such as 5xx`,
		`["5XX"]`:    `"5XX" is not a status such as 304, or a class such as 5xx`,
		`["6xx"]`:    `"6xx" is not a status such as 304, or a class such as 5xx`,
		`[]`:         "the list is empty",
		`[304, 304]`: `"304" is named already`,
		`["3xx", 304, 999]`: `"304" is named already; "999" is not a status such as 304, ` +
			`or a class such as 5xx`,
	} {
		_, err := policy.DecodeJSON([]byte(
			`{"policies": [{"name": "p", "apps": ["shop"], "limit": "5/1m", "key": "ip", "refund": ` + entries + `}]}`))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", entries, err, want)
		}
	}
}

// Costs that no request could ever pay, and lists that contradict each other, are mistakes.
func TestCostsAndAnswersAreChecked(t *testing.T) {
	for _, c := range []struct {
		change func(*policy.Policy)
		field  string
		want   string
	}{
		{func(p *policy.Policy) { p.Cost.Units = -1 }, "cost", "-1 is negative"},
		{func(p *policy.Policy) { p.Limit, p.Cost.Units = limit(t, "5/1m"), 6 }, "cost",
			"6 is more than the limit 5/1m ever has, so every request would be refused"},
		{func(p *policy.Policy) {
			p.Limit, p.Cost.Units, p.PlanBy = limit(t, "9/1m"), 6, "user"
			p.Plans = map[string]core.Limit{"free": limit(t, "5/1m")}
		}, "cost", `6 is more than the limit 5/1m of the plan "free" ever has`},
		{func(p *policy.Policy) {
			p.Key, p.Limit, p.Cost.Units = "user", limit(t, "9/1m"), 6
			p.Overrides = map[string]policy.Override{"a": {Limit: limit(t, "5/1m")}, "b": {Limit: limit(t, "4/1m")}}
		}, "cost", "6 is more than a limit of a single key ever has"},
		{func(p *policy.Policy) { p.Refund, p.CountOnly = policy.Statuses{"304"}, policy.Statuses{"401"} },
			"count_only", "refund says already which answers give the units back; write one of both"},
		{func(p *policy.Policy) { p.Limit, p.Refund = limit(t, "5 concurrent ttl=30s"), policy.Statuses{"304"} },
			"refund", "a concurrency limit gets its units back with every answer"},
		{func(p *policy.Policy) { p.CountOnly = make(policy.Statuses, 33) }, "count_only",
			"33 entries are more than 32"},
	} {
		p := valid(t, "p")
		c.change(&p)

		want := `policy "p": ` + c.field + ": " + c.want
		if err := p.Validate(); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
