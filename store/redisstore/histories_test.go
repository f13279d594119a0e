//go:build !race

package redisstore

import (
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/tally"
	"github.com/headgate/headgate/store/memstore"
	"github.com/headgate/headgate/store/storetest"
)

func TestMiniredisDecidesAsSpecified(t *testing.T) {
	t.Parallel()
	storetest.Run(t, stores(t, connect(t, miniredis.RunT(t).Addr()), Options{}))
}

// The reference, the memory store and a real Redis give the same answers, field
// by field, over this many histories.
func TestTwentyThousandHistoriesAreTheSameInMemoryAndInRedis(t *testing.T) {
	if testing.Short() {
		t.Skip("20,000 histories take a minute")
	}
	t.Parallel()
	memory := func(t testing.TB, clock *storetest.Clock) core.Store {
		return memstore.MustNew(memstore.Options{Clock: clock.Now})
	}
	redis := stores(t, connect(t, redistest.Addr(t)), Options{})
	tally.Add(t, "random histories in the model, in memory and in Redis", 20_000)
	storetest.Diff(t, 20_000, storetest.Seed+1, storetest.NewModel, memory, redis)
}
