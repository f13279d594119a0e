package redisstore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/faultproxy"
	"github.com/headgate/headgate/internal/test/redistest"
)

// The bound holds where the processors carry the load. A round trip through the proxy takes
// longer than its delay, as timers are late.
func TestLatencyAtADistance(t *testing.T) {
	if !test.Measures() {
		test.Skip(t, "it measures for a minute; .ci/measure runs it")
	}

	server := redistest.Start(t)
	for _, rtt := range []time.Duration{0, ms / 2, ms, 5 * ms, 20 * ms, 40 * ms} {
		for _, callers := range []int{1, 10, 100, 1000} {
			// A proxy and a client for each row, so that no row finds the connections of another.
			proxy := faultproxy.Raw(t, server.Addr)
			proxy.Set(faultproxy.Fault{Delay: rtt})
			c := redis.NewClient(&redis.Options{Addr: proxy.Addr, ContextTimeoutEnabled: true})
			s := MustNew(c, Options{Prefix: redistest.Prefix(t)})

			trip := roundTrip(t, c)

			// The first two seconds are for connections and for the distance to be found out.
			timed(t, s, callers, 2*time.Second)
			m := timed(t, s, callers, time.Second)

			what := fmt.Sprintf("half of the decisions of %4d callers %5v away, a round trip of %v; %6d a second, %.1f %% failed",
				callers, rtt, trip.Round(10*time.Microsecond), len(m.took),
				100*float64(m.failed)/float64(max(1, len(m.took)+m.failed)))

			// A decision takes a round trip and at most 15 % and 0.3ms more.
			test.AtMost(t, what, m.half(), trip*115/100+300*time.Microsecond)
			c.Close()
			proxy.Close()
		}
	}
}

// roundTrip returns how long half of some commands took at most.
func roundTrip(t *testing.T, c *redis.Client) time.Duration {
	var m measured
	for range 20 {
		begin := time.Now()
		if err := c.Time(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		m.took = append(m.took, time.Since(begin))
	}
	return m.half()
}

// measured is how the calls of some callers went.
type measured struct {
	took   []time.Duration // decisions
	failed int
}

// half returns how long half of the decisions took at most.
func (m *measured) half() time.Duration {
	if len(m.took) == 0 {
		return time.Hour
	}
	slices.Sort(m.took)
	return m.took[len(m.took)/2]
}

// timed has callers ask again and again, as soon as they have their answers.
func timed(t *testing.T, s *Store, callers int, long time.Duration) (m measured) {
	l := limit(t, "1000/1s burst=1000000")

	var mu sync.Mutex
	var all sync.WaitGroup
	end := time.Now().Add(long)
	for i := range callers {
		all.Go(func() {
			// Each caller has its own list, and they are joined at the end.
			var own measured
			ops, out := []core.Op{{Rule: "r", Key: fmt.Sprint("k", i), Limit: l, Cost: 1}}, make([]core.Decision, 1)

			for begin := time.Now(); begin.Before(end); {
				err := s.Apply(context.Background(), ops, out)
				now := time.Now()
				if err == nil {
					own.took = append(own.took, now.Sub(begin))
				} else {
					own.failed++
				}
				begin = now
			}

			mu.Lock()
			defer mu.Unlock()
			m.took, m.failed = append(m.took, own.took...), m.failed+own.failed
		})
	}

	all.Wait()
	return m
}
