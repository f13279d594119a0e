package core

// Standby is a [Store] over two: its Apply has a fallback decide whatever it
// cannot decide itself.
//
// What Strict and Fallback have decided is refunded by Apply, which knows whose
// decision it was.
type Standby interface {
	Store

	// Strict is the store without its fallback, whose errors are to be seen.
	Strict() Store

	// Fallback is the fallback alone, or nil if there is none.
	Fallback() Store
}
