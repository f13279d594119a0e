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
			// January of 2000 has an hour less than 31 days to go in Berlin, and February 29 days.
			// The key "daily" has days in UTC.
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
			if err != nil || d.Allowed != (step.retry == 0) || d.RetryAfter != step.retry ||
				d.ResetAfter != step.reset {
				t.Errorf("%s at %s: %+v, %v, want a retry after %s and a reset after %s", step.key, time.Now(), d, err,
					step.retry, step.reset)
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

// A program whose clock is off by three days still counts, in the day of the store.
func TestCalendarQuotaOfAClockThatIsOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, days := range []time.Duration{-3, 3} {
			off := func() int64 { return time.Now().Add(days * 24 * time.Hour).UnixMicro() }
			l := newLimiter(t, memstore.MustNew(memstore.Options{Clock: off}), rule(t, "day", "2/day"))
			if d, err := l.Allow(t.Context(), "k", 2); err != nil || !d.Allowed || d.ResetAfter != 24*time.Hour {
				t.Errorf("%d days off: %+v, %v", days, d, err)
			}
		}
	})
}

// A page that shows callers what they have left charges nothing.
func TestCalendarQuotaIsShownByPeek(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := configured(t, limiter.Config{Rules: []limiter.Rule{rule(t, "month", "5/month start=15 tz=Europe/Berlin")}})
		// The month begins on the 15th in Berlin, an hour before midnight in UTC.
		left := func(used int64, remaining int64, reset time.Duration) {
			t.Helper()
			if _, err := l.Take(t.Context(), "k", used); err != nil {
				t.Error(err)
			}
			for range 2 {
				list, err := l.Peek(t.Context(), "k")
				if err != nil || len(list) != 1 || list[0].Decision.Remaining != remaining ||
					list[0].Decision.ResetAfter != reset {
					t.Errorf("at %s: %+v, %v, want %d for %s", time.Now().UTC(), list, err, remaining, reset)
				}
			}
		}

		left(3, 2, 14*24*time.Hour-time.Hour)
		// A microsecond before the next month nothing has come back.
		time.Sleep(14*24*time.Hour - time.Hour - time.Microsecond)
		left(0, 2, time.Microsecond)

		// In the new month all is there, and its end is shown once a unit is used.
		time.Sleep(time.Microsecond)
		left(0, 5, 0)
		left(1, 4, 31*24*time.Hour)
	})
}

// A request that ends in a later window than it began in gives nothing to that one, and
// what it used beyond its estimate is charged there.
func TestCalendarQuotaOfARequestOverTheEndOfADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, newTicking(), rule(t, "tokens", "100/day"))
		below, _ := l.Take(t.Context(), "k", 40)
		above, _ := l.Take(t.Context(), "k", 40)

		time.Sleep(24 * time.Hour)

		// Of the first day: less than estimated gives nothing to the second, and 30 more are
		// charged there.
		settle(t, below, tokens(10))
		wantLeft(t, l, "k", 100)
		settle(t, above, tokens(70))
		wantLeft(t, l, "k", 70)

		// Nine days later it is the same: 10 units more.
		late, _ := l.Take(t.Context(), "k", 40)
		time.Sleep(9 * 24 * time.Hour)
		settle(t, late, tokens(50))
		wantLeft(t, l, "k", 90)
	})
}

func TestCalendarQuotaHasHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := configured(t, limiter.Config{Rules: []limiter.Rule{rule(t, "day", "1/day tz=Asia/Kathmandu")}})
		time.Sleep(time.Microsecond)
		l.Admit(get())
		want := "Retry-After: 65700\nCache-Control: no-store\nX-Ratelimit-Limit: 1\nX-Ratelimit-Remaining: 0\nX-Ratelimit-Reset: 946750500\n" +
			"Ratelimit-Policy: \"day\";q=1\nRatelimit: \"day\";r=0;t=65700\n"
		if got := lines(l.Admit(get())); got != want {
			t.Errorf("%s, want %s", got, want)
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
