package redisstore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test/redistest"
)

// BenchmarkTake has callers that send the next step as soon as the last is answered,
// on 10,000 keys, none of which is refused.
func BenchmarkTake(b *testing.B) {
	s, _ := fresh(b, redistest.Addr(b), Options{})
	l := limit(b, "1000/1s burst=1000000")
	for _, callers := range []int{1, 10, 100, 1000} {
		b.Run(fmt.Sprint(callers, " callers"), func(b *testing.B) { ask(b, s, l, callers) })
	}
}

// ask has callers ask b.N times in all, and reports the latencies.
func ask(b *testing.B, s *Store, l core.Limit, callers int) {
	keys := make([]string, 10_000)
	for i := range keys {
		keys[i] = fmt.Sprintf("10.0.%d.%d", i/256, i%256)
	}

	took := make([]time.Duration, b.N)
	var next atomic.Int64
	var all sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()

	for range callers {
		all.Go(func() {
			ops, out := []core.Op{{Rule: "api", Limit: l, Cost: 1}}, make([]core.Decision, 1)

			// The latency includes the time since the answer before, as the caller sees it.
			before := time.Now()
			for i := next.Add(1) - 1; i < int64(b.N); i = next.Add(1) - 1 {
				ops[0].Key = keys[i%int64(len(keys))]
				if err := s.Apply(context.Background(), ops, out); err != nil || !out[0].Allowed {
					b.Errorf("%+v, %v", out[0], err)
					return
				}
				after := time.Now()
				took[i], before = after.Sub(before), after
			}
		})
	}

	all.Wait()
	b.StopTimer()

	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2])/1e3, "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100])/1e3, "p99-µs")
}
