package rueidisstore_test

import (
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/store/redisstore"
	rueidisstore "github.com/headgate/headgate/store/redisstore/rueidis"
	"github.com/headgate/headgate/store/storetest"
)

func TestMain(m *testing.M) { test.Exit(m.Run()) }

// patient is a timeout that a busy test machine does not reach.
const patient = 30 * time.Second

// connect returns a client with the options that the store's own documentation gives.
func connect(t testing.TB, o rueidis.ClientOption) rueidis.Client {
	t.Helper()
	c, err := rueidisstore.NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// at returns the options of a client of the servers.
func at(addrs ...string) rueidis.ClientOption {
	return rueidis.ClientOption{InitAddress: addrs, Dialer: dialer}
}

// stores makes stores in one Redis, each with keys of its own.
func stores(c rueidis.Client, o redisstore.Options) storetest.Factory {
	return func(t testing.TB, clock *storetest.Clock) core.Store {
		t.Helper()
		own := o
		own.Prefix, own.Timeout, own.Clock = redistest.Prefix(t), patient, clock.Now
		return rueidisstore.MustNew(c, own)
	}
}

// conform tests that stores decide as the model does, step by step.
func conform(t *testing.T, f storetest.Factory) {
	t.Run("Timelines", func(t *testing.T) { storetest.Timelines(t, f) })
	t.Run("Contention", func(t *testing.T) { storetest.Contention(t, f) })
	t.Run("Diff", func(t *testing.T) {
		storetest.Diff(t, storetest.Histories/10, storetest.Seed, storetest.NewModel, f)
	})
}

func TestRedisDecidesAsSpecified(t *testing.T) {
	t.Parallel()
	f := stores(connect(t, at(redistest.Addr(t))), redisstore.Options{})
	conform(t, f)
	t.Run("Properties", func(t *testing.T) { storetest.Properties(t, f) })
	t.Run("Kept", func(t *testing.T) { storetest.Kept(t, storetest.Histories/20, storetest.Seed, f) })
}

// Cached refusals are the answers of Redis, to the microsecond.
func TestRedisWithCachedRefusalsDecidesAsSpecified(t *testing.T) {
	t.Parallel()
	conform(t, stores(connect(t, at(redistest.Addr(t))), redisstore.Options{CacheRefusals: 1000}))
}

func TestClusterDecidesAsSpecified(t *testing.T) {
	t.Parallel()
	conform(t, stores(connect(t, at(redistest.Addrs(redistest.Cluster(t, 3))...)), redisstore.Options{OneSlot: true}))
}

func TestSentinelMasterDecidesAsSpecified(t *testing.T) {
	t.Parallel()
	watched := redistest.Sentinel(t)
	watched.Keep(t)
	o := at(redistest.Addrs(watched.Sentinels)...)
	o.Sentinel = rueidis.SentinelOption{MasterSet: redistest.MasterName, Dialer: dialer}
	f := stores(connect(t, o), redisstore.Options{})
	storetest.Timelines(t, f)
	storetest.Contention(t, f)
}
