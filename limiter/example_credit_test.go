package limiter_test

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/store/memstore"
)

// A customer who has used up the exports buys three more, which are good for a day.
func ExampleLimiter_Grant() {
	now := time.Date(2026, 3, 20, 12, 0, 0, 0, time.UTC)
	l := limiter.MustNew(limiter.Config{
		Store: memstore.MustNew(memstore.Options{Clock: func() int64 { return now.UnixMicro() }}),
		Rules: []limiter.Rule{{Name: "exports", Limit: core.MustParseLimit("2/720h fixed-window")}},
	})
	ctx := context.Background()

	export := func() {
		d, err := l.Allow(ctx, "ann", 1)
		fmt.Println(d.Allowed, d.Remaining, "of which credit", d.Credit, err)
	}
	export()
	export()
	export()

	if err := l.Grant(ctx, "exports", "ann", 3, now.Add(24*time.Hour)); err != nil {
		fmt.Println(err)
	}
	export()

	now = now.Add(24 * time.Hour)
	export()
	// Output:
	// true 1 of which credit 0 <nil>
	// true 0 of which credit 0 <nil>
	// false 0 of which credit 0 <nil>
	// true 2 of which credit 2 <nil>
	// false 0 of which credit 0 <nil>
}
