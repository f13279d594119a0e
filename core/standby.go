// This file has what a store may be besides: Backed or Sharded. A store that tells of itself is an
// events.Reporter too.

package core

import "errors"

// ErrFallback means that the fallback of a [Standby] made a decision, because the
// store in front of it could not. It is reported, and never returned by a store.
var ErrFallback = errors.New("the fallback of the store decides")

// Standby are the sides of a store with a fallback.
//
// Decisions of the fallback have [Decision.Fallback] set, whichever side led to it. Apply of
// Store also refunds decisions of Strict and Fallback, and sends each refund to the side that
// decided.
type Standby struct {
	// Store has the fallback decide what Strict cannot decide. It is not nil.
	Store Store

	// Strict fails where Store would use the fallback. It is not nil.
	Strict Store

	// Fallback is the fallback alone, or nil if there is none.
	Fallback Store

	// Cause returns an error that wraps [ErrFallback] and the latest error for which the
	// fallback decided, or nil if that is not known. It is fast and safe for concurrent use.
	// nil is a Cause that knows none.
	Cause func() error
}

// Backed is a [Store] with a fallback, such as a store that asks a server and brings a memory,
// which decides what the server does not decide in time. A limiter over it uses its [Standby]
// without being told.
type Backed interface {
	Store

	// Back begins a use of the sides of the store. All uses share one Standby, whose Store may
	// be the store itself. Background work that it needs begins with the first use and ends
	// when the last is released. release may be called more than once, and may be nil.
	//
	// A store that embeds a Backed one has its Back, whose Store is the embedded one: it
	// defines Back anew, or holds the other in a field.
	Back() (s Standby, release func())
}

// Sharded is a [Store] whose keys lie on shards that fail by themselves, such as the masters
// of a Redis Cluster.
//
// The error of a step whose keys lie on several shards wraps an error with a method Shard,
// which returns the name of the one that failed.
type Sharded interface {
	Store

	// Shards returns a function that returns the name of the shard that holds the key of
	// operations, as far as the store knows now, or "" if it does not know. A shard that takes
	// the place of another has another name. The function is fast, asks no server and is safe
	// for concurrent use. nil means that all keys lie on one shard.
	Shards() (shardOf func(key string) string)
}

// ErrOverload is wrapped by the error of a step that a store did not decide because this
// process cannot have it decided in time: more steps wait than the server of the store
// answers within the time of a call, or the process was itself too late to see the answer.
// It says nothing about the server, so no breaker counts it. A step that was sent may have
// been carried out.
var ErrOverload = errors.New("more than can be decided in time")

// ErrSilent is wrapped by the error of a call for which the server had the time and which
// it has not answered, as it has answered no other call for longer than a call may take. A
// breaker need not wait for another such error.
var ErrSilent = errors.New("the server is silent")
