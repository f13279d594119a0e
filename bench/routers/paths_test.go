package routers

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/echomw"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
	"github.com/headgate/headgate/policy"
)

var update = flag.Bool("update", false, "write docs/paths.md")

// routes are served by every router. The name of a handler is its pattern.
var routes = [][2]string{{"/{$}", "/{$}"}, {"/about", "/about"}, {"/login", "/login"}, {"/files/{name}", "/files/{name}"}, {"/docs/", "/docs/"}}

// matches are the paths of policies: those of the routes, and one within a route.
var matches = []string{"/{$}", "/about", "/login", "/files/{name}", "/docs/", "/docs/{name}"}

// counter notes the paths of the policies that count a request.
type counter struct{ counted []string }

func (c *counter) Observe(_ context.Context, e limiter.Event) {
	var i int
	_, _ = fmt.Sscanf(e.Rule, "p%d", &i)
	c.counted = append(c.counted, matches[i])
}

// counting returns a limiter with a policy for each of the matches.
func counting(t *testing.T) (*limiter.Limiter, *counter) {
	t.Helper()
	var list []policy.Policy
	for i, m := range matches {
		list = append(list, policy.Policy{Name: fmt.Sprintf("p%d", i), Apps: []string{"shop"}, Limit: core.MustParseLimit("1000000/1h"), Key: "global",
			Match: policy.Match{Path: m}})
	}
	rules, err := policy.Compile("shop", list, policy.Bindings{})
	if err != nil {
		t.Fatal(err)
	}
	c := &counter{}
	return limiter.MustNew(limiter.Config{Rules: rules, Observer: c}), c
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

// spellings are ways to write paths that some router takes for others.
var spellings = []string{
	"/LOGIN", "/Login", "/login/", "/login//", "//login", "///login", "/./login", "/x/../login", "/x/%2e%2e/login", "/login/.", "/login/..", "/%6cogin",
	"/%6C%6F%67%69%6E", "/login%2F", "/%2Flogin", "/login?a=b", "/login;a=b", "/login%20", "/login%00", `/\login`,
	"/files/a%2Fb", "/files/a%2fb", "/files/%2F", "/Files/A", "/files//a", "/files/a/", "/files/./a", "/files/a/..", "/x/../files/a%2Fb", "/files/..%2Flogin", "/files%2Fa",
	"/docs", "/docs/a%2Fb", "/DOCS/a", "/docs//a", "/docs/../login", "/docs/..%2Flogin", "/docs%2Fa", "//", "/.", "/%2F", "/about/../", "/?",
}

// A policy counts the usual spelling of its path and nothing else, whichever router
// serves it and however many paths the router's pattern covers.
func TestPolicyCountsItsPathsAlone(t *testing.T) {
	one := [][2]string{{"/", "/"}}
	for _, r := range all {
		for _, at := range []place{around, inside} {
			for _, list := range [][][2]string{routes, one} {
				l, c := counting(t)
				a := r.make(l, at, list)
				for _, p := range plain {
					c.counted = nil
					served := a.ask(p.path)
					if served == "" && len(c.counted) == 0 {
						continue // the middleware stands behind the router
					}
					want := p.want
					if r.name == "Echo" && served == "/files/{name}" {
						want = []string{served} // Echo's last parameter takes the rest of a path
					}
					if !slices.Equal(c.counted, want) {
						t.Errorf("%s, %s, %d routes: %s is counted under %q, want %q", r.name, at, len(list), p.path, c.counted, want)
					}
				}
			}
		}
	}
}

// Before Echo has routed a request, a policy cannot know that Echo's last parameter takes
// slashes too. A pattern that ends in a slash counts such requests.
func TestPolicyBeforeEchoNeedsASlashAtTheEnd(t *testing.T) {
	for _, pre := range []bool{true, false} {
		l, c := counting(t)
		served, e := "", echo.New()
		e.GET("/docs/:name", func(x echo.Context) error { served = x.Param("name"); return nil })
		var h http.Handler = e
		if pre {
			e.Pre(echomw.New(l))
		} else {
			h = nethttp.New(l)(e)
		}
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/docs/a/b", nil))
		if want := []string{"/docs/"}; served != "a/b" || !slices.Equal(c.counted, want) {
			t.Errorf("in Pre %t: %q is counted under %q, want %q", pre, served, c.counted, want)
		}
	}
}

// A policy counts every request that the router serves by the pattern of the policy.
func TestPolicyCountsEverySpellingThatIsServed(t *testing.T) {
	var b bytes.Buffer
	fmt.Fprint(&b, intro)
	var names, line []string
	for _, r := range all {
		names, line = append(names, r.name), append(line, "---")
	}
	fmt.Fprintf(&b, "| path | counted under | %s |\n|---|---|%s|\n", strings.Join(names, " | "), strings.Join(line, "|"))
	for _, target := range spellings {
		var cells []string
		counted := ""
		for _, r := range all {
			cell := ask(t, r, target, &counted)
			cells = append(cells, cell)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", strings.ReplaceAll(target, "|", "\\|"), counted, strings.Join(cells, " | "))
	}
	const page = "../../docs/paths.md"
	if *update {
		if err := os.WriteFile(page, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if old, _ := os.ReadFile(page); !bytes.Equal(old, b.Bytes()) {
		t.Errorf("%s is not what this test finds; write it with: go -C bench test ./routers -update", page)
	}
}

// ask returns the handler that serves the target in all places of the middleware, and
// checks that its policy is counted. around is set to all policies that count.
func ask(t *testing.T, r router, target string, counted *string) string {
	t.Helper()
	cell := ""
	for _, at := range []place{around, inside} {
		l, c := counting(t)
		served := r.make(l, at, routes).ask(target)
		if served != "" && !slices.Contains(c.counted, served) {
			t.Errorf("%s, %s: %s is served by %s and counted under %q", r.name, at, target, served, c.counted)
		}
		if at == around && r.name == "net/http" {
			*counted = code(c.counted...)
		}
		if at == inside && code(served) != cell {
			t.Errorf("%s: %s is served by %s or by %s", r.name, target, cell, served)
		}
		cell = code(served)
	}
	return cell
}

// code returns the texts as code, or a dash.
func code(texts ...string) string {
	texts = slices.DeleteFunc(slices.Clone(texts), func(s string) bool { return s == "" })
	if len(texts) == 0 {
		return "–"
	}
	return "`" + strings.Join(texts, "` `") + "`"
}

const intro = `# Paths, routers and policies

A client must not avoid a policy by another spelling of its path. A policy therefore
counts every spelling that some router takes for its path. It may count more spellings
than the router at hand serves, but no other path.

The table is written by a test, which also fails if a router serves a spelling that the
policy of the served pattern does not count:

    go -C bench test ./routers -update

Every router serves five patterns: ` + "`/{$}`, `/about`, `/login`, `/files/{name}` and `/docs/`" + `.
There is a policy for each of them, and one for ` + "`/docs/{name}`" + `. A column shows the pattern
that a router serves a path by, or a dash where it redirects or finds nothing. The second
column shows the policies that count the path with the middleware around a ServeMux.
Routers have their default options.

`
