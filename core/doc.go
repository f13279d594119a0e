// Package core decides who may do what how often.
//
// A [Limit] is data: an algorithm and its numbers. A [Rule] is data too: a
// limit, the key it counts by, and what happens to a request over it. A
// [Store] keeps the counts and has one method, [Store.Apply], which carries out
// any mix of operations as one atomic step: either every Take is admitted or
// none of them costs anything. A [Limiter] turns requests into operations and
// decisions into answers; the adapters for the HTTP frameworks only translate.
//
// A refusal is a [Decision], never an error. An error means that nobody could
// decide.
//
// Inside, time is an int64 of microseconds since the Unix epoch and every
// count is an integer below 2^53, so that the same arithmetic is exact in Go
// and in the Lua of a Redis server.
package core
