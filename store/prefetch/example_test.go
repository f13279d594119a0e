package prefetch_test

import (
	"context"
	"fmt"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/store/memstore"
	"github.com/headgate/headgate/store/prefetch"
)

// counter counts the calls of a store, which stands for one that is far away.
type counter struct {
	core.Store
	calls int
}

func (c *counter) Apply(ctx context.Context, ops []core.Op, out []core.Decision) error {
	c.calls++
	return c.Store.Apply(ctx, ops, out)
}

func ExampleNew() {
	counts := &counter{Store: memstore.MustNew(memstore.Options{})}
	store, err := prefetch.New(counts, prefetch.Options{Units: 100})
	if err != nil {
		fmt.Println(err)
		return
	}

	// The limit of 5000 is not met, so all are admitted.
	ctx := context.Background()
	ops := []core.Op{{Verb: core.Take, Rule: "api", Key: "alice", Limit: core.MustParseLimit("5000/24h fixed-window"),
		Cost: 1}}
	out := make([]core.Decision, 1)

	admitted := 0
	for range 1000 {
		if err := store.Apply(ctx, ops, out); err != nil {
			fmt.Println(err)
			return
		}
		if out[0].Allowed {
			admitted++
		}
	}

	fmt.Println(admitted, "admitted in", counts.calls, "calls")
	if err := store.Close(ctx); err != nil {
		fmt.Println(err)
	}
	// Output: 1000 admitted in 23 calls
}
