package policy_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/policy"
)

// withQuery is a request with a query, which counts how often it is read.
type withQuery struct {
	*test.Request
	query string
	read  *int
}

func (a withQuery) RawQuery() string {
	*a.read++
	return a.query
}

func query(text string) withQuery { return withQuery{get("/"), text, new(int)} }

func values(list ...string) map[string]policy.Values {
	table := map[string]policy.Values{}
	for _, pair := range list {
		name, value, _ := strings.Cut(pair, "=")
		table[name] = append(table[name], value)
	}
	return table
}

func selected(x *policy.Index, r core.Request) string {
	return strings.Trim(fmt.Sprint(x.Select(r, nil)), "[]")
}

func TestQueryIsACondition(t *testing.T) {
	x := index(t,
		policy.Match{Query: values("export=csv")},
		policy.Match{Query: values("export=*")},
		policy.Match{Query: values("export=csv", "export=xlsx", "all=1")},
		policy.Match{Query: values("q=a b")},
		policy.Match{})

	for text, want := range map[string]string{
		"":                        "4",
		"export":                  "1 4",
		"export=":                 "1 4",
		"export=csv":              "0 1 4",
		"export=CSV":              "1 4",
		"Export=csv":              "4",
		"export=pdf&export=csv":   "0 1 4", // any of those that stand twice
		"export=xlsx&all=1":       "1 2 4",
		"all=1&export=csv&all=2":  "0 1 2 4",
		"all=2&export=csv":        "0 1 4",
		"export=*":                "1 4",
		"%65xport=c%73v":          "0 1 4",
		"q=a+b":                   "3 4",
		"q=a%20b":                 "3 4",
		"q=a%2Bb":                 "4",
		"export=csv;all=1":        "4", // as net/http reads it
		"all=1;export=csv":        "4",
		"export=csv&a;b":          "0 1 4",
		"export=csv%zz":           "4",
		"%zz=1&export=csv":        "0 1 4",
		"&&export=csv&":           "0 1 4",
		"export=csv&export=csv%z": "0 1 4",
	} {
		if got := selected(x, query(text)); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}

	// A request of another kind has no query.
	if got := selected(x, get("/")); got != "4" {
		t.Errorf("without a query: %s", got)
	}
}

// A set may ask for more terms than a word has bits.
func TestQueryOfManyPolicies(t *testing.T) {
	var matches []policy.Match
	for i := range 200 {
		matches = append(matches, policy.Match{Query: values(fmt.Sprintf("n=%d", i), "n=x")})
	}
	x := index(t, matches...)

	for i := range 200 {
		if got, want := selected(x, query(fmt.Sprintf("n=%d", i))), fmt.Sprint(i); got != want {
			t.Errorf("%d: %s", i, got)
		}
	}
	if n := len(x.Select(query("n=x"), nil)); n != 200 {
		t.Errorf("%d", n)
	}
}

// The query is read once, and not at all unless a policy asks for it that applies otherwise.
func TestQueryIsReadOnce(t *testing.T) {
	x := index(t, policy.Match{Path: "/a", Query: values("a=1")}, policy.Match{Path: "/a/", Query: values("b=1")},
		policy.Match{Methods: []string{"POST"}, Query: values("c=1")}, policy.Match{Path: "/b"})

	for path, want := range map[string]int{"/a": 1, "/A/../a": 1, "/b": 0} {
		r := query("a=1&b=1&c=1")
		r.URLPath = path
		x.Select(r, nil)
		if *r.read != want {
			t.Errorf("%s: read %d times, want %d", path, *r.read, want)
		}
	}

	// A parameter that needs no decoding needs no memory.
	r, room := query("export=csv&a=1&b=1"), make([]int, 0, 8)
	r.URLPath = "/a"
	var view core.Request = r
	if n := testing.AllocsPerRun(100, func() { x.Select(view, room) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Parameters are those that net/http finds.
func TestQueryIsReadAsNetHTTPDoes(t *testing.T) {
	x := index(t, policy.Match{Query: values("a=b")}, policy.Match{Query: values("a=*")},
		policy.Match{Query: map[string]policy.Values{"b": {"a", "%"}}})
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{
			"a", "b", "=", "&", ";", "%", "%61", "%3D", "%26", "%3b", "+", "%2", "b=", "a=b"}), 0, 12).Draw(t, "text"), "")
		parsed, _ := url.ParseQuery(text)

		want := []string{}
		for i, met := range []bool{has(parsed["a"], "b"), len(parsed["a"]) > 0, has(parsed["b"], "a", "%")} {
			if met {
				want = append(want, fmt.Sprint(i))
			}
		}
		if got := selected(x, query(text)); got != strings.Join(want, " ") {
			t.Fatalf("%q: %s, want %v", text, got, want)
		}
	})
}

func has(list []string, values ...string) bool {
	for _, v := range list {
		for _, w := range values {
			if v == w {
				return true
			}
		}
	}
	return false
}

func TestQueryIsDoubted(t *testing.T) {
	for text, want := range map[string]string{
		"a%20b=1": `match.query: "a%20b" is encoded; those of a request are decoded, as "a b"`,
		"a=b%2Fc": `match.query: "b%2Fc" is encoded; those of a request are decoded, as "b/c"`,
		"?a=1":    `match.query: "?a" is the name of a parameter; its value stands apart`,
		"a=100%":  "",
		"a=b+c":   "",
	} {
		p := valid(t, "p")
		p.Match.Query = values(text)
		got := ""
		for _, d := range p.Doubts() {
			got += d.Error()
		}
		if want != "" {
			want = `policy "p": ` + want
		}
		if got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
