package events_test

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/events"
)

// verdictCount counts the verdicts of rules.
type verdictCount map[string]int

func (c verdictCount) Observe(_ context.Context, r *events.Request) {
	c["requests "+r.Verdict.String()]++
	for i := range r.Rules {
		c[r.Rules[i].Name+" "+r.Rules[i].Verdict.String()]++
	}
}

// One request under two rules is one request and two decisions.
func ExampleObserver() {
	counts := verdictCount{}
	l := limiter.MustNew(limiter.Config{Observer: counts, Rules: []limiter.Rule{
		{Name: "burst", Limit: core.MustParseLimit("2/1s fixed-window")},
		{Name: "day", Limit: core.MustParseLimit("100/24h fixed-window")},
	}})
	defer l.Close()
	for range 3 {
		_, _ = l.Take(context.Background(), "ann", 1)
	}
	fmt.Println(counts)
	// Output: map[burst allowed:2 burst refused:1 day allowed:2 day overruled:1 requests allowed:2 requests refused:1]
}

// Hooks hear of what is no decision. Those that a program does not need stay nil.
func ExampleHooks() {
	hooks := &events.Hooks{
		Lease: func(e events.Lease) { fmt.Println(e.Rule, "lease ended:", e.Ended) },
		Units: func(e events.Units) { fmt.Println(e.Rule, e.Flow, e.Units) },
	}

	l := limiter.MustNew(limiter.Config{Hooks: hooks, Rules: []limiter.Rule{
		{Name: "tokens", Limit: core.MustParseLimit("1000/1h fixed-window")},
		{Name: "jobs", Limit: core.MustParseLimit("1 concurrent ttl=30s")},
	}})
	defer l.Close()

	job, err := l.Take(context.Background(), "ann", 1)
	if err != nil || !job.Allowed() {
		return
	}
	_ = job.Settle(context.Background(), map[string]int64{"tokens": 40})
	// Output:
	// jobs lease ended: false
	// jobs lease ended: true
	// tokens debited 39
}

// A program counts the requests that do not pass.
func Example() {
	var refused atomic.Int64
	l := limiter.MustNew(limiter.Config{
		Observer: events.Func(func(_ context.Context, r *events.Request) {
			if !r.Verdict.Passes() {
				refused.Add(1)
			}
		}),
		Rules: []limiter.Rule{{Name: "jobs", Limit: core.MustParseLimit("2/1h")}},
	})
	defer l.Close()

	for range 5 {
		_, _ = l.Take(context.Background(), "ann", 1)
	}
	fmt.Println(refused.Load())
	// Output: 3
}
