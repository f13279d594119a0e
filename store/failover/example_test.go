package failover_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/store/failover"
	"github.com/headgate/headgate/store/memstore"
	"github.com/headgate/headgate/store/redisstore"
)

// Counts are in Redis. While it is away each instance grants its part from
// memory, except for logins, which are refused until Redis is back.
func Example() {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379", ContextTimeoutEnabled: true})
	defer client.Close()
	instances, err := failover.NewInstances(client, failover.InstancesOptions{Prefix: "shop:", Expected: 3})
	if err != nil {
		log.Fatal(err)
	}
	defer instances.Close()

	rules := []limiter.Rule{
		{Name: "api", Key: keyfuncs.RemoteIP, Limit: core.MustParseLimit("100/1m")},
		{Name: "login", Key: keyfuncs.RemoteIP, Limit: core.MustParseLimit("5/1m"), OnStoreError: limiter.FailClosed},
	}

	counts := redisstore.MustNew(client, redisstore.Options{Prefix: "shop:"})
	store, err := failover.New(counts, failover.Options{
		Fallback:  memstore.MustNew(memstore.Options{}),
		Instances: instances.Live,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	l := limiter.MustNew(limiter.Config{Store: store, Rules: rules})
	defer l.Close()
	fmt.Println(store.State())
	// Output: closed
}

// away is a primary that never answers.
type away struct{}

func (away) Apply(context.Context, []core.Op, []core.Decision) error {
	return fmt.Errorf("no answer")
}

func ExampleStore_Apply() {
	store := failover.MustNew(away{}, failover.Options{
		Fallback:  memstore.MustNew(memstore.Options{}),
		Instances: func() int { return 3 },
		Logger:    slog.New(slog.DiscardHandler),
	})
	defer store.Close()
	ops := []core.Op{{Rule: "api", Key: "alice", Limit: core.Limit{Quota: 18, Period: time.Hour}, Cost: 1}}
	out := make([]core.Decision, 1)

	// A third of the limit of 18 is the part; the breaker opens at the fifth failure.
	for range 7 {
		err := store.Apply(context.Background(), ops, out)
		fmt.Println(store.State(), out[0].Allowed, out[0].Remaining, err)
	}

	// Output:
	// closed true 5 <nil>
	// closed true 4 <nil>
	// closed true 3 <nil>
	// closed true 2 <nil>
	// open true 1 <nil>
	// open true 0 <nil>
	// open false 0 <nil>
}
