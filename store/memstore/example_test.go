package memstore_test

import (
	"context"
	"fmt"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/store/memstore"
)

// A step of several operations is charged as a whole or not at all.
func ExampleStore_Apply() {
	store := memstore.MustNew(memstore.Options{MaxKeys: 100_000})
	ops := []core.Op{
		{Verb: core.Take, Rule: "burst", Key: "alice", Limit: core.MustParseLimit("2/1h fixed-window"), Cost: 1},
		{Verb: core.Take, Rule: "daily", Key: "alice", Limit: core.MustParseLimit("100/24h fixed-window"), Cost: 1},
	}

	out := make([]core.Decision, len(ops))

	// The third step is refused by its first op, so the second is not charged either.
	for range 3 {
		if err := store.Apply(context.Background(), ops, out); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(core.Granted(ops, out), out[0].Remaining, out[1].Remaining)
	}

	fmt.Println(store.Len(), "keys")
	// Output:
	// true 1 99
	// true 0 98
	// false 0 98
	// 2 keys
}

// A limiter keeps its counts in a store of a bounded size.
func Example() {
	ctx := context.Background()
	store := memstore.MustNew(memstore.Options{MaxKeys: 100_000})
	l := limiter.MustNew(limiter.Config{Store: store, Rules: []limiter.Rule{
		{Name: "ip", Key: keyfuncs.RemoteIP, Limit: core.MustParseLimit("100/1m")},
	}})
	d, err := l.Allow(ctx, "203.0.113.7", 1)
	fmt.Println(d.Allowed, d.Remaining, err)
	// Output: true 99 <nil>
}
