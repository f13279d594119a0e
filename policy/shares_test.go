package policy_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/policyyaml"
)

// sharesFile has a policy in force for a share of its keys, which reports keys near its limit.
const sharesFile = `policies:
- name: api
  apps: [shop]
  limit: 10/1h fixed-window
  key: header:X-Id
  enforce: 25%
  warn: 80%
`

func TestSharesOfAPolicy(t *testing.T) {
	set, err := policyyaml.Decode([]byte(sharesFile))
	if err != nil {
		t.Fatal(err)
	}

	if want := "10 requests an hour for each value of the header X-Id, counted in windows that begin with a request; " +
		"others are refused; in force for 25% of them, all others pass; reported from 80% on"; set[0].Describe() != want {
		t.Errorf("%s, want\n%s", set[0].Describe(), want)
	}

	text, err := json.Marshal(set[0])
	if err != nil || !strings.Contains(string(text), `"enforce":"25%","warn":"80%"`) {
		t.Errorf("%s, %v", text, err)
	}

	compiled, err := policy.Compile("shop", set, policy.Bindings{})
	if err != nil {
		t.Fatal(err)
	}
	var near []string
	l := limiter.MustNew(limiter.Config{Rules: compiled.Rules(), Hooks: &events.Hooks{Near: func(e events.Near) {
		near = append(near, fmt.Sprint(e.Key, " ", e.Remaining))
	}}})
	defer l.Close()

	// A key of either side is refused from the eleventh request on, or never.
	for i := range 50 {
		key, allowed := fmt.Sprint("k", i), 0
		for range 12 {
			if d, err := l.Allow(t.Context(), key, 1); err != nil {
				t.Fatal(err)
			} else if d.Allowed {
				allowed++
			}
		}

		want := 12
		if core.Share(2500).Has("api", key) {
			want = 10
		}
		if allowed != want {
			t.Errorf("%s: %d of 12, want %d", key, allowed, want)
		}

		if len(near) != i+1 || near[i] != key+" 2" {
			t.Errorf("%s is near its limit: %q", key, near)
		}
	}
}

func TestMistakesInShares(t *testing.T) {
	for text, want := range map[string]string{
		"enforce: 0%":                `share "0%": it is not above 0% and at most 100%`,
		"enforce: 10":                `enforce`,
		"enforce: 101%":              `share "101%": it is not above 0% and at most 100%`,
		"warn: 100%":                 `policy "api": warn: 100% is not below 100%`,
		"warn: -5%":                  `share "-5%": it is not a number`,
		"warn: [80%]":                `warn`,
		"enforce: 5%\n  key: global": `policy "api": enforce: all callers are counted together, so the policy is in force for all or for none`,
	} {
		file := "policies:\n- name: api\n  apps: [shop]\n  limit: 10/1h\n  " + text + "\n"
		if !strings.Contains(text, "key:") {
			file += "  key: ip\n"
		}

		set, err := policyyaml.Decode([]byte(file))
		if err == nil {
			err = set.Validate()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}

	// Full and none are what they say for all callers together.
	p := policy.Policy{Name: "a", Apps: []string{"shop"}, Limit: core.MustParseLimit("1/1s"), Key: "global",
		Enforce: core.Whole}
	if err := p.Validate(); err != nil {
		t.Error(err)
	}
}
