package limiter_test

import (
	"context"
	"errors"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
)

func TestCostAtMostIsWhatTheLimitCanHold(t *testing.T) {
	// The burst of 50 is what the limit can ever hold, whatever its quota is.
	r := rule(t, "tokens", "100/1h burst=50")
	r.Cost = func(core.Request) int64 { return 663 }
	r.Override = func(_ context.Context, key string) (core.Limit, bool, error) {
		return limit(t, "7/1h"), key == "small", nil
	}

	never := newLimiter(t, newStore(), r)
	if a := never.Admit(get()); a.Outcome() != limiter.Refused || a.RetryAfter() != 0 {
		t.Errorf("without it: %s, retry after %d", a.Outcome(), a.RetryAfter())
	}

	// With it the request costs 50, and empties the limit.
	r.CostAtMost = true
	l := newLimiter(t, newStore(), r)
	if a := l.Admit(get()); a.Outcome() != limiter.Pass {
		t.Error(a.Outcome())
	}

	wantLeft(t, l, "k", 0)
	// 50 units come back in half an hour.
	if a := l.Admit(get()); a.Outcome() != limiter.Refused || a.RetryAfter() != 1800 {
		t.Errorf("%s, retry after %d", a.Outcome(), a.RetryAfter())
	}

	// The bound is that of the key's own limit, and TakeUpTo has it too. A negative cost is a
	// mistake.
	if res, err := l.Take(t.Context(), "small", 8); !res.Allowed() || err != nil ||
		res.Decisions()[0].Decision.Taken != 7 {
		t.Errorf("%+v, %v", res.Decisions(), err)
	}
	if n, err := l.TakeUpTo(t.Context(), "other", 663); n != 50 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if _, err := l.Take(t.Context(), "other", -1); !errors.Is(err, core.ErrOp) {
		t.Error(err)
	}
}
