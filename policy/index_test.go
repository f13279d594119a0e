package policy_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/policy"
)

func index(t testing.TB, matches ...policy.Match) *policy.Index {
	t.Helper()
	list := make([]policy.Policy, len(matches))
	for i, m := range matches {
		list[i] = policy.Policy{Name: fmt.Sprintf("p%d", i), Match: m}
	}
	x, err := policy.NewIndex(list)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func paths(list ...string) (matches []policy.Match) {
	for _, p := range list {
		matches = append(matches, policy.Match{Path: p})
	}
	return matches
}

func TestIndexSelectsEveryPolicyThatMatches(t *testing.T) {
	x := index(t, paths("", "/", "/{$}", "/users", "/users/{id}", "/users/me", "/users/", "/{a}/{b}/{c}",
		"/files/{rest...}", "/Caf%C3%A9")...)

	// The numbers are the places in the list above. 0 and 1 are the policies without a path and of
	// "/", which apply to everything.
	for path, want := range map[string][]int{
		"/": {0, 1, 2},
		"":  {0, 1, 2},
		// A path without a slash first is that of a proxy request or of OPTIONS, and is matched by
		// what matches all.
		"*":        {0, 1},
		"/users":   {0, 1, 3, 6},
		"/users/":  {0, 1, 3, 6},
		"/users/7": {0, 1, 4, 6},
		// A literal does not hide a wildcard: both policies count.
		"/users/me":        {0, 1, 4, 5, 6},
		"/users/7/":        {0, 1, 4, 6},
		"/users/7/posts":   {0, 1, 6, 7},
		"/users/7/posts/8": {0, 1, 6},
		"/files":           {0, 1, 8},
		// Only whole segments count: "/files/" does not cover "/filesystem".
		"/files/a/b/c": {0, 1, 8},
		"/filesystem":  {0, 1},
		"/café":        {0, 1, 9},
	} {
		if got := x.Select(get(path), nil); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
}

// A policy applies to every spelling of its path that some router accepts.
func TestIndexMatchesEverySpellingOfAPath(t *testing.T) {
	x := index(t, paths("/api/login")...)

	// Letter case, doubled slashes, dots, and slashes at either end.
	for _, path := range []string{"/api/login", "/api/login/", "/API/Login", "//api//login", "/api/./login",
		"/api/x/../login",
		"/api/login/.", "/../api/login", "api/login"} {
		if got := x.Select(get(path), nil); len(got) != 1 {
			t.Errorf("%s: %v", path, got)
		}
	}

	// Another path stays another. A percent sign in a decoded path is a percent sign, so the last
	// is no login.
	for _, path := range []string{"/api/login2", "/api", "/login", "/api/login/x", "/api/log in", "/api/%6cogin"} {
		if got := x.Select(get(path), nil); len(got) != 0 {
			t.Errorf("%s: %v", path, got)
		}
	}
}

// sent is a request whose path middleware has changed.
type sent struct {
	*test.Request
	path string
}

func (r sent) SentPath() string { return r.path }

// A policy of the path that clients send, and one of the path that middleware makes of it, are
// both counted.
func TestIndexMatchesThePathThatTheClientSent(t *testing.T) {
	x := index(t, paths("/api/login", "/login", "/other")...)
	for path, want := range map[string][]int{
		"/api/login": {0, 1}, "/API//login;a=b": {0, 1}, "/x/..;/api/./login": {0, 1}, "": {1}, "/other": {1, 2},
	} {
		if got := x.Select(sent{get("/login"), path}, nil); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
}

// Servers of servlets end a segment at its first semicolon.
func TestIndexMatchesPathsWithParameters(t *testing.T) {
	x := index(t, paths("/login", "/users/{id}/login")...)
	for path, want := range map[string][]int{
		"/login;a=1": {0}, "/login;": {0}, "/;x/login;a=1;b": {0}, "/x/..;/login": {0},
		"/x;a/..;b/LOGIN;c": {0}, "/users/7;a=1/login;v": {1},
		"/login.;a": nil, "/log;in": nil, "/loginx;": nil,
	} {
		if got := x.Select(get(path), nil); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
}

// A path with dots is matched both as it came and cleaned.
func TestIndexMatchesPathsWithDots(t *testing.T) {
	x := index(t, paths("/static/", "/login")...)
	if got := x.Select(get("/static/../login"), nil); !reflect.DeepEqual(got, []int{0, 1}) {
		t.Errorf("%v", got)
	}
}

// asSent is a request with the encoded path.
type asSent struct {
	*test.Request
	raw string
}

func (r asSent) RawPath() string { return r.raw }

// Some routers take an encoded slash for a part of its segment, and others for a slash.
func TestIndexMatchesEncodedSlashesBothWays(t *testing.T) {
	x := index(t, paths("/users/{id}", "/users/{id}/posts", "/users/me", "/users/a/b", "/login")...)

	// Each of these spellings reaches, in one router or another, the routes whose numbers are
	// listed.
	for raw, want := range map[string][]int{
		"/users/a%2Fb":       {0, 3},
		"/users/a%2fB":       {0, 3},
		"/Users/a%2F%62":     {0, 3},
		"/users%2Fme":        {0, 2},
		"/users/me%2Fposts":  {0, 1},
		"/users/a%2Fb/posts": {1},
		// Dots are cleaned in both readings, before and after the slash is decoded.
		"/x/../users/a%2Fb":    {0, 3},
		"/users/..%2Flogin":    {0, 4},
		"/users/a%2F..%2Fb%20": {0},
		"/users/me":            {0, 2},
		// A path that is not escaped properly, or none at all, selects nothing by itself.
		"/users/a%2": {},
		"":           {},
	} {
		decoded, _ := url.PathUnescape(raw)
		if got := x.Select(asSent{get(decoded), raw}, []int{}); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", raw, got, want)
		}
	}
}

// prefixed is a request whose route may be a prefix.
type prefixed struct{ *test.Request }

func (prefixed) RouteMayBePrefix() bool { return true }

// A route selects the policies that cover all that it serves, besides those of the path.
// The path lacks a prefix behind http.StripPrefix.
func TestIndexMatchesTheRouteToo(t *testing.T) {
	x := index(t, paths("/users/{id}", "/users/me", "/static/", "/{$}", "/static/{name}", "/")...)

	// The request's own path matches "/" alone (5), so what else is selected comes from the route.
	for route, want := range map[string][]int{
		"/users/{id}": {0, 5}, "GET /users/{name}": {0, 5}, "shop.example/users/{id}": {0, 5}, "/users/:id": {0, 5},
		"": {5}, "GET": {5}, "/{$}": {3, 5}, "/static/x/{$}": {2, 4, 5}, "/static/{n:[0-9]}": {2, 4, 5},
		// Routes that serve everything below them are as wide as a path can be. No policy covers
		// them all but that of "/".
		"/": {5}, "GET /": {5}, "/*": {5}, "/*path": {5}, "/{rest...}": {5}, "/+": {5}, "/users/": {5},
		"/users/*": {5}, "/users/*id": {5}, "/users/{rest...}": {5},
		// A wildcard below "/static/" stays below it, and so does its policy.
		"/static/*filepath": {2, 5}, "/static/": {2, 5}, "/static/{rest...}": {2, 5}, "/static/x*/y": {2, 5},
		"/static/{n:[0-9]+}": {2, 5}, "/static*": {5},
	} {
		r := get("/x/y/z")
		r.Pattern = route
		if got := x.Select(r, []int{}); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", route, got, want)
		}
	}

	// The same routes as prefixes: "/static" now serves what lies below it, which the policies of
	// "/static/" cover.
	for route, want := range map[string][]int{"/": {5}, "/users/:id": {5}, "/static": {2, 5}, "/static/:name": {2, 5}} {
		r := get("/x/y/z")
		r.Pattern = route
		if got := x.Select(prefixed{r}, []int{}); !reflect.DeepEqual(got, want) {
			t.Errorf("the prefix %s: %v, want %v", route, got, want)
		}
	}
}

func TestIndexMatchesMethodsAndHosts(t *testing.T) {
	x := index(t,
		policy.Match{Methods: []string{"GET"}},
		policy.Match{Methods: []string{"POST", "PURGE"}},
		policy.Match{Host: "api.example.com"},
		policy.Match{Host: "*.example.com"},
		policy.Match{Host: "*.com", Methods: []string{"GET"}, Path: "/a"},
		policy.Match{Host: "2001:db8::1"},
	)

	for _, c := range []struct {
		method, host, path string
		want               []int
	}{
		// GET covers HEAD, as in a ServeMux. Names of methods have one case, so "get" is none of
		// them.
		{"GET", "", "/a", []int{0}},
		{"HEAD", "", "/a", []int{0}},
		{"POST", "", "/a", []int{1}},
		{"PURGE", "", "/a", []int{1}},
		{"PUT", "", "/a", []int{}},
		{"get", "", "/a", []int{}},
		// Hosts have any case, a last dot and a port. "*" stands for one label or more, and never
		// for none.
		{"GET", "api.example.com", "/a", []int{0, 2, 3, 4}},
		{"GET", "API.Example.com.:8080", "/a", []int{0, 2, 3, 4}},
		{"POST", "api.example.com", "/a", []int{1, 2, 3}},
		{"GET", "x.y.example.com", "/b", []int{0, 3}},
		{"PUT", "example.com", "/a", []int{}},
		{"PUT", "evilexample.com", "/a", []int{}},
		{"PUT", "[2001:db8:0::1]:80", "/a", []int{5}},
		{"PUT", "api.example.com, x", "/a", []int{}},
	} {
		r := &test.Request{Verb: c.method, URLPath: c.path, Headers: map[string][]string{"Host": {c.host}}}
		if got := x.Select(r, []int{}); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s %s%s: %v, want %v", c.method, c.host, c.path, got, c.want)
		}
	}
}

// A ServeMux takes any text behind the colon for a port, and a name in brackets for the
// name.
func TestIndexMatchesEverySpellingOfAHost(t *testing.T) {
	x := index(t, policy.Match{Host: "shop.example.com", Path: "/login"})

	// The mux is the judge of which spellings reach the handler.
	var served int
	mux := http.NewServeMux()
	mux.HandleFunc("shop.example.com/login", func(http.ResponseWriter, *http.Request) { served++ })

	for host, want := range map[string]int{
		"shop.example.com": 1, "shop.example.com:80": 1, "shop.example.com:": 1, "shop.example.com:0": 1,
		"shop.example.com:99999": 1,
		"shop.example.com:abc":   1, "shop.example.com:-1": 1, "shop.example.com:000080": 1,
		"[shop.example.com]:80": 1, "[shop.example.com]:": 1,
		// These the mux does not serve. The index selects them nevertheless: another router may
		// serve them.
		"SHOP.example.com": 0, "[shop.example.com]": 0, "shop.example.com.": 0, "shop.example.com:80:80": 0,
	} {
		served = 0
		r := httptest.NewRequest("GET", "/login", nil)
		r.Host = host
		mux.ServeHTTP(httptest.NewRecorder(), r)
		if served != want {
			t.Errorf("%s: served %d times, want %d", host, served, want)
		}

		// A policy for the host applies to each spelling, whether the mux serves it or not.
		q := get("/login")
		q.Headers = map[string][]string{"Host": {host}}
		if got := x.Select(q, nil); len(got) != 1 {
			t.Errorf("%s: %d policies apply, want 1", host, len(got))
		}
	}
}

// Readers of a request with two hosts may disagree about it.
func TestIndexMatchesEachOfTwoHosts(t *testing.T) {
	x := index(t, policy.Match{Host: "a.example"}, policy.Match{Host: "b.example"}, policy.Match{Host: "c.example"})
	q := get("/login")
	q.Headers = map[string][]string{"Host": {"b.example:80", "A.example"}}
	if got := x.Select(q, nil); !reflect.DeepEqual(got, []int{0, 1}) {
		t.Errorf("%v", got)
	}
}

func TestIndexSelectAppends(t *testing.T) {
	x := index(t, paths("/a")...)
	if got := x.Select(get("/a"), []int{7, 7, 3}); !reflect.DeepEqual(got, []int{7, 7, 3, 0}) {
		t.Errorf("%v", got)
	}
}

func TestIndexRefusesInvalidPolicies(t *testing.T) {
	_, err := policy.NewIndex([]policy.Policy{
		{Name: "a", Match: policy.Match{Path: "x", Host: "A", Methods: []string{"get"}}},
		{Name: "b", Match: policy.Match{Path: "y"}}})

	// The mistakes of all policies come together.
	wantError(t, err, strings.Join([]string{
		`policy "a": match.path: "x" does not begin with a slash`,
		`policy "a": match.host: "A" is not a name in lower case without a port, or an address; write a`,
		`policy "a": match.methods: "get" is not a method in upper case; write GET`,
		`policy "b": match.path: "y" does not begin with a slash`,
	}, "\n"))

	// Each method takes a bit of a word of 64, of which one stands for all the others.
	var many []policy.Policy
	for i := range 64 {
		many = append(many, policy.Policy{Name: "a", Match: policy.Match{Methods: []string{fmt.Sprintf("M%d", i)}}})
	}

	_, err = policy.NewIndex(many)
	wantError(t, err, `policy "a": match.methods: "M63" is the 64th method that policies name; at most 63 are possible`)
}

// A pattern matches at least the paths that it matches in a ServeMux.
func TestPatternsCoverThoseOfServeMux(t *testing.T) {
	segment := rapid.SampledFrom([]string{"a", "b", "c"})
	wild := rapid.SampledFrom([]string{"a", "b", "{x}"})

	// Wildcards get the names that a ServeMux demands: a different one for each.
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(wild, 0, 4).Draw(t, "pattern")
		for i := range parts {
			if parts[i] == "{x}" {
				parts[i] = fmt.Sprintf("{x%d}", i)
			}
		}

		pattern := "/" + strings.Join(parts, "/") +
			rapid.SampledFrom([]string{"", "/", "/{$}", "/{rest...}"}).Draw(t, "end")
		pattern = strings.ReplaceAll(pattern, "//", "/")

		// Paths and patterns are of few letters, so that many pairs match.
		path := "/" + strings.Join(rapid.SliceOfN(segment, 0, 5).Draw(t, "path"), "/") +
			rapid.SampledFrom([]string{"", "/"}).Draw(t, "slash")

		mux := http.NewServeMux()
		served := false
		mux.HandleFunc(pattern, func(http.ResponseWriter, *http.Request) { served = true })
		mux.ServeHTTP(httptest.NewRecorder(), &http.Request{Method: "GET", URL: &url.URL{Path: path}})

		x, err := policy.NewIndex([]policy.Policy{{Name: "p", Match: policy.Match{Path: pattern}}})
		if err != nil {
			t.Fatal(err)
		}

		// The other direction need not hold: an index may select more than the mux serves.
		if selected := len(x.Select(get(path), nil)) == 1; served && !selected {
			t.Fatalf("%s is served by %s and not matched", path, pattern)
		}
	})
}

// Many policies together are selected exactly as each is by itself.
func TestIndexOfManySelectsAsThatOfEach(t *testing.T) {
	match := rapid.Custom(func(t *rapid.T) policy.Match {
		m := policy.Match{Host: rapid.SampledFrom([]string{"", "", "a.x", "*.x", "*.a.x"}).Draw(t, "host")}
		if rapid.Bool().Draw(t, "path") {
			parts := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "B", "{w}"}), 0, 3).Draw(t, "segments")
			for i := range parts {
				if parts[i] == "{w}" {
					parts[i] = fmt.Sprintf("{w%d}", i)
				}
			}
			m.Path = strings.ReplaceAll("/"+strings.Join(parts, "/")+
				rapid.SampledFrom([]string{"", "/", "/{$}"}).Draw(t, "end"), "//", "/")
		}

		m.Methods = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"GET", "HEAD", "POST", "FETCH"}), 0, 2,
			rapid.ID).Draw(t, "methods")
		return m
	})

	rapid.Check(t, func(t *rapid.T) {
		var list []policy.Policy
		for _, m := range rapid.SliceOfN(match, 0, 20).Draw(t, "matches") {
			list = append(list, policy.Policy{Name: "p", Match: m})
		}
		all, err := policy.NewIndex(list)
		if err != nil {
			t.Fatal(err)
		}

		// The request is drawn from the same few hosts, methods and segments, and now and then has
		// a route.
		r := get(rapid.StringMatching(`(/(a|b|A|\.|\.\.|c)?){0,5}`).Draw(t, "path"))
		r.Verb = rapid.SampledFrom([]string{"GET", "HEAD", "POST", "FETCH", "PUT"}).Draw(t, "method")
		r.Pattern = rapid.SampledFrom([]string{"", "/{x}", "GET /a/{w}", r.URLPath}).Draw(t, "route")
		r.Headers = map[string][]string{"Host": {rapid.SampledFrom([]string{"", "x", "a.x", "b.a.x",
			"b.c.x:80"}).Draw(t, "host")}}

		// An index of a single policy is the reference.
		want := []int{}
		for i := range list {
			one, err := policy.NewIndex(list[i : i+1])
			if err != nil {
				t.Fatal(err)
			}
			if len(one.Select(r, nil)) > 0 {
				want = append(want, i)
			}
		}

		if got := all.Select(r, []int{}); !slices.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}

// thousand returns an index of a thousand policies, of which three apply to each
// request of the benchmarks.
func thousand(t testing.TB) *policy.Index {
	// One policy in a thousand applies to everything; a third each have a path with a method, a
	// path prefix, and a path with a host.
	matches := []policy.Match{{}}
	for i := range 999 {
		switch i % 3 {
		case 0:
			matches = append(matches, policy.Match{Path: fmt.Sprintf("/v1/service%d/items/{id}", i),
				Methods: []string{"GET"}})
		case 1:
			matches = append(matches, policy.Match{Path: fmt.Sprintf("/v1/service%d/", i-1)})
		case 2:
			matches = append(matches, policy.Match{Path: fmt.Sprintf("/v1/service%d/items/{id}", i),
				Host: fmt.Sprintf("h%d.example.com", i)})
		}
	}
	return index(t, matches...)
}

func TestIndexSelectAllocatesNothing(t *testing.T) {
	x := thousand(t)
	r := get("/v1/service600/items/77")
	r.Headers = map[string][]string{"Host": {"h1.example.com"}}
	into := make([]int, 0, 16)
	if got := x.Select(r, into); !reflect.DeepEqual(got, []int{0, 601, 602}) {
		t.Fatalf("%v", got)
	}
	if n := testing.AllocsPerRun(1000, func() { x.Select(r, into) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkSelectOfAThousand(b *testing.B) {
	x := thousand(b)
	r := get("/v1/service600/items/77")
	r.Headers = map[string][]string{"Host": {"h1.example.com"}}
	into := make([]int, 0, 16)
	b.ReportAllocs()
	for b.Loop() {
		x.Select(r, into)
	}
}
