package policy_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
)

func TestValidateNamesPolicyAndField(t *testing.T) {
	for _, c := range []struct {
		field string
		spoil func(*policy.Policy)
		want  string
	}{
		// A name is part of keys in the store and of headers, so it has few letters.
		{"name", func(p *policy.Policy) { p.Name = "" }, "it is not 1 to 64 of a-z, 0-9, _, . and -, a letter first"},
		{"name", func(p *policy.Policy) { p.Name = "Login" },
			"it is not 1 to 64 of a-z, 0-9, _, . and -, a letter first"},
		{"name", func(p *policy.Policy) { p.Name = strings.Repeat("a", 65) },
			"it is not 1 to 64 of a-z, 0-9, _, . and -, a letter first"},
		// Texts for people are bounded, and free of what would control a terminal.
		{"description", func(p *policy.Policy) { p.Description = strings.Repeat("x", 1001) },
			"1001 bytes are more than 1000"},
		{"description", func(p *policy.Policy) { p.Description = "\xff" }, "it is not UTF-8"},
		{"description", func(p *policy.Policy) { p.Description = "a\x1b[2J" }, "it holds the control character U+001B"},
		{"apps", func(p *policy.Policy) { p.Apps = nil }, "no application is named"},
		{"apps", func(p *policy.Policy) { p.Apps = []string{"ab,c"} },
			`"ab,c" is not 1 to 64 letters, digits, _, ., - and /, a letter or digit first`},
		{"apps", func(p *policy.Policy) { p.Apps = []string{"a", "b", "a"} }, `"a" is named twice`},
		{"apps", func(p *policy.Policy) { p.Apps = make([]string, 101) }, "101 applications are more than 100"},
		{"limit", func(p *policy.Policy) { p.Limit.Quota = 0 }, "quota 0 is not positive"},
		// Recipes: each is known, once, and of a size that keys may have.
		{"key", func(p *policy.Policy) { p.Key = "" },
			`it is empty; write, say, "ip", or "global" for one count for all`},
		{"key", func(p *policy.Policy) { p.Key = "IP" }, `the recipe "IP" is not known; write "ip"`},
		{"key", func(p *policy.Policy) { p.Key = "ip+" }, `the recipe "" is not known`},
		{"key", func(p *policy.Policy) { p.Key = "ip+ip" }, `"ip" is repeated`},
		{"key", func(p *policy.Policy) { p.Key = "header:x-a+header:X-A" }, `"header:X-A" is repeated`},
		{"key", func(p *policy.Policy) { p.Key = "global+ip" }, `"global" joined to another recipe means nothing`},
		{"key", func(p *policy.Policy) { p.Key = "ip+user+host+path+method+route+api-key" },
			"7 recipes joined are more than 6"},
		// The IPv6 prefix has one spelling, so that two policies with the same key look the same.
		{"key", func(p *policy.Policy) { p.Key = "ip/31" },
			`"ip/31": the IPv6 prefix is not a number within 32 to 128`},
		{"key", func(p *policy.Policy) { p.Key = "ip/064" },
			`"ip/064": the IPv6 prefix is not a number within 32 to 128`},
		// Headers that have a recipe of their own, or may only be trusted by the program, are
		// refused.
		{"key", func(p *policy.Policy) { p.Key = "header:" }, `"" is not the name of a header`},
		{"key", func(p *policy.Policy) { p.Key = "header:X Y" }, `"X Y" is not the name of a header`},
		{"key", func(p *policy.Policy) { p.Key = "header:x-forwarded-for" },
			`the header x-forwarded-for names addresses, which only the program may trust; write "ip"`},
		{"key", func(p *policy.Policy) { p.Key = "header:X-Real-IP" },
			`the header X-Real-IP names addresses, which only the program may trust; write "ip"`},
		{"key", func(p *policy.Policy) { p.Key = "header:Host" }, `the header Host has its own recipe; write "host"`},
		{"key", func(p *policy.Policy) { p.Key = "header:cookie" },
			`the header Cookie holds all cookies; write, say, "cookie:sid"`},
		{"key", func(p *policy.Policy) { p.Key = "cookie:a=b" }, `"a=b" is not the name of a cookie`},
		{"match.methods", func(p *policy.Policy) { p.Match.Methods = []string{"get"} },
			`"get" is not a method in upper case; write GET`},
		{"match.methods", func(p *policy.Policy) { p.Match.Methods = []string{"GET", "GET"} }, `"GET" is named twice`},
		// A host is written as requests are compared with it.
		{"match.host", func(p *policy.Policy) { p.Match.Host = "Api.example" },
			`"Api.example" is not a name in lower case without a port, or an address; write api.example`},
		{"match.host", func(p *policy.Policy) { p.Match.Host = "api.example:80" },
			`"api.example:80" is not a name in lower case without a port, or an address; write api.example`},
		{"match.host", func(p *policy.Policy) { p.Match.Host = "*." }, `"*." is not the name of a host`},
		{"match.host", func(p *policy.Policy) { p.Match.Host = "a..b" }, `"a..b" is not the name of a host`},
		{"match.host", func(p *policy.Policy) { p.Match.Host = "::0" }, `"::0" is not in its shortest form; write ::`},
		// A pattern's path is clean, since only a clean path is ever compared with it.
		{"match.path", func(p *policy.Policy) { p.Match.Path = "users" }, `"users" does not begin with a slash`},
		{"match.path", func(p *policy.Policy) { p.Match.Path = "GET /users" },
			`"GET /users" does not begin with a slash`},
		{"match.path", func(p *policy.Policy) { p.Match.Path = "/a//b" }, "there is an empty segment"},
		{"match.path", func(p *policy.Policy) { p.Match.Path = "/a/../b" },
			`the segment ".." is never part of a clean path`},
		{"match.path", func(p *policy.Policy) { p.Match.Path = "/a/x{id}" },
			`the segment "x{id}" is neither a literal nor a whole wildcard such as {id}`},
		{"match.path", func(p *policy.Policy) { p.Match.Path = "/{}" },
			`"{}" is not a wildcard such as {id}, or {rest...} at the end`},
		{"match.path", func(p *policy.Policy) { p.Match.Path = "/{rest...}/x" },
			`"{rest...}" is not a wildcard such as {id}, or {rest...} at the end`},
		{"match.path", func(p *policy.Policy) { p.Match.Path = "/{id}/{id}" },
			`the wildcard {id} is repeated; write "/{id}/{id2}"`},
		{"match.path", func(p *policy.Policy) { p.Match.Path = "/100%" },
			`the segment "100%" has a percent sign that escapes nothing`},
		{"match.path", func(p *policy.Policy) { p.Match.Path = strings.Repeat("/a", 33) },
			"33 segments are more than 32"},
		{"match.path", func(p *policy.Policy) { p.Match.Path = "/" + strings.Repeat("a", 1000) },
			"1001 bytes are more than 1000"},
		// Actions, of which shadow is a mode and not an action.
		{"on_limit", func(p *policy.Policy) { p.OnLimit = "shadow" },
			`"shadow" is not "reject", "degrade" or "wait" and a duration, as in "wait 500ms"`},
		{"on_limit", func(p *policy.Policy) { p.OnLimit = "wait 1 s" }, `"1 s" is not a duration such as 500ms or 2s`},
		{"on_limit", func(p *policy.Policy) { p.OnLimit = "wait 0s" },
			`the longest wait 0s is not above 0 and at most 1h0m0s`},
		{"on_limit", func(p *policy.Policy) { p.OnLimit = "wait 2h" },
			`the longest wait 2h is not above 0 and at most 1h0m0s`},
		{"on_store_error", func(p *policy.Policy) { p.OnStoreError = "default" },
			`"default" is not "open", "closed" or "local"`},
		// Numbers beyond both ends, and who changed the policy and when.
		{"mode", func(p *policy.Policy) { p.Mode = 3 }, "mode(3) is not known"},
		{"priority", func(p *policy.Policy) { p.Priority = 1_000_001 }, "1000001 is not within -1000000 to 1000000"},
		{"version", func(p *policy.Policy) { p.Version = -1 }, "-1 is negative"},
		{"created_by", func(p *policy.Policy) { p.CreatedBy = "a\r" }, "it holds the control character U+000D"},
		{"updated_by", func(p *policy.Policy) { p.UpdatedBy = strings.Repeat("x", 201) },
			"201 bytes are more than 200"},
		{"created_at", func(p *policy.Policy) { p.CreatedAt = time.Unix(1<<40, 0) },
			"the year 36812 is not within 1 to 9999"},
	} {
		p := valid(t, "a")
		c.spoil(&p)
		err := p.Validate()

		var fault *policy.FieldError
		if !errors.As(err, &fault) {
			t.Errorf("%s: %v, want %s", c.field, err, c.want)
			continue
		}

		// The field is what a tool marks, so it counts as much as the text.
		if fault.Policy != p.Name || fault.Field != c.field || fault.Err.Error() != c.want {
			t.Errorf("policy %q, field %s: %v\nwant %s: %s", fault.Policy, fault.Field, fault.Err, c.field, c.want)
		}
	}
}

func TestValidateReportsAllMistakesAtOnce(t *testing.T) {
	p := policy.Policy{Name: "A", Key: "ip+nobody+header:", OnLimit: "pass"}
	wantError(t, p.Validate(), strings.Join([]string{
		`policy "A": name: it is not 1 to 64 of a-z, 0-9, _, . and -, a letter first`,
		`policy "A": apps: no application is named`,
		`policy "A": limit: quota 0 is not positive; period 0s is below 1ms`,
		`policy "A": key: the recipe "nobody" is not known; "" is not the name of a header`,
		`policy "A": on_limit: "pass" is not "reject", "degrade" or "wait" and a duration, as in "wait 500ms"`,
	}, "\n"))
}

func TestSetNamesAreUnique(t *testing.T) {
	set := policy.Set{valid(t, "a"), valid(t, "b"), valid(t, "a")}
	wantError(t, set.Validate(), `policy "a": name: another policy has the same name`)
}

// A limiter accepts the rule of every policy that Validate accepts.
func TestPolicyNamesAreThoseOfRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Most of the names are near the rule's letters and length, and some are anything.
		name := rapid.OneOf(rapid.StringMatching(`[a-zA-Z0-9_.-]{0,66}`), rapid.String()).Draw(t, "name")
		p := policy.Policy{Name: name, Apps: []string{"shop"}, Limit: core.Limit{Quota: 1, Period: time.Second},
			Key: "ip"}
		rule := limiter.Rule{Name: name, Limit: p.Limit, Key: func(core.Request) (string, bool) { return "", true }}

		second := rule // without which the first may leave its name out
		if second.Name = "a"; name == "a" {
			second.Name = "b"
		}

		_, err := limiter.New(limiter.Config{Store: nothing{}, Rules: []limiter.Rule{rule, second}})
		if (err == nil) != (p.Validate() == nil) {
			t.Fatalf("%q: rule %v, policy %v", name, err, p.Validate())
		}
	})
}
