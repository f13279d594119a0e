package redisstore

import (
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/redistest"
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
	t.Parallel()
	storetest.Run(t, stores(t, connect(t, redistest.Addr(t)), Options{}))
}

// What is remembered is what Redis would say, to the microsecond.
func TestRedisWithRememberedRefusalsDecidesAsSpecified(t *testing.T) {
	t.Parallel()
	storetest.Run(t, stores(t, connect(t, redistest.Addr(t)), Options{Remember: 1000}))
}

func TestAClusterDecidesAsSpecified(t *testing.T) {
	t.Parallel()
	storetest.Run(t, stores(t, cluster(t), Options{OneSlot: true}))
}

func TestAMasterBehindSentinelsDecidesAsSpecified(t *testing.T) {
	t.Parallel()
	watched := redistest.Sentinel(t)
	c := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: redistest.MasterName, SentinelAddrs: redistest.Addrs(watched.Sentinels), ContextTimeoutEnabled: true,
	})
	t.Cleanup(func() { c.Close() })
	factory := stores(t, c, Options{})
	storetest.Timelines(t, factory)
	storetest.Contention(t, factory)
}
