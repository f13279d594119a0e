package redisstore_test

import (
	"context"
	"fmt"
	"log"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/store/redisstore"
)

// All instances that share the Redis and the prefix share the counts.
func ExampleNew() {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379", ContextTimeoutEnabled: true})
	store, err := redisstore.New(client, redisstore.Options{Prefix: "shop:"})
	if err != nil {
		log.Fatal(err)
	}
	l := limiter.MustNew(limiter.Config{Store: store, Rules: []limiter.Rule{
		{Name: "ip", Key: keyfuncs.RemoteIP, Limit: core.MustParseLimit("100/1m")},
	}})
	d, err := l.Allow(context.Background(), "203.0.113.7", 1)
	fmt.Println(d.Allowed, err)
}

// With a secret the keys in Redis do not show the callers. All instances must
// have the same one.
func ExampleNew_secret() {
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs:                 []string{"127.0.0.1:7000", "127.0.0.1:7001"},
		ContextTimeoutEnabled: true,
	})
	store, err := redisstore.New(client, redisstore.Options{
		Secret:        []byte("sixteen bytes or more, from the environment"),
		CacheRefusals: 10_000,
	})
	fmt.Println(store != nil, err)
	// Output: true <nil>
}

// The lines of the client about connections go to slog, a few of each kind.
func ExampleNewClientLogger() {
	redis.SetLogger(redisstore.NewClientLogger(nil)) // once, at the start of the program
}
