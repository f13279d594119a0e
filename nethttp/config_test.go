package nethttp_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
)

// An http.HandlerFunc that is nil is an http.Handler that is not nil.
func TestDegradedByANilHandlerFunc(t *testing.T) {
	var log bytes.Buffer
	soft := rule("1/1m fixed-window")
	soft.OnLimit = limiter.Degrade
	l := newLimiter(t, limiter.Config{Rules: []limiter.Rule{soft}, Logger: slog.New(slog.NewTextHandler(&log, nil))})

	h := nethttp.New(l, nethttp.Config{Degraded: http.HandlerFunc(nil)})(http.HandlerFunc(hello))
	// The degraded request gets the answer of the handler itself, as there is no other.
	for _, want := range []string{"hello", "cheap"} {
		if w := get(h, "/"); w.Code != 200 || w.Body.String() != want {
			t.Errorf("%d %q, want %q", w.Code, w.Body, want)
		}
	}

	const want = `error="Config.Degraded is an http.HandlerFunc that is nil, and is ignored"` + "\n"
	if got := log.String(); !strings.HasSuffix(got, want) || strings.Count(got, "\n") != 1 {
		t.Errorf("logged %s", got)
	}
}

func TestNilHandler(t *testing.T) {
	for name, next := range map[string]http.Handler{"nil": nil, "a nil function": http.HandlerFunc(nil)} {
		var log bytes.Buffer
		l := newLimiter(t, limiter.Config{Rules: []limiter.Rule{rule("1/1m fixed-window")},
			Logger: slog.New(slog.NewTextHandler(&log, nil))})
		h := nethttp.New(l)(next)

		const want = `nethttp.New was called with a mistake" error="the handler is nil, so requests that pass get 404"` + "\n"
		if got := log.String(); !strings.HasSuffix(got, want) || strings.Count(got, "\n") != 1 {
			t.Errorf("%s: logged %s", name, got)
		}

		for _, want := range []int{404, 429} {
			if w := get(h, "/"); w.Code != want {
				t.Errorf("%s: %d, want %d", name, w.Code, want)
			}
		}
	}
}

// A ReverseProxy adds the headers of its backend to those that are set.
func TestReverseProxyHeaders(t *testing.T) {
	backend := httptest.NewServer(nethttp.New(newLimiter(t,
		limiter.Config{Rules: []limiter.Rule{rule("5/1m fixed-window")}}))(http.HandlerFunc(hello)))
	defer backend.Close()
	target, err := url.Parse(backend.URL)
	if err != nil {
		t.Fatal(err)
	}

	// Without headers in front only the backend's are sent. With them both are there, those in
	// front first.
	for style, want := range map[limiter.HeaderStyle][]string{limiter.NoHeaders: {"5"},
		limiter.XRateLimit: {"9", "5"}} {
		front := newLimiter(t, limiter.Config{Headers: style, Rules: []limiter.Rule{rule("9/1m fixed-window")}})
		w := get(nethttp.New(front)(httputil.NewSingleHostReverseProxy(target)), "/")
		if got := w.Header()["X-Ratelimit-Limit"]; w.Code != 200 || !slices.Equal(got, want) {
			t.Errorf("%d with %q, want %q", w.Code, got, want)
		}
	}
}
