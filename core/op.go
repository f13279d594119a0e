package core

import (
	"context"
	"math"
	"time"
)

// Never is the RetryAfter of a cost that the limit cannot hold at any time.
const Never = time.Duration(math.MaxInt64)

// Verb says what an [Op] does.
type Verb uint8

const (
	Take   Verb = iota // charge Cost units, if they fit
	Peek               // answer as Take would, and change nothing
	Refund             // give back what a Take charged
	Reset              // make the key as good as new
)

// String returns the verb in lower case.
func (v Verb) String() string {
	switch v {
	case Take:
		return "take"
	case Peek:
		return "peek"
	case Refund:
		return "refund"
	case Reset:
		return "reset"
	}
	return "unknown verb"
}

// Op is one operation on one key. Its zero value takes nothing from the empty
// key under no limit, which every store refuses as an error.
//
// What a store counts is identified by Rule, Key and Limit.Algorithm, never by
// the numbers of the limit: a changed limit goes on from what was used.
type Op struct {
	Verb Verb

	// Soft marks a Take whose refusal does not stop the others of its step.
	Soft bool

	// Rule names the rule. It is the program's own text.
	Rule string

	// Key is the subject that is counted: an address, a user, "". It may hold
	// any bytes and any number of them; a store must be safe with all.
	Key string

	Limit Limit

	// Cost is in units. A Take or Peek of 0 is always allowed and changes
	// nothing. A negative cost is an error.
	Cost int64

	// MaxWait is how far ahead a Take may book its units, at most [MaxBooking].
	// Only GCRA books; for the other algorithms it means nothing.
	MaxWait time.Duration

	// Lease names who holds the units. Concurrency needs it in Take and
	// Refund; a Take of a lease that is held renews it. The other algorithms
	// ignore it.
	Lease string

	// At and ResetAfter repeat, in a Refund, those of the Decision that is
	// undone, so that units which the passage of time has given back already
	// are not given back twice. With At 0 the latest units are given back.
	At         int64
	ResetAfter time.Duration
}

// Decision is the answer to an [Op].
type Decision struct {
	// Allowed tells whether the op's own limit admits its cost. The Takes of a
	// step were charged only if every Take that is not Soft is allowed.
	Allowed bool

	// Remaining is how many units could be taken at once after this step.
	Remaining int64

	// Wait is how long to wait before using the units that were taken: above 0
	// only for a Take with a MaxWait that booked a future slot.
	Wait time.Duration

	// RetryAfter is 0 if the op is allowed. Otherwise it is how long until the
	// same op would be allowed without a wait if nobody else came, or [Never].
	RetryAfter time.Duration

	// ResetAfter is how long until the key is as good as new, and 0 if and
	// only if it is.
	ResetAfter time.Duration

	// At is the instant of the step by the store's clock, in microseconds
	// since the Unix epoch.
	At int64
}

// Store keeps the state of keys. Its methods are safe for concurrent use.
type Store interface {
	// Apply carries out ops as one step at one instant and puts op i's
	// decision into out[i]; out must be at least as long as ops. Refunds and
	// Resets are carried out first, then the Takes are decided together: if any
	// Take that is not Soft is refused, no Take happens. Each decision reports
	// its key as the step leaves it.
	//
	// A refusal is a Decision. An error means that the store could not decide;
	// then out is not to be read, and a Take may or may not have been charged.
	Apply(ctx context.Context, ops []Op, out []Decision) error
}
