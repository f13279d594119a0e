package web

import (
	"strings"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
)

// choice is an option of a form, with a line that explains it.
type choice struct {
	Value, Words, Help string
}

// choices are the options of the form of a policy by the names of its inputs, as its sentences
// have them.
var choices = map[string][]choice{
	"algorithm": {
		{"gcra", "Even spacing (GCRA)", "Spreads requests evenly and forgives a burst. The best choice for most APIs."},
		{"token-bucket", "Token bucket", "Tokens pile up while no request comes; a burst may spend them all at once."},
		{"sliding-window", "Sliding window",
			"Counts the last period in segments: close to exact, and cheap at any quota."},
		{"sliding-log", "Sliding log", "Remembers every request: " +
			"never more than the quota in any period. For small quotas, such as log-ins."},
		{"fixed-window", "Fixed window", "A fresh quota each period. Simple, " +
			"but lets up to twice the quota through around the change of window."},
		{"calendar", "By the calendar", "A fresh quota each day, week, month or year of a time zone, as plans have it."},
		{"concurrent", "At the same time", "Limits requests in progress, not requests per time."},
	},
	"key": {
		{Value: "ip", Words: "each address"},
		{Value: "user", Words: "each signed-in user"},
		{Value: "api-key", Words: "each API key"},
		{Value: "ip+route", Words: "each address on each route"},
		{Value: "global", Words: "all callers together"}, {Value: "other", Words: "something else"},
	},
	"on_limit": {
		{Value: "reject", Words: "refuse"}, {Value: "wait", Words: "let wait"},
		{Value: "degrade", Words: "give a cheaper answer"},
	},
	"deny_status": {{Value: "", Words: "403 Forbidden"}, {Value: "429", Words: "429 Too Many Requests"}},
	"on_store_error": {
		{Value: "", Words: "do as the application is set up"}, {Value: "open", Words: "let all pass"},
		{Value: "closed", Words: "refuse all"}, {Value: "local", Words: "each instance counts"},
	},
	"mode": {
		{Value: "shadow", Words: "in shadow"}, {Value: "enforce", Words: "in force"}, {Value: "off", Words: "off"},
	},
}

// recipes are the recipes that have words of their own.
func recipes() []choice { return choices["key"][:len(choices["key"])-1] }

// modes are the modes where they stand alone.
func modes() []choice {
	return []choice{
		{Value: "enforce", Words: "Enforce", Help: "Requests over the limit are refused, wait or get a cheaper answer."},
		{Value: "shadow", Words: "Shadow",
			Help: "Requests are counted and reported, and none is refused. Good for trying a limit out."},
		{Value: "off", Words: "Off", Help: "The policy has no effect."},
	}
}

// onLimitWords describes what happens to a request over the limit.
func onLimitWords(onLimit string) string {
	span, waits := strings.CutPrefix(onLimit, "wait ")
	switch {
	case waits:
		return "waits up to " + span
	case onLimit == "degrade":
		return "passes marked, for a cheaper answer"
	}
	return "is refused with 429"
}

// start is a policy that a new one may begin with. It lacks an application, and is in shadow.
type start struct {
	Title  string
	Needs  string        // what the program has to do for it, or ""
	Policy policy.Policy // its name is that of the start
}

// starts are the policies to begin with, in the order of the page.
func starts() []start {
	list := []start{
		{"Public API", "", policy.Policy{Name: "public-api", Key: "ip", Limit: core.MustParseLimit("100/1m burst=20")}},
		{"Log-in", "", policy.Policy{
			Name: "login", Key: "ip", Limit: core.MustParseLimit("5/1m sliding-log"),
			Match: policy.Match{Methods: []string{"POST"}, Path: "/login"},
			Ban:   core.MustParseBan("20/1m for 10m max 24h"), OnStoreError: "local",
		}},
		{"Expensive report", "", policy.Policy{
			Name: "report", Key: "ip", Limit: core.MustParseLimit("2 concurrent ttl=5m"),
			Match: policy.Match{Path: "/reports/"},
		}},
		{"LLM tokens", "A request counts as one until the program charges it. " +
			"The program has to charge the tokens of each answer, which package llmusage reads.", policy.Policy{
			Name: "llm-tokens", Key: "api-key", Limit: core.MustParseLimit("100000/1m debt=50000"),
			Match: policy.Match{Methods: []string{"POST"}, Path: "/v1/chat/completions"},
		}},
		{"Plans by tier", "The program has to know its users and their plans: Bindings.User, " +
			"and a function in Bindings.Plans that is called “user”. " +
			"Instances of a program without them leave this policy out.", policy.Policy{
			Name: "plans", Key: "user", Limit: core.MustParseLimit("60/1h"), PlanBy: "user",
			Plans: map[string]core.Limit{
				"free": core.MustParseLimit("1000/1h"), "pro": core.MustParseLimit("100000/1h burst=500"),
			},
		}},
		{"Webhook", "", policy.Policy{
			Name: "webhook", Key: "global", Limit: core.MustParseLimit("20/1s burst=50"),
			OnLimit: "wait 2s", OnStoreError: "open",
			Match: policy.Match{Methods: []string{"POST"}, Path: "/webhooks/"},
		}},
	}

	for i := range list {
		list[i].Policy.Mode = policy.Shadow
	}
	return list
}
