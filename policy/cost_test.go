package policy_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/llmusage"
	"github.com/headgate/headgate/policy"
)

// costs are costs of each kind as they are written.
var costs = map[string]policy.Cost{
	`5`:                   {Units: 5},
	`{"header":"X-Cost"}`: {Header: "X-Cost"},
	`{"header":"X-Cost","default":2,"at_most":9}`: {Header: "X-Cost", Default: 2, AtMost: 9},
	`{"answer_header":"X-Cost","estimate":10,"at_most":100}`: {AnswerHeader: "X-Cost", Estimate: 10,
		AtMost: 100},
	`{"usage":"tokens","estimate":1000,"at_most":8000}`: {Usage: "tokens", Estimate: 1000, AtMost: 8000},
	`{"usage":"cost","estimate":50,"prices":{"*":{"input":3,"output":15.000001,"cache_read":0.30,"cache_write":3.75},` +
		`"gpt-5":{"input":1.25,"output":10}}}`: {Usage: "cost", Estimate: 50, Prices: map[string]policy.Price{
		"*":     {Input: "3", Output: "15.000001", CacheRead: "0.30", CacheWrite: "3.75"},
		"gpt-5": {Input: "1.25", Output: "10"},
	}},
}

// costing returns a valid policy with the cost.
func costing(t *testing.T, c policy.Cost) policy.Policy {
	p := valid(t, "p")
	p.Limit, p.Cost = limit(t, "10000/1h fixed-window"), c
	return p
}

func TestCostsAreReadAsTheyAreWritten(t *testing.T) {
	for text, c := range costs {
		p := costing(t, c)

		if err := p.Validate(); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if got, err := json.Marshal(c); err != nil || string(got) != text {
			t.Errorf("written %s, %v, want %s", got, err, text)
		}

		for _, f := range formats {
			data, err := f.encode(policy.Set{p})
			if err != nil {
				t.Fatal(err)
			}

			back, err := f.decode(data)
			if err != nil || !reflect.DeepEqual(back, policy.Set{p}) {
				t.Errorf("%s: %+v, %v", data, back, err)
			}
		}
	}
}

// Mistakes that several costs have.
const (
	notPrice = " is not a price from 0 to 999999, with at most six digits behind the point, such as 2.5"
	overMax  = " is more than the limit 10000/1h fixed-window ever has, so every request would be refused"
	lessMost = "cost.at_most: 4 is less than the 5 that are charged without more being known"
	byOther  = "the header Forwarded names addresses, which only the program may trust; write \"ip\""
	noUsage  = "the answer has reported no usage of tokens: a request for a stream has to ask for it, such as by " +
		"stream_options.include_usage"
)

// Each mistake is one error that names its field.
func TestCostsAreChecked(t *testing.T) {
	many := strings.Builder{}
	for i := range policy.MaxPrices + 1 {
		fmt.Fprintf(&many, `"m%d":{"input":1,"output":1},`, i)
	}
	for text, want := range map[string]string{
		`{}`:                          "cost: the table is empty; write a number, or header, answer_header or usage",
		`"x"`:                         "cost: unexpected string",
		`1.5`:                         "cost: unexpected number 1.5",
		`{"headers":"a"}`:             `cost: unknown field "headers"`,
		`{"estimate":"a"}`:            "cost.estimate: unexpected string",
		`{"estimate":1}`:              "cost: it names no header, answer_header or usage that says what a request costs",
		`{"header":"a b"}`:            `cost.header: "a b" is not the name of a header`,
		`{"header":"Forwarded"}`:      "cost.header: " + byOther,
		`{"header":"A","default":-1}`: "cost.default: -1 is negative",
		`{"header":"A","default":9007199254740992}`: "cost.default: 9007199254740992 is not below 2^53; policy \"p\": " +
			"cost.default: the default 9007199254740992" + overMax,
		`{"header":"A","default":10001}`:         "cost.default: the default 10001" + overMax,
		`{"header":"A","estimate":3}`:            "cost.estimate: a header of the request is no estimate; write default",
		`{"header":"A","default":5,"at_most":4}`: lessMost,
		`{"header":"A","answer_header":"A","estimate":1}`: "cost.answer_header: header says already what a request costs; write one of both; " +
			"policy \"p\": cost.estimate: a header of the request is no estimate; write default",

		`{"answer_header":"A"}`:                           "cost.estimate: it is missing; write the units that are charged before the answer",
		`{"answer_header":"Content-Length","estimate":1}`: "cost.answer_header: the header Content-Length has another meaning",
		`{"answer_header":"A","estimate":1,"default":1}`:  "cost.default: it means something with header alone; write estimate",
		`{"answer_header":"A","estimate":10001}`:          "cost.estimate: the estimate 10001" + overMax,
		`{"answer_header":"A","estimate":5,"at_most":4}`:  lessMost,
		`{"answer_header":"A","estimate":1,"prices":{}}`:  "cost.prices: they mean something with usage: cost alone",

		`{"usage":"words","estimate":1}`:                                                          `cost.usage: "words" is not "tokens" or "cost"`,
		`{"usage":"cost","estimate":1}`:                                                           "cost.prices: there are none; write those of a million tokens of each model",
		`{"usage":"tokens","estimate":1,"prices":{"a":{"input":1,"output":1}}}`:                   "cost.prices: they mean something with usage: cost alone",
		`{"usage":"cost","estimate":1,"prices":{` + strings.TrimSuffix(many.String(), ",") + `}}`: "cost.prices: 1001 models are more than 1000",
		`{"usage":"cost","estimate":1,"prices":{"a":{"input":-1,"output":"NaN","cache_read":1e3}}}`: "cost.prices.a.input: \"-1\"" + notPrice + "; " +
			"policy \"p\": cost.prices.a.output: \"NaN\"" + notPrice + "; " +
			"policy \"p\": cost.prices.a.cache_read: \"1e3\"" + notPrice,
		`{"usage":"cost","estimate":1,"prices":{"a":{"input":1}}}`:                   "cost.prices.a.output: it is missing; write what a million tokens cost, such as 2.5, or 0",
		`{"usage":"cost","estimate":1,"prices":{"":{"input":1,"output":1}}}`:         "cost.prices.: the name of a model has 1 to 64 bytes; \"*\" is any other",
		`{"usage":"cost","estimate":1,"prices":{"a":{"input":1,"output":1,"in":1}}}`: `cost: unknown field "in"`,
	} {
		_, err := policy.DecodeJSON([]byte(`{"policies": [{"name": "p", "apps": ["shop"], "key": "ip", ` +
			`"limit": "10000/1h fixed-window", "cost": ` + text + `}]}`))
		if err == nil || !strings.HasSuffix(strings.ReplaceAll(err.Error(), "\n", "; "), ": "+want) {
			t.Errorf("%.80s:\n%v, want\n%s", text, err, want)
		}
	}

	// What an answer says may be more than was charged, so the limit needs a debt.
	for text, want := range map[string]string{
		"9 concurrent ttl=1m": "a concurrency limit counts requests, and not what their answers cost",
		"9/1m sliding-log": "the limit 9/1m sliding-log has no debt, so no more can be charged than was estimated; " +
			"write another algorithm, such as fixed-window",
	} {
		p := costing(t, policy.Cost{Usage: "tokens", Estimate: 1})
		p.Limit = limit(t, text)
		if err := p.Validate(); err == nil || err.Error() != `policy "p": cost: `+want {
			t.Errorf("%v, want %s", err, want)
		}
	}

	p := costing(t, policy.Cost{Header: "X-Cost"})
	if _, err := policy.Compile("shop", []policy.Policy{p}, policy.Bindings{}); err == nil || err.Error() !=
		`policy "p": cost.header: it cannot be used here: the program does not set Bindings.Trusted, so it believes no proxy` {
		t.Error(err)
	}
}

// asking is a request with a body.
type asking struct {
	*test.Request
	body  string
	whole bool
}

func (a asking) ReadAhead(max int64) ([]byte, bool) {
	return []byte(a.body), a.whole && int64(len(a.body)) <= max
}

// charge returns what a request is charged under a cost, and then for its answer, and what is
// found about it.
func charge(t *testing.T, c policy.Cost, r core.Request, status int, seen limiter.Seen, ended bool) (
	before, after int64, found string,
) {
	t.Helper()
	trusted := func(r core.Request) bool { return r.RemoteAddr() == "10.0.0.1:1" }
	compiled, err := policy.Compile("shop", []policy.Policy{costing(t, c)}, policy.Bindings{Trusted: trusted})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	l := limiter.MustNew(limiter.Config{Rules: compiled.Rules(), Logger: log})
	defer l.Close()

	taken := func() int64 {
		list, err := l.PeekRequest(r)
		if err != nil {
			t.Fatal(err)
		}
		return 10000 - list[0].Decision.Remaining
	}

	a := l.Admit(r)
	before = taken()
	a.See(seen)
	if ended {
		a.Answered()
	}
	a.Done(status)

	for _, f := range l.Status().Findings {
		if f.Code == "HG023" {
			_, found, _ = strings.Cut(f.Text, "so the estimate is charged: ")
		}
	}
	return before, taken(), found
}

func TestCostOfAHeader(t *testing.T) {
	for _, c := range []struct {
		peer  string
		lines []string
		want  int64
		found string
	}{
		{"10.0.0.1:1", nil, 3, ""},
		{"10.0.0.1:1", []string{"7"}, 7, ""},
		{"10.0.0.1:1", []string{" 7 ", "7"}, 7, ""},
		{"10.0.0.1:1", []string{"0"}, 0, ""},
		{"10.0.0.1:1", []string{"51"}, 50, ""},
		{"10.0.0.1:1", []string{strings.Repeat("9", 400)}, 50, ""},
		{"10.0.0.1:1", []string{"7", "8"}, 3, "the lines of the header X-Cost differ"},
		{"10.0.0.1:1", []string{""}, 3, "the header X-Cost is empty"},
		{"10.0.0.1:1", []string{"-1"}, 3, `the header X-Cost has "-1", which is no whole number from 0`},
		{"10.0.0.1:1", []string{"1.5"}, 3, `the header X-Cost has "1.5", which is no whole number from 0`},
		{"10.0.0.1:1", []string{"7, 7"}, 3, `the header X-Cost has "7, 7", which is no whole number from 0`},
		{"10.0.0.1:1", []string{"\x1b\n"}, 3, `the header X-Cost has "\x1b", which is no whole number from 0`},

		// A client that comes by itself says nothing.
		{"192.0.2.1:1", []string{"7"}, 3, ""},
		{"192.0.2.1:1", []string{"x"}, 3, ""},
	} {
		r := &test.Request{Verb: "GET", URLPath: "/", Peer: c.peer, Headers: map[string][]string{"X-Cost": c.lines}}
		before, after, found := charge(t, policy.Cost{Header: "x-cost", Default: 3, AtMost: 50}, r, 200, limiter.Seen{},
			true)
		if before != c.want || after != c.want || found != c.found {
			t.Errorf("%s %q: %d and %d, %q, want %d, %q", c.peer, c.lines, before, after, found, c.want, c.found)
		}
	}

	// Without a bound, a cost above the limit is refused for ever.

	r := &test.Request{Verb: "GET", Peer: "10.0.0.1:1", Headers: map[string][]string{"X-Cost": {"10001"}}}
	if before, _, _ := charge(t, policy.Cost{Header: "X-Cost"}, r, 200, limiter.Seen{}, true); before != 0 {
		t.Errorf("%d", before)
	}
}

func TestCostOfAnAnswerHeader(t *testing.T) {
	get := &test.Request{Verb: "GET", URLPath: "/", Peer: "192.0.2.1:1"}
	for _, c := range []struct {
		lines  []string
		status int
		ended  bool
		want   int64
		found  string
	}{
		{[]string{"3"}, 200, true, 3, ""},
		{[]string{"10"}, 200, true, 10, ""},
		{[]string{"77"}, 200, true, 77, ""},
		{[]string{"0"}, 304, true, 0, ""},
		{[]string{"101"}, 200, true, 100, ""},
		{[]string{"4"}, 500, true, 4, ""},
		{[]string{"4"}, 200, false, 4, ""}, // sent before the handler has panicked
		{nil, 200, true, 10, "there is no header X-Cost"},
		{nil, 500, true, 10, ""},
		{nil, 499, false, 10, ""},
		{[]string{"4", "5"}, 200, true, 10, "the lines of the header X-Cost differ"},
		{[]string{"many"}, 200, true, 10, `the header X-Cost has "many", which is no whole number from 0`},
	} {
		seen := limiter.Seen{Header: func(name string) []string {
			return map[string][]string{"X-Cost": c.lines}[name]
		}}

		cost := policy.Cost{AnswerHeader: "x-cost", Estimate: 10, AtMost: 100}
		before, after, found := charge(t, cost, get, c.status, seen, c.ended)
		if before != 10 || after != c.want || found != c.found {
			t.Errorf("%q with %d: %d and %d, %q, want 10, %d and %q", c.lines, c.status, before, after, found, c.want,
				c.found)
		}
	}

	// No header is asked for.
	_, after, found := charge(t, policy.Cost{AnswerHeader: "X-Cost", Estimate: 10}, get, 200, limiter.Seen{}, true)
	if after != 10 || found != "the headers of the answer are not seen, so neither is X-Cost" {
		t.Errorf("an adapter without headers: %d, %q", after, found)
	}
}

// A refund by the status comes before what the answer says.
func TestRefundComesBeforeTheAnswer(t *testing.T) {
	p := costing(t, policy.Cost{AnswerHeader: "X-Cost", Estimate: 10})
	p.Refund = policy.Statuses{"5xx"}

	compiled, err := policy.Compile("shop", []policy.Policy{p}, policy.Bindings{})
	if err != nil {
		t.Fatal(err)
	}

	l := limiter.MustNew(limiter.Config{Rules: compiled.Rules()})
	defer l.Close()

	get := &test.Request{Verb: "GET", URLPath: "/", Peer: "192.0.2.1:1"}
	for status, left := range map[int]int64{500: 10000, 200: 9996} {
		a := l.Admit(get)
		a.See(limiter.Seen{Header: func(string) []string { return []string{"4"} }})
		a.Done(status)

		if list, err := l.PeekRequest(get); err != nil || list[0].Decision.Remaining != left {
			t.Errorf("%d: %+v, %v", status, list, err)
		}

		if err := l.ResetRequest(get); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCostOfUsage(t *testing.T) {
	const chat = `{"model": "gpt-5-2025", "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}}`
	const begun = "data: {\"type\": \"message_start\", \"message\": {\"model\": \"m\", \"usage\": {\"input_tokens\": 700}}}\n\n"

	tokens := policy.Cost{Usage: "tokens", Estimate: 500, AtMost: 2000}
	money := policy.Cost{Usage: "cost", Estimate: 300, AtMost: 5000, Prices: map[string]policy.Price{
		"gpt-5":  {Input: "1.25", Output: "10"},
		"claude": {Input: "3", Output: "15", CacheRead: "0.3", CacheWrite: "3.75"},
	}}
	other := money
	other.Prices = map[string]policy.Price{"*": {Input: "2", Output: "0.000001"}}

	for name, c := range map[string]struct {
		cost          policy.Cost
		body          string
		part          bool // the body is not read
		answer        string
		status        int
		left          bool
		before, after int64
		found         string
	}{
		"the request names none": {cost: tokens, body: "{}", answer: chat, before: 500, after: 120},
		"the request names many": {cost: tokens, body: `{"max_tokens": 1500, "a": 1}  `,
			answer: chat, before: 1507, after: 120},
		"the request names most": {cost: tokens, body: `{"max_tokens": 1500, "n": 2}`,
			answer: chat, before: 2000, after: 120},
		"the request is not read": {cost: tokens, part: true, answer: chat, before: 2000, after: 120},
		"the request is long": {cost: tokens, body: strings.Repeat(" ", 8001), answer: chat,
			before: 2000, after: 120},
		"more than at_most": {cost: tokens,
			answer: `{"usage": {"total_tokens": 4321, "prompt_tokens": 1}}`, before: 500, after: 4321},
		"no usage": {cost: tokens, answer: "data: {\"choices\": []}\n\n", before: 500, after: 500,
			found: noUsage},
		"a failure": {cost: tokens, answer: `{"error": "x"}`, status: 500, before: 500, after: 500},
		"left before its usage": {cost: tokens,
			answer: "data: {\"choices\": []}\n\n", left: true, before: 500, after: 500},
		"left, and more was seen": {cost: tokens, answer: begun, left: true, before: 500, after: 700},
		"left, and less was seen": {cost: tokens, body: `{"max_tokens": 1500}`,
			answer: begun, left: true, before: 1505, after: 1505},

		// 100 tokens at 1.25 and 20 at 10 are 325 millionths. The model is that of the request,
		// as the answer has another name of it.
		"the price of the model asked": {cost: money, body: `{"model": "gpt-5"}`, answer: chat,
			before: 300, after: 325},
		"the price of what is asked": {cost: money, body: `{"model": "gpt-5", "max_tokens": 200}  `,
			answer: chat, before: 2012, after: 325},
		"several answers": {cost: money, body: `{"model": "gpt-5", "n": 3}`,
			answer: chat, before: 900, after: 325},
		"no price": {cost: money, body: `{"model": "\u001b[1m"}`,
			answer: `{"model": "x` + strings.Repeat("y", 90) + `"}` + chat, before: 300, after: 300,
			found: `the model "gpt-5-2025" has no price`},
		"any other model": {cost: other, body: `{"model": "gpt-5"}`, answer: chat, before: 300, after: 201},
		"caches": {cost: money,
			answer: `{"model": "claude", "usage": {"input_tokens": 10, "cache_read_input_tokens": 100, ` +
				`"cache_creation_input_tokens": 4, "output_tokens": 2}}`, before: 300, after: 30 + 30 + 15 + 30},
		"rounded up": {cost: money,
			answer: `{"model": "claude", "usage": {"input_tokens": 0, "cache_read_input_tokens": 1, ` +
				`"output_tokens": 0}}`, before: 300, after: 1},
		"a huge usage": {cost: money, answer: `{"model": "claude", "usage": {"input_tokens": 9007199254740991, ` +
			`"output_tokens": 9007199254740991}}`, before: 300, after: 10000},
	} {
		meter := &llmusage.Meter{}
		_, _ = io.WriteString(meter, c.answer)
		r := asking{&test.Request{Verb: "POST", URLPath: "/", Peer: "192.0.2.1:1"}, c.body, !c.part}
		if c.status == 0 {
			c.status = 200
		}

		before, after, found := charge(t, c.cost, r, c.status, limiter.Seen{Usage: meter}, !c.left)
		if before != c.before || after != c.after || found != c.found {
			t.Errorf("%s: %d and %d, %q, want %d, %d, %q", name, before, after, found, c.before, c.after, c.found)
		}
	}
}

// What cannot be read of an answer leaves the estimate, and is found.
func TestUsageThatIsNotSeen(t *testing.T) {
	get := &test.Request{Verb: "GET", URLPath: "/", Peer: "192.0.2.1:1"} // a view without a body

	compressed := func(name string) []string { return map[string][]string{"Content-Encoding": {"br"}}[name] }

	for want, seen := range map[string]limiter.Seen{
		"the body of the answer is not seen, as of a stream that is sent after the handler": {},
		llmusage.ErrCompressed.Error(): {Header: compressed, Usage: &llmusage.Meter{}},
	} {
		before, after, found := charge(t, policy.Cost{Usage: "tokens", Estimate: 7}, get, 200, seen, true)
		if before != 7 || after != 7 || found != want {
			t.Errorf("%d and %d, %q, want %q", before, after, found, want)
		}
	}
}
