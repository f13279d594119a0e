package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/cmd/headgate-console/internal/config"
	"github.com/headgate/headgate/cmd/headgate-console/internal/trustedproxy"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/redissource"
	"github.com/headgate/headgate/store/memstore"
)

// send sends a request of the administrator, and returns the answer.
func send(t *testing.T, h http.Handler, method, path, kind, body string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	r.RemoteAddr = "10.0.0.1:1"
	r.Header.Set("X-User", "admin")
	r.Header.Set("Content-Type", kind)
	if strings.HasPrefix(body, `{"apps"`) || body == "{}" {
		r.Header.Set("If-None-Match", "*") // a PUT has to say that it creates
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// follower is an instance that reads its policies once, and then what it is notified of.
func follower(t *testing.T, client redis.UniversalClient) *limiter.Limiter {
	t.Helper()
	source, err := redissource.New(client, redissource.Options{})
	if err != nil {
		t.Fatal(err)
	}
	store, err := memstore.New(memstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := limiter.New(limiter.Config{Store: store, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	user := keyfuncs.UserID(func(context.Context) (string, bool) { return "", false })
	f, err := policy.Follow(t.Context(), l, "shop", policy.Bindings{User: user}, source, policy.Options{Poll: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return l
}

// One PUT, or one form, is in force in two instances at once, by the notification: they poll once
// an hour.
func TestOneOverrideIsInForceInAllInstances(t *testing.T) {
	f, err := trustedproxy.New([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, "X-User")
	if err != nil {
		t.Fatal(err)
	}
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer client.Close()
	h := open(t, config.Config{Proxies: f, Redis: &redis.UniversalOptions{Addrs: []string{server.Addr}}})

	const asJSON, asForm = "application/json", "application/x-www-form-urlencoded"
	for _, row := range [][2]string{{"/api/apps/shop", `{}`},
		{"/api/policies/api", `{"apps": ["shop"], "limit": "100/1h", "key": "user"}`}} {
		if w := send(t, h, http.MethodPut, row[0], asJSON, row[1]); w.Code != http.StatusCreated {
			t.Fatalf("%s: %d %s", row[0], w.Code, w.Body)
		}
	}
	waitFor(t, "the policies are published", func() bool {
		return client.Exists(t.Context(), redissource.DefaultPrefix+"{policies}:snapshot").Val() == 1
	})
	instances := []*limiter.Limiter{follower(t, client), follower(t, client)}

	// Subscriptions are made in the background, and a message before them is lost.
	waitFor(t, "both hear", func() bool {
		return client.Publish(t.Context(), redissource.DefaultPrefix+"{policies}:changed", "none").Val() == 2
	})

	inForce := func(what, key string, quota int64) {
		t.Helper()
		begun := time.Now()
		known := func(l *limiter.Limiter) bool {
			list, err := l.Peek(t.Context(), key)
			return err == nil && len(list) == 1 && list[0].Limit.Quota == quota
		}

		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for !known(instances[0]) || !known(instances[1]) {
			if <-tick.C; time.Since(begun) > 10*time.Second {
				t.Fatalf("%s is not in force after 10 s", what)
			}
		}
		t.Logf("%s is in force in both after %v", what, time.Since(begun).Round(time.Millisecond))
	}

	for i := range 3 {
		key := fmt.Sprint("put-", i)
		w := send(t, h, http.MethodPut, "/api/policies/api/overrides/"+key, asJSON,
			`{"limit": "9000/1h", "until": "2099-12-04T17:00:00Z"}`)
		if w.Code != http.StatusOK {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		inForce("the PUT of "+key, key, 9000)

		form := url.Values{"key": {"form-*"}, "limit": {fmt.Sprint(5000+i, "/1h")}}
		w = send(t, h, http.MethodPost, "/policies/api/overrides", asForm, form.Encode())
		if w.Code != http.StatusSeeOther {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		inForce("the form", "form-1", 5000+int64(i))

		w = send(t, h, http.MethodDelete, "/api/policies/api/overrides/"+key, asJSON, "")
		if w.Code != http.StatusNoContent {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		inForce("the DELETE of "+key, key, 100)
	}
}
