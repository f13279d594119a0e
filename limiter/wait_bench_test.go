package limiter_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/store/memstore"
)

// A request that may wait and need not.
func BenchmarkAdmitMayWait(b *testing.B) {
	for _, text := range []string{"1000000000/1s burst=1000000000", "1000000000/1s fixed-window",
		"10000 concurrent ttl=1m"} {
		l := newLimiter(b, memstore.MustNew(memstore.Options{}),
			withOnLimit(rule(b, "a", text), limiter.Wait(time.Minute)))

		r := core.Request(get())

		b.Run(text, func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				a := l.Admit(r)
				if a.Outcome() != limiter.Pass {
					b.Fatal(a.Outcome())
				}
				a.Done(200)
			}
		})

		b.Run(text+" parallel", func(b *testing.B) {
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					l.Admit(r).Done(200)
				}
			})
		})
	}
}
