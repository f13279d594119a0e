package managed_test

import (
	"context"
	"log"
	"net/http"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/nethttp"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/managed"
)

// A service follows the policies for "shop", and starts with the last good ones if
// Redis is away.
func Example() {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379", ContextTimeoutEnabled: true})
	defer client.Close()
	limits, err := managed.Open(context.Background(), client, managed.Options{
		App:    "shop",
		Follow: policy.Options{LastGood: "/var/lib/shop/policies.json"},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer limits.Close()
	limit := nethttp.New(limits.Limiter)
	log.Fatal(http.ListenAndServe("127.0.0.1:8081", limit(http.DefaultServeMux)))
}

// The instances of a service publish which keys they refuse most.
func Example_topKeys() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379", ContextTimeoutEnabled: true})
	defer client.Close()
	limits, err := managed.Open(ctx, client, managed.Options{
		App:     "shop",
		Limiter: limiter.Config{Top: 20},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer limits.Close()
	limit := nethttp.New(limits.Limiter)
	log.Fatal(http.ListenAndServe("127.0.0.1:8081", limit(http.DefaultServeMux)))
}

// A service needs the name of its application and a client of Redis.
func ExampleOpen() {
	ctx, mux := context.Background(), http.NewServeMux()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379", ContextTimeoutEnabled: true})
	limits, err := managed.Open(ctx, client, managed.Options{App: "shop"})
	if err != nil {
		log.Fatal(err)
	}
	defer limits.Close()
	handler := nethttp.New(limits.Limiter)(mux)
	log.Fatal(http.ListenAndServe("127.0.0.1:8081", handler))
}
