package e2e

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"regexp"
	"slices"
	"sync"
	"testing"
)

// front stands between the browser and a console, as a proxy that signs people in may. It keeps
// which routes of the pages were asked for.
type front struct {
	url string

	mu      sync.Mutex
	console *httputil.ReverseProxy
	visited map[string]bool // by pattern
}

// proxied is the cookie of a user whom the front has signed in, and identity the header in which
// it says so.
const proxied, identity = "signed-in-by-front", "X-Front-User"

// openFront starts a front without a console behind it.
func openFront(t testing.TB) *front {
	t.Helper()
	f := &front{visited: map[string]bool{}}
	mux := http.NewServeMux()
	mux.HandleFunc("/", f.serve)
	for _, p := range patterns(t) {
		mux.HandleFunc(p, f.serve)
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	f.url = server.URL
	return f
}

// serve asks the console.
func (f *front) serve(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.visited[r.Pattern] = true
	console := f.console
	f.mu.Unlock()

	// Only the front names a user, as a proxy does: a browser that sends the header itself is
	// nobody.
	r.Header.Del(identity)
	if c, err := r.Cookie(proxied); err == nil {
		r.Header.Set(identity, c.Value)
	}
	// If the console answers early, the server closes the body while the proxy may still read it.
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler) // the browser has gone
	}
	r.Body = io.NopCloser(bytes.NewReader(body))

	console.ServeHTTP(w, r)
}

// leadsTo puts a console behind the front.
func (f *front) leadsTo(t testing.TB, address string) {
	t.Helper()

	to, err := url.Parse("http://" + address)
	if err != nil {
		t.Fatal(err)
	}

	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)

	f.mu.Lock()
	defer f.mu.Unlock()
	f.console = &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = r.In.Host
	}}
}

var pattern = regexp.MustCompile(`\{pattern: "([^"]+)"`)

// patterns returns the routes of all pages.
func patterns(t testing.TB) (list []string) {
	t.Helper()
	text, err := os.ReadFile("../internal/web/routes.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range pattern.FindAllSubmatch(text, -1) {
		list = append(list, string(m[1]))
	}
	if len(list) < 50 || !slices.Contains(list, "GET /{$}") {
		t.Fatalf("routes.go has the routes %q", list)
	}
	return list
}

// unvisited returns the routes that were never asked for at any of the fronts.
func unvisited(t testing.TB, fronts ...*front) (list []string) {
	t.Helper()
	list = patterns(t)
	for _, f := range fronts {
		f.mu.Lock()
		list = slices.DeleteFunc(list, func(p string) bool { return f.visited[p] })
		f.mu.Unlock()
	}
	return list
}
