// Package pathspec holds that no spelling of a path avoids a policy, for the routers that adapters
// are made for. [Run] tests a [Router].
package pathspec

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/policy"
)

// A Route is a pattern of net/http.ServeMux, and the name of its handler.
type Route struct{ Pattern, Name string }

// Routes are served by every router. The name of a handler is its pattern.
var Routes = []Route{
	{"/{$}", "/{$}"}, {"/about", "/about"}, {"/login", "/login"}, {"/files/{name}", "/files/{name}"},
	{"/docs/", "/docs/"},
}

// one is served by every router, too.
var one = []Route{{"/", "/"}}

// matches are the paths of policies: those of the routes, and one within a route.
var matches = []string{"/{$}", "/about", "/login", "/files/{name}", "/docs/", "/docs/{name}"}

// A Place says where the middleware stands.
type Place string

// Places are where the middleware of an adapter may stand.
const (
	Around Place = "around the router"
	Inside Place = "around each handler"
)

// A Router makes a server of routes.
type Router struct {
	Name string

	// Make starts a server and returns a function that sends it a GET and returns the
	// name of the handler that served it, or "" if none did.
	Make func(l *limiter.Limiter, at Place, routes []Route) (ask func(target string) string)

	// Rest reports whether the last parameter of a pattern takes the rest of the path.
	Rest bool
}

// A Counter is an observer that keeps the paths of the policies that count a request.
type Counter struct{ Counted []string }

// Observe adds the policies of a request to Counted.
func (c *Counter) Observe(_ context.Context, e *events.Request) {
	for _, r := range e.Rules {
		var i int
		_, _ = fmt.Sscanf(r.Name, "p%d", &i)
		c.Counted = append(c.Counted, matches[i])
	}
}

// Counting returns a limiter with a policy for each of the matches.
func Counting(t testing.TB) (*limiter.Limiter, *Counter) {
	t.Helper()
	var list []policy.Policy
	for i, m := range matches {
		list = append(list, policy.Policy{Name: fmt.Sprintf("p%d", i), Apps: []string{"shop"},
			Limit: core.MustParseLimit("1000000/1h"), Key: "global", Match: policy.Match{Path: m}})
	}
	compiled, err := policy.Compile("shop", list, policy.Bindings{})
	if err != nil {
		t.Fatal(err)
	}
	c := &Counter{}
	return limiter.MustNew(limiter.Config{Rules: compiled.Rules(), Observer: c}), c
}

// plain are paths in their usual spelling, and exactly the policies that apply to them.
var plain = []struct {
	path string
	want []string
}{
	{"/", []string{"/{$}"}},
	{"/about", []string{"/about"}},
	{"/login", []string{"/login"}},
	{"/login/more", nil},
	{"/files", nil},
	{"/files/a", []string{"/files/{name}"}},
	{"/files/a/b", nil},
	{"/files/a/b/c", nil},
	{"/docs/", []string{"/docs/"}},
	{"/docs/a", []string{"/docs/", "/docs/{name}"}},
	{"/docs/a/b/c", []string{"/docs/"}},
	{"/none", nil},
	{"/none/a", nil},
}

// Spellings are ways to write paths that some router takes for others.
var Spellings = []string{
	"/LOGIN", "/Login", "/login/", "/login//", "//login", "///login", "/./login", "/x/../login",
	"/x/%2e%2e/login", "/login/.", "/login/..", "/%6cogin", "/%6C%6F%67%69%6E", "/login%2F",
	"/%2Flogin", "/login?a=b", "/login;a=b", "/login%20", "/login%00", `/\login`, "/files/a%2Fb",
	"/files/a%2fb", "/files/%2F", "/Files/A", "/files//a", "/files/a/", "/files/./a", "/files/a/..",
	"/x/../files/a%2Fb", "/files/..%2Flogin", "/files%2Fa", "/docs", "/docs/a%2Fb", "/DOCS/a",
	"/docs//a", "/docs/../login", "/docs/..%2Flogin", "/docs%2Fa", "//", "/.", "/%2F", "/about/../",
	"/?",
}

// queries are queries, and whether they have the parameter export with the value "a b" or csv.
var queries = map[string]bool{
	"": false, "?": false, "?export": false, "?export=": false, "?export=CSV": false, "?Export=csv": false,
	"?export=csv": true, "?x=1&export=csv": true, "?export=&export=csv": true, "?%65xport=c%73v": true,
	"?export=a+b": true, "?export=a%20b": true, "?export=a%2Bb": false, "?export=csv;x": false,
	"?x;export=csv": false, "?export=csv%zz": false, "?y=%zz&export=csv": true, "?export=csv=": false,
}

// countsQueries fails the test unless a policy of a parameter counts the queries that have it.
func (r Router) countsQueries(t *testing.T) {
	of := policy.Policy{Name: "p1", Apps: []string{"shop"}, Limit: core.MustParseLimit("1000000/1h"), Key: "global",
		Match: policy.Match{Query: map[string]policy.Values{"export": {"csv", "a b"}}}}
	compiled, err := policy.Compile("shop", []policy.Policy{of}, policy.Bindings{})
	if err != nil {
		t.Fatal(err)
	}

	// The query is the same wherever the middleware stands.
	for _, at := range []Place{Around, Inside} {
		c := &Counter{}
		ask := r.Make(limiter.MustNew(limiter.Config{Rules: compiled.Rules(), Observer: c}), at, Routes)
		for query, want := range queries {
			c.Counted = nil
			if served := ask("/about" + query); served != "/about" || (len(c.Counted) == 1) != want {
				t.Errorf("%s, %s: %q is served by %q and counted: %t, want %t",
					r.Name, at, query, served, len(c.Counted) == 1, want)
			}
		}
	}
}

// Run holds the router to the specification.
func Run(t *testing.T, r Router) {
	r.countsPlainPathsAlone(t)
	r.countsQueries(t)
	for _, target := range Spellings {
		r.Ask(t, target)
	}
}

// countsPlainPathsAlone fails the test unless a policy counts the usual spelling of its
// path and nothing else, however many paths the router's pattern covers.
func (r Router) countsPlainPathsAlone(t *testing.T) {
	for _, at := range []Place{Around, Inside} {
		for _, list := range [][]Route{Routes, one} {
			l, c := Counting(t)
			ask := r.Make(l, at, list)

			for _, p := range plain {
				c.Counted = nil
				served := ask(p.path)
				if served == "" && len(c.Counted) == 0 {
					continue // the middleware stands behind the router
				}

				// A router without parameters for one segment serves more paths by this pattern.
				want := p.want
				if r.Rest && served == "/files/{name}" {
					want = []string{served}
				}
				if !slices.Equal(c.Counted, want) {
					t.Errorf("%s, %s, %d routes: %s is counted under %q, want %q",
						r.Name, at, len(list), p.path, c.Counted, want)
				}
			}
		}
	}
}

// Ask returns the handler that serves the target in all places of the middleware, and the
// policies that count it around the router. It fails the test unless the policy of the
// handler's pattern counts the target.
func (r Router) Ask(t *testing.T, target string) (served string, counted []string) {
	t.Helper()
	for _, at := range []Place{Around, Inside} {
		l, c := Counting(t)
		got := r.Make(l, at, Routes)(target)

		// It may be counted under others too: a limit too many lets no request past one.
		if got != "" && !slices.Contains(c.Counted, got) {
			t.Errorf("%s, %s: %s is served by %s and counted under %q", r.Name, at, target, got, c.Counted)
		}

		if at == Around {
			served, counted = got, c.Counted
		} else if got != served {
			t.Errorf("%s: %s is served by %q or by %q", r.Name, target, served, got)
		}
	}
	return served, counted
}
