package limiter_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/store/memstore"
)

// crowd is clients who arrive in groups and leave when their patience ends.
type crowd struct {
	clients  int // that arrive every 100 ms, each at the next limiter
	patience []time.Duration
	max      time.Duration
	cost     func(i int) int64 // nil means 1
	lasting  time.Duration     // 0 means 10 s

	mu     sync.Mutex
	served []served
}

// served is a client that was admitted.
type served struct {
	client int
	cost   int64
	at     time.Duration
}

// send sends the crowd to the limiters, which stand for processes, for ten seconds and
// returns the units that were admitted in each.
func (c *crowd) send(t *testing.T, limiters ...*limiter.Limiter) []int64 {
	t.Helper()
	lasting := c.lasting
	if lasting == 0 {
		lasting = 10 * time.Second
	}

	var wg sync.WaitGroup
	start := time.Now()
	for i := 0; time.Since(start) < lasting; i++ {
		// Groups come on the hundred milliseconds, whatever the time that the clients before took.
		if i > 0 && i%c.clients == 0 {
			time.Sleep(100*ms - time.Since(start)%(100*ms))
			if time.Since(start) >= lasting {
				break
			}
		}

		cost := int64(1)
		if c.cost != nil {
			cost = c.cost(i)
		}

		l, patience := limiters[i%len(limiters)], c.patience[i%len(c.patience)]
		wg.Go(func() {
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			defer time.AfterFunc(patience, leave).Stop()
			res, err := l.TakeWithin(ctx, "k", cost, c.max)
			if err == nil && res.Allowed() {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.served = append(c.served, served{i, cost, time.Since(start)})
			}
		})
		synctest.Wait()
	}

	wg.Wait()
	per := make([]int64, lasting/time.Second)
	for _, s := range c.served {
		if s.at < lasting {
			per[s.at/time.Second] += s.cost
		}
	}
	return per
}

// wantOrder fails if a client was served before one that came before.
func (c *crowd) wantOrder(t *testing.T) {
	t.Helper()
	slices.SortFunc(c.served, func(a, b served) int { return a.client - b.client })
	for i := 1; i < len(c.served); i++ {
		if a, b := c.served[i-1], c.served[i]; b.at < a.at {
			t.Errorf("client %d was served at %s, and %d at %s", a.client, a.at, b.client, b.at)
		}
	}
}

var patiences = map[string][]time.Duration{
	"0.2 s": {200 * ms}, "0.5 s": {500 * ms}, "1 s": {time.Second}, "1.5 s": {1500 * ms}, "20 s": {20 * time.Second},
	"mixed": {200 * ms, 20 * time.Second, 500 * ms, time.Second, 1500 * ms},
}

// greedy returns how many units a limit has in each second for clients of whom four more
// ask every 100 ms, each of them without pause until it is served.
func greedy(t *testing.T, text string) []int64 {
	l := newLimiter(t, newTicking(), rule(t, "a", text))
	per := make([]int64, 10)

	waiting := 0
	for i := range 10_000 {
		// Four more are waiting from here on.
		if i%100 == 0 {
			waiting += 4
		}
		for ; waiting > 0; waiting-- {
			res, err := l.Take(t.Context(), "k", 1)
			if err != nil {
				t.Fatal(err)
			}
			if !res.Allowed() {
				break
			}
			per[i/1000]++
		}

		time.Sleep(ms)
	}
	return per
}

// Whatever the patience of clients is, the whole rate is served from the first second on.
func TestImpatientClientsGetTheWholeRate(t *testing.T) {
	rate := slices.Repeat([]int64{10}, 10)
	for _, row := range []struct {
		limit string
		want  []int64
	}{
		{"10/1s burst=1", rate},
		// The burst comes on top in the first second.
		{"10/1s burst=5", append([]int64{14}, rate[1:]...)},
		{"10/1s", append([]int64{19}, rate[1:]...)},
		{"10/1s fixed-window", rate},
		{"10/1s sliding-log", rate},
		{"10/1s token-bucket", rate},
		// A sliding window weighs the second before, so that some units come a moment later.
		{"10/1s sliding-window", []int64{10, 10, 10, 10, 10, 10, 10, 10, 9, 9}},
	} {
		synctest.Test(t, func(t *testing.T) {
			if got := greedy(t, row.limit); !slices.Equal(got, row.want) {
				t.Errorf("%s has in each second %d, want %d", row.limit, got, row.want)
			}
		})

		for patience, list := range patiences {
			for _, max := range []time.Duration{2 * time.Second, 5 * time.Second, 10 * time.Second} {
				t.Run(fmt.Sprintf("%s/%s/%s", row.limit, patience, max), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						l := newLimiter(t, newTicking(), rule(t, "a", row.limit))
						c := crowd{clients: 4, patience: list, max: max}
						if got := c.send(t, l); !slices.Equal(got, row.want) {
							t.Errorf("admitted in each second %d, want %d", got, row.want)
						}
						c.wantOrder(t)
					})
				})
			}
		}
	}
}

// As many processes share a store.
func TestImpatientClientsOfSeveralProcesses(t *testing.T) {
	for _, processes := range []int{2, 4} {
		for _, text := range []string{"10/1s burst=1", "10/1s fixed-window", "10/1s token-bucket"} {
			for patience, list := range patiences {
				t.Run(fmt.Sprintf("%d/%s/%s", processes, text, patience), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						s := memstore.MustNew(memstore.Options{})
						var limiters []*limiter.Limiter
						for range processes {
							limiters = append(limiters, newLimiter(t, s, rule(t, "a", text)))
						}

						c := crowd{clients: 4, patience: list, max: 5 * time.Second}
						if got, want := c.send(t, limiters...),
							slices.Repeat([]int64{10}, 10); !slices.Equal(got, want) {
							t.Errorf("admitted in each second %d, want %d", got, want)
						}
					})
				})
			}
		}
	}
}
