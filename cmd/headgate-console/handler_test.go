package main

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/cmd/headgate-console/internal/app"
	"github.com/headgate/headgate/cmd/headgate-console/internal/config"
	"github.com/headgate/headgate/cmd/headgate-console/internal/trustedproxy"
	"github.com/headgate/headgate/internal/test/redistest"
)

// answer is a status and a Content-Type.
type answer struct {
	status int
	kind   string
}

// open opens a console and returns its handler.
func open(t *testing.T, c config.Config) http.Handler {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	c.DB = "sqlite://" + filepath.Join(t.TempDir(), "console.db")

	a, err := app.Open(t.Context(), c, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })

	h, err := handler(a, c, quiet)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestHandlerServesPagesAPIAndHealth(t *testing.T) {
	h := open(t, config.Config{})

	// A probe, a page, a resource of the API, and a path of none of them.
	for path, want := range map[string]answer{
		"/healthz":      {200, "text/plain; charset=utf-8"},
		"/login":        {200, "text/html; charset=utf-8"},
		"/api/policies": {401, "application/problem+json"},
		"/nowhere":      {404, "text/html; charset=utf-8"},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		if got := (answer{w.Code, w.Header().Get("Content-Type")}); got != want {
			t.Errorf("%s: the answer is %v, want %v", path, got, want)
		}
	}
}

func TestHandlerTrustsTheProxy(t *testing.T) {
	f, err := trustedproxy.New([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, "X-User")
	if err != nil {
		t.Fatal(err)
	}

	h := open(t, config.Config{Proxies: f, Secure: true})

	// Only the peer within the trusted prefix may name a user; the same header from elsewhere
	// means nothing.
	for peer, want := range map[string]map[string]int{
		"10.0.0.1:1":  {"/policies": 200, "/api/apps": 200},
		"192.0.2.1:1": {"/policies": 303, "/api/apps": 401},
	} {
		for path, status := range want {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
			r.RemoteAddr = peer
			r.Header.Set("X-User", "admin")

			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != status {
				t.Errorf("%s from %s: the status is %d and not %d", path, peer, w.Code, status)
			}

			// The proxy ends TLS, so browsers are to be held to it although the request came in
			// the clear.
			if path == "/policies" && w.Header().Get("Strict-Transport-Security") == "" {
				t.Error("browsers are not told to use TLS")
			}
		}
	}
}

func TestHandlerResetsKeysInRedis(t *testing.T) {
	f, err := trustedproxy.New([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, "X-User")
	if err != nil {
		t.Fatal(err)
	}
	server := redistest.Start(t)

	h := open(t, config.Config{Proxies: f, Redis: &redis.UniversalOptions{Addrs: []string{server.Addr},
		ContextTimeoutEnabled: true}})

	// The documentation shows the request for an override.
	const override, path = `{"limit": "9000/1h", "until": "2099-12-04T17:00:00Z"}`, "/api/policies/api/overrides/acme:*"
	page, err := os.ReadFile("../../docs/console.md")
	for _, part := range []string{"-d '" + override + "'", path} {
		if err != nil || !strings.Contains(string(page), part) {
			t.Errorf("docs/console.md does not show %s, %v", part, err)
		}
	}

	// The steps build on each other, from an application to the reset of a key and its trace in
	// the audit log.
	for _, ask := range []struct {
		method, path, body string
		status             int
		answer             string
	}{
		{"PUT", "/api/apps/a", `{}`, 201, `"a"`},
		{"PUT", "/api/policies/p", `{"apps":["a"],"limit":"5/1h","key":"ip"}`, 201, `"p"`},
		{"PUT", "/api/policies/api", `{"apps":["a"],"limit":"5/1h","key":"user"}`, 201, `"api"`},
		{"PUT", path, override, 200, ""},
		{"POST", "/api/policies/p/key", `{"key":"192.0.2.1"}`, 200, `"remaining":5`},
		{"POST", "/api/policies/p/key/reset", `{"key":"192.0.2.1"}`, 204, ""},
		{"GET", "/audit?action=key.reset&outcome=done", "", 200, `<td data-head="What">key.reset</td>`},
	} {
		r := httptest.NewRequestWithContext(t.Context(), ask.method, ask.path, strings.NewReader(ask.body))
		r.RemoteAddr = "10.0.0.1:1"
		r.Header.Set("X-User", "admin")

		// A PUT has to say that it creates.
		if ask.status == http.StatusCreated {
			r.Header.Set("If-None-Match", "*")
		}
		r.Header.Set("Content-Type", "application/json")

		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != ask.status || !strings.Contains(w.Body.String(), ask.answer) {
			t.Errorf("%s %s: %d %s", ask.method, ask.path, w.Code, w.Body)
		}
	}
}
