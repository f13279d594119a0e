package redisstore

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/observe/findings"
)

// The timeout is three round trips where these take longer than 50 ms, up to the maximum. Far
// away no call succeeds until the distance is measured, and then all do.
func TestTimeoutFollowsTheDistance(t *testing.T) {
	for _, row := range []struct {
		name    string
		rtt     time.Duration
		options Options
		budget  time.Duration
		most    time.Duration // MaxCall
		works   bool          // in the end
	}{
		// Three round trips, at least 50ms and at most 250ms.
		{"near", ms, Options{}, 50 * ms, 250 * ms, true},
		{"40 ms", 40 * ms, Options{}, 120 * ms, 250 * ms, true},
		{"80 ms", 80 * ms, Options{}, 240 * ms, 250 * ms, true},
		{"120 ms", 120 * ms, Options{}, 250 * ms, 250 * ms, true},
		// A maximum of one's own, within reach of the server and beyond it.
		{"a maximum", 80 * ms, Options{MaxTimeout: 100 * ms}, 100 * ms, 100 * ms, true},
		{"farther than the maximum", 80 * ms, Options{MaxTimeout: 60 * ms}, 60 * ms, 60 * ms, false},
		{"a fixed timeout", 30 * ms, Options{Timeout: 50 * ms}, 50 * ms, 50 * ms, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := &far{rtt: row.rtt, trips: 1}
			f.distant(t, row.options, func() redis.UniversalClient { return f.single(nil) },
				func(t *testing.T, s *Store) {
					// Twenty calls are enough for the store to have measured the distance.
					for range 20 {
						_, _ = takeOne(t.Context(), s, "k")
						time.Sleep(200 * ms)
					}

					failed := 0
					for range 20 {
						if _, err := takeOne(t.Context(), s, "k"); err != nil {
							failed++
						}
					}

					if s.servers.budget() != row.budget || s.Report().MaxCall != row.most ||
						(failed == 0) != row.works {
						t.Errorf("%v of at most %v, %d of 20 calls failed; want %v of %v, works %v",
							s.servers.budget(), s.Report().MaxCall, failed, row.budget, row.most, row.works)
					}
				})
		})
	}
}

// Each server of a Ring has a budget of its own, and a step about several has the longest.
func TestTimeoutFollowsTheDistanceOfEachServer(t *testing.T) {
	f := &far{rtt: 40 * ms, trips: 1}
	f.distant(t, Options{}, func() redis.UniversalClient { return f.ring(nil) }, func(t *testing.T, s *Store) {
		var there string

		// Only keys of one server are asked about.
		for _, key := range []string{"a", "b", "c", "d"} {
			for range 10 {
				if s.topology.shard(key) == s.topology.shard("a") {
					_, _ = takeOne(t.Context(), s, key)
				} else {
					there = key
				}
				time.Sleep(200 * ms)
			}
		}
		if got := s.servers.serverFor("a").budget(); got != 120*ms || there == "" {
			t.Errorf("%v, %q at another server", got, there)
		}

		// The other server has the least budget, and all together the longest.
		if got := s.servers.serverFor(there).budget(); got != 50*ms || s.servers.budget() != 120*ms {
			t.Errorf("%v of a server that was never asked, %v of all", got, s.servers.budget())
		}
	})
}

// A timeout of less than two round trips is a finding, with both figures.
func TestDiagnoseReportsATimeoutThatDoesNotFitTheDistance(t *testing.T) {
	for _, row := range []struct {
		rtt     time.Duration
		options Options
		want    string
	}{
		// Two round trips are 50ms and fit, 56ms do not.
		{25 * ms, Options{Timeout: 50 * ms}, ""},
		{28 * ms, Options{Timeout: 50 * ms},
			"a round trip to Redis takes 28ms, and a call may take 50ms: set redisstore.Options.Timeout to three round trips"},
		{80 * ms, Options{}, ""},
		{80 * ms, Options{MaxTimeout: 100 * ms},
			"a round trip to Redis takes 80ms, and a call may take 100ms: set redisstore.Options.MaxTimeout to three round trips"},
	} {
		f := &far{rtt: row.rtt, trips: 1}
		f.distant(t, row.options, func() redis.UniversalClient { return f.single(nil) }, func(t *testing.T, s *Store) {
			for range 20 {
				_, _ = takeOne(t.Context(), s, "k")
				time.Sleep(200 * ms)
			}

			var got string
			for _, each := range s.Report().Diagnose(t.Context(), nil) {
				if each.Code == findings.TooFar {
					got = each.Text
				}
			}
			if !strings.HasPrefix(got, row.want) || (got == "") != (row.want == "") {
				t.Errorf("%v away: %q, want %q", row.rtt, got, row.want)
			}
		})
	}
}

func TestMaxTimeoutIsChecked(t *testing.T) {
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer c.Close()
	for _, row := range []struct {
		o    Options
		want string
	}{
		{Options{MaxTimeout: -1}, "the maximum timeout -1ns is not within 0 to 1m0s"},
		{Options{MaxTimeout: 2 * time.Minute}, "the maximum timeout 2m0s is not within 0 to 1m0s"},
		{Options{MaxTimeout: 49 * ms}, "the maximum timeout 49ms is below the least timeout, 50ms"},
		{Options{Timeout: ms, MaxTimeout: 100 * ms}, "the timeout 1ms is fixed, so there is no maximum timeout 100ms"},
		{Options{MaxTimeout: 50 * ms}, ""},
	} {
		_, err := New(c, row.o)
		if got := errorText(err); !strings.Contains(got, row.want) || (got == "") != (row.want == "") {
			t.Errorf("%+v: %q, want %q", row.o, got, row.want)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
