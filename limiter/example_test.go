package limiter_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
)

// A job asks before each call of another service, and learns when to ask again.
func ExampleLimiter_Allow() {
	l := limiter.MustNew(limiter.Config{Rules: []limiter.Rule{{Limit: core.MustParseLimit("2/1h fixed-window")}}})
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
