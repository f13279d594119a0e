package nethttp_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
)

func hello(w http.ResponseWriter, r *http.Request) {
	if limiter.Degraded(r.Context()) {
		_, _ = io.WriteString(w, "cheap")
		return
	}
	_, _ = io.WriteString(w, "hello")
}

func get(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return w
}

func TestOptionsReplaceTheAnswersAndSkip(t *testing.T) {
	own := func(w http.ResponseWriter, _ *http.Request, a *limiter.Admission) {
		w.WriteHeader(418)
		_, _ = io.WriteString(w, a.Outcome().String())
	}
	opts := []nethttp.Option{nethttp.WithRefused(own), nethttp.WithFailed(own),
		nethttp.WithSkip(func(r *http.Request) bool { return r.URL.Path == "/health" })}
	l := limited(t, "1/1m fixed-window")
	h := nethttp.New(l, opts...)(http.HandlerFunc(hello))
	for range 5 {
		if w := get(h, "/health"); w.Code != 200 || len(w.Header()["Ratelimit"]) != 0 {
			t.Errorf("%d %v", w.Code, w.Header())
		}
	}
	wantLeft(t, l, 1)
	get(h, "/")
	if w := get(h, "/"); w.Code != 418 || w.Body.String() != "refused" || w.Header().Get("Retry-After") != "60" {
		t.Errorf("%d %q %v", w.Code, w.Body, w.Header())
	}
	down := newLimiter(t, limiter.Config{Store: downStore{}, Rules: []limiter.Rule{rule(t, "1/1s")}, OnStoreError: limiter.FailClosed})
	if w := get(nethttp.New(down, opts...)(http.HandlerFunc(hello)), "/"); w.Code != 418 || w.Body.String() != "failed" {
		t.Errorf("%d %q", w.Code, w.Body)
	}
}

func TestPreflightsPassUncounted(t *testing.T) {
	l := limited(t, "1/1m")
	h := nethttp.New(l)(http.HandlerFunc(hello))
	for range 3 {
		r := httptest.NewRequest("OPTIONS", "/", nil)
		r.Header.Set("Origin", "https://a.example")
		r.Header.Set("Access-Control-Request-Method", "PUT")
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != 200 {
			t.Errorf("%d", w.Code)
		}
	}
	wantLeft(t, l, 1)
}

func TestRulesSeeTheRequestAsItIs(t *testing.T) {
	var got []string
	spy := rule(t, "9/1m")
	spy.Key = func(r core.Request) (string, bool) {
		got = append([]string{r.Method(), r.Path(), r.Route(), r.RemoteAddr()}, r.Header("Host")...)
		got = append(got, r.Header("X-Forwarded-For")...)
		return "", r.Context() != nil
	}
	mux := http.NewServeMux()
	mux.Handle("GET /users/{id}", nethttp.New(newLimiter(t, limiter.Config{Rules: []limiter.Rule{spy}}))(http.HandlerFunc(hello)))
	r := httptest.NewRequest("GET", "http://api.example/users/%37", nil)
	r.Header["X-Forwarded-For"] = []string{"6.6.6.6", "7.7.7.7"}
	mux.ServeHTTP(httptest.NewRecorder(), r)
	want := []string{"GET", "/users/7", "GET /users/{id}", "192.0.2.1:1234", "api.example", "6.6.6.6", "7.7.7.7"}
	if len(got) != len(want) {
		t.Fatalf("got %q", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("got %q, want %q", got[i], want[i])
		}
	}
}

func TestAKeyFunctionMayKnowTheRequest(t *testing.T) {
	r := rule(t, "1/1m")
	r.Key = nethttp.Key(func(r *http.Request) (string, bool) { return r.URL.Query().Get("k"), true })
	h := nethttp.New(newLimiter(t, limiter.Config{Rules: []limiter.Rule{r}}))(http.HandlerFunc(hello))
	for i, want := range []int{200, 200, 429} {
		if w := get(h, []string{"/?k=1", "/?k=2", "/?k=1"}[i]); w.Code != want {
			t.Errorf("request %d: %d, want %d", i, w.Code, want)
		}
	}
	if key, ok := r.Key(nil); key != "" || !ok {
		t.Errorf("another framework's request: %q, %t", key, ok)
	}
}

// plainWriter costs the test no allocation.
type plainWriter struct{ header http.Header }

func (w *plainWriter) Header() http.Header         { return w.header }
func (w *plainWriter) Write(p []byte) (int, error) { return len(p), nil }
func (w *plainWriter) WriteHeader(int)             {}

// always admits.
type always struct{}

func (always) Apply(_ context.Context, ops []core.Op, out []core.Decision) error {
	for i := range ops {
		out[i] = core.Decision{Allowed: true, Remaining: 7, ResetAfter: 1, At: 1}
	}
	return nil
}

func BenchmarkMiddleware(b *testing.B) {
	b.Run("default", func(b *testing.B) { benchmark(b, limiter.Config{}) })
	b.Run("KeepResult", func(b *testing.B) { benchmark(b, limiter.Config{KeepResult: true}) })
}

func benchmark(b *testing.B, c limiter.Config) {
	r := rule(b, "10/1m")
	r.Key = func(r core.Request) (string, bool) { return r.RemoteAddr(), true }
	c.Store, c.Rules, c.Logger = always{}, []limiter.Rule{r}, slog.New(slog.DiscardHandler)
	h := nethttp.New(newLimiter(b, c))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	w, req := &plainWriter{http.Header{}}, httptest.NewRequest("GET", "/", nil)
	b.ReportAllocs()
	for b.Loop() {
		clear(w.header)
		h.ServeHTTP(w, req)
	}
}
