package policy_test

import (
	"fmt"
	"reflect"
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
  ban: 20/1m for 10m max 24h
`

// banned returns a policy with a ban.
func banned(t testing.TB, ban core.Ban) policy.Policy {
	p := valid(t, "a")
	p.Ban = ban
	return p
}

func TestBanOfAPolicy(t *testing.T) {
	set, err := policyyaml.Decode([]byte(bannedYAML))
	if err != nil {
		t.Fatal(err)
	}

	compiled, err := policy.Compile("shop", set, policy.Bindings{})
	if err != nil {
		t.Fatal(err)
	}

	// The rule carries the four numbers of the text unchanged: 20 refusals within a minute, 10
	// minutes that grow to a day.
	rules := compiled.Rules()
	want := core.Ban{Strikes: 20, Within: time.Minute, For: 10 * time.Minute, Max: 24 * time.Hour}
	if rules[0].Ban != want {
		t.Errorf("%+v", rules[0].Ban)
	}

	// A policy without a ban must not get one by default.
	if c, err := policy.Compile("shop", policy.Set{valid(t, "a")}, policy.Bindings{}); err != nil ||
		c.Rules()[0].Ban != (core.Ban{}) {
		t.Errorf("without a ban: %+v, %v", c, err)
	}

	// A policy in shadow keeps its ban in the set. Its rule is in shadow as a whole, so nobody is
	// banned by it.
	shadow := banned(t, want)
	shadow.Mode = policy.Shadow
	compiled, err = policy.Compile("shop", policy.Set{shadow}, policy.Bindings{})
	if err != nil || compiled.Rules()[0].OnLimit != limiter.Shadow {
		t.Errorf("in shadow: %+v, %v", compiled, err)
	}
}

// A policy that was written with an object of three texts is the same one.
func TestBanIsReadFromAnObjectToo(t *testing.T) {
	want, err := policyyaml.Decode([]byte(bannedYAML))
	if err != nil {
		t.Fatal(err)
	}

	// The object has the limit's notation in "after", so that an algorithm that changes nothing and
	// another spelling of the minute are the same ban.
	for _, after := range []string{"20/1m", "20/1m fixed-window", "20/60s"} {
		object := "ban: {after: " + after + ", for: 10m, max: 24h}"
		got, err := policyyaml.Decode([]byte(strings.Replace(bannedYAML, "ban: 20/1m for 10m max 24h", object, 1)))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", object, got, err)
		}
	}

	// The one-line text and the object share the checks of the ban; the messages show what the
	// object amounts to as a text. The last four rows are mistakes of JSON itself.
	for text, want := range map[string]string{
		"ban: {}":                        `policy "login": ban: ban "{}": "{}" is not a number of refusals and a time, such as 20/1m; for is missing; write, say, "for 10m"; max is missing; write, say, "max 24h"`,
		"ban: {after: 20/1m}":            `policy "login": ban: ban "20/1m": for is missing; write, say, "for 10m"; max is missing; write, say, "max 24h"`,
		"ban: {for: 10m, max: 24h}":      `policy "login": ban: ban " for 10m max 24h": it does not say how many refusals in how long begin a ban, such as 20/1m`,
		"ban: {after: 20/1m, for: 600}":  `policy 0 "login": ban.for: unexpected number`,
		"ban: {after: 20/1m, four: 10m}": `policy 0 "login": json: unknown field "four"`,
		"ban: {after: 20/1m, After: 5}":  `policy: the field "After" is not known`,
		"ban: 7":                         `policy 0 "login": ban: unexpected number`,
		"ban: [20/1m]":                   `policy 0 "login": ban: unexpected array`,
	} {
		_, err := policyyaml.Decode([]byte(strings.Replace(bannedYAML, "ban: 20/1m for 10m max 24h", text, 1)))
		wantError(t, err, want)
	}
}

func TestBanMistakesNameTheField(t *testing.T) {
	minute := core.Ban{Strikes: 20, Within: time.Minute, For: 10 * time.Minute, Max: 24 * time.Hour}
	long := minute
	long.Strikes, long.Max = 9999999999, 9999*time.Hour

	rows := []struct {
		ban            core.Ban
		onLimit, limit string
		want           []string
	}{
		// All four spans are needed, and the mistakes of one ban come together.
		{core.Ban{Strikes: 20, Within: time.Minute}, "reject", "5/1m",
			[]string{"ban: for 0s is not within 1ms to 9600h0m0s; max 0s is not within 1ms to 9600h0m0s"}},
		// One above each of the two largest values.
		{long, "", "5/1m",
			[]string{"ban: strikes 9999999999 is not within 1 to 2147483648; max 9999h0m0s is not within 1ms to 9600h0m0s"}},
		// A request that waits, or gets a cheaper answer, is not refused, so no refusal could ever
		// count.
		{minute, "wait 2s", "5/1m",
			[]string{`ban: only a policy that refuses requests can ban, and on_limit is "wait 2s"`}},
		{minute, "degrade", "5/1m",
			[]string{`ban: only a policy that refuses requests can ban, and on_limit is "degrade"`}},
		{minute, "", "5 concurrent ttl=1m",
			[]string{"ban: a concurrency limit cannot ban, because leases have to be renewed"}},
		// Three faults of a policy at once, each reported.
		{core.Ban{Strikes: 1, Within: time.Second, For: time.Hour, Max: time.Minute}, "degrade",
			"5 concurrent ttl=1m", []string{
				"ban: for is above max", `ban: only a policy that refuses requests can ban, and on_limit is "degrade"`,
				"ban: a concurrency limit cannot ban, because leases have to be renewed",
			}},
	}

	for _, row := range rows {
		p := banned(t, row.ban)
		p.OnLimit, p.Limit = row.onLimit, limit(t, row.limit)
		wantError(t, p.Validate(), `policy "a": `+strings.Join(row.want, "\n"+`policy "a": `))
	}

	// Mistakes in the text itself are found while it is read, before a policy exists.
	for text, want := range map[string]string{
		"20/1m sliding-log for 10m max 24h": `"sliding-log" is one word too many`,
		"20/month for 10m max 24h":          `"20/month" is not a number of refusals and a time, such as 20/1m`,
		"20/1m for 25h max 24h":             "for is above max",
		"20/1m for soon max 24h":            `for "soon" is not a duration such as 10s, 1m or 24h`,
	} {
		_, err := policyyaml.Decode([]byte(strings.Replace(bannedYAML, "20/1m for 10m max 24h", text, 1)))
		wantError(t, err, `policy "login": ban: ban "`+text+`": `+want)
	}
}

// A limiter accepts the ban of every policy that Validate accepts.
func TestBansOfPoliciesAreThoseOfRules(t *testing.T) {
	key := func(core.Request) (string, bool) { return "", true }

	// Both sides of each bound: 1<<31 strikes and 9600 hours are the largest that a rule accepts.
	for _, b := range []core.Ban{
		{Strikes: 1, Within: time.Millisecond}, {Strikes: 1 << 31, Within: time.Minute},
		{Strikes: 1<<31 + 1, Within: time.Minute},
		{Strikes: 1, Within: 9600 * time.Hour}, {Strikes: 1, Within: 9601 * time.Hour},
	} {
		// Spans below a millisecond, or with a fraction of one, cannot be kept by a store.
		for _, span := range []time.Duration{0, time.Millisecond, 999 * time.Microsecond, time.Millisecond + 1,
			time.Hour, 9600 * time.Hour, 9600*time.Hour + time.Microsecond} {
			b.For, b.Max = span, 9600*time.Hour
			p := banned(t, b)

			// The two checks are written twice, once for each package, so only this comparison
			// keeps them equal.
			rule := limiter.Rule{Name: "a", Limit: p.Limit, Key: key, Ban: b}
			_, err := limiter.New(limiter.Config{Store: nothing{}, Rules: []limiter.Rule{rule}})
			if (err == nil) != (p.Validate() == nil) {
				t.Errorf("%+v: rule %v, policy %v", b, err, p.Validate())
			}
		}
	}
}

func TestDescribeSaysWhenAPolicyBans(t *testing.T) {
	for _, row := range []struct{ ban, want string }{
		// A ban that grows says so; one whose max equals its first length has nothing to grow.
		{"20/1m for 10m max 24h",
			"; after 20 refusals within 1 minute banned for 10 minutes, then twice as long each time, at most 1 day"},
		{"1/90s for 1h max 1h", "; after 1 refusal within 90 seconds banned for 1 hour"},
	} {
		p := banned(t, core.MustParseBan(row.ban))
		plain := p
		plain.Ban = core.Ban{}

		// The ban is the end of the sentence, and changes nothing else of it.
		if got := p.Describe(); got != plain.Describe()+row.want {
			t.Errorf("%s", got)
		}

		// In shadow no key is banned, so the sentence must not promise it.
		p.Mode = policy.Shadow
		if got := fmt.Sprint(p.Describe()); strings.Contains(got, "ban") {
			t.Errorf("in shadow: %s", got)
		}
	}
}
