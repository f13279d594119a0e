package forwardauth

import (
	"net/url"
	"strings"
	"testing"
)

func TestTarget(t *testing.T) {
	for _, row := range []struct{ target, path, raw, query string }{
		{"/", "/", "", ""},
		{"/a/b;c?d=e&f", "/a/b;c", "", "d=e&f"},
		{"//evil.test/a", "//evil.test/a", "", ""},
		{"/a%2Fb", "/a/b", "/a%2Fb", ""},
		{"/%61", "/a", "/%61", ""},
		{"/a//../b", "/a//../b", "", ""},
		{"/a b", "/a b", "/a b", ""},
		{"/grün", "/grün", "/grün", ""},
		{"/a?%zz", "/a", "", "%zz"},
		{"*", "*", "", ""},
	} {
		var u url.URL
		if !parseTarget(&u, row.target) || u.Path != row.path || u.RawPath != row.raw || u.RawQuery != row.query {
			t.Errorf("%q: %+v", row.target, u)
		}
	}

	for _, target := range []string{"/%zz", "/%2", "/a#b", "/a?b#c", "/\x00", "/a?\x7f", "/a?\n", "", "a"} {
		if u := new(url.URL); parseTarget(u, target) {
			t.Errorf("%q is taken for %+v", target, u)
		}
	}
}

func TestTargetAllocatesNothing(t *testing.T) {
	var u url.URL
	if n := testing.AllocsPerRun(100, func() { parseTarget(&u, "/users/1234/orders?sort=date") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A target is what net/http takes it for, so a policy means the same in every face.
func FuzzTarget(f *testing.F) {
	// What the two parsers could take differently: each kind of delimiter, and each byte.
	for _, s := range []string{"/", "/a?b", "/a??", "/?", "//a", "/%2f", "/~a!(b)*'c", "/a:b@c$d&e+f,g;h=i", "/ü", "*",
		"/[x]|\"<>^`{}\\", "/%zz"} {
		f.Add(s)
	}
	for c := range 256 {
		f.Add("/a" + string([]byte{byte(c)}) + "b")
	}

	f.Fuzz(func(t *testing.T, s string) {
		if !strings.HasPrefix(s, "/") && s != "*" {
			if parseTarget(new(url.URL), s) {
				t.Errorf("%q has no slash", s)
			}
			return
		}

		var got url.URL
		ok := parseTarget(&got, s)
		want, err := url.ParseRequestURI(s)

		// A fragment is never sent. net/url would cut it off here, and a policy would see another
		// path than the server.
		if strings.Contains(s, "#") {
			if ok {
				t.Errorf("%q has a fragment", s)
			}
			return
		}

		if ok != (err == nil) || ok && got != *want {
			t.Errorf("%q: %v %+v, net/url: %+v, %v", s, ok, got, want, err)
		}
	})
}
