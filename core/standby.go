package core

import "errors"

// ErrFallback means that the fallback of a [Standby] made a decision, because the
// store in front of it could not. It is reported, and never returned by a store.
var ErrFallback = errors.New("the fallback of the store decides")

// Standby is a [Store] over two others: its Apply has a fallback decide what
// the first store cannot decide.
//
// Decisions of the fallback have [Decision.Fallback] set, whichever of the
// methods led to it. Apply also refunds decisions of Strict and Fallback, and
// sends each refund to the store that decided.
type Standby interface {
	Store

	// Strict returns the first store, which fails where Apply would use the
	// fallback.
	Strict() Store

	// Fallback returns the fallback alone, or nil if there is none.
	Fallback() Store

	// Cause returns an error that wraps ErrFallback and the latest error for which
	// the fallback decided, or nil if that is not known. It is fast.
	Cause() error
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

// Backed is a store that asks a server and brings a memory, which decides what the server
// does not decide in time. A limiter over it has that memory behind it without being told.
type Backed interface {
	Store

	// Back begins a use of the Standby that the store brings: the store itself behind a
	// breaker, and a fallback in memory that decides this process's part of each limit.
	// All uses of a store share one. Its background work begins with the first use and
	// ends when the last is released; release may be called more than once.
	Back() (s Standby, release func())
}
