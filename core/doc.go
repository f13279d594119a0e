// Package core defines limits, operations and the store contract, and the
// arithmetic that decides them.
//
// Most programs use package limiter and meet only [ParseLimit] here. The example of
// [Decide] shows the package by itself.
//
// A [Limit] is data: an algorithm and its numbers. A [Store] keeps the counts and
// has one method, [Store.Apply], which carries out any mix of operations as one
// atomic step: either every Take is admitted or none of them costs anything.
// [Decide] is that step as pure arithmetic: the package has no clock, no lock and
// no logger. Package limiter turns requests into operations, and decisions into
// answers.
//
// A key is fresh if no decision depends on its past: it was never used, or all
// units used of it have expired, and so have its strikes and bans. A store may forget a
// fresh key.
//
// A refusal is a [Decision], never an error. An error means that the store could
// not decide.
//
// Inside, time is an int64 of microseconds since the Unix epoch and every
// count is an integer below 2^53, so that the same arithmetic is exact in Go
// and in the Lua of a Redis server.
package core
