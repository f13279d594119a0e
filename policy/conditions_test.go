package policy_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
)

// A request is excepted only if no router could take it for another.
func TestExceptionsNeedEverySpelling(t *testing.T) {
	x := index(t, policy.Match{Path: "/", Except: []string{"/healthz", "/static/", "/v1/{id}/status",
		"/posts/{$}", "/Info"}})

	for path, applies := range map[string]bool{
		"/healthz":              false,
		"/healthz/":             true,
		"/HEALTHZ":              true,
		"//healthz":             true,
		"/static":               true,
		"/static/a/b":           false,
		"/v1/7/status":          false,
		"/login":                true,
		"/":                     true,
		"":                      true,
		"*":                     true,
		"/healthz/login":        true,
		"/v1/status":            true,
		"/v1/7/8/status":        true,
		"/healthz/../login":     true, // as it came it is below /healthz, cleaned it is /login
		"/login/../healthz":     true, // a router that does not clean has no such handler
		"/static/../login":      true,
		"/static/..;/login":     true, // servlets end a segment at a semicolon
		"/static/a/../b":        true,
		"/healthz;x=1":          true,
		"/static;/../login":     true,
		"/static/%2e%2e/login":  true, // decoded once, this is a name, and twice it is not
		"/healthz/./":           true,
		"/healthz\x00":          true,
		"/v1/../healthz/status": true,
		"//static/login":        true, // some programs take the first segment for a host
		`/static/..\login`:      true,
		"/static/a\x01":         true,
		"/static/\xff":          true,
		"/static/.well-known/a": true,
		"/Static/a":             true,
		"/static/":              false,
		"/v1//status":           true,
		"/v1/7/status/":         true,
		"/posts/":               false,
		"/posts":                true,
		"/posts/1":              true,
		"/Info":                 false,
		"/info":                 true,
	} {
		if got := len(x.Select(get(path), nil)) == 1; got != applies {
			t.Errorf("%q: the policy applies: %t", path, got)
		}
	}

	// A slash that is encoded is one to some routers, and a part of its segment to others. A proxy
	// or a middleware may have rewritten the path that the client sent.
	for name, r := range map[string]core.Request{
		"an encoded slash":                asSent{get("/v1/a/b/status"), "/v1/a%2Fb/status"},
		"an encoded slash and dots":       asSent{get("/v1/a/../../login"), "/v1/a%2F..%2F..%2Flogin"},
		"another path that was sent":      sent{get("/healthz"), "/login"},
		"another path that is served now": sent{get("/login"), "/healthz"},
	} {
		if len(x.Select(r, nil)) != 1 {
			t.Errorf("%s makes an exception", name)
		}
	}

	// A route says what a router makes of the path. It may cover others too.
	r := get("/healthz")
	r.Pattern = "/"
	if len(x.Select(r, nil)) != 0 {
		t.Error("a catch-all route ends an exception")
	}
}

func TestHeadersAreConditions(t *testing.T) {

	x := index(t,
		policy.Match{Headers: table{"x-plan": {"free"}}},
		policy.Match{Headers: table{"X-Plan": {"*"}}},
		policy.Match{Path: "/a", Headers: table{"X-Plan": {"free"}, "X-Region": {"eu"}}},
		policy.Match{})

	for _, c := range []struct {
		path   string
		header http.Header
		want   string
	}{
		{"/", nil, "3"},
		{"/", http.Header{"X-Plan": {"free"}}, "0 1 3"},
		{"/", http.Header{"X-Plan": {"Free"}}, "1 3"},
		{"/", http.Header{"X-Plan": {""}}, "1 3"},
		{"/", http.Header{"X-Plan": {"pro", "free"}}, "0 1 3"},
		{"/", http.Header{"X-Plan": {"a, free"}}, "1 3"}, // a value of a list is none
		{"/", http.Header{"X_Plan": {"free"}}, "3"},      // nor is a name that CGI backends read alike
		{"/a", http.Header{"X-Plan": {"free"}}, "0 1 3"},
		{"/a", http.Header{"X-Plan": {"free"}, "X-Region": {"eu"}}, "0 1 2 3"},
		{"/b", http.Header{"X-Plan": {"free"}, "X-Region": {"eu"}}, "0 1 3"},
	} {
		r := get(c.path)
		r.Headers = c.header

		if got := strings.Trim(fmt.Sprint(x.Select(r, nil)), "[]"); got != c.want {
			t.Errorf("%s %v: %s, want %s", c.path, c.header, got, c.want)
		}
	}
}

// table is one of a match.
type table = map[string]policy.Values

func TestConditionsAreChecked(t *testing.T) {
	many := table{}
	for _, c := range "abcdefghi" {
		many["X-"+string(c)] = policy.Values{"1"}
	}

	for _, c := range []struct {
		match policy.Match
		want  string
	}{
		{policy.Match{Except: []string{""}}, "match.except: a pattern is empty; write, say, /healthz"},
		{policy.Match{Except: []string{"/"}}, `match.except: "/" excepts all requests`},
		{policy.Match{Except: []string{"/{all...}"}}, `match.except: "/{all...}" excepts all requests`},
		{policy.Match{Except: []string{"/a", "/b", "/a"}}, `match.except: "/a" is named twice`},
		{policy.Match{Except: []string{"healthz", "/x/*"}}, `match.except: "healthz" does not begin with a slash; `},
		{policy.Match{Except: make([]string, 33)}, "match.except: 33 patterns are more than 32"},
		{policy.Match{Headers: many}, "match.headers: 9 headers are more than 8"},
		{policy.Match{Headers: table{"X Y": {"1"}}}, `match.headers: "X Y" is not the name of a header`},
		{policy.Match{Headers: table{"Host": {"a"}}}, `match.headers: the header Host has its own`},
		{policy.Match{Headers: table{"X-A": {"1"}, "x-a": {"2"}}},
			"match.headers: the header X-A is named twice"},
		{policy.Match{Headers: table{"X-A": {""}}},
			`match.headers: the value of X-A is empty; write "*" for any`},
		{policy.Match{Headers: table{"X-A": {" 1"}}}, "match.headers: the value of X-A has space at an end"},
		{policy.Match{Headers: table{"X-A": {"a\nb"}}},
			"match.headers: the value of X-A has space at an end"},
		{policy.Match{Headers: table{"X-A": {"\xff"}}}, "match.headers: the value of X-A: it is not UTF-8"},
		{policy.Match{Headers: table{"X-A": nil}}, `match.headers: X-A has no value; write "*" for any`},
		{policy.Match{Headers: table{"X-A": {"a", "b", "a"}}},
			`match.headers: the value "a" of X-A is named twice`},
		{policy.Match{Query: table{"a": {"a", "*"}}},
			`match.query: "*" of a stands for any value; leave the others out`},
		{policy.Match{Query: table{"a": make(policy.Values, 17)}},
			"match.query: the 17 values of a are more than 16"},
		{policy.Match{Query: many}, "match.query: 9 parameters are more than 8"},
		{policy.Match{Query: table{"": {"a"}}}, "match.query: the name of a parameter is empty"},
		{policy.Match{Query: table{"a ": {"a"}}},
			`match.query: the name "a " of a parameter has space at an end`},
		{policy.Match{Claims: many}, "match.claims: 9 claims are more than 8"},
		{policy.Match{Claims: table{"\xff": {"a"}}}, "match.claims: the name of a claim: it is not UTF-8"},
		{policy.Match{Claims: table{"a": {""}}},
			`match.claims: the value of a is empty; write "*" for any`},
		{policy.Match{Headers: table{"X-Forwarded-For": {"1"}}},
			"match.headers: the header X-Forwarded-For names addresses"},
	} {
		p := valid(t, "p")
		p.Match = c.match

		// Who makes an index need not have validated the policies.
		if err := p.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
		if _, err := policy.NewIndex([]policy.Policy{p}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("the index: %v, want %s", err, c.want)
		}
	}
}
