package rueidisstore_test

import (
	"context"
	"fmt"
	"log"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/store/redisstore"
	rueidisstore "github.com/headgate/headgate/store/redisstore/rueidis"
)

// Instances with this store share their counts with those whose store has a client of go-redis.
func ExampleNew() {
	client, err := rueidisstore.NewClient(rueidis.ClientOption{InitAddress: []string{"127.0.0.1:6379"}})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	store, err := rueidisstore.New(client, redisstore.Options{Prefix: "shop:"})
	if err != nil {
		log.Fatal(err)
	}
	l := limiter.MustNew(limiter.Config{Store: store, Rules: []limiter.Rule{
		{Name: "ip", Key: keyfuncs.RemoteIP, Limit: core.MustParseLimit("100/1m")},
	}})
	d, err := l.Allow(context.Background(), "203.0.113.7", 1)
	fmt.Println(d.Allowed, err)
}
