package policy_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
)

func ruleNames(rules []limiter.Rule) (names []string) {
	for _, r := range rules {
		names = append(names, r.Name)
	}
	return names
}

func TestCompileMakesRulesOfTheApplicationInOrder(t *testing.T) {
	p := func(name string, priority int, mode policy.Mode, apps ...string) policy.Policy {
		p := valid(t, name)
		p.Priority, p.Mode, p.Apps = priority, mode, apps
		return p
	}

	// Of the same priority the name decides: a before z. The policy that is off, and those whose
	// application only resembles "b" (a prefix, another case, a path below it), give no rule.
	set := policy.Set{
		p("z", 0, policy.Enforce, "b"), p("a", 0, policy.Shadow, "a", "b"), p("y", 5, policy.Enforce, "b"),
		p("x", -5, policy.Enforce, "b"),
		p("off", 9, policy.Off, "b"), p("other", 9, policy.Enforce, "ab.c"), p("case", 9, policy.Enforce, "B"),
		p("longer", 9, policy.Enforce, "b/c"),
	}

	compiled, err := policy.Compile("b", set, policy.Bindings{})
	if err != nil {
		t.Fatal(err)
	}

	rules := compiled.Rules()
	if got, want := ruleNames(rules), []string{"y", "a", "z", "x"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}

	// The mode of a policy becomes the action of its rule.
	if rules[1].OnLimit != limiter.Shadow || rules[0].OnLimit != limiter.Reject {
		t.Errorf("%v, %v", rules[1].OnLimit, rules[0].OnLimit)
	}
}

func TestCompileKeepsTheLimitAndItsActions(t *testing.T) {
	for text, want := range map[string]limiter.Action{"": limiter.Reject, "reject": limiter.Reject,
		"degrade": limiter.Degrade, "wait 1m30s": limiter.Wait(90 * time.Second)} {
		p := valid(t, "a")
		p.OnLimit, p.Limit = text, limit(t, "7/1h fixed-window aligned")
		c, err := policy.Compile("shop", policy.Set{p}, policy.Bindings{})
		if err != nil || c.Rules()[0].OnLimit != want || c.Rules()[0].Limit != p.Limit {
			t.Errorf("%q: %v, %+v", text, err, c)
		}
	}

	// "default" is not written: the empty text stands for it.
	for text, want := range map[string]limiter.FailureMode{"": limiter.FailDefault, "open": limiter.FailOpen,
		"closed": limiter.FailClosed, "local": limiter.FailLocal} {
		p := valid(t, "a")
		p.OnStoreError = text
		c, err := policy.Compile("shop", policy.Set{p}, policy.Bindings{})
		if err != nil || c.Rules()[0].OnStoreError != want {
			t.Errorf("%q: %v, %+v", text, err, c)
		}
	}
}

type user struct{}

func bindings(t testing.TB) policy.Bindings {
	t.Helper()
	ip, err := keyfuncs.ForwardedIP(keyfuncs.Proxies{Trusted: []string{"192.0.2.0/24"}})
	if err != nil {
		t.Fatal(err)
	}

	// Only what the tests' recipes need is bound; the address comes from behind a trusted proxy.
	return policy.Bindings{
		IP: ip,
		IPPrefix: func(bits int) (core.KeyFunc, error) {
			return keyfuncs.ForwardedIP(keyfuncs.Proxies{Trusted: []string{"192.0.2.0/24"}, IPv6Prefix: bits})
		},
		User: keyfuncs.UserID(func(ctx context.Context) (string, bool) {
			id, ok := ctx.Value(user{}).(string)
			return id, ok
		}),
	}
}

func keyOf(t *testing.T, recipe string, b policy.Bindings, r core.Request) string {
	t.Helper()
	p := valid(t, "a")
	p.Key = recipe
	compiled, err := policy.Compile("shop", policy.Set{p}, b)
	if err != nil {
		t.Fatal(err)
	}
	key, ok := compiled.Rules()[0].Key(r)
	if !ok {
		t.Errorf("%s: the rule does not apply to the request", recipe)
	}
	return key
}

func TestRecipesMakeTheirKeys(t *testing.T) {
	// The user holds the separator of joined keys, and the method HEAD counts as GET.
	r := &test.Request{Ctx: context.WithValue(t.Context(), user{}, "ann|1"), Verb: "HEAD", URLPath: "/users/7",
		Pattern: "/users/{id}", Peer: "192.0.2.1:80",
		Headers: map[string][]string{
			"Host": {"Shop.example:80"}, "X-Forwarded-For": {"2001:db8:1:2ff::1"}, "X-Api-Key": {"secret"},
			"X-Tenant": {"t1"},
			"Cookie":   {"sid=abc"}, "Authorization": {"Basic YWxpY2U6cHc="}}}

	digest := func(k core.KeyFunc) string { key, _ := k(r); return key }

	// Keys that hold a secret are compared with the key functions of package keyfuncs, so that a
	// count continues when a program's own rule becomes a policy.
	for recipe, want := range map[string]string{
		"ip": "2001:db8:1:2ff::/64", "ip/56": "2001:db8:1:200::/56", "user": "ann|1", "route": "/users/{id}",
		"method": "GET",
		"path":   "/users/7", "host": "shop.example", "global": "all",
		"ip+route": "2001:db8:1:2ff::/64|/users/{id}", "user+method": `ann\|1|GET`,
		"header:x-tenant": digest(keyfuncs.APIKey("X-Tenant")), "cookie:sid": digest(keyfuncs.Cookie("sid")),
		"api-key": digest(keyfuncs.APIKey("X-Api-Key")), "basic-auth": digest(keyfuncs.BasicUser),
	} {
		if got := keyOf(t, recipe, bindings(t), r); got != want || got == "" {
			t.Errorf("%s: %q, want %q", recipe, got, want)
		}
	}

	// A key appears in logs and in the store, so none may show what the client proved itself with.
	for _, recipe := range []string{"header:X-Api-Key", "api-key", "cookie:sid", "basic-auth", "header:authorization"} {
		for _, secret := range []string{"secret", "abc", "alice", "YWxpY2U6cHc"} {
			if got := keyOf(t, recipe, bindings(t), r); strings.Contains(got, secret) {
				t.Errorf("%s shows a secret: %q", recipe, got)
			}
		}
	}

	// The header of "api-key" is the program's choice. With the same header both recipes make one
	// key.
	if a, b := keyOf(t, "api-key", policy.Bindings{APIKeyHeader: "X-Tenant"}, r),
		keyOf(t, "header:X-Tenant", policy.Bindings{}, r); a != b {
		t.Errorf("%q and %q", a, b)
	}
}

func TestRecipeIPReadsHeadersOnlyByBinding(t *testing.T) {
	r := get("/")
	r.Headers = map[string][]string{"X-Forwarded-For": {"203.0.113.9"}}

	// Without a binding no header is trusted to name the client: the peer is counted.
	if got := keyOf(t, "ip", policy.Bindings{}, r); got != "192.0.2.1" {
		t.Errorf("%q", got)
	}
	if got := keyOf(t, "ip/48", policy.Bindings{},
		&test.Request{Peer: "[2001:db8:1:2::3]:1"}); got != "2001:db8:1::/48" {
		t.Errorf("%q", got)
	}

	// IPPrefix alone is enough: "ip" then reads addresses as "ip/N" does, with the default size.
	e := bindings(t)
	e.IP = nil
	if got := keyOf(t, "ip", e, r); got != "203.0.113.9" {
		t.Errorf("%q", got)
	}
}

func TestCompileRestrictsRulesToTheirMatch(t *testing.T) {
	p := valid(t, "a")
	p.Match = policy.Match{Methods: []string{"POST"}, Path: "/login", Host: "shop.example"}

	compiled, err := policy.Compile("shop", policy.Set{p}, policy.Bindings{})
	if err != nil {
		t.Fatal(err)
	}

	rules := compiled.Rules()

	// The request meets all three conditions of the policy.
	r := &test.Request{Verb: "POST", URLPath: "/login", Peer: "192.0.2.1:1",
		Headers: map[string][]string{"Host": {"shop.example"}}}
	if key, ok := rules[0].Key(r); !ok || key != "192.0.2.1" {
		t.Errorf("%q, %v", key, ok)
	}

	// A request that fails one of them, whichever it is, is not counted.
	for _, spoil := range []func(*test.Request){
		func(r *test.Request) { r.Verb = "GET" }, func(r *test.Request) { r.URLPath = "/logout" },
		func(r *test.Request) { r.Headers["Host"] = []string{"x"} },
	} {
		other := *r
		other.Headers = map[string][]string{"Host": r.Headers["Host"]}
		spoil(&other)
		if key, ok := rules[0].Key(&other); ok {
			t.Errorf("%+v: %q", other, key)
		}
	}
}

func TestCompileRefusesMissingBindings(t *testing.T) {
	a, b, c := valid(t, "a"), valid(t, "b"), valid(t, "c")
	a.Key, b.Key = "user+route", "ip/56"
	c.Apps, c.Key = []string{"other"}, "user"

	// The third policy lacks a binding too, but belongs to another application, so it is not
	// judged.
	_, err := policy.Compile("shop", policy.Set{a, b, c}, policy.Bindings{IP: keyfuncs.RemoteIP})
	wantError(t, err, strings.Join([]string{
		`policy "a": key: "user" cannot be used here: the program does not set Bindings.User`,
		`policy "b": key: "ip/56" cannot be used here: the program does not set Bindings.IPPrefix`,
	}, "\n"))

	_, err = policy.Compile("a,b", nil, policy.Bindings{APIKeyHeader: "X Y"})
	wantError(t, err, strings.Join([]string{
		`policy: the application "a,b" is not 1 to 64 letters, digits, _, ., - and /, a letter or digit first`,
		`policy: Bindings.APIKeyHeader: "X Y" is not the name of a header`,
	}, "\n"))

	// A set need not come from a decoder, so Compile checks the policies itself.
	a.Key = "ip"
	a.Limit.Quota = 0
	_, err = policy.Compile("shop", policy.Set{a}, policy.Bindings{})
	wantError(t, err, `policy "a": limit: quota 0 is not positive`)
}

// Both forms of the rules are of the same policies, and only the complete ones have conditions.
func TestCompiledRulesAreTheSelectedOnesWithConditions(t *testing.T) {
	a, b := valid(t, "a"), valid(t, "b")
	a.Match.Path = "/a"
	compiled, err := policy.Compile("shop", policy.Set{b, a}, policy.Bindings{})
	if err != nil {
		t.Fatal(err)
	}

	rules := compiled.Rules()
	selected, selection := compiled.Selected()
	if got, want := ruleNames(rules), []string{"a", "b"}; !reflect.DeepEqual(got, want) ||
		!reflect.DeepEqual(ruleNames(selected), want) {
		t.Errorf("%v and %v, want %v", got, ruleNames(selected), want)
	}

	// For each path the conditions of the complete rules, and the selection, must agree; otherwise
	// the two ways to install policies count differently.
	for path, want := range map[string][]int{"/a": {0, 1}, "/b": {1}} {
		r := get(path)
		var apply []int
		for i := range rules {
			if _, ok := rules[i].Key(r); ok {
				apply = append(apply, i)
			}
			if _, ok := selected[i].Key(r); !ok {
				t.Errorf("%s: the selected rule %d has a condition", path, i)
			}
		}

		if got := selection(r, nil); !reflect.DeepEqual(got, want) || !reflect.DeepEqual(apply, want) {
			t.Errorf("%s: %v are selected and %v apply, want %v", path, got, apply, want)
		}
	}
}

// Where every rule applies to all requests there is nothing to select.
func TestPoliciesOfAllRequestsHaveNoSelection(t *testing.T) {
	a, b := valid(t, "a"), valid(t, "b")
	a.Match, b.Match = policy.Match{}, policy.Match{}
	for _, all := range []bool{true, false} {
		if !all {
			b.Match.Methods = []string{"POST"}
		}

		compiled, err := policy.Compile("shop", policy.Set{a, b}, policy.Bindings{})
		if err != nil {
			t.Fatal(err)
		}

		if rules, selection := compiled.Selected(); len(rules) != 2 || (selection == nil) != all {
			t.Errorf("%d rules, and a selection: %t, want %t", len(rules), selection != nil, !all)
		}
	}
}

func TestSetRuleMustNameTheApplication(t *testing.T) {
	p, off := valid(t, "login"), valid(t, "off")
	off.Mode = policy.Off

	set := policy.Set{p, off}
	rule, err := set.Rule("shop", "login", policy.Bindings{})
	if err != nil || rule.Name != "login" || rule.Limit != p.Limit {
		t.Errorf("%+v, %v", rule, err)
	}

	// A caller that names a policy in code learns which of the three reasons it is: no such policy,
	// not for this application (of which "sho" is a prefix only), or off.
	for _, c := range []struct {
		app, name string
		is        error
		want      string
	}{
		{"shop", "logout", policy.ErrNotConfigured,
			`policy "logout" of application "shop": not configured: there is no such policy`},
		{"sho", "login", policy.ErrNotConfigured,
			`policy "login" of application "sho": not configured: the policy does not name the application`},
		{"shop", "off", policy.ErrOff, `policy "off" of application "shop": switched off`},
	} {
		_, err := set.Rule(c.app, c.name, policy.Bindings{})
		wantError(t, err, c.want)
		if !errors.Is(err, c.is) {
			t.Errorf("%v is not %v", err, c.is)
		}
	}
}

func TestMatchAllocatesNothing(t *testing.T) {
	p := valid(t, "a")
	p.Key, p.Match = "global", policy.Match{Methods: []string{"GET"}, Path: "/users/{id}"}
	compiled, err := policy.Compile("shop", policy.Set{p}, policy.Bindings{})
	if err != nil {
		t.Fatal(err)
	}
	r := get("/users/7")
	rules := compiled.Rules()
	if n := testing.AllocsPerRun(1000, func() { rules[0].Key(r) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
