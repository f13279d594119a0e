package limiter_test

import (
	"context"
	"fmt"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
)

func ExampleLimiter_TopKeys() {
	l := limiter.MustNew(limiter.Config{
		Top:   100,
		Rules: []limiter.Rule{{Name: "login", Limit: core.MustParseLimit("2/1h")}},
	})
	defer l.Close()
	for _, key := range []string{"ann", "bob", "ann", "ann", "bob", "ann"} {
		if _, err := l.Allow(context.Background(), key, 1); err != nil {
			fmt.Println(err)
		}
	}

	for _, top := range l.TopKeys() {
		for _, k := range top.Refused.Keys {
			fmt.Printf("%s refused %q at least %d times, at most %d\n", top.Rule, k.Key, k.Least(), k.Count)
		}
	}
	// Output: login refused "ann" at least 2 times, at most 2
}
