package web

import (
	"strings"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
)

// kindOfUse is a template of a policy. The policy lacks an application and is valid otherwise.
type kindOfUse struct {
	Name   string // in addresses
	Title  string
	About  string        // what it is for
	Needs  string        // what the program has to do for it, or ""
	Unit   string        // what it counts instead of requests, or ""
	Policy policy.Policy // in shadow, as every new one
}

// Words says what the policy does once it is enforced.
func (k kindOfUse) Words() string {
	p := k.Policy
	p.Mode, p.Apps = policy.Enforce, []string{"any"}
	words := p.Describe()
	if k.Unit != "" {
		words = strings.Replace(words, strings.Join(p.Match.Methods, " or ")+" requests", k.Unit, 1)
	}
	return words
}

// fromNothing is the name of the form without a template.
const fromNothing = "none"

// kindsOfUse are the templates in the order of the page.
func kindsOfUse() []kindOfUse {
	list := []kindOfUse{
		{
			Name: "public-api", Title: "Public API",
			About: "For callers without a log-in. A short burst passes, " +
				"and a caller who never stops is slowed down to the limit.",
			Policy: policy.Policy{Limit: core.Limit{Quota: 100, Period: time.Minute, Burst: 20}, Key: "ip"},
		},
		{
			Name: "login", Title: "Log-in",
			About: "Against guessing passwords: few tries for each address, and a ban for those who go on. " +
				"It works without Redis too.",
			Policy: policy.Policy{
				Limit: core.MustParseLimit("5/1m sliding-log"), Key: "ip",
				Match: policy.Match{Methods: []string{"POST"}, Path: "/login"},
				Ban:   core.MustParseBan("20/1m for 10m max 24h"), OnStoreError: "local",
			},
		},
		{
			Name: "report", Title: "Expensive report",
			About: "For reports, exports and searches: how many of them run at the same time for each " +
				"caller, however long they take.",
			Policy: policy.Policy{
				Limit: core.MustParseLimit("2 concurrent ttl=5m"), Key: "ip",
				Match: policy.Match{Path: "/reports/"},
			},
		},
		{
			Name: "llm-tokens", Title: "LLM tokens", Unit: "tokens",
			About: "For a language model: tokens instead of requests. An answer may exceed what is left, " +
				"and the next ones wait until it is paid.",
			Needs: "A request counts as one until the program charges it. " +
				"The program has to charge the tokens of each answer, which package llmusage reads.",
			Policy: policy.Policy{
				Limit: core.Limit{Quota: 100_000, Period: time.Minute, Debt: 50_000}, Key: "api-key",
				Match: policy.Match{Methods: []string{"POST"}, Path: "/v1/chat/completions"},
			},
		},
		{
			Name: "plans", Title: "Plans by tier",
			About: "For customers who pay for more: a limit for each plan, and one for users without a plan.",
			Needs: "The program has to know its users and their plans: Bindings.User, " +
				"and a function in Bindings.Plans that is called “user”. " +
				"Instances of a program without them refuse this policy, and all changes after it, " +
				"until the policy is switched off.",
			Policy: policy.Policy{
				Limit: core.Limit{Quota: 60, Period: time.Hour}, Key: "user", PlanBy: "user",
				Plans: map[string]core.Limit{
					"free": {Quota: 1000, Period: time.Hour},
					"pro":  {Quota: 100_000, Period: time.Hour, Burst: 500},
				},
			},
		},
		{
			Name: "webhook", Title: "Webhook",
			About: "For events that another service sends. Those of a burst wait for their turn instead of " +
				"getting lost.",
			Policy: policy.Policy{
				Limit: core.Limit{Quota: 20, Period: time.Second, Burst: 50}, Key: "global",
				OnLimit: "wait 2s", OnStoreError: "open",
				Match: policy.Match{Methods: []string{"POST"}, Path: "/webhooks/"},
			},
		},
	}

	// A template is tried before it refuses anybody, as every new policy is.
	for i := range list {
		list[i].Policy.Name, list[i].Policy.Mode = list[i].Name, policy.Shadow
	}
	return list
}

// kindNamed returns a template by its name.
func kindNamed(name string) (kindOfUse, bool) {
	for _, k := range kindsOfUse() {
		if k.Name == name {
			return k, true
		}
	}
	return kindOfUse{}, false
}
