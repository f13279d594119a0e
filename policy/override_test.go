package policy_test

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/policyyaml"
)

func TestOverrideIsReadFromWhatItWrites(t *testing.T) {
	for _, row := range []struct{ text, again, json, fault string }{
		{text: "1000/1h", json: `"1000/1h"`},
		{text: "1000/1h until 2026-12-04T17:00:00Z", json: `{"limit":"1000/1h","until":"2026-12-04T17:00:00Z"}`},

		// Another zone names the same instant.
		{text: "5/1h fixed-window until 2026-12-04T18:00:00.5+01:00",
			again: "5/1h fixed-window until 2026-12-04T17:00:00.5Z"},

		{text: "banned until 2026-12-04T17:00:00Z", json: `{"banned_until":"2026-12-04T17:00:00Z"}`},
		{text: "banned until 2026-12-04T17:00:00Z, then 1000/1h",
			json: `{"limit":"1000/1h","banned_until":"2026-12-04T17:00:00Z"}`},
		{text: "banned until 2026-12-04T17:00:00Z, then 1000/1h until 2027-01-01T00:00:00Z",
			json: `{"limit":"1000/1h","until":"2027-01-01T00:00:00Z","banned_until":"2026-12-04T17:00:00Z"}`},

		{text: "banned", fault: `limit "banned"`},
		{text: "banned until ", fault: "the end of the ban is missing"},
		{text: "banned until friday", fault: `"friday" is not a time such as 2026-01-31T12:00:00Z`},
		{text: "banned until 2026-12-04", fault: `"2026-12-04" has no time and no zone`},
		{text: "banned until 2026-12-04T17:00:00Z, then ", fault: `limit ""`},
		{text: "banned until 2026-12-04T17:00:00Z until 2026-12-05T17:00:00Z",
			fault: `"2026-12-04T17:00:00Z until 2026-12-05T17:00:00Z" is not a time`},
		{text: "1000/1h, then 5/1h", fault: "limit"},

		{text: "", fault: `limit ""`},
		{text: "1000/1h until", fault: "limit"},
		{text: "1000/1h until ", again: "1000/1h"},
		{text: "1000/1h until 2026-12-04",
			fault: `"2026-12-04" has no time and no zone; write, say, 2026-12-04T17:00:00Z`},
		{text: "1000/1h until 2026-12-04T17:00:00",
			fault: `"2026-12-04T17:00:00" is not a time such as 2026-01-31T12:00:00Z`},
		{text: "1000/1h until friday", fault: `"friday" is not a time such as 2026-01-31T12:00:00Z`},
		{text: "1000/1h until 2026-12-04T17:00:00.0000001Z",
			fault: "the end 2026-12-04T17:00:00.0000001Z is finer than a microsecond"},
		{text: "1000/1h until 0000-12-04T17:00:00Z", fault: "the year 0 is not within 1 to 9999"},
	} {
		o, err := policy.ParseOverride(row.text)
		if row.fault != "" {
			if err == nil || err.Error()[:min(len(err.Error()), len(row.fault))] != row.fault {
				t.Errorf("%q: %v, want %s", row.text, err, row.fault)
			}

			continue
		}

		if row.again == "" {
			row.again = row.text
		}
		if err != nil || o.String() != row.again || o.Validate() != nil {
			t.Errorf("%q: %s, %v, want %s", row.text, o, err, row.again)
		}

		// The text and the object say the same.
		data, err := json.Marshal(policy.OverrideText(o.String()))
		if row.json != "" && string(data) != row.json {
			t.Errorf("%q in JSON: %s, %v, want %s", row.text, data, err, row.json)
		}

		var read policy.OverrideText
		if err := json.Unmarshal(data, &read); err != nil || string(read) != o.String() {
			t.Errorf("%q back from JSON: %q, %v", row.text, read, err)
		}
	}
}

// With a mistake behind a ban, the ban is there, and nothing else is.
func TestOverrideWithAMistakeIsItsBan(t *testing.T) {
	for text, want := range map[string]string{
		"banned until 2026-12-04T17:00:00Z, then ":                 "banned until 2026-12-04T17:00:00Z",
		"banned until 2026-12-04T17:00:00Z, then 5/1m until never": "banned until 2026-12-04T17:00:00Z",
		"banned until 2026-12-04T17:00:00.0000001Z, then 5/1m":     policy.Override{}.String(),
		"5/1m until never": policy.Override{}.String(),
	} {
		if o, err := policy.ParseOverride(text); err == nil || o.String() != want {
			t.Errorf("%s: %s, %v, want %s", text, o, err, want)
		}
	}
}

// Both forms are read in YAML, and what is neither of them is a mistake.
func TestOverrideIsReadFromBothForms(t *testing.T) {
	const before, after = "policies: [{name: a, apps: [b], limit: 1/1s, key: user, overrides: {acme: ", "}}]"

	for text, want := range map[string]string{
		"1000/1h":                              "1000/1h",
		"'1000/1h until 2026-12-04T17:00:00Z'": "1000/1h until 2026-12-04T17:00:00Z",
		"{limit: 1000/1h}":                     "1000/1h",
		"{limit: 1000/1h, until: '2026-12-04T17:00:00Z'}": "1000/1h until 2026-12-04T17:00:00Z",
		"{limit: 1000/1h, until: '2026-12-04'}":           "",
		"{limit: 1000/1h, Until: '2026-12-04T17:00:00Z'}": "",
		"{limit: 1000/1h, end: '2026-12-04T17:00:00Z'}":   "",
		"{limit: {limit: 1000/1h}}":                       "",
		"{banned_until: '2026-12-04T17:00:00Z'}":          "banned until 2026-12-04T17:00:00Z",
		"'banned until 2026-12-04T17:00:00Z'":             "banned until 2026-12-04T17:00:00Z",
		"{banned_until: ''}":                              "",
		"{limit: 'banned until 2026-12-04T17:00:00Z'}":    "",
		"{limit: '1000/1h until 2026-12-04T17:00:00Z'}":   "",
		"{until: '2026-12-04T17:00:00Z'}":                 "",
		"[1000/1h]":                                       "",
		"null":                                            "",
		"5":                                               "",
		"{limit: 1000/1h, limit: 1000/1h}":                "",
		"{limit: '1000/1h until 2026-12-04T17:00:00Z', until: '2026-12-04T17:00:00Z'}": "",
	} {
		set, err := policyyaml.Decode([]byte(before + text + after))
		switch {
		case want == "" && err == nil:
			t.Errorf("%s: %s, want a mistake", text, set[0].Overrides["acme"])
		case want != "" && (err != nil || set[0].Overrides["acme"].String() != want):
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func TestOverridesOfPrefixesThatNoCallerHasAreRefused(t *testing.T) {
	long := strings.Repeat("x", 129)
	for _, row := range []struct{ recipe, key, meant string }{
		{"user", "acme:*", ""}, {"user", "*", ""}, {"user", "a*b", ""}, {"user", "**", ""},
		{"user", "sha256:*", "-"}, {"user", "sha256:AbC*", "-"}, {"user", long + "*", ""},
		{"route", "/users/*", ""}, {"route", "/" + long + "*", "-"},
		{"path", "/api/*", ""}, {"path", "*", ""}, {"path", "api/*", "/api/"}, {"path", "/" + long + "*", "-"},
		{"host", "api.*", ""}, {"host", "API.*", "api."}, {"host", ".*", "-"}, {"host", "a/*", "-"},
		{"host", "*.example.com", "example.com"}, {"host", "2001:db8:*", ""},
		{"method", "P*", ""}, {"method", "get*", "-"}, {"method", "o*", ""},
		{"ip", "192.0.2.*", "-"}, {"ip/56", "2001:db8:*", "-"},
		{"api-key", "k*", "-"}, {"header:X-Tenant", "t*", "-"}, {"cookie:sid", "a*", "-"}, {"basic-auth", "al*", "-"},
		{"user+route", "alice|*", ""}, {"api-key+route", keyfuncs.Digest("k") + "|*", "-"},
		{"user+route", long + "*", "-"},
	} {
		got := faultsOf(t, func(p *policy.Policy) {
			p.Key, p.Overrides = row.recipe, map[string]policy.Override{row.key: {Limit: p.Limit}}
		})
		if !isFault(got, "overrides", row.meant) {
			t.Errorf("%s, %s: %q, want %q", row.recipe, row.key, got, row.meant)
		}
	}
}

// A single change is refused with what Validate finds, and with what it only doubts.
func TestCheckOverrideFindsWhatNoKeyCanHave(t *testing.T) {
	p := valid(t, "api")
	p.Key, p.Cost = "user+route", policy.Cost{Units: 3}
	for _, row := range []struct{ key, text, want string }{
		{"alice|/a", "5/1m", ""},
		{"alice|*", "5/1m until 2026-12-04T17:00:00Z", ""},
		{"alice", "5/1m", `the key has 1 parts, and the recipe 2; write a part for each, with "|" between them`},
		{"", "5/1m", "the key is empty"},
		{"alice|/a", "2/1m", "the cost 3 is more than the limit 2/1m ever has"},
		{"alice|/a", "5/1m fixed-window", "its algorithm is fixed-window, and that of the limit gcra: " +
			"only under one algorithm does an upgrade keep what was used"},
	} {
		o, err := policy.ParseOverride(row.text)
		if err != nil {
			t.Fatal(err)
		}

		if row.want == "" {
			if err := p.CheckOverride(row.key, o); err != nil {
				t.Errorf("%s: %v", row.key, err)
			}

			continue
		}

		wantError(t, p.CheckOverride(row.key, o), row.want)
	}

	wantError(t, p.CheckOverride("alice|/a", policy.Override{}), "quota 0 is not positive\nperiod 0s is below 1ms")
}

// An override ends at its instant: a microsecond before it is in force, and at the instant the next
// one is.
func TestOverridesEndAtTheirInstant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := time.Now().Add(48 * time.Hour)
		p := valid(t, "api")
		p.Key, p.Overrides = "user", map[string]policy.Override{
			"acme:1": {Limit: limit(t, "3/1m"), Until: end},
			"acme:*": {Limit: limit(t, "2/1m"), Until: end.Add(time.Second)},
			"a*":     {Limit: limit(t, "4/1m")}, "acme:**": {Limit: limit(t, "5/1m")},
		}

		compiled, err := policy.Compile("shop", policy.Set{p}, policy.Bindings{User: keyfuncs.UserID(userOf)})
		if err != nil {
			t.Fatal(err)
		}

		rule := compiled.Rules()[0]

		want := func(key string, quota int64) {
			t.Helper()
			got, ok, err := rule.Override(t.Context(), key)
			if err != nil || ok != (quota != 0) || ok && got.Quota != quota {
				t.Errorf("%s: %v %v %v, want %d", key, got, ok, err, quota)
			}

			if of := p.LimitOf(key, time.Now()); quota != 0 && of.Quota != quota || quota == 0 && of != p.Limit {
				t.Errorf("LimitOf %s: %v, want %d", key, of, quota)
			}
		}

		time.Sleep(time.Until(end) - time.Microsecond)
		want("acme:1", 3)
		want("acme:2", 2)
		want("acme:*", 5) // a key that is spelled as a prefix
		want("b", 0)
		time.Sleep(time.Microsecond)
		want("acme:1", 2)
		time.Sleep(time.Second - time.Microsecond)
		want("acme:1", 2)
		want("acme:2", 2)
		time.Sleep(time.Microsecond)
		want("acme:1", 4)
		want("acme:2", 4)
	})
}
