package debug_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/debug"
	"github.com/headgate/headgate/store/failover"
	"github.com/headgate/headgate/store/memstore"
	"github.com/headgate/headgate/store/redisstore"
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

		// The requests are made beside the page, as those of a service are.
		for range n {
			_, _ = l.Take(t.Context(), key, 1) // its errors are what the operator sees
		}
	}, &operator{t, server.URL}
}

func redisStore(t *testing.T, server *redistest.Server) *redisstore.Store {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true, MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	return redisstore.MustNew(client, redisstore.Options{Prefix: "debug:", Timeout: time.Second, Logger: discard})
}

// same fails unless both lists are equal.
func same(t *testing.T, what string, got, want []any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// after reports whether a time of a report, which may be cut to milliseconds, is not before begun.
func after(at, begun time.Time) bool { return !at.Before(begun.Truncate(time.Millisecond)) }

// says reports whether a text contains one of the words.
func says(text string, words ...string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
}

// failing are the words for a store that does not decide: its breaker may be open by now.
var failing = []string{"failing", "away"}

// Who is refused, by which rule, since when? Is Redis slow? Did requests pass undecided?
func TestOperator(t *testing.T) {
	server := redistest.Start(t)
	begun := time.Now()
	take, o := program(t, limiter.Config{Store: redisStore(t, server), OnStoreError: limiter.FailOpen})

	// Two of five pass, and one of alice's.
	take("mallory", 5)
	take("alice", 1)
	l := o.look()

	a, c := l.Answers, l.Calls

	// Each question of the operator is answered by one line of the page.
	same(t, "in good health", []any{len(a.Refusing), a.Refusing[0].Rule, a.Refusing[0].Requests,
		a.Refusing[0].TopKey, after(a.Refusing[0].Since, begun)},
		[]any{1, "api", int64(3), `"mallory"`, true})
	same(t, "the store in good health", []any{a.Store, a.FailedOpen, a.FailedClosed, a.Local, l.Stores[0].Store,
		l.Stores[1].Store, l.Stores[1].Servers},
		[]any{"ok", int64(0), int64(0), int64(0), "failover", "redis", "standalone"})
	same(t, "calls in good health", []any{c.Calls, c.Failed, c.Recent, c.Median > 0, c.Max >= c.Median,
		c.AtMost, len(c.Errors)},
		[]any{uint64(6), uint64(0), 6, true, true, 1.0, 0})

	// The server is there and does not answer: the requests pass, and the page says why.
	server.Freeze()
	froze := time.Now()
	take("mallory", 2)
	l = o.look()
	a, c = l.Answers, l.Calls
	same(t, "frozen", []any{says(a.Store, failing...), after(a.StoreSince, froze),
		says(a.Cause, "timeout", "deadline"), a.FailedOpen, after(a.OpenFirst, froze)},
		[]any{true, true, true, int64(2), true})
	same(t, "calls while it is frozen", []any{c.Failed > 0, c.Errors[0].Type, c.Max > 0.9},
		[]any{true, "timeout", true})
	v := l.Rules[0].Verdicts

	same(t, "verdicts", []any{v["failed_open"], v["refused"], v["allowed"]}, []any{int64(2), int64(3), int64(3)})

	server.Thaw()

	// The first answers after the thaw are not yet trusted.
	for begun := time.Now(); o.look().Answers.Store != "unsteady"; take("bob", 1) {
		if time.Since(begun) > 20*time.Second {
			t.Fatalf("thawed %+v", o.look().Answers)
		}
	}

	// A server that is gone refuses connections, which is another cause than silence. The open
	// connections end first, and how many there are depends on the calls that were late.
	server.Kill()
	killed, before, asked := time.Now(), o.look().Answers.FailedOpen, int64(0)
	for ; !slices.ContainsFunc(l.Calls.Errors, isRefused); l = o.look() {
		if time.Since(killed) > 20*time.Second {
			t.Fatalf("no error says that the connection is refused: %+v", l.Calls.Errors)
		}
		take("mallory", 1)
		asked++
	}
	a = l.Answers
	same(t, "killed", []any{says(a.Store, failing...), a.FailedOpen - before, a.Cause != "",
		l.Rules[0].OnStoreError}, []any{true, asked, true, "open"})

	// The refusals of before are still those, since nothing was refused in between.
	same(t, "who was refused before", []any{len(a.Refusing), a.Refusing[0].Requests}, []any{1, int64(3)})
}

func isRefused(e debug.StoreError) bool {
	return e.Type == "refused" && strings.Contains(e.Error, "connection refused")
}

func TestOperatorWithAFallback(t *testing.T) {
	server := redistest.Start(t)

	// The breaker opens by failures alone here, not by slow calls.
	f := failover.MustNew(redisStore(t, server),
		failover.Options{Fallback: memstore.MustNew(memstore.Options{}), Logger: discard, Slow: time.Minute})
	t.Cleanup(func() { _ = f.Close() })
	take, o := program(t, limiter.Config{Store: f})

	take("mallory", 3)

	// All but the three at first are decided by the fallback, which has counted them.
	server.Kill()
	killed := time.Now()
	take("mallory", 20)
	l := o.look()
	for ; len(l.Breakers) == 0; l = o.look() { // which a goroutine announces
		if time.Since(killed) > 20*time.Second {
			t.Fatalf("the breaker stays closed: %+v", l)
		}
	}
	a, b, s := l.Answers, l.Breakers[0], l.Stores
	same(t, "killed", []any{a.Store, after(a.StoreSince, killed), a.Cause != "", a.Local, a.FailedOpen},
		[]any{"away", true, true, int64(20), int64(0)})

	same(t, "refusing", []any{a.Refusing[0].Requests, a.Refusing[0].TopKey}, []any{int64(21), `"mallory"`})
	same(t, "breaker", []any{b.State, b.Cause != "", l.Rules[0].OnStoreError}, []any{"open", true, "local"})
	same(t, "stores", []any{len(s), s[0].Decides, len(s[0].Away), after(s[0].Away[0].Since, killed), s[1].Store,
		s[2].Store},
		[]any{3, "local", 1, true, "redis", "memory"})
}
