package transport

import (
	"fmt"
	"strings"
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
			// The answers come at once, or after some of the server's time has passed: what they
			// say is then old.
			for _, way := range []time.Duration{0, 2 * time.Millisecond} {
				t.Run(fmt.Sprintf("style %d, pace %d, %v away", style, pace, way), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						// Fifty a second make 1500 requests in the thirty seconds.
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

	// The last one has so few units that one request too many is refused.
	for _, limit := range []string{"50/1s fixed-window", "50/1s sliding-log", "50/1s token-bucket",
		"50/1s sliding-window", "100/10s", "10/10s fixed-window"} {
		for _, pace := range []Pace{Burst, Spread} {
			t.Run(fmt.Sprintf("%s, pace %d", limit, pace), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					// Fifty milliseconds there and back, in which a server's count moves on.
					s := limitedServer(limit, limiter.Draft8)
					crowd(t, MustNew(Config{Base: away{s, 25 * time.Millisecond, 25 * time.Millisecond}, Pace: pace}),
						200, 30*time.Second)

					// Windows of ten seconds with ten requests allow thirty in the time; whatever
					// else the algorithms lose, this many pass.
					if got := s.statuses(); got[429] > 0 || got[200] < 29 {
						t.Error(got)
					}
				})
			})
		}
	}
}

// told is a time that a server has told with Retry-After.
type told struct {
	refused int // requests in this time, with that of the answer
	passed  int // requests since the one before
	quiet   int // times as long as the one before, since its end
}

// refusals returns the times that the server has told, except those that were told within others.
func (s *server) refusals() (all []told) {
	// A refusal within the time of another is the same one; a later one tells a time of its own.
	var end, wait time.Duration
	passed := 0

	for _, a := range s.log {
		switch {
		case a.status != 429:
			passed++
			continue
		case a.at < end:
			all[len(all)-1].refused++
			continue
		case len(all) > 0:
			all = append(all, told{1, passed, int((a.at - end) / wait)})
		default:
			all = append(all, told{1, passed, trustAfter})
		}

		end, wait, passed = a.at+a.wait, a.wait, 0
	}
	return all
}

// A server that says no more than Retry-After refuses one request for each time that it tells,
// whatever its algorithm. A sliding window may refuse several together before it is known as one.
func TestCrowdMeetsOne429ForEachRetryAfter(t *testing.T) {
	withJitter(t, 0)
	for limit, want := range map[string]struct{ answers, times, most int }{
		"50/1s":                  {4459, 88, 1},
		"50/1s fixed-window":     {4400, 88, 1},
		"50/1s token-bucket":     {4400, 88, 1},
		"50/1s sliding-log":      {4400, 88, 1},
		"50/1s sliding-window":   {3794, 76, 1},
		"100/10s":                {998, 89, 1},
		"100/10s fixed-window":   {900, 9, 1},
		"100/10s sliding-log":    {900, 9, 1},
		"100/10s sliding-window": {900, 0, 4}, // once, and 38 or 40 times, as chance orders the crowd
		"10/10s token-bucket":    {90, 9, 1},
		"3/1s burst=30":          {298, 89, 1},
		"100/30s fixed-window":   {300, 3, 1},
	} {
		// The figures are exact, as time is simulated: with four milliseconds between a request and
		// its answer, each time that is told costs one refusal.
		t.Run(limit, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := limitedServer(limit, limiter.NoHeaders)
				crowd(t, MustNew(Config{Base: away{s, 2 * time.Millisecond, 2 * time.Millisecond}}), 200,
					90*time.Second)

				all, most := s.refusals(), 1
				for _, one := range all {
					most = max(most, one.refused)
				}

				if got := s.statuses(); got[200] != want.answers || want.times > 0 && len(all) != want.times ||
					most != want.most || got[429] != len(all)+most-1 {
					t.Errorf("%v, %d times, at most %d in one", got, len(all), most)
				}
			})
		})
	}
}

// If answers take long, a server may refuse those that are under way when it refuses for the first
// time, or for the first time after sixty times as long as it has told: an eighth of those that
// came through, or as many as have doubled with each second, which chance makes up to a sixth.
// After ten times as long one more is under way. Otherwise it refuses one.
func TestFarCrowdMeetsOne429ForEachRetryAfter(t *testing.T) {
	withJitter(t, 0)
	for limit, least := range map[string][2]int{
		"50/1s": {2900, 1500}, "50/1s fixed-window": {2600, 1400}, "50/1s token-bucket": {2600, 1400},
		"50/1s sliding-log": {2600, 1400}, "50/1s sliding-window": {2600, 1350},
		"100/10s": {990, 930}, "100/10s fixed-window": {900, 590}, "100/10s sliding-log": {900, 590},
		"100/10s sliding-window": {890, 540},
		"10/10s token-bucket":    {90, 90}, "3/1s burst=30": {297, 295}, "100/30s fixed-window": {300, 300},
	} {
		for i, way := range []time.Duration{25 * time.Millisecond, 100 * time.Millisecond} {
			t.Run(fmt.Sprintf("%s, %v away", limit, way), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := limitedServer(limit, limiter.NoHeaders)
					crowd(t, MustNew(Config{Base: away{s, way, way}}), 200, 90*time.Second)

					// What the rule above allows is taken off each refusal; the rest is beyond it.
					beyond := 0
					for _, one := range s.refusals() {
						// The first refusal of all, or one after long silence, may meet those that
						// are under way.
						most := 1 + one.quiet/oneMoreAfter
						if one.quiet >= trustAfter {
							most = max(8, 1+one.passed/6)
						}
						beyond += max(0, one.refused-most)
					}

					// A sliding window may refuse one more, once, as it is found out to be one.
					once := strings.HasSuffix(limit, "sliding-window") && beyond == 1
					if got := s.statuses(); got[200] < least[i] || beyond > 0 && !once {
						t.Errorf("%v, %d too many: %v", got, beyond, s.refusals())
					}
				})
			})
		}
	}
}
