package core

// Standby is a [Store] over two others: its Apply has a fallback decide what
// the first store cannot decide.
//
// Apply also refunds decisions of Strict and Fallback, and sends each refund to
// the store that decided.
type Standby interface {
	Store

	// Strict returns the first store, which fails where Apply would use the
	// fallback.
	Strict() Store

	// Fallback returns the fallback alone, or nil if there is none.
	Fallback() Store
}
