package limiter_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/findings"
	"github.com/headgate/headgate/store/failover"
	"github.com/headgate/headgate/store/memstore"
)

// In an outage each of four instances admits a quarter. A request that costs more than that
// can be admitted when the store is back, and is told so in each algorithm.
func TestCostAboveThePartOfAnInstanceIsToldTruly(t *testing.T) {
	for _, text := range []string{
		"100/1h", "100/1h fixed-window", "100/1h sliding-window", "100/1h sliding-log", "100/1h token-bucket",
		"100/day", "100 concurrent ttl=30s",
	} {
		t.Run(text, func(t *testing.T) {
			s := failover.MustNew(brokenStore(func() error { return errDown }), failover.Options{
				Fallback: memstore.MustNew(memstore.Options{}), Instances: func() int { return 4 },
				Logger: slog.New(slog.DiscardHandler),
			})
			defer s.Close()

			cost := int64(1)
			var log strings.Builder
			l := limiter.MustNew(limiter.Config{
				Store: s, Logger: slog.New(slog.NewTextHandler(&log, nil)),
				Rules: []limiter.Rule{{
					Name: "r", Key: keyfuncs.Global, Limit: core.MustParseLimit(text),
					Cost: func(core.Request) int64 { return cost },
				}},
			})
			defer l.Close()

			// An instance has 25 of 100 units. What costs more waits for the store, with no time
			// that could be named; what costs more than 100 never fits, and only that is a mistake
			// of the set-up.
			for _, row := range []struct {
				cost    int64
				status  int
				seconds bool // there is a Retry-After
			}{{40, 503, false}, {25, 0, false}, {25, 429, true}, {40, 503, false}, {101, 429, false}} {
				cost = row.cost
				if warned := strings.Contains(log.String(), findings.TooCostly); warned {
					t.Errorf("warned before cost %d: %s", cost, &log)
				}

				a := l.Admit(&test.Request{Ctx: context.Background(), Verb: http.MethodGet})
				if got := a.Status(); got != row.status || a.RetryAfter() > 0 != row.seconds {
					t.Errorf("cost %d: %d, Retry-After %d", cost, got, a.RetryAfter())
				}

				if row.status == 503 {
					answer, _ := a.Answer()
					want := `{"type":"about:blank","title":"Service Unavailable","status":503,` +
						`"detail":"The store of the counts is away, and this server alone cannot admit as much at once."}`
					if string(answer.Body) != want {
						t.Errorf("%s", answer.Body)
					}
				}

				if row.status != 0 {
					a.Done(a.Status())
				}
			}

			if !strings.Contains(log.String(), findings.TooCostly) {
				t.Error("no warning of cost 101")
			}

			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			var e *limiter.WaitError
			if strings.Contains(text, "concurrent") {
				return // whose units have to be released
			}
			if err := l.Wait(ctx, "", 40); !errors.As(err, &e) || e.RetryAfter != 0 {
				t.Errorf("%v", err)
			}
		})
	}
}
