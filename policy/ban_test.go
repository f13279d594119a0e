package policy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/policyyaml"
)

const bannedYAML = `policies:
- name: login
  apps: [shop]
  limit: 5/1m
  key: ip
  ban: {after: 20/1m, for: 10m, max: 24h}
`

// banned returns a policy with a ban.
func banned(t testing.TB, after, span, most string) policy.Policy {
	p := valid(t, "a")
	p.Ban = policy.Ban{After: after, For: span, Max: most}
	return p
}

func TestBanOfAPolicy(t *testing.T) {
	set, err := policyyaml.Decode([]byte(bannedYAML))
	if err != nil {
		t.Fatal(err)
	}
	rules, err := policy.Compile("shop", set, policy.Bindings{})
	if err != nil {
		t.Fatal(err)
	}
	want := limiter.Ban{After: limit(t, "20/1m fixed-window"), For: 10 * time.Minute, Max: 24 * time.Hour}
	if rules[0].Ban != want {
		t.Errorf("%+v", rules[0].Ban)
	}
	for _, after := range []string{"20/1m", "20/1m fixed-window", "20/60s"} {
		rules, err := policy.Compile("shop", policy.Set{banned(t, after, "10m", "24h")}, policy.Bindings{})
		if err != nil || rules[0].Ban != want {
			t.Errorf("%s: %+v, %v", after, rules, err)
		}
	}
	if rules, err := policy.Compile("shop", policy.Set{valid(t, "a")}, policy.Bindings{}); err != nil || rules[0].Ban != (limiter.Ban{}) {
		t.Errorf("without a ban: %+v, %v", rules, err)
	}
	shadow := banned(t, "20/1m", "10m", "24h")
	shadow.Mode = policy.Shadow
	rules, err = policy.Compile("shop", policy.Set{shadow}, policy.Bindings{})
	if err != nil || rules[0].OnLimit != limiter.Shadow {
		t.Errorf("in shadow: %+v, %v", rules, err)
	}
}

func TestBanMistakesNameTheField(t *testing.T) {
	rows := []struct {
		after, span, most, onLimit, limit string
		want                              []string
	}{
		{"", "10m", "24h", "", "5/1m", []string{"ban.after: it is missing; write how many refusals in how long begin a ban, such as 20/1m"}},
		{"20", "10m", "24h", "reject", "5/1m", []string{`ban.after: "20" is not a number of refusals and a time, such as 20/1m`}},
		{"20/1m sliding-log", "10m", "24h", "", "5/1m", []string{`ban.after: "20/1m sliding-log" is not a number of refusals and a time, such as 20/1m`}},
		{"20/1m aligned", "10m", "24h", "", "5/1m", []string{`ban.after: "20/1m aligned" is not a number of refusals and a time, such as 20/1m`}},
		{"20/1m debt=7", "10m", "24h", "", "5/1m", []string{`ban.after: "20/1m debt=7" is not a number of refusals and a time, such as 20/1m`}},
		{"20/month", "10m", "24h", "", "5/1m", []string{`ban.after: "20/month" is not a number of refusals and a time, such as 20/1m`}},
		{"20/1m", "", "", "", "5/1m", []string{`ban.for: "" is not a duration such as 10m or 24h`, `ban.max: "" is not a duration such as 10m or 24h`}},
		{"20/1m", "0s", "24h", "", "5/1m", []string{"ban: for 0s is not within 1ms to 9600h0m0s"}},
		{"20/1m", "25h", "24h", "", "5/1m", []string{"ban: for is above max"}},
		{"9999999999/1m", "10m", "9999h", "", "5/1m", []string{"ban: strikes 9999999999 is not within 1 to 2147483648; max 9999h0m0s is not within 1ms to 9600h0m0s"}},
		{"20/1m", "10m", "24h", "wait 2s", "5/1m", []string{`ban: only a policy that refuses requests can ban, and on_limit is "wait 2s"`}},
		{"20/1m", "10m", "24h", "degrade", "5/1m", []string{`ban: only a policy that refuses requests can ban, and on_limit is "degrade"`}},
		{"20/1m", "10m", "24h", "", "5 concurrent ttl=1m", []string{"ban: a concurrency limit cannot ban, because leases have to be renewed"}},
		{"x", "y", "0s", "degrade", "5 concurrent ttl=1m", []string{
			`ban.after: "x" is not a number of refusals and a time, such as 20/1m`, `ban.for: "y" is not a duration such as 10m or 24h`,
			"ban: max 0s is not within 1ms to 9600h0m0s; for is above max",
			`ban: only a policy that refuses requests can ban, and on_limit is "degrade"`,
			"ban: a concurrency limit cannot ban, because leases have to be renewed",
		}},
	}
	for _, row := range rows {
		p := banned(t, row.after, row.span, row.most)
		p.OnLimit, p.Limit = row.onLimit, limit(t, row.limit)
		wantError(t, p.Validate(), `policy "a": `+strings.Join(row.want, "\n"+`policy "a": `))
	}
	for text, want := range map[string]string{
		"ban: {}": `policy "login": ban: it is empty; it needs after, for and max`,
		"ban: {after: 20/1m, for: 600, max: 24h}": `policy 0 "login": ban.for: unexpected number`,
		"ban: {after: 20/1m, four: 10m}":          `policy 0 "login": json: unknown field "four"`,
	} {
		_, err := policyyaml.Decode([]byte(strings.Replace(bannedYAML, "ban: {after: 20/1m, for: 10m, max: 24h}", text, 1)))
		wantError(t, err, want)
	}
}

// A limiter accepts the ban of every policy that Validate accepts.
func TestBansOfPoliciesAreThoseOfRules(t *testing.T) {
	key := func(core.Request) (string, bool) { return "", true }
	for _, after := range []string{"1/1ms", "2147483648/1m", "2147483649/1m", "1/9600h", "1/9601h"} {
		for _, span := range []string{"0s", "1ms", "999us", "1ms1ns", "1h", "9600h", "9600h1us"} {
			p := banned(t, after, span, "9600h")
			window, _ := core.ParseLimit(after + " fixed-window")
			d, _ := time.ParseDuration(span)
			rule := limiter.Rule{Name: "a", Limit: p.Limit, Key: key, Ban: limiter.Ban{After: window, For: d, Max: 9600 * time.Hour}}
			_, err := limiter.New(limiter.Config{Store: nothing{}, Rules: []limiter.Rule{rule}})
			if (err == nil) != (p.Validate() == nil) {
				t.Errorf("%s, %s: rule %v, policy %v", after, span, err, p.Validate())
			}
		}
	}
}

func TestDescribeSaysWhenAPolicyBans(t *testing.T) {
	for _, row := range []struct{ after, span, most, want string }{
		{"20/1m", "10m", "24h", "; after 20 refusals within 1 minute banned for 10 minutes, then twice as long each time, at most 1 day"},
		{"1/90s", "1h", "1h", "; after 1 refusal within 90 seconds banned for 1 hour"},
	} {
		p := banned(t, row.after, row.span, row.most)
		plain := p
		plain.Ban = policy.Ban{}
		if got := p.Describe(); got != plain.Describe()+row.want {
			t.Errorf("%s", got)
		}
		p.Mode = policy.Shadow
		if got := fmt.Sprint(p.Describe()); strings.Contains(got, "ban") {
			t.Errorf("in shadow: %s", got)
		}
	}
}
