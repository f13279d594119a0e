package policy_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/policyyaml"
)

// faultsOf returns the mistakes of a policy without its name, which is "a".
func faultsOf(t *testing.T, spoil func(*policy.Policy)) string {
	t.Helper()
	p := valid(t, "a")
	spoil(&p)
	err := p.Validate()
	if err == nil {
		return ""
	}
	return strings.ReplaceAll(err.Error(), `policy "a": `, "")
}

// Paths as they are written for other routers, proxies and languages name the pattern that
// is meant.
func TestPathsOfOtherNotationsAreRefused(t *testing.T) {
	for path, meant := range map[string]string{
		// Globs.
		"/api/*": "/api/", "/api/**": "/api/", "/*": "/", "/users/*/posts": "/users/{any}/posts",
		"/users/*/posts/*": "/users/{any}/posts/",
		"/**/login":        "/{any}/login", "/*/*/x": "/{any}/{any2}/x", "/api*": "", "/*.js": "", "/a/b*c": "",
		"/static/...": "/static/",
		// Routers.
		"/users/:id": "/users/{id}", "/users/:id/": "/users/{id}/",
		"/users/:id/posts/:id": "/users/{id}/posts/{id2}", "/users/:id?": "/users/{id}",
		`/users/:id(\d+)`: "/users/{id}", "/users/<id>": "/users/{id}", "/users/<int:id>/x": "/users/{id}/x",
		"/users/[id]":  "/users/{id}",
		"/x/[...slug]": "/x/", "/x/[[...slug]]": "/x/", "/static/*filepath": "/static/", "/x/+": "/x/",
		"/:8080": "", "/:": "",
		"/users/{id:[0-9]+}": "/users/{id}", "/users/{id:[0-9]+}/x": "/users/{id}/x",
		"/users/{id?}": "/users/{id}", "/users/{id=5}": "/users/{id}",
		"/x/{*rest}": "/x/", "/x/{**rest}": "/x/", "/x/{rest:.*}": "/x/", "/x/{rest:.+}": "/x/",
		"/x/{*}": "/x/", "/users/{id}.json": "", "/{id}-{x}": "",
		// Regular expressions.
		"/api/.*": "/api/", "/api/.+": "/api/", "/api/(.*)": "/api/", "^/api/": "/api/", "^/login$": "/login",
		"/login$":    "/login",
		`/users/\d+`: "/users/{any}", "/users/[0-9]+/x": "/users/{any}/x", `/users/(\d+)`: "/users/{any}",
		"/a|b": "", `/a\.b`: "", "/v1.+x": "",
		// URLs, and what is no part of a path.
		"/login?next=": "/login", "/login?": "/login", "/login#top": "/login", "https://shop.example/login": "",
		"shop.example/login": "",
		"~ ^/api":            "", "GET /login": "", "/login ": "", "/ login": "", "/login%20": "", "/a%2Fb": "",
		"/a%2fb": "", "/%2e%2e/a": "", "/a\"b": "", "/a`b": "",
	} {
		// One mistake, and at its end the pattern that is meant, where there is one.
		got := faultsOf(t, func(p *policy.Policy) { p.Match.Path = path })
		switch want := `; write "` + meant + `"`; {
		case !strings.HasPrefix(got, "match.path: "), strings.Contains(got, "\n"):
			t.Errorf("%s: %q, want one mistake of the path", path, got)
		case meant == "" && strings.Contains(got, `; write "`), meant != "" && !strings.HasSuffix(got, want):
			t.Errorf("%s: %q, want %q at the end", path, got, meant)
		}

		if meant == "" {
			continue
		}

		// The proposal has to be valid itself, or the user would go in a circle.
		if got := faultsOf(t, func(p *policy.Policy) { p.Match.Path = meant }); got != "" {
			t.Errorf("%s: what is to be written is a mistake too: %s", meant, got)
		}
	}

	// The whole message once, for the part that the table leaves out.
	got := faultsOf(t, func(p *policy.Policy) { p.Match.Path = "/users/:id" })
	if want := `match.path: the segment ":id" has a ":", which is no pattern here; the character itself is written %3A; write "/users/{id}"`; got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

func TestLiteralsStayPaths(t *testing.T) {
	for path, asked := range map[string]string{
		// Signs that other notations use, where they are part of a path and nothing else.
		"/items:batch": "/items:batch", "/$count": "/$count", "/c++": "/c++", "/a+b": "/a+b",
		"/wiki/Foo_(bar)": "/wiki/foo_(bar)", "/@scope/x": "/@scope/x",
		"/~user/": "/~user/x", "/a b": "/a b", "/café": "/café", "/caf%C3%A9": "/café",
		"/a,b!c'd&e=f": "/a,b!c'd&e=f", "/.well-known/": "/.well-known/x",
		// What a literal may not hold is written with its percent code.
		"/%2A": "/*", "/%3Aid": "/:id", "/%3Cid%3E": "/<id>", "/login%3Fnext": "/login?next", "/%23": "/#",
		"/%2E%2E%2E": "/...", "/100%25": "/100%", "/login%24": "/login$",
	} {
		x := index(t, policy.Match{Path: path})
		if got := x.Select(get(asked), nil); len(got) != 1 {
			t.Errorf("%s does not cover %s", path, asked)
		}
	}
}

func TestHostsThatNoRequestHasAreRefused(t *testing.T) {
	for host, meant := range map[string]string{
		"https://shop.example": "shop.example", "https://Shop.example:8443/x?y": "shop.example",
		"shop.example:80": "shop.example", "shop.example/login": "shop.example",
		"Shop.Example": "shop.example", "shop.example.": "shop.example", ".shop.example": "*.shop.example",
		"*shop.example": "", "*.Shop.example:443": "*.shop.example",
		" shop.example ": "shop.example", "shop.*.example": "", "shop.*": "", "*.*.example": "",
		"**.example": "", "*.": "", ".": "", "a..b": "", "shop example": "",
		"shop.example,blog.example": "", "~^shop": "", "café.example": "", "{host}.example": "",
		"[2001:db8::1]": "2001:db8::1", "[2001:db8::1]:80": "2001:db8::1", "2001:DB8::1": "2001:db8::1",
		"::ffff:192.0.2.1": "192.0.2.1", "192.0.2.1:80": "192.0.2.1",
		"fe80::1%eth0": "fe80::1", "*.192.0.2.1": "", "10.0.0.0/8": "10.0.0.0",
		strings.Repeat("a", 64) + ".example": "", strings.Repeat("a.", 127) + "a": "",
	} {
		got := faultsOf(t, func(p *policy.Policy) { p.Match.Host = host })
		switch want := "; write " + meant; {
		case !strings.HasPrefix(got, "match.host: "), strings.Contains(got, "\n"):
			t.Errorf("%s: %q, want one mistake of the host", host, got)
		case meant == "" && strings.Contains(got, "; write "), meant != "" && !strings.HasSuffix(got, want):
			t.Errorf("%s: %q, want %q at the end", host, got, meant)
		}
	}

	// A star alone means every host, for which the field is left out.
	if got := faultsOf(t, func(p *policy.Policy) { p.Match.Host = "*" }); !strings.HasSuffix(got,
		"; leave match.host out for every host") {
		t.Errorf("*: %q", got)
	}

	// Names that look odd and that requests do have.
	for _, host := range []string{"shop.example", "*.shop.example", "localhost", "my_host",
		"xn--caf-dma.example", "192.0.2.1", "2001:db8::1"} {
		if got := faultsOf(t, func(p *policy.Policy) { p.Match.Host = host }); got != "" {
			t.Errorf("%s: %s", host, got)
		}
	}
}

func TestMethodsThatNoRequestHasAreRefused(t *testing.T) {
	for method, want := range map[string]string{
		"get":       `"get" is not a method in upper case; write GET`,
		"Get":       `"Get" is not a method in upper case; write GET`,
		"GET, POST": `"GET, POST" is not a method in upper case; write GET, POST`,
		"GET|POST":  `"GET|POST" is not a method in upper case; write GET, POST`,
		"get,post":  `"get,post" is not a method in upper case; write GET, POST`,
		" GET":      `" GET" is not a method in upper case; write GET`,
		// Words that stand for all methods elsewhere.
		"*":          `"*" is not a method; leave match.methods out for all`,
		"ANY":        `"ANY" is not a method; leave match.methods out for all`,
		"all":        `"all" is not a method; leave match.methods out for all`,
		"!GET":       `"!GET" is not a method in upper case`,
		"GET.*":      `"GET.*" is not a method in upper case`,
		"":           `"" is not a method in upper case`,
		"GET /login": `"GET /login" is not a method in upper case`,
	} {
		if got := faultsOf(t,
			func(p *policy.Policy) { p.Match.Methods = []string{method} }); got != "match.methods: "+want {
			t.Errorf("%q: %q, want %q", method, got, want)
		}
	}

	// Unknown methods are possible: "PSOT" is a matter for a warning.
	for _, method := range []string{"GET", "PROPFIND", "M-SEARCH", "MY_METHOD", "PSOT"} {
		if got := faultsOf(t, func(p *policy.Policy) { p.Match.Methods = []string{method} }); got != "" {
			t.Errorf("%s: %s", method, got)
		}
	}
}

func TestRecipesUnderOtherNamesAreRefused(t *testing.T) {
	for recipe, want := range map[string]string{
		// Names of the same thing in other tools, for which the recipe is proposed.
		"IP": `; write "ip"`, "Ip/56": `; write "ip/56"`, "api_key": `; write "api-key"`,
		"apikey": `; write "api-key"`, "X-Api-Key": `; write "api-key"`, "remote_addr": `; write "ip"`,
		"bearer": `; write "header:Authorization"`, "user_id": `; write "user"`, "uri": `; write "path"`,
		"hostname": `; write "host"`, "*": `; write "global"`,
		// Blanks are part of no name, so they are reported and not removed.
		"Header:X-Tenant":   `; write "header:X-Tenant"`,
		"header : X-Tenant": `the recipe "header : X-Tenant" is not known`,
		"header: X-Tenant":  `" X-Tenant" is not the name of a header`,
		"ip + route":        `the recipe "ip " is not known; write "ip"; the recipe " route" is not known; write "route"`,
		// The body's headers never reach a handler, so every caller would share one key.
		"header:Transfer-Encoding": "servers take it out", "header:trailer": "servers take it out",
		"ip,route": `the recipe "ip,route" is not known`, "session": `the recipe "session" is not known`,
	} {
		if got := faultsOf(t, func(p *policy.Policy) { p.Key = recipe }); !strings.HasPrefix(got, "key: ") ||
			!strings.HasSuffix(got, want) {
			t.Errorf("%s: %q, want %q", recipe, got, want)
		}
	}
}

func TestBindingsRefuseHeadersThatNoHandlerSees(t *testing.T) {
	for _, name := range []string{"Transfer-Encoding", "trailer"} {
		b := policy.Bindings{APIKeyHeader: name}
		wantError(t, b.Validate(),
			"policy: Bindings.APIKeyHeader: the header "+name+" belongs to the connection, and servers take it out")
	}
}

// keyRows are keys under recipes, and what is to be written instead of one that no caller
// has: "" for a key that some caller has, and "-" for one that is a mistake without a proposal.
var keyRows = []struct{ recipe, key, meant string }{
	{"ip", "192.0.2.7", ""}, {"ip", "2001:db8::/64", ""}, {"ip", "2001:db8::/48", ""},
	{"ip/56", "2001:db8::/56", ""}, {"ip/128", "2001:db8::7/128", ""},
	{"ip", "192.0.2.7:80", "192.0.2.7"}, {"ip", "::ffff:192.0.2.7", "192.0.2.7"},
	{"ip", "64:ff9b::192.0.2.7", "192.0.2.7"}, {"ip", "2001:db8::7", "2001:db8::/64"},
	{"ip", "[2001:db8::7]:80", "2001:db8::/64"}, {"ip", "2001:db8:0:0:1:2:3:4:80", "2001:db8::/64"},
	{"ip", "2001:DB8::/64", "-"}, {"ip", "2001:db8::7/64", "-"}, {"ip", "2001:db8::/16", "-"},
	{"ip/56", "2001:db8::7", "2001:db8::/56"}, {"ip/56", "2001:db8::/64", "-"}, {"ip", "192.0.2.0/24", "-"},
	{"ip", "192.0.2.7/32", "-"}, {"ip", "192.0.2", "-"}, {"ip", "192.0.2.07", "-"},
	{"ip", "alice", "-"}, {"ip", "localhost", "-"}, {"ip", " 192.0.2.7", "-"},
	{"ip", "fe80::1%eth0", "fe80::/64"}, {"ip", "*", "-"},
	{"host", "shop.example", ""}, {"host", "192.0.2.7", ""}, {"host", "2001:db8::1", ""},
	{"host", "Shop.example", "shop.example"}, {"host", "shop.example:80", "shop.example"},
	{"host", "shop.example.", "shop.example"},
	{"host", "[2001:db8::1]:80", "2001:db8::1"}, {"host", "https://shop.example", "shop.example"},
	{"host", "*.shop.example", "shop.example"}, {"host", "shop example", "-"},
	{"method", "GET", ""}, {"method", "other", ""}, {"method", "post", "POST"}, {"method", "HEAD", "GET"},
	{"method", "PROPFIND", "other"},
	{"path", "/login", ""}, {"path", "/Login", ""}, {"path", "*", ""}, {"path", "login", "/login"},
	{"route", "/users/{id}", ""}, {"route", "GET /users", ""}, {"user", "alice", ""}, {"user", "::1:80", ""},
	{"api-key", keyfuncs.Digest("k"), ""}, {"api-key", "k", "-"}, {"header:X-Tenant", "t1", "-"},
	{"cookie:sid", "abc", "-"}, {"basic-auth", "alice", "-"},
}

func TestOverriddenKeysThatNoCallerHasAreRefused(t *testing.T) {
	for _, row := range keyRows {
		got := faultsOf(t, func(p *policy.Policy) {
			p.Key, p.Overrides = row.recipe, map[string]policy.Override{row.key: {Limit: p.Limit}}
		})
		if !isFault(got, "overrides", row.meant) {
			t.Errorf("%s, %s: %q, want %q", row.recipe, row.key, got, row.meant)
		}
	}
}

func TestListedKeysThatNoCallerHasAreRefused(t *testing.T) {
	for _, row := range keyRows {
		for _, list := range []string{"allow", "deny"} {
			got := faultsOf(t, func(p *policy.Policy) {
				p.Key = row.recipe
				if list == "allow" {
					p.Access.Allow.Keys = []string{row.key}
				} else {
					p.Access.Deny.Keys = []string{row.key}
				}
			})
			if !isFault(got, "access: "+list+".keys[0]", row.meant) {
				t.Errorf("%s, %s %s: %q, want %q", row.recipe, list, row.key, got, row.meant)
			}
		}
	}

	// Under "global" the one key is "all".
	for key, want := range map[string]string{"all": "",
		"alice": "access: deny.keys[0]: all callers are counted together, so no key can have a limit of its own"} {
		if got := faultsOf(t, func(p *policy.Policy) {
			p.Key, p.Access.Deny.Keys = "global", []string{key}
		}); got != want {
			t.Errorf("global, %s: %q, want %q", key, got, want)
		}
	}
}

func isFault(got, field, meant string) bool {
	switch meant {
	case "":
		return got == ""
	case "-":
		return strings.HasPrefix(got, field) && !strings.Contains(got, "\n") && !strings.Contains(got, "; write")
	}
	return strings.HasPrefix(got, field) && strings.HasSuffix(got, `; write "`+meant+`"`)
}

// A key that is accepted is what its key function returns for some caller.
func TestAcceptedAddressesAreKeys(t *testing.T) {
	for _, row := range keyRows {
		if row.recipe != "ip" && row.recipe != "ip/56" || row.meant == "" || row.meant == "-" {
			continue
		}
		r := get("/")
		r.Peer = row.key
		if got := keyOf(t, row.recipe, policy.Bindings{}, r); got != row.meant {
			t.Errorf("%s: a caller at %s has the key %s, and %s is proposed", row.recipe, row.key, got, row.meant)
		}
	}
}

func TestCompileRefusesNetworksOfAnotherSize(t *testing.T) {
	p := valid(t, "a")
	p.Key, p.Overrides = "ip", map[string]policy.Override{"2001:db8::/48": {Limit: p.Limit}}
	const want = `policy "a": overrides.2001:db8::/48: "2001:db8::/48" is not a network as it is counted: that of an IPv6 address has 64 bits, and none set beyond them`
	_, err := policy.Compile("shop", policy.Set{p}, policy.Bindings{})
	wantError(t, err, want)
	if _, err := policy.Compile("shop", policy.Set{p},
		policy.Bindings{IP: keyfuncs.MustRemoteIPPrefix(48)}); err != nil {
		t.Error(err)
	}
	p.Overrides, p.Access.Deny.Keys = nil, []string{"2001:db8::/48"}
	_, err = policy.Compile("shop", policy.Set{p}, policy.Bindings{})
	wantError(t, err, strings.Replace(want, "overrides.2001:db8::/48", "access: deny.keys[0]", 1))
}

// changing is a source whose policies a test sets.
type changing struct{ set chan policy.Snapshot }

func (c changing) Load(context.Context, string) (policy.Snapshot, error) {
	select {
	case s := <-c.set:
		return s, nil
	default:
		return policy.Snapshot{}, policy.ErrUnchanged
	}
}

// warnings follows one set after another, and returns the warnings of each.
func warnings(t *testing.T, app string, sets ...policy.Set) (all []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { all = warningsInBubble(t, app, sets) })
	return all
}

func warningsInBubble(t *testing.T, app string, sets []policy.Set) []string {
	var b strings.Builder

	// The log without its times is what the tests compare.
	log := slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelWarn,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey) {
				return slog.Attr{}
			}
			return a
		}}))

	source := changing{make(chan policy.Snapshot, 1)}

	// The first set has to be there at the start, because Follow loads it before it returns.
	source.set <- policy.Snapshot{Version: "v0", Policies: sets[0]}
	l := limiter.MustNew(limiter.Config{Store: nothing{}})
	f, err := policy.Follow(t.Context(), l, app, policy.Bindings{}, source,
		policy.Options{Poll: 10 * time.Millisecond, Logger: log})
	if err != nil {
		t.Fatal(err)
	}

	var all []string
	for i := range sets {
		version := "v" + string(rune('0'+i))
		if i > 0 {
			source.set <- policy.Snapshot{Version: version, Policies: sets[i]}
		}

		// The clock is the bubble's, so the polls cost no time.
		for f.Status().Version != version {
			time.Sleep(time.Millisecond)
		}
	}

	if err := errors.Join(f.Close(), l.Close()); err != nil {
		t.Fatal(err)
	}

	// The lines are sorted by version, in which they were written anyway; lines without one are
	// left out.
	for i := range sets {
		version := "version=v" + string(rune('0'+i))
		for line := range strings.Lines(b.String()) {
			if strings.Contains(line, version) {
				all = append(all, strings.TrimSpace(line))
			}
		}
	}
	return all
}

func TestFollowWarnsOfAnApplicationWithoutPolicies(t *testing.T) {
	named := func(apps ...string) policy.Set {
		p := valid(t, "a")
		p.Apps = apps
		return policy.Set{p}
	}

	off := named("shop")
	off[0].Mode = policy.Off

	// Twelve applications are more than a warning lists.
	var many []string
	for i := range 12 {
		many = append(many, "app"+string(rune('a'+i)))
	}

	for _, row := range []struct {
		name string
		sets []policy.Set
		want []string
	}{
		// An application is named, or its policies are switched off on purpose: no warning.
		{"named", []policy.Set{named("shop", "blog")}, nil},
		{"switched off", []policy.Set{off}, nil},
		// Names are compared exactly, so these sets limit nothing.
		{"misspelt", []policy.Set{named("shpo", "blog")},
			[]string{`msg="headgate: no policy names this application, so nothing is limited"` +
				` code=HG018 version=v0 named="blog, shpo" policies=1 before=0` +
				` see=` + pageOfFindings + `18 app=shop`}},
		{"in another case", []policy.Set{named("Shop")},
			[]string{`msg="headgate: no policy names this application, so nothing is limited"` +
				` code=HG018 version=v0 named=Shop policies=1 before=0` +
				` see=` + pageOfFindings + `18 app=shop`}},
		{"one of many", []policy.Set{named(many...)},
			[]string{`msg="headgate: no policy names this application, so nothing is limited"` +
				` code=HG018 version=v0` +
				` named="appa, appb, appc, appd, appe, appf, appg, apph, appi, appj and 2 more" policies=1 before=0` +
				` see=` + pageOfFindings + `18 app=shop`}},
		// No policies at all are another mistake than policies for others.
		{"an empty set", []policy.Set{{}},
			[]string{`msg="headgate: there are no policies, so nothing is limited"` +
				` code=HG018 version=v0 see=` + pageOfFindings + `18 app=shop`}},
		// A set that was in force before is mentioned with its size, and the return of the policies
		// ends the warning.
		{"a set that loses its policies", []policy.Set{named("shop"), {}, named("shop")},
			[]string{`msg="headgate: all policies are gone, so nothing is limited any more"` +
				` code=HG018 version=v1 before=1 see=` + pageOfFindings + `18 app=shop`}},
		{"a set that loses the application", []policy.Set{named("shop"), named("blog")},
			[]string{`msg="headgate: no policy names this application, so nothing is limited"` +
				` code=HG018 version=v1 named=blog policies=1 before=1 see=` + pageOfFindings + `18 app=shop`}},
	} {
		got := warnings(t, "shop", row.sets...)
		if strings.Join(got, "\n") != strings.Join(row.want, "\n") {
			t.Errorf("%s:\n%s\nwant\n%s", row.name, strings.Join(got, "\n"), strings.Join(row.want, "\n"))
		}
	}
}

// pageOfFindings is the address of the page of findings, up to two digits of a code.
const pageOfFindings = "https://github.com/headgate/headgate/blob/main/docs/findings.md#hg0"

func TestFollowWarnsOfWhatMayNeverApply(t *testing.T) {
	for _, row := range []struct {
		name  string
		spoil func(*policy.Policy)
		want  string
	}{
		{"nothing", func(p *policy.Policy) { p.Match.Methods = []string{"GET", "PROPFIND", "PURGE"} }, ""},
		// Valid values that no known client sends.
		{"a method", func(p *policy.Policy) { p.Match.Methods = []string{"PSOT"} },
			`policy "a": match.methods: "PSOT" is no method of HTTP, WebDAV or caches`},
		{"a path that is encoded twice", func(p *policy.Policy) { p.Match.Path = "/caf%25C3%25A9" },
			`policy "a": match.path: "/caf%25C3%25A9" is encoded twice; that of a request is decoded once`},
		{"a percent sign", func(p *policy.Policy) { p.Match.Path = "/100%25" }, ""},
		// A joined key has as many parts as its recipe, each as its own recipe makes it. The good
		// ones are between the bad, so that the check is not of their number alone.
		{"a joined key of one part", func(p *policy.Policy) {
			p.Key, p.Overrides = "ip+route", map[string]policy.Override{"192.0.2.7": {Limit: p.Limit}}
		}, `policy "a": overrides.192.0.2.7: the key has 1 parts, and the recipe 2; write a part for each, with "|" between them`},
		{"a joined key", func(p *policy.Policy) {
			p.Key, p.Overrides = "ip+route", map[string]policy.Override{`192.0.2.7|/a\|b`: {Limit: p.Limit},
				"192.0.2.8|": {Limit: p.Limit}, "sha256:abc": {Limit: p.Limit}, "192.0.2.9*": {Limit: p.Limit}}
		}, ""},
		{"a joined key with a port", func(p *policy.Policy) {
			p.Key, p.Access.Deny.Keys = "ip+route", []string{"192.0.2.7:80|/a"}
		}, `policy "a": access.deny.keys[0]: part 1: "192.0.2.7:80" is not an address as it is counted; write "192.0.2.7"`},
		{"a joined key with a secret", func(p *policy.Policy) {
			p.Key, p.Access.Allow.Keys = "api-key+method", []string{"s3cret|GET"}
		}, `policy "a": access.allow.keys[0]: part 1: the key is not a digest as keyfuncs.Digest returns it`},
		// The doubts of other applications are their own.
		{"another application", func(p *policy.Policy) {
			p.Apps, p.Match.Methods = []string{"blog"}, []string{"PSOT"}
		}, ""},
	} {
		p, q := valid(t, "a"), valid(t, "b")
		row.spoil(&p)

		want := ""
		if row.want != "" {
			want = `msg="headgate: a part of these policies may never apply"` +
				` code=HG019 version=v0 doubt="` +
				strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(row.want) + `" see=` + pageOfFindings + `19 app=shop`
		}

		if got := strings.Join(warnings(t, "shop", policy.Set{p, q}), "\n"); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", row.name, got, want)
		}
	}
}

// Mistakes in settings that never match have the line of a file.
func TestSettingsThatNeverMatchHaveTheirLine(t *testing.T) {
	_, _, err := policyyaml.DecodeLines([]byte(`policies:
- name: a
  apps: [shop]
  limit: 3/1h
  key: ip
  overrides:
    192.0.2.7:80: 9/1h
  match:
    methods: [get]
    host: Shop.example
    path: /users/:id
  access:
    deny:
      networks: ["192.0.2.0:80"]
      keys: [alice]
`))

	// The text of each mistake has tests of its own; only the line and the field count here.
	var lines []string
	for line := range strings.Lines(err.Error()) {
		head, rest, _ := strings.Cut(strings.TrimSpace(line), `: policy "a": `)
		field, _, _ := strings.Cut(rest, ": ")
		lines = append(lines, head+" "+field)
	}

	// The mistake of the access lists is at "access" itself, in line 12.
	want := "line 7 overrides.192.0.2.7:80, line 9 match.methods, line 10 match.host, line 11 match.path, line 12 access"
	if got := strings.Join(lines, ", "); got != want {
		t.Errorf("%s\nwant\n%s\n%v", got, want, err)
	}
}
