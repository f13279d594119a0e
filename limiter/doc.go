// Package limiter decides about requests by rules.
//
// A [Rule] is data: a [core.Limit], the key that it counts by, and what happens
// to a request over it. A [Limiter] turns requests into operations on a
// [core.Store] and decisions into answers; the adapters for the HTTP frameworks
// only translate. A program that serves no HTTP calls [Limiter.Allow],
// [Limiter.Take], [Limiter.TakeUpTo], [Limiter.Wait] or [Limiter.Reserve] instead.
//
// A refusal is a [core.Decision], not an error, except that Wait and Reserve return
// an error for it. An error that wraps [ErrUndecided] means that the store, or
// a function of a rule, could not decide; [FailureMode] says what happens then.
package limiter
