package filesource_test

import (
	"context"
	"log"

	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/filesource"
)

// A limiter follows the policies in a file while it changes.
func Example() {
	source, err := filesource.New("limits.yaml")
	if err != nil {
		log.Fatal(err)
	}
	l := limiter.MustNew(limiter.Config{})
	follower, err := policy.Follow(context.Background(), l, "shop", policy.Bindings{}, source, policy.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer follower.Close()
}
