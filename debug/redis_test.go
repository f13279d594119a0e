package debug_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/debug"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/store/failover"
	"github.com/headgate/headgate/store/memstore"
	"github.com/headgate/headgate/store/redisstore"
	"github.com/redis/go-redis/v9"
)

// operator knows of a program what its page says in JSON, and nothing else.
type operator struct {
	t   *testing.T
	url string
}

// look returns the report of the only limiter.
func (o *operator) look() debug.Limiter {
	o.t.Helper()
	resp, err := http.Get(o.url + "/debug/limits?format=json")
	if err != nil {
		o.t.Fatal(err)
	}
	defer resp.Body.Close()
	var r debug.Report
	if err := json.NewDecoder(resp.Body).Decode(&r); err != nil || len(r.Limiters) != 1 {
		o.t.Fatalf("%s, %v: %+v", resp.Status, err, r)
	}
	return r.Limiters[0]
}

// program runs a limiter of 2 requests an hour over the store, and its page.
func program(t *testing.T, c limiter.Config) (take func(key string, n int), o *operator) {
	t.Helper()
	c.Rules, c.Top, c.Logger = rules("2/1h"), 10, discard
	l := newLimiter(t, c)
	mux := http.NewServeMux()
	mux.Handle("/debug/limits", debug.Handler(l))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return func(key string, n int) {
		t.Helper()
		for range n {
			_, _ = l.Take(t.Context(), key, 1) // its errors are what the operator sees
		}
	}, &operator{t, server.URL}
}

func redisStore(t *testing.T, server *redistest.Server) *redisstore.Store {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true, MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	return redisstore.MustNew(client, redisstore.Options{Prefix: "debug:", Timeout: time.Second})
}

// Who is refused, by which rule, since when? Is Redis slow? Did requests pass undecided?
func TestOperator(t *testing.T) {
	server := redistest.Start(t)
	begun := time.Now()
	take, o := program(t, limiter.Config{Store: redisStore(t, server)})

	take("mallory", 5)
	take("alice", 1)
	l := o.look()
	if a := l.Answers; len(a.Refusing) != 1 || a.Refusing[0].Rule != "api" || a.Refusing[0].Requests != 3 || a.Refusing[0].TopKey != `"mallory"` ||
		a.Refusing[0].Since.Before(begun.Truncate(time.Millisecond)) || a.Store != "ok" || a.FailedOpen+a.FailedClosed+a.Local != 0 {
		t.Errorf("in good health %+v", a)
	}
	if c := l.Calls; c.Calls != 6 || c.Failed != 0 || c.Recent != 6 || c.Median <= 0 || c.Max < c.Median || c.AtMost != 1 || len(c.Errors) != 0 {
		t.Errorf("calls in good health %+v", c)
	}
	if s := l.Stores; len(s) != 1 || s[0].Store != "redis" || s[0].Servers != "standalone" {
		t.Errorf("stores %+v", s)
	}

	server.Freeze()
	froze := time.Now()
	take("mallory", 2)
	l = o.look()
	if a := l.Answers; a.Store != "failing" || a.StoreSince.Before(froze.Truncate(time.Millisecond)) || a.FailedOpen != 2 || a.OpenFirst.Before(froze) ||
		!strings.Contains(a.Cause, "timeout") && !strings.Contains(a.Cause, "deadline") {
		t.Errorf("frozen %+v", a)
	}
	if c := l.Calls; c.Failed == 0 || c.Errors[0].Type != "timeout" || c.Max < 0.9 {
		t.Errorf("calls while it is frozen %+v", c)
	}
	if v := l.Rules[0].Verdicts; v["failed_open"] != 2 || v["refused"] != 3 || v["allowed"] != 3 {
		t.Errorf("verdicts %v", v)
	}

	server.Thaw()
	for begun := time.Now(); o.look().Answers.Store != "unsteady"; take("bob", 1) {
		if time.Since(begun) > 20*time.Second {
			t.Fatalf("thawed %+v", o.look().Answers)
		}
	}

	server.Kill()
	before := o.look().Answers.FailedOpen
	take("mallory", 3)
	l = o.look()
	if a := l.Answers; a.Store != "failing" || a.FailedOpen != before+3 || !strings.Contains(a.Cause, "connection refused") && !strings.Contains(a.Cause, "EOF") &&
		!strings.Contains(a.Cause, "reset") {
		t.Errorf("killed %+v", a)
	}
	refused := false
	for _, e := range l.Calls.Errors {
		refused = refused || e.Type == "refused" && strings.Contains(e.Error, "connection refused")
	}
	if !refused {
		t.Errorf("no error says that the connection is refused: %+v", l.Calls.Errors)
	}
	if a := l.Answers.Refusing; len(a) != 1 || a[0].Requests != 3 || l.Rules[0].OnStoreError != "open" {
		t.Errorf("while Redis is away, the page forgets who was refused: %+v", a)
	}
}

func TestOperatorWithAFallback(t *testing.T) {
	server := redistest.Start(t)
	f := failover.MustNew(redisStore(t, server), failover.Options{Fallback: memstore.MustNew(memstore.Options{}), Logger: discard, Slow: time.Minute})
	t.Cleanup(func() { _ = f.Close() })
	take, o := program(t, limiter.Config{Store: f})
	take("mallory", 3)
	server.Kill()
	killed := time.Now()
	take("mallory", 20)
	var l debug.Limiter
	for l = o.look(); len(l.Breakers) == 0; l = o.look() { // which a goroutine announces
		if time.Since(killed) > 20*time.Second {
			t.Fatalf("the breaker stays closed: %+v", l)
		}
	}
	l = o.look()
	a := l.Answers
	if a.Store != "away" || a.StoreSince.Before(killed.Truncate(time.Millisecond)) || a.Local != 20 || a.FailedOpen != 0 || a.Cause == "" {
		t.Errorf("killed %+v", a)
	}
	if a.Refusing[0].Requests != 21 || a.Refusing[0].TopKey != `"mallory"` {
		t.Errorf("refusing %+v", a.Refusing)
	}
	if b := l.Breakers[0]; b.State != "open" || b.Cause == "" || l.Rules[0].OnStoreError != "local" {
		t.Errorf("breaker %+v", b)
	}
	if s := l.Stores; len(s) != 3 || s[0].Decides != "local" || len(s[0].Away) != 1 || s[0].Away[0].Since.IsZero() || s[1].Store != "redis" || s[2].Store != "memory" {
		t.Errorf("stores %+v", s)
	}
}
