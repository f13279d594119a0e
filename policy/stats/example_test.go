package stats_test

import (
	"context"
	"fmt"
	"log"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/policy/stats"
)

// Each instance counts with a Recorder. Any program that reaches Redis can read the
// counts of all of them.
func Example() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379", ContextTimeoutEnabled: true})
	defer client.Close()
	recorder, err := stats.New(client, stats.Options{App: "shop"})
	if err != nil {
		log.Fatal(err)
	}
	defer recorder.Close()
	l := limiter.MustNew(limiter.Config{Observer: recorder})
	defer l.Close()

	minutes, err := stats.Read(ctx, client, "", "shop")
	if err != nil {
		log.Fatal(err)
	}

	requests, _ := stats.Requests(minutes)
	fmt.Println(requests.Total(), "requests,", requests[events.Refused], "refused")
	for policy, counts := range stats.Total(minutes) {
		fmt.Println(policy, counts[events.Allowed], counts[events.Refused])
	}
}
