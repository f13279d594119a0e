package rueidisstore_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/store/redisstore"
	rueidisstore "github.com/headgate/headgate/store/redisstore/rueidis"
)

// BenchmarkAlone has one caller, through each client in turn, so that both meet the same machine.
// p50 of each is the median of its decisions.
func BenchmarkAlone(b *testing.B) {
	addr, o := redistest.Addr(b), redisstore.Options{Prefix: redistest.Prefix(b), Timeout: patient}
	theirs := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	defer theirs.Close()
	stores := []core.Store{redisstore.MustNew(theirs, o), rueidisstore.MustNew(connect(b, at(addr)), o)}

	// The keys get their units back before the next request for them.
	limit := core.MustParseLimit("1000/1s burst=1000000")
	ops, out := []core.Op{{Rule: "r", Limit: limit, Cost: 1}}, make([]core.Decision, 1)
	took := [2][]time.Duration{}
	const inTurn = 1000
	for i := range b.N {
		s := i / inTurn % 2
		ops[0].Key = fmt.Sprintf("10.0.%d.%d", i/256%40, i%256)
		begun := time.Now()
		if err := stores[s].Apply(context.Background(), ops, out); err != nil || !out[0].Allowed {
			b.Fatalf("%+v, %v", out[0], err)
		}
		took[s] = append(took[s], time.Since(begun))
	}

	for i, name := range []string{"go-redis-p50-µs", "rueidis-p50-µs"} {
		if len(took[i]) > 0 {
			slices.Sort(took[i])
			b.ReportMetric(float64(took[i][len(took[i])/2])/1e3, name)
		}
	}
}
