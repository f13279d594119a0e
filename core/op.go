package core

import (
	"context"
	"math"
	"time"
)

// Never is the RetryAfter of a cost that exceeds the capacity of the limit.
const Never = time.Duration(math.MaxInt64)

// Verb is what an [Op] does.
type Verb uint8

const (
	Take   Verb = iota // charge Cost units, if they fit
	Peek               // answer as Take would, and change nothing
	Refund             // give back what a Take charged
	Reset              // make the key fresh; refunds of the Takes before it give nothing back
	Debit              // charge Cost units, whether or not they fit
	Lift               // end the ban of a key and forget its strikes; see [Ban]
	Impose             // ban the key for Ban.For from now on, as if it had the strikes
	Grant              // give the key Cost units beside its limit, until CreditUntil
	Revoke             // take all units of Grants from the key, used ones too: no refund brings them back
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
	case Debit:
		return "debit"
	case Lift:
		return "lift"
	case Impose:
		return "impose"
	case Grant:
		return "grant"
	case Revoke:
		return "revoke"
	}
	return "unknown verb"
}

// Op is one operation on one key. Its zero value takes nothing from the empty
// key under no limit, which every store refuses with an error.
//
// A count is identified by Rule, Key and Limit.Algorithm, never by the numbers
// of the limit: under a changed limit the units used before still count.
type Op struct {
	Verb Verb

	// Soft marks a Take whose refusal does not stop the others of its step.
	Soft bool

	// UpTo makes a Take charge as many units as fit, between 0 and Cost. All UpTo
	// Takes of a step have the same Cost and charge the same number of units: the
	// largest that every one of them which is not Soft can charge. They book
	// nothing, so MaxWait is 0, no other Take of the step is on their key, and
	// their limits are not leased.
	UpTo bool

	// Origin repeats, in a Refund, the Origin of the Decision that is undone.
	// Only the store that has set it knows its meaning.
	Origin uint32

	// Rule names the rule. It is the program's own text.
	Rule string

	// Key is the subject that is counted: an address, a user, "". It may be of
	// any length and hold any bytes, and a store must be safe with all of them.
	Key string

	Limit Limit

	// Windows are the windows of Limit.Calendar around the present instant, which a Take,
	// Peek or Debit needs under CalendarWindow. The store picks one by its own clock.
	// Other operations ignore it. See [Limit.Windows] and CheckWindows.
	Windows *Windows

	// Ban, if it is not nil, says when refusals of the key become a ban. The Takes of a
	// step count them, and a Take or Peek of units is refused while the key is banned; a
	// Soft Take ignores it. It points to what never changes. Leased limits have none, and
	// ops of a step on one key have the same one or none.
	Ban *Ban

	// Cost is in units. A Take or Peek of 0 is always allowed and changes
	// nothing. A negative cost is an error. A Debit charges it also beyond the
	// capacity, as far as Limit.MaxDebt lets it.
	Cost int64

	// MaxWait is how far ahead a Take may book its units, at most [MaxBooking].
	// Limits that do not book ignore it; see [Limit.Books].
	MaxWait time.Duration

	// Lease names the holder of the units. Leased limits (see [Limit.Leased])
	// need it in Take and Refund, and a Take of a held lease renews the lease.
	// Other limits ignore it.
	Lease string

	// At and ResetAfter repeat, in a Refund, those of the Decision that is
	// undone, so that units which time has given back already are not given
	// back twice. With At 0 the latest units are given back. [Op.Refund] copies
	// both, and Origin.
	At         int64
	ResetAfter time.Duration

	// FromCredit and CreditUntil repeat, in a Refund, those of the Decision that is undone: units
	// that came from credits are the first to be given back, to the credits. A Decision does not
	// say how many came from which. So they go to the credit that ends first among those with used
	// units that end at CreditUntil or later, and then to the next. Once CreditUntil has come,
	// none is given back, also if some were of a credit that ends later; and after a Revoke they
	// may go to a Grant that was made since. [Op.Refund] copies both. In a Grant CreditUntil is
	// the instant at which its units end, in microseconds since the Unix epoch. Grants of one key
	// add up, and each keeps its own end. Leased limits have no credit.
	FromCredit, CreditUntil int64
}

// ID identifies a count. It is comparable.
type ID struct {
	Rule, Key string
	Algorithm Algorithm
}

// ID returns the identity of the op's count. Ops with equal IDs share a state,
// whatever the numbers of their limits.
func (op *Op) ID() ID { return ID{op.Rule, op.Key, op.Limit.Algorithm} }

// Refund returns the op that undoes op, a Take or a Debit that was charged with
// decision d. Its Cost may be lowered to give back a part.
func (op Op) Refund(d Decision) Op {
	if op.UpTo || op.Verb == Debit {
		op.UpTo, op.Cost = false, d.Taken
	}
	op.Verb, op.Soft, op.MaxWait = Refund, false, 0
	op.At, op.ResetAfter, op.Origin = d.At, d.ResetAfter, d.Origin
	op.FromCredit, op.CreditUntil = d.FromCredit, d.CreditUntil
	return op
}

// Foretell stores in answer the decision that op will get since microseconds after
// a refusal of its key, and reports whether it can. d is the refusal, of a Take of
// cost units under the same limit and Ban, and no step may have changed the key since. It
// returns false, and leaves answer unchanged, if d does not determine the decision,
// if op may be allowed by then, if the key has credit, or if units of the key may come back at
// any time. Under a
// Ban it also returns false if the store has to count the refusal, or the units may come
// back later than the ban ends.
func (op *Op) Foretell(cost int64, d *Decision, since int64, answer *Decision) bool {
	l, later := &op.Limit, micros(since)
	switch {
	case op.Verb != Take || op.UpTo || op.Cost <= 0 || op.Cost > l.Capacity(), op.MaxWait > 0 && l.Books():
		return false
	case d.Allowed || d.Credit > 0 || d.RetryAfter == Never || later < 0 || later >= d.RetryAfter:
		return false
	}

	// Under a ban every cost is refused until the ban ends. RetryAfter is that end only if all
	// units are back before it.
	switch stillRefused := algorithms[l.Algorithm].foretells(refusal{cost, d.Remaining, op.Cost}); {
	case d.Banned != (op.ban() != nil):
		return false
	case d.Banned && d.RetryAfter <= d.ResetAfter, !d.Banned && !stillRefused:
		return false
	}

	*answer = Decision{
		Banned:     d.Banned,
		Remaining:  d.Remaining,
		RetryAfter: d.RetryAfter - later,
		ResetAfter: max(0, d.ResetAfter-later),
		At:         d.At + since,
	}
	return true
}

// Decision is the answer to an [Op].
type Decision struct {
	// Allowed reports whether the op's own limit admits its cost, or together with the credit of
	// its key. An UpTo Take is
	// allowed if its limit admits the units that it is to charge, at least one
	// unless its Cost is 0. The Takes of a step were charged only if every Take
	// that is not Soft is allowed; see [Granted]. A Grant is allowed unless its end has come
	// or is more than ten years ahead, the key has MaxCredits others with units left, or their
	// units are more than 2^53 - 1 together, used ones included.
	Allowed bool

	// Banned reports whether the key is banned after this step, of an op with a Ban. Then
	// a Take or Peek of units is not allowed, nothing remains, and RetryAfter is not
	// before the end of the ban.
	Banned bool

	// Fallback reports whether the fallback of a [Standby] made the decision,
	// because the store in front of it could not. Other stores leave it false,
	// and a store that forwards the decisions of another keeps it.
	Fallback bool

	// Origin is an opaque mark by which a store over several others recognises
	// the one that decided, and what it keeps about the decision. It is repeated
	// in the Refund, as At and ResetAfter are. Other stores leave it 0, and a
	// store that forwards the decisions of another keeps it.
	Origin uint32

	// Taken is the number of units that a Take charged: its Cost, or at most that
	// if it is UpTo, and 0 if it or its step was refused. A Debit charges its Cost,
	// or as many units as were left until Limit.MaxDebt.
	Taken int64

	// Remaining is the number of units that could be taken at once after this
	// step, those of Credit included, and at most 2^53 - 1.
	Remaining int64

	// Wait is the time to wait before using the units that were taken. It is
	// above 0 only for a Take with a MaxWait that booked units.
	Wait time.Duration

	// RetryAfter is 0 if the op is allowed. Otherwise it is the time until the
	// same op would be allowed without a wait if no other op came, or [Never]. For
	// an UpTo Take it is the time until the units that it was to charge fit.
	RetryAfter time.Duration

	// ResetAfter is the time until all units are back, 0 if and only if they are. The
	// key is fresh then, and a store may forget it, unless strikes or bans are kept of
	// it; see [State.ForgetAfter].
	ResetAfter time.Duration

	// At is the instant of the step by the store's clock, in microseconds
	// since the Unix epoch.
	At int64

	// Credit is the number of units of Grants that are left after this step. They are taken
	// when the limit has none left. A ban holds in spite of them.
	Credit int64

	// FromCredit is how many of the units Taken came from Grants, and CreditUntil the end of
	// the one of these that ends first, 0 without any. They are repeated in the Refund.
	FromCredit, CreditUntil int64
}

// Granted reports whether the Takes of a step were charged, that is, whether
// every Take that is not Soft was allowed. out[i] is the decision on op i.
func Granted(ops []Op, out []Decision) bool {
	for i := range ops {
		if !out[i].Allowed && !ops[i].Soft && ops[i].Verb == Take {
			return false
		}
	}
	return true
}

// Store keeps the state of keys. Implementations are safe for concurrent use.
type Store interface {
	// Apply carries out ops as one step at one instant and puts op i's
	// decision into out[i]; out must be at least as long as ops. All but Takes and Peeks
	// are carried out first, in their order, then the Takes are decided
	// together: if any Take that is not Soft is refused, no Take happens. Each
	// decision reports its key as the step leaves it.
	//
	// A refusal is a Decision. An error means that the store could not decide;
	// then out is not to be read, and a Take may or may not have been charged.
	Apply(ctx context.Context, ops []Op, out []Decision) error
}
