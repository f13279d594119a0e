package redisstore

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/store/storetest"
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

// conform tests that stores decide as the model does, step by step. The rest of
// [storetest.Run] follows from that: the model passes it, and so does a plain Redis.
func conform(t *testing.T, f storetest.Factory) {
	t.Run("Timelines", func(t *testing.T) { storetest.Timelines(t, f) })
	t.Run("Contention", func(t *testing.T) { storetest.Contention(t, f) })
	t.Run("Diff", func(t *testing.T) {
		storetest.Diff(t, storetest.Histories/10, storetest.Seed,
			storetest.NewModel, f)
	})
}

func TestRedisDecidesAsSpecified(t *testing.T) {
	t.Parallel()
	f := stores(t, connect(t, redistest.Addr(t)), Options{})
	conform(t, f)
	t.Run("Properties", func(t *testing.T) { storetest.Properties(t, f) })
	t.Run("Kept", func(t *testing.T) { storetest.Kept(t, storetest.Histories/20, storetest.Seed, f) })
}

// Cached refusals are the answers of Redis, to the microsecond.
func TestRedisWithCachedRefusalsDecidesAsSpecified(t *testing.T) {
	t.Parallel()
	conform(t, stores(t, connect(t, redistest.Addr(t)), Options{CacheRefusals: 1000}))
}

func TestClusterDecidesAsSpecified(t *testing.T) {
	t.Parallel()
	conform(t, stores(t, cluster(t), Options{OneSlot: true}))
}

func TestSentinelMasterDecidesAsSpecified(t *testing.T) {
	t.Parallel()
	watched := redistest.Sentinel(t)
	watched.Keep(t)
	c := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: redistest.MasterName, SentinelAddrs: redistest.Addrs(watched.Sentinels),
		ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { c.Close() })
	factory := stores(t, c, Options{})
	storetest.Timelines(t, factory)
	storetest.Contention(t, factory)
}
