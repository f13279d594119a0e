package core

import "errors"

// ErrFallback means that the fallback of a [Standby] made a decision, because the
// store in front of it could not. It is reported, and never returned by a store.
var ErrFallback = errors.New("the fallback of the store decides")

// Outage is a [Standby] that knows why its fallback decides.
type Outage interface {
	Standby

	// Cause returns an error that wraps ErrFallback and the latest error for which
	// the fallback decided, or nil if it never had to. It is fast.
	Cause() error
}

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
}
