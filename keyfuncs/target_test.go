package keyfuncs

import (
	"context"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/test"
)

func TestGlobal(t *testing.T) {
	if got := keyOf(t, Global, from("192.0.2.1:80", "X-Api-Key", "a")); got != "" {
		t.Errorf("key %q", got)
	}
}

func TestRouteAndPath(t *testing.T) {
	r := &test.Request{Pattern: "/users/{id}", URLPath: "/Users//7/"}

	if got := keyOf(t, Route, r); got != "/users/{id}" {
		t.Errorf("route: key %q", got)
	}
	if got := keyOf(t, Path, r); got != "/Users//7/" {
		t.Errorf("path: key %q", got)
	}

	// Without a pattern there is no route, and a path that would fill the store is digested.
	r = &test.Request{URLPath: "/" + strings.Repeat("x", 900_000)}
	if got := keyOf(t, Route, r); got != "" {
		t.Errorf("no route: key %q", got)
	}
	if got := keyOf(t, Path, r); len(got) != len("sha256:")+22 {
		t.Errorf("long path: key of %d bytes", len(got))
	}
}

func TestMethodUnknown(t *testing.T) {
	rows := map[string]string{
		"GET": "GET", "HEAD": "GET", "POST": "POST", "PUT": "PUT", "PATCH": "PATCH", "DELETE": "DELETE",
		"CONNECT": "CONNECT", "OPTIONS": "OPTIONS", "TRACE": "TRACE",
		"": "other", "get": "other", "GETX": "other", "PROPFIND": "other", strings.Repeat("A", 100_000): "other",
	}
	for method, want := range rows {
		if got := keyOf(t, Method, &test.Request{Verb: method}); got != want {
			t.Errorf("%.20q: key %q, want %q", method, got, want)
		}
	}
}

func TestHostSpellings(t *testing.T) {
	// A name of 253 characters, the longest that DNS has.
	label := strings.Repeat("a", 63)
	longest := strings.Join([]string{label, label, label, label[:61]}, ".")
	rows := map[string]string{
		// One host, one key: case, a final dot, ports and brackets make no other.
		"example.com": "example.com", "EXAMPLE.com": "example.com", "example.com.": "example.com",
		"example.com:443":   "example.com",
		"Example.Com.:8080": "example.com", "example.com:": "example.com", " example.com ": "example.com",
		"a_b-c.example": "a_b-c.example",
		"localhost":     "localhost", longest: longest, longest + ".": longest,
		"192.0.2.1": "192.0.2.1", "192.0.2.1:80": "192.0.2.1", "[2001:DB8::0:1]": "2001:db8::1",
		"[2001:db8::1]:80":      "2001:db8::1",
		"[::ffff:192.0.2.1]:80": "192.0.2.1", "2001:db8::1": "2001:db8::1", "[fe80::1%25eth0]": "fe80::1",
		"[::1]:": "::1",

		// What is wrong after the host is ignored, as servers that route by the host do.
		"example.com:99999": "example.com", "example.com:abc": "example.com", "example.com:-1": "example.com",
		"example.com:000080": "example.com",
		"example.com.:x":     "example.com", "example.com:80:80": "example.com", "example.com::": "example.com",
		"example.com:a]":   "example.com",
		"[example.com]:80": "example.com", "[Example.com]": "example.com", "[example.com.]:x": "example.com",
		"[example.com]80": "example.com",
		"192.0.2.1:99999": "192.0.2.1", "[192.0.2.1]:80": "192.0.2.1", "[2001:db8::1]:99999": "2001:db8::1",
		"[2001:db8::1]x": "2001:db8::1",

		// What is no host has the key of unknown callers.
		"": "", ".": "", "..": "", ":": "", ":80": "", "example.com..": "", ".example.com": "", "a..b": "", "[]": "",
		"[]:80":            "",
		"user@example.com": "", "example.com/": "", "ex ample.com": "", "ex\x00ample.com": "", "exämple.com": "",
		"%65xample.com": "",
		"[::1":          "", "[example.com:80": "", "::g": "", longest + "a": "", strings.Repeat("a", 900_000): "",
		"a,b": "",
	}

	for host, want := range rows {
		if got := keyOf(t, Host, with("Host", host)); got != want {
			t.Errorf("%.80q: key %q, want %q", host, got, want)
		}
	}

	// Two Host lines are as good as none.
	if got := keyOf(t, Host, with("Host", "a.example", "b.example")); got != "" {
		t.Errorf("two hosts: key %q", got)
	}
	if got := keyOf(t, Host, with("Host")); got != "" {
		t.Errorf("no host: key %q", got)
	}
}

type userKey struct{}

// user returns the user that signedIn has put into the context.
func user(ctx context.Context) (string, bool) {
	id, ok := ctx.Value(userKey{}).(string)
	return id, ok
}

func signedIn(id string) *test.Request {
	r := with("X-User", "forged")
	r.Ctx = context.WithValue(context.Background(), userKey{}, id)
	return r
}

func TestUser(t *testing.T) {
	if got := keyOf(t, UserID(user), signedIn("alice")); got != "alice" {
		t.Errorf("key %q", got)
	}

	// Who is not signed in has the key of unknown callers; a header does not sign anyone in.
	if got := keyOf(t, UserID(user), with("X-User", "alice")); got != "" {
		t.Errorf("an unknown caller has key %q", got)
	}
	if got := keyOf(t, UserID(user), signedIn("")); got != "" {
		t.Errorf("an empty id has key %q", got)
	}

	if got := keyOf(t, UserID(user), signedIn(strings.Repeat("a", 129))); len(got) != len("sha256:")+22 {
		t.Errorf("a long id has key %q", got)
	}

	// An id counts only if the lookup says so.
	denied := func(context.Context) (string, bool) { return "alice", false }
	if got := keyOf(t, UserID(denied), signedIn("bob")); got != "" {
		t.Errorf("an id that is not ok has key %q", got)
	}

	if got := keyOf(t, UserID(nil), signedIn("alice")); got != "" {
		t.Errorf("without a lookup the key is %q", got)
	}
}
