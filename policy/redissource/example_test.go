package redissource_test

import (
	"context"
	"fmt"
	"log"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/redissource"
	"github.com/headgate/headgate/policy/stats"
	"github.com/headgate/headgate/store/redisstore"
)

// A service follows the published policies, starts with the last good ones if
// Redis is away, and writes the counts for display.
func Example() {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379", ContextTimeoutEnabled: true})
	defer client.Close()
	source, err := redissource.New(client, redissource.Options{})
	if err != nil {
		log.Fatal(err)
	}

	store, err := redisstore.New(client, redisstore.Options{})
	if err != nil {
		log.Fatal(err)
	}

	recorder, err := stats.New(client, stats.Options{App: "shop"})
	if err != nil {
		log.Fatal(err)
	}
	defer recorder.Close()

	l, err := limiter.New(limiter.Config{Store: store, Observer: recorder})
	if err != nil {
		log.Fatal(err)
	}

	// The last good policies on the disk, or none at all, are enough to start with.
	follower, err := policy.Follow(context.Background(), l, "shop", policy.Bindings{}, source, policy.Options{
		Instance:  "shop-1",
		LastGood:  "/var/lib/shop/policies.json",
		OnMissing: policy.OnMissingWait,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer follower.Close()
}

// One program publishes policies, and another follows them.
func ExampleSource_Publish() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379", ContextTimeoutEnabled: true})
	defer client.Close()
	l := limiter.MustNew(limiter.Config{})
	set := policy.Set{{Name: "login", Apps: []string{"shop"}, Key: "ip", Limit: core.MustParseLimit("5/1m")}}

	source, err := redissource.New(client, redissource.Options{})
	if err != nil {
		log.Fatal(err)
	}

	// The program that manages the policies publishes them, here for the first time.
	version, err := source.Publish(ctx, set, "")
	if err != nil {
		log.Fatal(err)
	}

	// Each instance follows them.
	follower, err := policy.Follow(ctx, l, "shop", policy.Bindings{}, source, policy.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer follower.Close()
	fmt.Println(version, l.RuleNames())
}

// One customer gets more until an instant, and another loses what it had. The set of policies is
// not published again.
func ExampleSource_PublishOverrides() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379", ContextTimeoutEnabled: true})
	defer client.Close()
	source, err := redissource.New(client, redissource.Options{})
	if err != nil {
		log.Fatal(err)
	}

	err = source.PublishOverrides(ctx, redissource.OverrideBatch{Changes: []policy.OverrideChange{
		{Policy: "api", Key: "initech", Text: "9000/1h until 2026-12-04T17:00:00Z"},
		{Policy: "api", Key: "acme:old"}, // takes one away
	}})
	if err != nil {
		log.Fatal(err)
	}
}
