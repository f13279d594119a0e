package redisstore

import (
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store/memstore"
	"github.com/headgate/headgate/store/storetest"
	"github.com/redis/go-redis/v9"
)

// stores makes stores in one Redis, each with keys of its own.
func stores(t testing.TB, c redis.UniversalClient, o Options) storetest.Factory {
	t.Helper()
	return func(t testing.TB, clock *storetest.Clock) core.Store {
		t.Helper()
		own := o
		own.Prefix, own.Timeout, own.Clock = redistest.Prefix(t), patient, clock.Now
		return MustNew(c, own)
	}
}

func TestRedisDecidesAsSpecified(t *testing.T) {
	storetest.Run(t, stores(t, connect(t, redistest.Addr(t)), Options{}))
}

func TestMiniredisDecidesAsSpecified(t *testing.T) {
	storetest.Run(t, stores(t, connect(t, miniredis.RunT(t).Addr()), Options{}))
}

func TestAClusterDecidesAsSpecified(t *testing.T) {
	storetest.Run(t, stores(t, cluster(t), Options{OneSlot: true}))
}

// The reference, the memory store and a real Redis give the same answers, field
// by field, over this many histories.
func TestTwentyThousandHistoriesAreTheSameInMemoryAndInRedis(t *testing.T) {
	if testing.Short() {
		t.Skip("20,000 histories take a minute")
	}
	memory := func(t testing.TB, clock *storetest.Clock) core.Store {
		return memstore.MustNew(memstore.Options{Clock: clock.Now})
	}
	redis := stores(t, connect(t, redistest.Addr(t)), Options{})
	storetest.Diff(t, 20_000, storetest.Seed+1, storetest.NewModel, memory, redis)
}
