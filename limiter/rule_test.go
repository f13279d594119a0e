package limiter_test

import (
	"context"
	"errors"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/limiter"
)

type planKey struct{}

// withLimit returns a context with the limit that the request brings.
func withLimit(ctx context.Context, l core.Limit) context.Context {
	return context.WithValue(ctx, planKey{}, l)
}

// brought is an Override that returns the limit of the context.
func brought(ctx context.Context, _ string) (core.Limit, bool, error) {
	l, ok := ctx.Value(planKey{}).(core.Limit)
	return l, ok, nil
}

// An upgrade while a key is in use keeps what was used, and a downgrade too.
func TestOverrideBringsTheLimitOfTheContext(t *testing.T) {
	for _, algorithm := range []string{"", " fixed-window", " sliding-log", " sliding-window", " token-bucket"} {
		t.Run(algorithm, func(t *testing.T) {
			own, free, pro := limit(t, "1/24h"+algorithm), limit(t, "3/24h"+algorithm), limit(t, "10/24h"+algorithm)
			r := limiter.Rule{Name: "api", Limit: own, Key: byHeader, Override: brought}

			l := newLimiter(t, newStore(), r)
			rows := []struct {
				name    string
				limit   core.Limit
				allowed bool
				left    int64
			}{
				// Two of 10 are used before the upgrade and two after it, so that a downgrade to 3
				// leaves nothing.
				{"free", free, true, 2}, {"free", free, true, 1},
				{"pro", pro, true, 7}, {"pro", pro, true, 6},
				{"free again", free, false, 0},
				{"pro again", pro, true, 5},
			}

			for i, row := range rows {
				q := keyed("alice")
				q.Ctx = withLimit(context.Background(), row.limit)
				res, err := l.TakeRequest(q)
				if d := res.Decisions()[0]; err != nil || res.Allowed() != row.allowed ||
					d.Decision.Remaining != row.left || d.Limit != row.limit {
					t.Errorf("%d, %s: %+v, %v", i, row.name, d, err)
				}
			}

			for i, want := range []bool{true, false} { // under the rule's own limit
				if res, err := l.Take(context.Background(), "bob", 1); err != nil || res.Allowed() != want {
					t.Errorf("bob %d: %t, %v", i, res.Allowed(), err)
				}
			}

			list, err := l.Peek(withLimit(context.Background(), pro), "alice")
			if err != nil || list[0].Decision.Remaining != 5 {
				t.Errorf("Peek: %+v, %v", list, err)
			}
		})
	}
}

// An Override that fails is answered as the rule's failure mode says, and charges nothing.
func TestOverrideMayFail(t *testing.T) {
	// The limit beside the error does not count.
	broken := rule(t, "broken", "9/1h")
	broken.Override = func(context.Context, string) (core.Limit, bool, error) {
		return limit(t, "1/1h"), true, errDown
	}

	for failure, want := range map[limiter.FailureMode][]limiter.Outcome{
		limiter.FailOpen:   {limiter.Pass, limiter.Refused},
		limiter.FailClosed: {limiter.Failed, limiter.Failed},
	} {
		t.Run(failure.String(), func(t *testing.T) {
			var reported []error
			r := broken
			r.OnStoreError = failure
			s := newStore()
			l := configured(t, limiter.Config{Store: s, Rules: []limiter.Rule{r, rule(t, "a", "1/1h")},
				OnError: func(_ context.Context, err error) { reported = append(reported, err) }})

			for i, outcome := range want {
				if got := admit(l); got != outcome {
					t.Errorf("request %d: %s, want %s", i, got, outcome)
				}
			}

			for _, err := range reported {
				if err.Error() != `rule 0 "broken": the limit from Override: down` || !errors.Is(err, errDown) {
					t.Errorf("reported %v", err)
				}
			}
			if len(reported) != 2 {
				t.Errorf("%d errors reported", len(reported))
			}
			// Under FailClosed nothing is left to decide, so the store is not asked.
			if failure == limiter.FailClosed && s.calls != 0 {
				t.Errorf("%d calls of the store", s.calls)
			}
		})
	}
}

// A function that heeds its context fails when the client has left. The request fails
// then, or clients could avoid being counted by hanging up.
func TestOverrideFailsForClientsThatLeft(t *testing.T) {
	r := rule(t, "a", "9/1h")
	r.OnStoreError = limiter.FailOpen
	r.Override = func(ctx context.Context, _ string) (core.Limit, bool, error) { return core.Limit{}, false, ctx.Err() }

	l := newLimiter(t, nothing{}, r)
	if got := admit(l); got != limiter.Pass {
		t.Errorf("%s", got)
	}

	ctx, leave := context.WithCancel(context.Background())
	leave()
	a := l.Admit(&test.Request{Ctx: ctx})
	defer a.Done(503)
	if a.Outcome() != limiter.Failed {
		t.Errorf("%s", a.Outcome())
	}
}
