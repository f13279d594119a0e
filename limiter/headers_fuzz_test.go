package limiter_test

import (
	"context"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
)

// forms are those that the headers of a limiter may have, whatever was decided.
var forms = map[string]*regexp.Regexp{
	"X-Ratelimit-Limit":     regexp.MustCompile(`^[1-9][0-9]*$`),
	"X-Ratelimit-Remaining": regexp.MustCompile(`^(0|[1-9][0-9]*)$`),
	"X-Ratelimit-Reset":     regexp.MustCompile(`^(0|[1-9][0-9]*)$`),
	"Ratelimit-Policy":      regexp.MustCompile(`^"[a-z.0-9_-]+";q=[1-9][0-9]*(;w=[1-9][0-9]*)?(, "[a-z.0-9_-]+";q=[1-9][0-9]*(;w=[1-9][0-9]*)?)*$`),
	"Ratelimit":             regexp.MustCompile(`^"[a-z.0-9_-]+";r=(0|[1-9][0-9]*);t=(0|[1-9][0-9]*)(, "[a-z.0-9_-]+";r=(0|[1-9][0-9]*);t=(0|[1-9][0-9]*))*$`),
	"Retry-After":           regexp.MustCompile(`^[1-9][0-9]*$`),
	"Cache-Control":         regexp.MustCompile(`^no-store$`),
}

var styles = [4]limiter.HeaderStyle{limiter.XRateLimit, limiter.XRateLimitDelta, limiter.Draft8,
	limiter.XRateLimit | limiter.Draft8}

// possible reports whether a store may decide d under the limit. A decision that
// allows has a RetryAfter here as well.
func possible(d core.Decision, limit core.Limit) bool {
	return d.Remaining >= 0 && d.Remaining <= limit.Quota && d.RetryAfter > 0 &&
		d.ResetAfter >= 0 && d.ResetAfter <= 2*core.MaxPeriod && d.At >= 0 && d.At < 1<<53
}

// FuzzHeaders has a store decide anything that it may, and tries to find an
// answer with a header that is not of its form, or one that sends a client back
// too early.
func FuzzHeaders(f *testing.F) {
	f.Add(int64(100), int64(time.Minute), int64(0), int64(1), int64(1), int64(1), false, uint8(0))
	f.Add(int64(1), int64(400*24*time.Hour), int64(1), int64(0), int64(time.Hour), int64(1<<52), true, uint8(3))
	f.Add(int64(1<<50), int64(time.Millisecond), int64(1<<50), int64(core.Never), int64(2*core.MaxPeriod), int64(1),
		false, uint8(7))
	f.Fuzz(func(t *testing.T, quota, period, remaining, retry, reset, at int64, allowed bool, style uint8) {
		limit := core.Limit{Quota: quota, Period: time.Duration(period).Truncate(time.Microsecond),
			Algorithm: core.FixedWindow}
		d := core.Decision{Allowed: allowed, Remaining: remaining, RetryAfter: time.Duration(retry),
			ResetAfter: time.Duration(reset), At: at}
		// What no store may decide is no finding.
		if limit.Validate() != nil || !possible(d, limit) {
			return
		}

		if allowed {
			d.RetryAfter = 0
		}

		l := configured(t, limiter.Config{
			Store: storeFunc(func(_ context.Context, ops []core.Op, out []core.Decision) error {
				out[0], out[1] = d, d
				return nil
			}),
			Headers: styles[style%4],
			Rules: []limiter.Rule{{Name: "a.b-c_d", Limit: limit, Key: everyone},
				{Name: "z", Limit: limit, Key: everyone}},
		})

		a := l.Admit(get())
		defer a.Done(200)
		for _, h := range a.Headers() {
			form, known := forms[h.Name]
			if !known || !form.MatchString(h.Value) {
				t.Errorf("%s: %q after %+v", h.Name, h.Value, d)
			}
		}

		// A time that is too short would have a client come back in vain.
		if n := a.RetryAfter(); !allowed && d.RetryAfter != core.Never &&
			time.Duration(n)*time.Second < d.RetryAfter && n < 1<<33 {
			t.Errorf("retry after %s is said to be after %s seconds", d.RetryAfter, strconv.FormatInt(n, 10))
		}
	})
}
