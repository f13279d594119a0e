// This file carries out steps on states.

package core

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// ErrOp is wrapped by every error about an operation that no store may carry
// out: a negative cost, a missing lease, two limits for one key.
var ErrOp = errors.New("invalid operation")

// Decide carries out ops as one step at the instant now, as [Store.Apply]
// promises. states[i] is the state of op i's key; ops on one key share one
// state. Afterwards a store must keep every state that has Changed set, or forget it
// if [State.ForgetAfter] is 0, because its key is fresh. Where only ConductChanged is set
// it must keep the Conduct and the Credits, and what else it has of the key as that was. It must
// leave every other state in the store as it was: the key may be fresh under the limit of the
// op, and not under that of the state. A store may forget a key at any time at which a
// Peek under State.Limit leaves it a ForgetAfter of 0. The ops must have passed
// [CheckOps] and CheckWindows, and their limits Validate.
//
// An allowed Take, a Refund, a Reset and a Debit change a state. An Impose changes its
// Conduct, and so does a Take that its limit refuses under a Ban, and a Lift of strikes or
// bans. A Grant, a Revoke, and a Take or a Refund of credit change the Credits. Everything else
// changes a state only after the clock has stepped back or a Ban has got shorter. Where a state is
// not Changed, Decide has not changed the elements of its Log and Leases.
func Decide(ops []Op, states []*State, now int64, out []Decision) {
	if len(ops) == 1 && ops[0].isPlain(states[0]) {
		ops[0].decidePlain(states[0], now, &out[0])
		return
	}

	// What is not a Take or a Peek comes first, because the Takes are decided by what it leaves.
	share := int64(0)
	if prepare(ops, states, now, out) {
		share = shareOf(ops, states, now)
	}

	// No Take has charged anything yet, so one is decided on top of what those before it on the
	// same key will charge.
	for i := range ops {
		n := ops[i].units(share)
		if slices.Contains(states[:i], states[i]) {
			n = withEarlierTakes(ops[:i+1], states, out, n, share)
		}
		decideOp(&ops[i], states[i], now, n, &out[i])
	}

	// Takes are charged together or not at all. In a step that is granted only Soft Takes can
	// have been refused, and those are no strikes.
	granted := Granted(ops, out)
	if granted {
		charge(ops, states, now, share, out)
	} else {
		strike(ops, states, now, out)
	}

	// The reports come last: each describes its key as the whole step leaves it.
	for i := range ops {
		op, s := &ops[i], states[i]
		report(op, s, now, &out[i])
		if op.Ban != nil {
			op.reportBan(s, now, &out[i])
		}
		// Units that were not booked have no wait.
		if !granted || op.Verb != Take {
			out[i].Wait = 0
		}
		// The state outlives the step and must not keep its windows.
		if op.Windows != nil {
			s.windows = nil
		}
	}
}

// isPlain reports whether the operation is a Take or a Peek of nothing but units.
func (op *Op) isPlain(s *State) bool {
	return op.Verb <= Peek && !op.UpTo && op.Ban == nil && op.Windows == nil && s.unitsOnly()
}

// decidePlain carries out a plain operation, as the only one of its step. Nearly all steps are
// of this kind, and by the general way a step in memory takes a seventh longer.
func (op *Op) decidePlain(s *State, now int64, d *Decision) {
	a := algorithms[op.Limit.Algorithm]
	if a.settle(s, &op.Limit, now) {
		s.Changed = true
	}

	*d = Decision{}
	decideOp(op, s, now, op.Cost, d)

	switch {
	case op.Verb == Peek:
		d.Wait = 0
	case d.Allowed && op.Cost > 0:
		a.take(s, &op.Limit, now, op.Cost, op.Lease)
		s.Changed = true
		d.Taken = op.Cost
	}

	report(op, s, now, d)
}

// charge carries out the Takes of a step that is granted.
func charge(ops []Op, states []*State, now, share int64, out []Decision) {
	for i := range ops {
		op, s := &ops[i], states[i]
		if n := op.units(share); op.Verb == Take && out[i].Allowed && n > 0 {
			out[i].Taken = n

			if s.hasCredit() {
				if n = op.drawCredit(s, now, n, &out[i]); n == 0 {
					continue
				}
			}

			algorithms[op.Limit.Algorithm].take(s, &op.Limit, now, n, op.Lease)
			s.Void.exclude(now)
			s.Changed = true
		}
	}
}

// prepare carries out all but the Takes and Peeks of a step, and then settles the states of
// those. It reports whether one of them is UpTo.
func prepare(ops []Op, states []*State, now int64, out []Decision) (upTo bool) {
	for i := range ops {
		op := &ops[i]
		out[i] = Decision{}
		upTo = upTo || op.UpTo
		if op.Verb >= Refund {
			applyFirst(op, states[i], now, &out[i])
		}
	}

	// Only now: a state that one of them has renewed, say, is settled as it is afterwards.
	for i := range ops {
		if ops[i].Verb < Refund {
			settle(&ops[i], states[i], now)
		}
	}
	return upTo
}

// settle brings the state to now.
func settle(op *Op, s *State, now int64) {
	if op.Windows != nil && op.needsWindows() {
		s.windows = op.Windows
	}
	if !s.Conduct.None() && s.Conduct.settle(op.ban(), now) {
		s.ConductChanged = true
	}
	if s.Void.Until != 0 && s.Void.Until <= now {
		s.Void = void{}
	}
	if s.hasCredit() {
		s.endCredits(now)
	}
	if algorithms[op.Limit.Algorithm].settle(s, &op.Limit, now) {
		s.Changed = true
	}
}

// applyFirst carries out an operation that is neither a Take nor a Peek, all of which it
// precedes.
func applyFirst(op *Op, s *State, now int64, d *Decision) {
	// The Takes are made void before their units are dropped, because how long a refund may
	// still come depends on when those would have been back.
	if op.Verb == Reset {
		s.voidTakes(op, now)
		s.Conduct = conduct{}
		s.endCredits(now)
		s.renew(&op.Limit)
		return
	}

	if op.Verb == Lift && !s.Conduct.None() {
		s.Conduct, s.ConductChanged = conduct{}, true
	}

	struck := !s.Conduct.None()
	settle(op, s, now)
	a := algorithms[op.Limit.Algorithm]

	switch op.Verb {
	case Impose:
		s.Conduct.impose(op.Ban, op.Ban.For.Microseconds(), now)
		s.ConductChanged = true
	case Grant, Revoke:
		s.ConductChanged = s.lend(op, now, d) || s.ConductChanged
	case Refund:
		rest, credited := op.refundCredit(s, now)
		// A Reset has dropped the units of this Take, and others must not pay for them. What
		// settling has done to the conduct is kept, as after any other Refund.
		if s.Void.covers(op, now) {
			s.ConductChanged = s.ConductChanged || struck || credited
			return
		}

		own := *op
		own.Cost = rest
		a.refund(s, &op.Limit, now, &own)
		a.settle(s, &op.Limit, now)
		s.Changed = true
		if _, reset := a.gauge(s, &op.Limit, now); reset == 0 {
			s.renew(&op.Limit) // as in a store that forgets the key between two operations
		}
	case Debit:
		// A Debit charges what fits below the debt. It has happened already, so it is not refused.
		room := op.Limit.Capacity() + op.Limit.MaxDebt() - a.inUse(s, &op.Limit, now)
		if d.Taken = max(0, min(op.Cost, room)); d.Taken > 0 {
			a.debit(s, &op.Limit, now, d.Taken)
			s.Void.exclude(now)
			s.Changed = true
		}
	}
}

// voidTakes makes the Takes of the units in use void. A lease is not: its refund names it, and
// gives back no other.
func (s *State) voidTakes(op *Op, now int64) {
	settle(op, s, now)
	a := algorithms[op.Limit.Algorithm]
	if _, reset := a.gauge(s, &op.Limit, now); reset > 0 && !a.leased() {
		s.Void = void{At: now, Until: max(now+reset, s.Void.Until)}
	}
}

// renew drops the units of the key. Its strikes, bans and credits stay, and void Takes stay void.
func (s *State) renew(l *Limit) {
	kept := Aside{Conduct: s.Conduct, Void: s.Void, Credits: s.Credits}
	*s = State{Limit: *l, Aside: kept, Changed: true, windows: s.windows}
}

// shareOf returns the number of units that each UpTo Take of a step is to charge:
// the number that every hard one of them has left, at most their Cost, and at least
// 1 unless that is 0. If a hard one has none left, the share of 1 makes it refuse the step.
func shareOf(ops []Op, states []*State, now int64) (n int64) {
	none := true
	for i := range ops {
		op := &ops[i]
		if !op.UpTo {
			continue
		}
		if none {
			n, none = op.Cost, false
		}

		// A soft one that has less is refused by itself, and lowers the share of no other.
		if !op.Soft && n > 1 {
			n = max(1, min(n, availableTo(ops, states, i, now)))
		}
	}
	return n
}

// availableTo returns how many units UpTo Take i can charge if those before it on the same
// state charge as many. Ops with different IDs share a state where a store counts
// several keys in one.
func availableTo(ops []Op, states []*State, i int, now int64) int64 {
	op := &ops[i]
	if op.banned(states[i], now) > 0 {
		return 0
	}

	remaining, _ := algorithms[op.Limit.Algorithm].gauge(states[i], &op.Limit, now)
	remaining += states[i].credit()

	// The state shows nothing of the Takes before this one, because none has been charged yet.
	takes := int64(1)
	for j := range i {
		switch {
		case states[j] != states[i] || ops[j].Verb != Take:
		case ops[j].UpTo:
			takes++
		default:
			remaining -= min(remaining, ops[j].Cost)
		}
	}

	return remaining / takes
}

// units returns the number of units that op is to charge or to look for, where
// share is that of the step's UpTo Takes.
func (op *Op) units(share int64) int64 {
	if op.UpTo {
		return share
	}
	return op.Cost
}

// withEarlierTakes returns n, the units of the last op, and those that earlier Takes of the step on
// the same key are about to charge. It stops adding beyond the capacity and the credit.
func withEarlierTakes(ops []Op, states []*State, out []Decision, n, share int64) int64 {
	last := len(ops) - 1
	capacity := ops[last].Limit.Capacity() + states[last].credit()
	for j := 0; j < last && n <= capacity; j++ {
		if states[j] == states[last] && ops[j].Verb == Take && out[j].Allowed {
			n += ops[j].units(share)
		}
	}
	return n
}

// decideOp decides an op for which n units have to fit.
func decideOp(op *Op, s *State, now, n int64, d *Decision) {
	switch {
	case op.Verb == Grant: // which was decided before
		return
	case op.Cost == 0 || op.Verb >= Refund:
		d.Allowed = true
		return
	case s.hasCredit():
		op.decideOnCredit(s, now, n, d)
		return
	case n > op.Limit.Capacity():
		d.RetryAfter = Never
		return
	}

	// A ban refuses also what could be booked, so the delay is asked for without a booking.
	a := algorithms[op.Limit.Algorithm]
	if op.Ban != nil {
		if left := op.banned(s, now); left > 0 {
			d.RetryAfter = micros(max(left, a.delay(s, &op.Limit, now, n, 0, op.Lease)))
			return
		}
	}

	wait := a.delay(s, &op.Limit, now, n, int64(op.MaxWait/time.Microsecond), op.Lease)
	switch span := micros(wait); {
	case wait == 0:
		d.Allowed = true
	case span <= op.MaxWait && op.Limit.Books():
		d.Allowed, d.Wait = true, span
	default:
		d.RetryAfter = span
	}
}

// report completes a decision with what is left of the key after the step.
func report(op *Op, s *State, now int64, d *Decision) {
	remaining, reset := algorithms[op.Limit.Algorithm].gauge(s, &op.Limit, now)
	d.Remaining, d.ResetAfter, d.At = remaining, micros(reset), now
	if s.hasCredit() {
		d.Credit = s.credit()
		d.Remaining = min(remaining+d.Credit, exact-1)
	}
}

// micros returns n microseconds.
func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// CheckOps returns an error that names every operation that is invalid whatever
// the state of its key, or that out is shorter than ops. The error wraps [ErrOp].
// CheckOps does not check the limits; see [Limit.Validate]. It allocates only for
// an error.
func CheckOps(ops []Op, out []Decision) error {
	if len(out) < len(ops) {
		return fmt.Errorf("%w: room for %d decisions on %d operations", ErrOp, len(out), len(ops))
	}

	var errs []error
	for i := range ops {
		if what := ops[i].fault(); what != "" {
			errs = append(errs, fmt.Errorf("%w %d (%s, rule %q): %s", ErrOp, i, ops[i].Verb, ops[i].Rule, what))
		}
		for j := range i {
			if what := ops[i].clash(&ops[j]); what != "" {
				errs = append(errs, fmt.Errorf("%w %d (%s, rule %q): operation %d %s",
					ErrOp, i, ops[i].Verb, ops[i].Rule, j, what))
			}
		}
	}

	return errors.Join(errs...)
}

// clash returns how an earlier operation of the same step contradicts op, or "".
func (op *Op) clash(earlier *Op) string {
	same := op.ID() == earlier.ID()
	switch {
	case same && op.Limit != earlier.Limit:
		return "has another limit for the same key"
	case same && op.Ban.contradicts(earlier.Ban):
		return "has another ban for the same key"
	// What follows is about UpTo Takes, which charge one number of units that they all agree on.
	case !op.UpTo && !earlier.UpTo:
		return ""
	case same && op.Verb == Take && earlier.Verb == Take:
		return "takes from the same key, and one of them is UpTo"
	case op.UpTo && earlier.UpTo && op.Cost != earlier.Cost:
		return "has another cost, and both are UpTo"
	}
	return ""
}

// upToFault returns what is wrong with an UpTo operation, or "".
func (op *Op) upToFault() string {
	switch {
	case !op.UpTo:
	case op.Verb != Take:
		return "only a Take can be UpTo"
	case op.MaxWait != 0:
		return "an UpTo Take books nothing, so it cannot wait"
	case op.Limit.Leased():
		return "a lease holds its whole cost, so it cannot be UpTo"
	}
	return ""
}

// fault returns what is wrong with the operation by itself, or "".
func (op *Op) fault() string {
	switch {
	case op.Verb > Revoke:
		return "the verb is not known"
	case !op.Limit.Algorithm.known():
		return "the algorithm is not known"
	case op.Cost < 0:
		return fmt.Sprintf("the cost %d is negative", op.Cost)
	case op.MaxWait < 0 || op.MaxWait > MaxBooking:
		return fmt.Sprintf("the wait %s is not within 0 to %s", op.MaxWait, MaxBooking)
	case op.lacksLease():
		return "a lease is missing"
	case op.At < 0 || op.At >= exact || op.ResetAfter < 0:
		return fmt.Sprintf("At %d or ResetAfter %s is not of a decision", op.At, op.ResetAfter)
	}

	// Few operations need what follows, and the others are spared the call.
	if op.Ban != nil || op.Verb > Reset || op.FromCredit|op.CreditUntil != 0 || op.Limit.Algorithm == CalendarWindow {
		if what := op.rareFault(); what != "" {
			return what
		}
	}

	return op.upToFault()
}

// rareFault returns what is wrong with an operation that has a Ban, a calendar, credit, or a
// verb after Reset, or "".
func (op *Op) rareFault() string {
	if op.Verb == Debit && !algorithms[op.Limit.Algorithm].options().debt {
		return fmt.Sprintf("a %s limit has no debt", op.Limit.Algorithm)
	}
	if op.Limit.Algorithm == CalendarWindow {
		if what := op.windowsFault(); what != "" {
			return what
		}
	}
	if what := op.creditFault(); what != "" {
		return what
	}
	return op.banFault()
}

// lacksLease reports whether the operation needs a lease and has none.
func (op *Op) lacksLease() bool {
	needs := op.Verb == Refund || op.Verb == Take && op.Cost > 0
	return needs && op.Lease == "" && op.Limit.Leased()
}
