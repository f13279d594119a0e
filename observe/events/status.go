package events

import "time"

// StoreCalls are the calls that the store of a limiter has made to its server, for all
// limiters that share it. A store in memory makes none.
type StoreCalls struct {
	Calls, Failed uint64 // since limiter.New

	// Recent is how many calls the times are of: the latest of the last minute, up to 256,
	// with those that failed. Median, P99 and Max are zero if there are none.
	Recent           int
	Median, P99, Max time.Duration

	// AtMost is how long a call may take, or 0 if the store does not say; see [Report].
	AtMost time.Duration

	Last time.Time // the end of the latest call, or zero

	// Errors are the latest errors, the latest first, at most 16. Errors of one text in a
	// row are one.
	Errors []StoreError
}

// StoreError is an error of calls of a store.
type StoreError struct {
	First, Last time.Time
	Times       int64
	Type        ErrorType
	Text        string // one line, the cause as the client of the server reports it
}

// BreakerChange is a change of a breaker's state.
type BreakerChange struct {
	At    time.Time
	Shard string // of the store, or "" for all of it
	Open  bool   // the store is bypassed since then
	Cause string // one line, why it is; "" if Open is false
}

// Trouble is a kind of error, and what became of the requests that met it.
type Trouble struct {
	What string // one line, such as "the store cannot decide, so OnStoreError does"
	Rule string // or ""

	// Passed, Refused and Local are how many requests passed undecided, were turned away,
	// or were decided by the fallback, since limiter.New. Other is how many errors no request
	// met.
	Passed, Refused, Local, Other int64

	// First is the first of the latest errors that came less than a minute apart, and Last
	// the last. Active reports whether that is less than a minute ago.
	First, Last time.Time
	Active      bool

	Err string // the latest error in one line; it may hold what a function of the program put there
}
