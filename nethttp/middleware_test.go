package nethttp_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
	"github.com/headgate/headgate/observe/findings"
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

// plainWriter allocates nothing.
type plainWriter struct{ header http.Header }

func (w *plainWriter) Header() http.Header         { return w.header }
func (w *plainWriter) Write(p []byte) (int, error) { return len(p), nil }
func (w *plainWriter) WriteHeader(int)             {}

// serverWriter is a plainWriter that is taken for that of a server of net/http.
type serverWriter struct{ *plainWriter }

var recorded = httptest.NewRecorder()

func (serverWriter) Unwrap() http.ResponseWriter { return recorded }

// always is a store that admits everything.
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
	r := rule("10/1m")
	r.Key = func(r core.Request) (string, bool) { return r.RemoteAddr(), true }
	c.Store, c.Rules, c.Logger = always{}, []limiter.Rule{r}, slog.New(slog.DiscardHandler)
	h := nethttp.New(newLimiter(b, c))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	w, req := serverWriter{&plainWriter{http.Header{}}}, httptest.NewRequest("GET", "/", nil)
	b.ReportAllocs()
	for b.Loop() {
		clear(w.header)
		h.ServeHTTP(w, req)
	}
}

func BenchmarkRefused(b *testing.B) {
	h := nethttp.New(limited(b, "1/1h"))(http.HandlerFunc(hello))
	w, req := serverWriter{&plainWriter{http.Header{}}}, httptest.NewRequest("GET", "/", nil)
	h.ServeHTTP(w, req)
	b.ReportAllocs()
	for b.Loop() {
		clear(w.header)
		h.ServeHTTP(w, req)
	}
}

// A policy names the path that clients send, also if the middleware stands where another is
// left of it.
func TestPathInsideStripPrefix(t *testing.T) {
	var paths []string
	spy := rule("100/1h")
	spy.Key = func(r core.Request) (string, bool) {
		paths = append(paths, r.Path()+" "+r.(interface{ SentPath() string }).SentPath())
		return "", true
	}

	l := newLimiter(t, limiter.Config{Rules: []limiter.Rule{spy}})
	inner := nethttp.New(l)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	// The first is what the mux of a program would do: the handler behind it sees a shorter path.
	for _, h := range []http.Handler{http.StripPrefix("/api", inner), inner} {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/api/login?a=b", nil))
	}

	if want := []string{"/login /api/login", "/api/login "}; !slices.Equal(paths, want) {
		t.Errorf("%q, want %q", paths, want)
	}
}

// The answer of an http.TimeoutHandler ends the lease while its handler goes on. That is said
// once; the other way round all is well.
func TestLeaseAroundATimeoutHandler(t *testing.T) {
	for name, row := range map[string]struct {
		limit string
		chain func(limit func(http.Handler) http.Handler, h http.Handler) http.Handler
		want  int
	}{
		"around": {"2 concurrent ttl=1m", func(limit func(http.Handler) http.Handler, h http.Handler) http.Handler {
			return limit(http.TimeoutHandler(h, time.Minute, "late"))
		}, 1},
		"inside": {"2 concurrent ttl=1m", func(limit func(http.Handler) http.Handler, h http.Handler) http.Handler {
			return http.TimeoutHandler(limit(h), time.Minute, "late")
		}, 0},
		"a rate": {"100/1h", func(limit func(http.Handler) http.Handler, h http.Handler) http.Handler {
			return limit(http.TimeoutHandler(h, time.Minute, "late"))
		}, 0},
	} {
		var log bytes.Buffer
		l := newLimiter(t, limiter.Config{Rules: []limiter.Rule{rule(row.limit)},
			Logger: slog.New(slog.NewTextHandler(&log, nil))})

		h := row.chain(nethttp.New(l), http.HandlerFunc(hello))
		// Three requests make no more lines than one.
		for range 3 {
			get(h, "/")
		}

		if n := strings.Count(log.String(), "code="+findings.EndsEarly); n != row.want {
			t.Errorf("%s: %d lines, want %d:\n%s", name, n, row.want, &log)
		}
	}
}
