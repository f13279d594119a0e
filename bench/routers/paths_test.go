package routers

import (
	"bytes"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/echomw"
	"github.com/headgate/headgate/internal/test/pathspec"
	"github.com/headgate/headgate/nethttp"
)

var update = flag.Bool("update", false, "write docs/paths.md")

// A policy counts the usual spelling of its path and nothing else, whichever router
// serves it, and every spelling that is served by the pattern of the policy.
func TestPolicyCountsItsPaths(t *testing.T) {
	for _, r := range all {
		pathspec.Run(t, r)
	}
}

// Before Echo has routed a request, a policy cannot know that Echo's last parameter takes
// slashes too. A pattern that ends in a slash counts such requests.
func TestPolicyBeforeEchoNeedsASlashAtTheEnd(t *testing.T) {
	for _, pre := range []bool{true, false} {
		l, c := pathspec.Counting(t)

		served, e := "", echo.New()
		e.GET("/docs/:name", func(x echo.Context) error { served = x.Param("name"); return nil })
		var h http.Handler = e

		// In Pre the adapter runs before the routing, as a limiter around the whole of Echo does.
		if pre {
			e.Pre(echomw.New(l))
		} else {
			h = nethttp.New(l)(e)
		}

		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/docs/a/b", nil))
		if want := []string{"/docs/"}; served != "a/b" || !slices.Equal(c.Counted, want) {
			t.Errorf("in Pre %t: %q is counted under %q, want %q", pre, served, c.Counted, want)
		}
	}
}

func TestPageOfPaths(t *testing.T) {
	var b bytes.Buffer
	fmt.Fprint(&b, intro)

	var names, line []string
	for _, r := range all {
		names, line = append(names, r.Name), append(line, "---")
	}

	fmt.Fprintf(&b, "| path | counted under | %s |\n|---|---|%s|\n",
		strings.Join(names, " | "), strings.Join(line, "|"))

	// A spelling is a row, and each router has a cell with what it served.
	for _, target := range pathspec.Spellings {
		var cells, under []string
		for _, r := range all {
			served, counted := r.Ask(t, target)
			cells = append(cells, code(served))
			if r.Name == "net/http" {
				under = counted
			}
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n",
			strings.ReplaceAll(target, "|", "\\|"), code(under...), strings.Join(cells, " | "))
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

// code returns the texts as code, or a dash.
func code(texts ...string) string {
	texts = slices.DeleteFunc(slices.Clone(texts), func(s string) bool { return s == "" })
	if len(texts) == 0 {
		return "–"
	}
	return "`" + strings.Join(texts, "` `") + "`"
}

const intro = `# Paths, routers and policies

For those who limit by path, and ask which spellings of it a client may try.

A client must not avoid a policy by another spelling of its path. A policy therefore
counts every spelling that some router takes for its path. It may count more spellings
than the router at hand serves, but no other path.

- **Parameters.** Servers of Java servlets end a segment at its first semicolon, so
  ` + "`/login;a=1`" + ` and ` + "`/x/..;/login`" + ` count under ` + "`/login`" + `. Where Debian's tomcat10 is installed,
  ` + "`HEADGATE_TOMCAT=1 go -C bench test -run Tomcat ./routers`" + ` tries such spellings and those
  of the table on it: what Tomcat 10.1.52 served by a pattern was counted under its policy.
- **Another path by now.** Inside ` + "`http.StripPrefix`" + `, or after a handler that has set the path,
  a request counts under the policies of the path that the client sent, and of the one that it
  has now.
- **Suffixes.** Rails, and some other frameworks, serve ` + "`/login.json`" + ` as ` + "`/login`" + `. Name both in
  policies: elsewhere they are two paths.

The table is written by a test, which also fails if a router serves a spelling that the
policy of the served pattern does not count:

    go -C bench test ./routers -update

Every router serves five patterns: ` + "`/{$}`, `/about`, `/login`, `/files/{name}` and `/docs/`" + `.
There is a policy for each of them, and one for ` + "`/docs/{name}`" + `. A column shows the pattern
that a router serves a path by, or a dash where it redirects or finds nothing. The second
column shows the policies that count the path with the middleware around a ServeMux.
Routers have their default options.

`
