// Package events is what a limiter, its stores and its policies report of themselves, for
// metrics, logs and pages.
//
//	var refused atomic.Int64
//	l := limiter.MustNew(limiter.Config{
//		Observer: events.Func(func(_ context.Context, r *events.Request) {
//			if !r.Verdict.Passes() {
//				refused.Add(1)
//			}
//		}),
//		Rules: []limiter.Rule{{Name: "jobs", Limit: core.MustParseLimit("2/1h")}},
//	})
//
// An [Observer] receives each [Request] once, with the [Verdict] on it and that of each rule.
// [Hooks] are functions for everything else: requests that wait, leases, units that are
// given back, calls of a store, changes of a breaker, bans, and rules that change. Both are
// fields of limiter.Config, are called from many goroutines, and must be quick.
//
// The limiter hands the hooks on to its stores and to the follower of its policies. So a program
// installs a package of metrics in one place. Hooks.Open gives such a package an [Inspector], by
// which it reads what is not reported by itself, such as the number of keys in memory.
//
// All names in events are those of the program. Only [Rule.Key] and the fields named Key hold
// text that clients sent.
package events
