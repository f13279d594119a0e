package limiter_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/store/memstore"
)

// The bubble begins with the year 2000 of UTC, an hour into that of Berlin.
func TestCalendarQuotaFollowsTheZone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		month := rule(t, "month", "2/month tz=Europe/Berlin")
		month.Override = func(_ context.Context, key string) (core.Limit, bool, error) {
			return limit(t, "2/day"), key == "daily", nil
		}
		l := configured(t, limiter.Config{Rules: []limiter.Rule{month}})
		for _, step := range []struct {
			pause, retry, reset time.Duration
			key                 string
			cost                int64
		}{
			{0, 0, 743 * time.Hour, "k", 2},
			{0, 743 * time.Hour, 743 * time.Hour, "k", 1},
			{0, 0, 24 * time.Hour, "daily", 2},
			{743*time.Hour - time.Microsecond, time.Microsecond, time.Microsecond, "k", 1},
			{time.Microsecond, 0, 696 * time.Hour, "k", 2},
			{0, 0, time.Hour, "daily", 2},
			{time.Hour, 0, 24 * time.Hour, "daily", 2},
		} {
			time.Sleep(step.pause)
			d, err := l.Allow(t.Context(), step.key, step.cost)
			if err != nil || d.Allowed != (step.retry == 0) || d.RetryAfter != step.retry || d.ResetAfter != step.reset {
				t.Errorf("%s at %s: %+v, %v, want a retry after %s and a reset after %s", step.key, time.Now(), d, err, step.retry, step.reset)
			}
		}
	})
}

// A store whose clock is in none of the windows cannot decide.
func TestCalendarQuotaOfAnotherTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ahead := func() int64 { return time.Now().Add(4 * 24 * time.Hour).UnixMicro() }
		for mode, want := range map[limiter.FailureMode]bool{limiter.FailOpen: true, limiter.FailClosed: false} {
			l := configured(t, limiter.Config{Store: memstore.MustNew(memstore.Options{Clock: ahead}),
				Rules: []limiter.Rule{rule(t, "day", "2/day")}, OnStoreError: mode})
			if d, err := l.Allow(t.Context(), "k", 1); !errors.Is(err, core.ErrWindows) || d.Allowed != want {
				t.Errorf("%v: %+v, %v", mode, d, err)
			}
		}
	})
}

func TestCalendarQuotaHasNoWindowInItsPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := configured(t, limiter.Config{Headers: limiter.Draft8, Rules: []limiter.Rule{rule(t, "month", "2/month")}})
		want := "Ratelimit-Policy: \"month\";q=2\nRatelimit: \"month\";r=1;t=2678400\n"
		if got := lines(l.Admit(get())); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
}
