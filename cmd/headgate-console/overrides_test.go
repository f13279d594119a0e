package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
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
	f, err := policy.Follow(t.Context(), l, "shop", policy.Bindings{User: user}, source,
		policy.Options{Poll: time.Hour, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return l
}

// fleet is a console with the policy api, and two instances.
type fleet struct {
	t         *testing.T
	console   http.Handler
	instances [2]*limiter.Limiter
}

func openFleet(t *testing.T) *fleet {
	t.Helper()
	proxy, err := trustedproxy.New([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, "X-User")
	if err != nil {
		t.Fatal(err)
	}
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	t.Cleanup(func() { client.Close() })
	f := &fleet{t: t, console: open(t, config.Config{
		Proxies: proxy, Redis: &redis.UniversalOptions{Addrs: []string{server.Addr}}})}

	f.sends(http.MethodPut, "/api/apps/shop", asJSON, `{}`, http.StatusCreated)
	f.sends(http.MethodPut, "/api/policies/api", asJSON, `{"apps": ["shop"], "limit": "100/1h", "key": "user"}`,
		http.StatusCreated)
	waitFor(t, "the policies are published", func() bool {
		return client.Exists(t.Context(), redissource.DefaultPrefix+"{policies}:snapshot").Val() == 1
	})
	f.instances = [2]*limiter.Limiter{follower(t, client), follower(t, client)}

	// Subscriptions are made in the background, and a message before them is lost.
	waitFor(t, "both hear", func() bool {
		return client.Publish(t.Context(), redissource.DefaultPrefix+"{policies}:changed", "none").Val() == 2
	})
	return f
}

// sends fails unless the answer has the status.
func (f *fleet) sends(method, path, kind, body string, status int) {
	f.t.Helper()
	if w := send(f.t, f.console, method, path, kind, body); w.Code != status {
		f.t.Fatalf("%s %s: %d %s", method, path, w.Code, w.Body)
	}
}

// has waits until both instances have the quota of a key, and do not ban it.
func (f *fleet) has(what, key string, quota int64) {
	f.t.Helper()
	f.meets(what, key, func(d limiter.RuleDecision) bool { return d.Limit.Quota == quota && !d.Decision.Banned })
}

// meets waits until a key meets what holds in both instances.
func (f *fleet) meets(what, key string, holds func(limiter.RuleDecision) bool) {
	f.t.Helper()
	begun := time.Now()
	known := func(l *limiter.Limiter) bool {
		list, err := l.Peek(f.t.Context(), key)
		return err == nil && len(list) == 1 && holds(list[0])
	}

	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !known(f.instances[0]) || !known(f.instances[1]) {
		if <-tick.C; time.Since(begun) > 10*time.Second {
			f.t.Fatalf("%s is not in force after 10 s", what)
		}
	}
	f.t.Logf("%s is in force in both after %v", what, time.Since(begun).Round(time.Millisecond))
}

const asJSON, asForm = "application/json", "application/x-www-form-urlencoded"

// One PUT, or one form, is in force in two instances at once, by the notification: they poll once
// an hour.
func TestOneOverrideIsInForceInAllInstances(t *testing.T) {
	f := openFleet(t)

	// The documentation shows this request.
	const body, path = `{"limit": "9000/1h", "until": "2099-12-04T17:00:00Z"}`, "/api/policies/api/overrides/"
	page, err := os.ReadFile("../../docs/console.md")
	for _, part := range []string{"-d '" + body + "'", path + "acme:*"} {
		if err != nil || !strings.Contains(string(page), part) {
			t.Errorf("docs/console.md does not show %s, %v", part, err)
		}
	}
	f.sends(http.MethodPut, path+"acme:*", asJSON, body, http.StatusOK)
	f.has("the PUT of a prefix", "acme:1", 9000)

	for i := range 3 {
		key := fmt.Sprint("put-", i)
		f.sends(http.MethodPut, path+key, asJSON, body, http.StatusOK)
		f.has("the PUT of "+key, key, 9000)

		form := url.Values{"key": {"form-*"}, "limit": {fmt.Sprint(5000+i, "/1h")}}
		f.sends(http.MethodPost, "/policies/api/overrides", asForm, form.Encode(), http.StatusSeeOther)
		f.has("the form", "form-1", 5000+int64(i))

		f.sends(http.MethodDelete, path+key, asJSON, "", http.StatusNoContent)
		f.has("the DELETE of "+key, key, 100)
	}
}

// A ban of a key is in force in two instances at once, whatever the policy, and so is its end.
func TestOneBanIsInForceInAllInstances(t *testing.T) {
	f := openFleet(t)
	const bans = "/api/policies/api/bans"
	passes := func() (n int) {
		for _, l := range f.instances {
			if d, err := l.Allow(t.Context(), "mallory", 1); err == nil && d.Allowed {
				n++
			}
		}
		return n
	}

	for range 3 {
		f.sends(http.MethodPost, bans, asJSON, `{"key": "mallory", "for": "10m"}`, http.StatusNoContent)
		f.meets("the ban", "mallory", func(d limiter.RuleDecision) bool { return d.Decision.Banned })
		if n := passes(); n != 0 {
			t.Errorf("the banned key passes in %d instances", n)
		}

		f.sends(http.MethodPost, bans+"/lift", asJSON, `{"key": "mallory"}`, http.StatusNoContent)
		f.has("the lift", "mallory", 100)
		if n := passes(); n != 2 {
			t.Errorf("after the lift the key passes in %d instances", n)
		}
	}
}
