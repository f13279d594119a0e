package policy_test

import (
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
)

func TestDescribeIsInPlainWords(t *testing.T) {
	for _, c := range []struct {
		limit, key string
		more       policy.Policy
		want       string
	}{
		{"100/1m burst=20", "api-key", policy.Policy{OnLimit: "wait 500ms"},
			"100 requests a minute for each API key, at most 20 at once; others wait up to 500ms"},
		// The default algorithm, and the one word that each of its options adds.
		{"1000/1m burst=200 debt=5000", "user", policy.Policy{},
			"1000 requests a minute for each user, at most 200 at once, at most 5000 in debt; others are refused"},
		{"10/1s fixed-window debt=3", "ip", policy.Policy{},
			"10 requests a second for each address, counted in windows that begin with a request, at most 3 in debt; others are refused"},
		{"1/1s", "ip", policy.Policy{}, "1 request a second for each address; others are refused"},
		{"5000/1h", "user", policy.Policy{OnLimit: "degrade"},
			"5000 requests an hour for each user; others get a cheaper answer"},
		// What a request takes, and which answers count.
		{"100/1m burst=20", "ip", policy.Policy{Cost: policy.Cost{Units: 5}, Refund: policy.Statuses{"304", "5xx"}},
			"100 units a minute for requests for each address, at most 20 at once, 5 a request; others are refused; " +
				"an answer with 304 or 5xx does not count"},
		{"5/1m", "ip", policy.Policy{CountOnly: policy.Statuses{"401"}, Match: policy.Match{Methods: []string{"POST"},
			Path: "/", Except: []string{"/healthz", "/ready"}, Headers: map[string]policy.Values{"x-plan": {"free"}, "X-Beta": {"*"}}}},
			"5 POST requests a minute to / except to /healthz and /ready with the header X-Beta and the header X-Plan: free " +
				"for each address; others are refused; only an answer with 401 counts"},
		{"5/1m", "ip", policy.Policy{Match: policy.Match{Path: "/", Headers: map[string]policy.Values{"x-plan": {"a", "b"}},
			Query:  map[string]policy.Values{"export": {"csv", "xlsx", "pdf"}, "all": {"*"}},
			Claims: map[string]policy.Values{"plan": {"free"}}}},
			"5 requests a minute to / with the header X-Plan: a or b, the parameter all, the parameter export: csv, xlsx or " +
				"pdf and the claim plan: free for each address; others are refused"},
		{"100/1m", "ip", policy.Policy{Cost: policy.Cost{Header: "x-cost", Default: 2, AtMost: 9}},
			"100 units a minute for requests for each address, a request as many as the header X-Cost of a trusted proxy " +
				"says, at most 9, and 2 without; others are refused"},
		{"100/1m", "ip", policy.Policy{Cost: policy.Cost{AnswerHeader: "x-cost", Estimate: 10}},
			"100 units a minute for requests for each address, a request as many as the header X-Cost of its answer says, " +
				"with 10 charged before it; others are refused"},
		{"1000/1m", "user", policy.Policy{Cost: policy.Cost{Usage: "tokens", Estimate: 500, AtMost: 800},
			Plans: map[string]core.Limit{"pro": core.MustParseLimit("9000/1m")}, PlanBy: "user"},
			"1000 tokens a minute for requests for each user, as many as each answer says that it has used, with 500 " +
				"charged before it unless the request says how many, at most 800; with the plan pro 9000 tokens a minute; " +
				"others are refused"},
		{"1000000/1d", "user", policy.Policy{Cost: policy.Cost{Usage: "cost", Estimate: 500,
			Prices: map[string]policy.Price{"*": {Input: "1", Output: "2"}}}},
			"1000000 units a day for requests for each user, a millionth of the price each, by the tokens that each answer " +
				"says that it has used and the prices of 1 model, with 500 charged before it unless the request says how " +
				"many; others are refused"},
		// The periods: a single unit has its article, several are counted, and a fraction goes to
		// the smaller unit.
		{"2/1d", "ip/56", policy.Policy{Mode: policy.Shadow, OnLimit: "degrade"},
			"2 requests a day for each address (IPv6 by /56 network); others are counted and pass (in shadow)"},
		{"3/10s", "global", policy.Policy{Mode: policy.Off},
			"3 requests every 10 seconds for all callers together; others are refused (switched off)"},
		{"3/7d", "route", policy.Policy{}, "3 requests every 7 days for each route; others are refused"},
		{"3/90m", "method", policy.Policy{}, "3 requests every 90 minutes for each method; others are refused"},
		{"3/2h", "path", policy.Policy{}, "3 requests every 2 hours for each path; others are refused"},
		{"1/100ms token-bucket burst=50", "host", policy.Policy{},
			"1 request every 100 milliseconds for each host, at most 50 at once; others are refused"},
		{"1/1ms", "basic-auth", policy.Policy{},
			"1 request every millisecond for each name of a Basic login; others are refused"},
		{"1/1500us", "cookie:sid", policy.Policy{},
			"1 request every 1500 microseconds for each value of the cookie sid; others are refused"},
		{"5/1m sliding-log", "header:x-tenant", policy.Policy{},
			"5 requests within any minute for each value of the header X-Tenant; others are refused"},
		// The algorithms, which say what is counted within which time.
		{"5/10m sliding-log", "ip+route", policy.Policy{},
			"5 requests within any 10 minutes for each address and route; others are refused"},
		{"240/1h sliding-window segments=60", "user+method+path", policy.Policy{},
			"240 requests within any hour for each user, method and path, counted in 60 segments; others are refused"},
		{"240/1h sliding-window", "ip", policy.Policy{},
			"240 requests within any hour for each address, counted in 10 segments; others are refused"},
		{"240/1h sliding-window segments=1", "ip", policy.Policy{},
			"240 requests within any hour for each address, counted in 1 segment; others are refused"},
		{"10/1s fixed-window aligned", "ip", policy.Policy{},
			"10 requests a second for each address, counted in windows by the clock; others are refused"},
		{"10/1s fixed-window", "ip", policy.Policy{},
			"10 requests a second for each address, counted in windows that begin with a request; others are refused"},
		{"10000/month tz=Europe/Berlin start=15", "user", policy.Policy{},
			"10000 requests a month for each user, by the calendar of Europe/Berlin, each from day 15 on; others are refused"},
		// Calendars name their zone always, and their first day only where it is not the usual one.
		{"5/week", "ip", policy.Policy{},
			"5 requests a week for each address, by the calendar of UTC; others are refused"},
		{"5/week start=7", "ip", policy.Policy{},
			"5 requests a week for each address, by the calendar of UTC, each from Sunday on; others are refused"},
		{"1/year start=04-06 tz=Europe/London", "ip", policy.Policy{},
			"1 request a year for each address, by the calendar of Europe/London, each from April 6 on; others are refused"},
		// Plans are sorted by name. What all share is not repeated, what differs is.
		{"60/1h", "user", policy.Policy{PlanBy: "claim",
			Plans: map[string]core.Limit{"pro": limit(t, "9000/1h debt=70"), "free": limit(t, "1/1s")}},
			"60 requests an hour for each user; with the plan free 1 request a second; with the plan pro 9000 requests an hour, at most 70 in debt; others are refused"},
		{"1000/month", "user", policy.Policy{PlanBy: "claim",
			Plans: map[string]core.Limit{"pro": limit(t, "100000/month tz=Europe/Berlin"),
				"week": limit(t, "7000/week")}},
			"1000 requests a month for each user, by the calendar of UTC; with the plan pro 100000 requests a month, by the calendar of Europe/Berlin; with the plan week 7000 requests a week; others are refused"},
		{"20 concurrent ttl=30s", "user", policy.Policy{OnLimit: "wait 2m"},
			"20 requests at a time for each user; others wait up to 2m"},
		// Leases are requests at a time; the failure mode is said only where the policy chooses
		// one.
		{"1 concurrent ttl=30s", "user", policy.Policy{OnStoreError: "open"},
			"1 request at a time for each user; others are refused; if the store fails, all pass"},
		{"9/1m", "ip", policy.Policy{OnStoreError: "closed",
			Match: policy.Match{Methods: []string{"POST"}, Path: "/login", Host: "shop.example"}},
			"9 POST requests a minute to /login on shop.example for each address; others are refused; if the store fails, all are refused"},
		{"9/1m", "ip", policy.Policy{OnStoreError: "local",
			Match: policy.Match{Methods: []string{"GET", "PUT", "POST"}, Host: "*.shop.example"}},
			"9 GET, PUT or POST requests a minute on hosts below shop.example for each address; others are refused; if the store fails, each instance counts for itself"},
		{"60/1h", "user", policy.Policy{PlanBy: "claim",
			Plans: map[string]core.Limit{"pro": limit(t, "9000/1h burst=50"), "free": limit(t, "1/1s")}},
			"60 requests an hour for each user; with the plan free 1 request a second; with the plan pro 9000 requests an hour, at most 50 at once; others are refused"},
		// The lists of callers are counted, not shown: they may hold names of customers.
		{"9/1m", "user",
			policy.Policy{Access: policy.Access{Allow: policy.Callers{Networks: []string{"10.0.0.0/8",
				"192.0.2.1"}, Keys: []string{"carol"}}}},
			"9 requests a minute for each user; others are refused; not limited: 2 networks and 1 key"},
		{"9/1m", "user", policy.Policy{OnLimit: "degrade",
			Access: policy.Access{Deny: policy.Callers{Keys: []string{"eve", "mallory"}}, DenyStatus: 429}},
			"9 requests a minute for each user; others get a cheaper answer; refused at once with 429: 2 keys"},
		{"9/1m", "user",
			policy.Policy{Access: policy.Access{Allow: policy.Callers{Networks: []string{"10.0.0.0/8"}},
				DenyOthers: true}},
			"9 requests a minute for each user; others are refused; not limited: 1 network; refused at once: all other callers"},
	} {
		p := c.more
		p.Name, p.Apps, p.Limit, p.Key = "a", []string{"shop"}, limit(t, c.limit), c.key

		if got := p.Describe(); got != c.want {
			t.Errorf("%s, %s:\n%s\nwant\n%s", c.limit, c.key, got, c.want)
		}
	}
	if got := (policy.Policy{}).Describe(); got != "not a valid policy" {
		t.Errorf("%q", got)
	}
}

func TestDescribeLimit(t *testing.T) {
	for text, want := range map[string]string{
		"100/1m burst=20":                      "100 requests a minute, at most 20 at once",
		"5/10s fixed-window debt=3":            "5 requests every 10 seconds, counted in windows that begin with a request, at most 3 in debt",
		"1 concurrent ttl=30s":                 "1 request at a time",
		"1000/month tz=Europe/Berlin start=15": "1000 requests a month, by the calendar of Europe/Berlin, each from day 15 on",
		"240/1h sliding-window segments=60":    "240 requests within any hour, counted in 60 segments",
	} {
		if got := policy.DescribeLimit(core.MustParseLimit(text)); got != want {
			t.Errorf("%s is %q, want %q", text, got, want)
		}
	}

	// A Limit has a zero value that is no limit. It is described, and does not panic.
	if got := policy.DescribeLimit(core.Limit{}); got != "not a valid limit" {
		t.Errorf("no limit is %q", got)
	}
}
