package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/store/redisstore"
)

// A Redis that hangs or dies is in the log at once, with the cause and with what becomes of
// requests. Without settings the memory of the store decides. OnError hears of each request.
func TestOutageOfRedisIsLogged(t *testing.T) {
	const (
		// On a busy machine a call may have no time left when its turn to dial comes.
		frozen = `redisstore: (no answer in time: (context deadline exceeded|read tcp 127\.0\.0\.1:\d+->127\.0\.0\.1:\d+: i/o timeout)|no connection: dial tcp 127\.0\.0\.1:\d+: i/o timeout)(: the server is silent)?`
		killed = `redisstore: (no connection: )?dial tcp 127\.0\.0\.1:\d+: connect: connection refused`
	)
	for _, row := range []struct {
		name  string
		away  func(*redistest.Server)
		cause string
		mode  limiter.FailureMode
		fate  string
	}{
		{"frozen", (*redistest.Server).Freeze, frozen, limiter.FailOpen, "passed"},
		{"frozen", (*redistest.Server).Freeze, frozen, limiter.FailClosed, "refused"},
		{"frozen", (*redistest.Server).Freeze, frozen, limiter.FailDefault, "local"},
		{"killed", (*redistest.Server).Kill, killed, limiter.FailOpen, "passed"},
		{"killed", (*redistest.Server).Kill, killed, limiter.FailClosed, "refused"},
		{"killed", (*redistest.Server).Kill, killed, limiter.FailDefault, "local"},
	} {
		t.Run(row.name+" "+row.fate, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			client := redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true})
			defer client.Close()

			var log test.Log
			store := redisstore.MustNew(client,
				redisstore.Options{Prefix: redistest.Prefix(t), Instances: 1, Logger: plain(&log)})
			warm := limiter.MustNew(limiter.Config{Store: store, Logger: slog.New(slog.DiscardHandler),
				Rules: []limiter.Rule{rule(t, "a", "1000000/1h")}})
			defer warm.Close()
			awaitDecision(t, warm)

			// The connection stands, so that the outage is what the limiter meets first.
			reported, opened := 0, make(chan events.Breaker, 1)
			l := limiter.MustNew(limiter.Config{Store: store, OnStoreError: row.mode, Logger: plain(&log),
				Hooks:   &events.Hooks{Breaker: func(e events.Breaker) { opened <- e }},
				Rules:   []limiter.Rule{rule(t, "a", "1000000/1h")},
				OnError: func(_ context.Context, err error) { reported++ }})
			defer l.Close()

			row.away(server)
			begun := time.Now()
			const requests = 20
			for i := range requests {
				if got := admit(l); (got == limiter.Pass) != (row.fate != "refused") {
					t.Errorf("request %d: %s", i, got)
				}
				if i == 0 {
					// The first request has its line before the second is sent.
					first := what(row.fate) + ` ` + row.fate +
						`=1 error="(the fallback of the store decides: )?` + row.cause + `"\n`
					if text := log.String(); !wasLate(text) && !regexp.MustCompile(first).MatchString(text) {
						t.Errorf("after the first request the log is\n%s\nwant\n%s", text, first)
					}
					test.AtMost(t, "the first line", time.Since(begun), time.Second)
				}
			}

			l.Close()
			// The others are counted until Close. Once the breaker is open their error is its own.
			rest := fmt.Sprintf(`%s times=%d %s=%d error="((the fallback of the store decides: )?%s|failover: the primary store is bypassed: %s)"`, what(row.fate), requests-1, row.fate, requests-1, row.cause, row.cause)
			if text := log.String(); !wasLate(text) && !regexp.MustCompile(rest).MatchString(text) {
				t.Errorf("at the end the log is\n%s\nwant\n%s", text, rest)
			}

			awaitOpening(t, warm, opened) // the line comes before
			if text := log.String(); !strings.Contains(text,
				"the primary store fails and is bypassed: the fallback decides") {
				t.Errorf("the breaker's opening is not in the log:\n%s", text)
			}

			if reported != requests {
				t.Errorf("OnError was called %d times for %d requests", reported, requests)
			}
		})
	}
}

// awaitOpening sends requests until the breaker has opened. A failure of which the machine was
// late to hear does not count.
func awaitOpening(t *testing.T, l *limiter.Limiter, opened <-chan events.Breaker) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		select {
		case <-opened:
			return
		default:
			_, _ = l.Take(t.Context(), "k", 1)
		}
	}
	t.Fatal("the breaker never opens")
}

// wasLate reports whether the log says that the machine was too late for an answer. Such a
// request has a line of another kind.
func wasLate(log string) bool {
	return strings.Contains(log, "more comes than the store decides in time")
}

// what returns a pattern of the line about an outage.
func what(fate string) string {
	if fate == "local" {
		return `level=WARN msg="headgate: the store cannot decide, so its fallback does"`
	}
	return `level=WARN msg="headgate: the store cannot decide, so OnStoreError does"`
}

// awaitDecision waits until the server has decided.
func awaitDecision(t *testing.T, l *limiter.Limiter) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		if res, err := l.Take(t.Context(), "k", 1); err == nil && !res.Decisions()[0].Decision.Fallback {
			return
		} else if err != nil && !errors.Is(err, limiter.ErrUndecided) {
			t.Fatal(err)
		}
	}
	t.Fatal("no decision")
}

// Without wiring a key gets its limit and no more when Redis dies. Two limiters over one store
// are one instance with one memory, which goes on until the second is closed.
func TestLimitersOverOneStoreShareItsMemory(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true})
	defer client.Close()
	quiet := slog.New(slog.DiscardHandler)
	prefix := redistest.Prefix(t)

	// Ten seconds for a call, so that a busy machine does not make the fallback decide.
	store := redisstore.MustNew(client,
		redisstore.Options{Prefix: prefix, Timeout: 10 * time.Second, Instances: 1, Logger: quiet})
	c := limiter.Config{Store: store, Logger: quiet, Rules: []limiter.Rule{rule(t, "a", "10/1h")}}
	one, two := limiter.MustNew(c), limiter.MustNew(c)
	defer one.Close()
	defer two.Close()

	takes := func(what string, l *limiter.Limiter, cost int64, allowed, local bool) {
		t.Helper()
		res, err := l.Take(t.Context(), "k", cost)
		if err != nil || res.Allowed() != allowed || res.Decisions()[0].Decision.Fallback != local {
			t.Errorf("%s: allowed %t, %+v, %v", what, res.Allowed(), res.Decisions(), err)
		}
	}

	takes("Redis, the first", one, 2, true, false)
	takes("Redis, the second", two, 2, true, false)
	// Both limiters are one instance: two would halve what the memory may grant.
	if n := client.ZCard(t.Context(), prefix+"{instances}").Val(); n > 1 {
		t.Errorf("%d instances", n)
	}

	server.Kill()
	// Of ten units Redis gave four, and the memory knows of them: six are left.
	takes("the memory, the first", one, 3, true, true)
	takes("the memory, the second", two, 3, true, true)
	takes("nothing is left, the first", one, 1, false, true)

	one.Close()
	takes("nothing is left, the second", two, 1, false, true)
}

// A store has a memory again for a limiter that is made after all others were closed. A closed
// limiter goes on deciding.
func TestMemoryAfterTheLastLimiter(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: redistest.Addr(t), ContextTimeoutEnabled: true})
	defer client.Close()

	quiet := slog.New(slog.DiscardHandler)
	prefix := redistest.Prefix(t)
	store := redisstore.MustNew(client, redisstore.Options{Prefix: prefix, Timeout: 10 * time.Second, Logger: quiet})

	// The count in Redis goes on through all limiters, so each take has one unit less left.
	want := int64(10)
	take := func(l *limiter.Limiter) {
		t.Helper()
		want--
		res, err := l.Take(t.Context(), "k", 1)
		if d := res.Decisions()[0].Decision; err != nil || d.Remaining != want || d.Fallback {
			t.Errorf("%+v, %v, want %d left", d, err, want)
		}
	}

	for range 3 {
		l := limiter.MustNew(limiter.Config{Store: store, Logger: quiet,
			Rules: []limiter.Rule{rule(t, "a", "10/1h fixed-window")}})
		take(l)
		// The instance lives as long as a limiter that is not closed.
		awaitInstance(t, client, prefix, 1)
		l.Close()
		awaitInstance(t, client, prefix, 0)
		take(l)
	}
}

// awaitInstance waits until n instances count as alive under the prefix.
func awaitInstance(t *testing.T, client *redis.Client, prefix string, n int64) {
	t.Helper()
	for end := time.Now().Add(time.Minute); client.ZCard(t.Context(), prefix+"{instances}").Val() != n; {
		if time.Now().After(end) {
			t.Fatalf("there are never %d instances", n)
		}
	}
}
