package prefetch_test

import (
	"context"
	"fmt"
	"log"
	"net/http"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
	"github.com/headgate/headgate/store/memstore"
	"github.com/headgate/headgate/store/prefetch"
	"github.com/headgate/headgate/store/redisstore"
)

// counter counts the calls of a store, which stands for one that is far away.
type counter struct {
	core.Store
	calls int
}

func (c *counter) Apply(ctx context.Context, ops []core.Op, out []core.Decision) error {
	c.calls++
	return c.Store.Apply(ctx, ops, out)
}

func ExampleNew() {
	counts := &counter{Store: memstore.MustNew(memstore.Options{})}
	store, err := prefetch.New(counts, prefetch.Options{Units: 100})
	if err != nil {
		fmt.Println(err)
		return
	}

	// The limit of 5000 is not met, so all are admitted.
	ctx := context.Background()
	ops := []core.Op{{Verb: core.Take, Rule: "api", Key: "alice", Limit: core.MustParseLimit("5000/24h fixed-window"),
		Cost: 1}}
	out := make([]core.Decision, 1)

	admitted := 0
	for range 1000 {
		if err := store.Apply(ctx, ops, out); err != nil {
			fmt.Println(err)
			return
		}
		if out[0].Allowed {
			admitted++
		}
	}

	fmt.Println(admitted, "admitted in", counts.calls, "calls")
	if err := store.Close(ctx); err != nil {
		fmt.Println(err)
	}
	// Output: 1000 admitted in 23 calls
}

// A service whose keys are busy, far from its Redis.
func Example() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379", ContextTimeoutEnabled: true})
	counts := redisstore.MustNew(client, redisstore.Options{Prefix: "shop:"})
	rules := []limiter.Rule{{Name: "api", Key: keyfuncs.RemoteIP, Limit: core.MustParseLimit("5000/1m")}}

	store, err := prefetch.New(counts, prefetch.Options{Units: 100})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close(ctx)
	l := limiter.MustNew(limiter.Config{Store: store, Rules: rules})

	handler := nethttp.New(l)(http.DefaultServeMux)
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", handler))
}
