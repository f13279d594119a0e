package limiter_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/store/memstore"
)

// tripping is a store that is a round trip away.
func tripping(s core.Store, trip time.Duration) core.Store {
	return storeFunc(func(ctx context.Context, ops []core.Op, out []core.Decision) error {
		time.Sleep(trip / 2)
		defer time.Sleep(trip / 2)
		return s.Apply(context.WithoutCancel(ctx), ops, out)
	})
}

// atRandom sends clients of a patience who arrive at random, at each limiter at the rate, and
// returns how many of them were served by each.
func atRandom(t *testing.T, rate int, patience, lasting time.Duration, limiters ...*limiter.Limiter) []int64 {
	// A fixed seed makes each run the same.
	rnd := rand.New(rand.NewPCG(1, 2))
	served := make([]atomic.Int64, len(limiters))
	var wg sync.WaitGroup
	start := time.Now()

	for {
		// The pauses of arrivals that do not know of one another are exponential.
		time.Sleep(time.Duration(rnd.ExpFloat64() * float64(time.Second) / float64(rate*len(limiters))))
		if time.Since(start) >= lasting {
			break
		}

		i := rnd.IntN(len(limiters))
		wg.Go(func() {
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			defer time.AfterFunc(patience, leave).Stop()
			res, err := limiters[i].TakeWithin(ctx, "k", 1, 10*time.Second)
			if err == nil && res.Allowed() && time.Since(start) < lasting {
				served[i].Add(1)
			}
		})
	}

	wg.Wait()
	var list []int64
	for i := range served {
		list = append(list, served[i].Load())
	}
	return list
}

// Clients who arrive at random at processes of their own get the whole rate too, and no process
// starves for its distance from the store.
func TestClientsAtRandomGetTheWholeRate(t *testing.T) {
	const lasting, units = 20 * time.Second, 200
	for _, row := range []struct {
		patience    time.Duration
		trips       []time.Duration
		least, each int64
	}{
		// Four processes share 200 units. The farther a store is, the more turns are lost to the
		// answers under way.
		{200 * ms, []time.Duration{0}, units, units},
		{200 * ms, []time.Duration{0, 0, 0, 0}, units * 98 / 100, 40},
		{200 * ms, []time.Duration{ms, ms, ms, ms}, units * 98 / 100, 40},
		{200 * ms, []time.Duration{ms, ms, ms, 40 * ms}, units * 97 / 100, 35},
		{200 * ms, []time.Duration{40 * ms, 40 * ms, 40 * ms, 40 * ms}, units * 88 / 100, 35},
		{time.Second, []time.Duration{ms, ms, ms, 40 * ms}, units * 99 / 100, 35},
		{20 * time.Second, []time.Duration{ms, ms, ms, 40 * ms}, units * 99 / 100, 35},
	} {
		t.Run(fmt.Sprint(row.patience, row.trips), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := memstore.MustNew(memstore.Options{})
				var limiters []*limiter.Limiter
				for _, trip := range row.trips {
					limiters = append(limiters, newLimiter(t, tripping(s, trip), rule(t, "a", "10/1s burst=1")))
				}

				got := atRandom(t, 40/len(limiters), row.patience, lasting, limiters...)

				sum := int64(0)
				for _, n := range got {
					sum += n
				}

				if sum < row.least || sum > units || slices.Min(got) < row.each {
					t.Errorf("served %d, by each process %d", sum, got)
				}
			})
		})
	}
}
