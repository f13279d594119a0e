// Package core has the limits, the contract of the stores that keep the counts, and the
// arithmetic that decides whether a request is within its limits.
//
//	limit := core.MustParseLimit("5/10s")
//	ops := []core.Op{{Verb: core.Take, Rule: "api", Key: "alice", Limit: limit, Cost: 1}}
//
//	var state core.State // what a store keeps of the key
//	out := make([]core.Decision, 1)
//	core.Decide(ops, []*core.State{&state}, time.Now().UnixMicro(), out)
//	fmt.Println(out[0].Allowed, out[0].Remaining)
//
// Most programs use package limiter, which turns requests into operations and decisions into
// answers. They meet three types here:
//
//   - A [Limit] is data: an algorithm and its numbers. [ParseLimit] reads its text.
//   - A [Decision] is the answer to one operation. A refusal is a Decision, never an error. An
//     error means that the store could not decide.
//   - A [Store] keeps the counts. Its one method, [Store.Apply], carries out any mix of
//     operations as one atomic step: either every Take is admitted or none of them costs anything.
//
// [Decide] is that step as pure arithmetic: it has no clock, no lock and no logger, so the
// caller keeps the states and calls it under a lock of its own.
//
// A key is fresh if no decision depends on its past: it was never used, or all units used of it
// have expired, and so have its strikes and bans. A store may forget a fresh key.
//
// Instants are an int64 of microseconds since the Unix epoch, and every count is an integer
// below 2^53, so that the same arithmetic is exact in Go and in the Lua of a Redis server.
package core
