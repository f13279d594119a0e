package target

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestPathIsTheOneThatTheClientSent(t *testing.T) {
	// An empty path says that the server's path is the one that was sent, escaped or not.
	for _, row := range []struct{ target, now, want string }{
		{"/api/login", "/api/login", ""},
		{"/api/login?a=b", "/api/login", ""},
		{"/api/login", "/login", "/api/login"},
		{"/api/lo%67in?a=/login", "/login", "/api/login"},

		{"/lo%67in", "/login", ""},

		// A prefix that was cut is found at the end of the path, and one that ends at the root as
		// well.
		{"/a%2Fb", "/a/b", ""},
		{"/api", "/", "/api"},
		{"/api", "", "/api"},
		{"/login/x", "/login", "/login/x"},

		// The form that a proxy is sent.
		{"http://a.example/api/login", "/login", "/api/login"},
		{"http://a.example/login", "/login", ""},
	} {
		// The router of a mounted handler has cut the path since.
		r := httptest.NewRequest("GET", row.target, nil)
		r.URL.Path = row.now
		if got := Path(r); got != row.want {
			t.Errorf("%s, now %s: %q, want %q", row.target, row.now, got, row.want)
		}
	}

	// A request of the program itself has no target, and some targets have no path at all.
	r, _ := http.NewRequest("GET", "http://a.example/api", nil) // no client has sent it
	r.URL.Path = "/"
	if got := Path(r); got != "" {
		t.Errorf("without a target: %q", got)
	}
	for _, text := range []string{"*", "a.example:443", ""} {
		if got := OtherThan("/", text); got != "" {
			t.Errorf("the target %q has the path %q", text, got)
		}
	}
}

func TestPathAllocatesNothing(t *testing.T) {
	r := httptest.NewRequest("GET", "/api/login?a=b", nil)
	if n := testing.AllocsPerRun(100, func() { Path(r) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
