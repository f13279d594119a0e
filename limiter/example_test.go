package limiter_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/store/memstore"
)

// A job asks before each call of somebody else's service.
func ExampleLimiter_Allow() {
	l := limiter.MustNew(limiter.Config{
		Store: memstore.MustNew(memstore.Options{}),
		Rules: []limiter.Rule{{
			Name:  "calls",
			Limit: core.Limit{Quota: 2, Period: time.Hour, Algorithm: core.FixedWindow},
			Key:   func(core.Request) (string, bool) { return "", true },
		}},
	})
	for range 3 {
		d, err := l.Allow(context.Background(), "geocoding", 1)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(d.Allowed, d.Remaining, d.RetryAfter.Round(time.Minute))
	}
	// Output:
	// true 1 0s
	// true 0 0s
	// false 0 1h0m0s
}
