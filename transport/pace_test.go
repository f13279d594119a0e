package transport

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/limiter"
)

// A crowd that hears from a server what is left is never refused, and uses what there is.
func TestCrowdMeetsNo429(t *testing.T) {
	withJitter(t, 1)
	for style, least := range map[limiter.HeaderStyle]int{
		limiter.Draft8:          1470, // 98 %
		limiter.XRateLimitDelta: 1470,
		limiter.XRateLimit:      740, // the seconds of the clock make a second up to two
	} {
		for _, pace := range []Pace{Burst, Spread} {
			for _, way := range []time.Duration{0, 2 * time.Millisecond} {
				t.Run(fmt.Sprintf("style %d, pace %d, %v away", style, pace, way), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						s := limitedServer("50/1s", style)
						crowd(t, MustNew(Config{Base: away{s, way, way}, Pace: pace}), 200, 30*time.Second)
						if got := s.statuses(); got[429] > 0 || got[200] < least {
							t.Errorf("%v, want at least %d", got, least)
						}
					})
				})
			}
		}
	}
}

// Other algorithms give units back otherwise, and the rule is the same: no 429.
func TestCrowdMeetsNo429OfAnyAlgorithm(t *testing.T) {
	withJitter(t, 0)
	for _, limit := range []string{"50/1s fixed-window", "50/1s sliding-log", "50/1s token-bucket", "50/1s sliding-window", "100/10s", "10/10s fixed-window"} {
		for _, pace := range []Pace{Burst, Spread} {
			t.Run(fmt.Sprintf("%s, pace %d", limit, pace), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := limitedServer(limit, limiter.Draft8)
					crowd(t, MustNew(Config{Base: away{s, 25 * time.Millisecond, 25 * time.Millisecond}, Pace: pace}), 200, 30*time.Second)
					if got := s.statuses(); got[429] > 0 || got[200] < 29 {
						t.Error(got)
					}
				})
			})
		}
	}
}

// A server that says no more than Retry-After refuses one request for each window. If its answers
// take long, it may refuse those that are under way when it is not known yet: an eighth of those
// that came through, or as many as have doubled in three seconds.
func TestCrowdMeetsOne429ForEachRetryAfter(t *testing.T) {
	withJitter(t, 0)
	for limit, want := range map[string]struct {
		window   time.Duration
		refusals int
		least    int
	}{
		"50/1s":                {time.Second, 31, 1500},
		"50/1s fixed-window":   {time.Second, 31, 1450},
		"100/10s":              {time.Second, 31, 390},
		"10/10s token-bucket":  {10 * time.Second, 4, 30},
		"3/1s burst=30":        {time.Second, 31, 100},
		"100/30s fixed-window": {30 * time.Second, 1, 100},
	} {
		for _, way := range []time.Duration{2 * time.Millisecond, 25 * time.Millisecond} {
			t.Run(fmt.Sprintf("%s, %v away", limit, way), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := limitedServer(limit, limiter.NoHeaders)
					crowd(t, MustNew(Config{Base: away{s, way, way}}), 200, 30*time.Second)
					first, later, least := 1, 1, want.least
					if way > 2*time.Millisecond {
						came := slices.IndexFunc(s.log, func(a answer) bool { return a.status == 429 })
						first, later, least = max(8, 1+came/8), 4, want.least/2
					}
					rows := s.refusals(want.window)
					if got := s.statuses(); got[200] < least || len(rows) > want.refusals || rows[0] > first || slices.Max(append(rows[1:], 0)) > later {
						t.Errorf("%v, %v", got, rows)
					}
				})
			})
		}
	}
}
