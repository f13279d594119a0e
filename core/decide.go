// This file carries out steps on states.

package core

import (
	"errors"
	"fmt"
	"time"
)

// ErrOp is wrapped by every error about an operation that no store may carry
// out: a negative cost, a missing lease, two limits for one key.
var ErrOp = errors.New("invalid operation")

// Decide carries out ops as one step at the instant now, as [Store.Apply]
// promises. states[i] is the state of op i's key; ops on one key share one
// state. Afterwards a store must keep every state that has Changed set, and may
// forget every state whose ResetAfter is 0, because its key is fresh. The ops
// must have passed [CheckOps], and their limits Validate.
func Decide(ops []Op, states []*State, now int64, out []Decision) {
	for i := range ops {
		begin(&ops[i], states[i], now)
	}
	for i := range ops {
		out[i] = verdict(ops, states, out, i, now)
	}
	granted := Granted(ops, out)
	for i := range ops {
		op, s := &ops[i], states[i]
		if !granted || op.Verb != Take {
			out[i].Wait = 0
			continue
		}
		if out[i].Allowed && op.Cost > 0 {
			algorithms[op.Limit.Algorithm].take(s, &op.Limit, now, op.Cost, op.Lease)
			s.Changed = true
		}
	}
	for i := range ops {
		report(&ops[i], states[i], now, &out[i])
	}
}

// begin settles the state and carries out a Refund or a Reset, which precede
// the Takes.
func begin(op *Op, s *State, now int64) {
	a := algorithms[op.Limit.Algorithm]
	if op.Verb == Reset {
		*s = State{Limit: op.Limit, Changed: true}
		return
	}
	if a.settle(s, &op.Limit, now) {
		s.Changed = true
	}
	if op.Verb == Refund {
		a.refund(s, &op.Limit, now, op)
		a.settle(s, &op.Limit, now)
		s.Changed = true
	}
}

// verdict decides op i on top of the units that earlier Takes of the step on
// the same key are about to charge.
func verdict(ops []Op, states []*State, out []Decision, i int, now int64) Decision {
	op := &ops[i]
	if op.Cost == 0 || op.Verb == Refund || op.Verb == Reset {
		return Decision{Allowed: true}
	}
	n, most := op.Cost, op.Limit.Capacity()
	for j := 0; j < i && n <= most; j++ {
		if states[j] == states[i] && ops[j].Verb == Take && out[j].Allowed {
			n += ops[j].Cost
		}
	}
	if n > most {
		return Decision{RetryAfter: Never}
	}
	wait := algorithms[op.Limit.Algorithm].delay(states[i], &op.Limit, now, n, op.Lease)
	switch d := micros(wait); {
	case wait == 0:
		return Decision{Allowed: true}
	case d <= op.MaxWait && op.Limit.Books():
		return Decision{Allowed: true, Wait: d}
	default:
		return Decision{RetryAfter: d}
	}
}

func report(op *Op, s *State, now int64, d *Decision) {
	remaining, reset := algorithms[op.Limit.Algorithm].gauge(s, &op.Limit, now)
	d.Remaining, d.ResetAfter, d.At = remaining, micros(reset), now
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// CheckOps returns an error that names every operation which is invalid under
// any state, and room in out for fewer decisions than ops. It does not check
// the limits; see [Limit.Validate]. It allocates only for an error.
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
			if ops[i].ID() == ops[j].ID() && ops[i].Limit != ops[j].Limit {
				errs = append(errs, fmt.Errorf("%w %d (%s, rule %q): operation %d has another limit for the same key",
					ErrOp, i, ops[i].Verb, ops[i].Rule, j))
			}
		}
	}
	return errors.Join(errs...)
}

// fault returns what is wrong with the operation by itself, or "".
func (op *Op) fault() string {
	leases := op.Limit.Leased() && (op.Verb == Take || op.Verb == Refund)
	switch {
	case op.Verb > Reset:
		return "the verb is not known"
	case !op.Limit.Algorithm.known():
		return "the algorithm is not known"
	case op.Cost < 0:
		return fmt.Sprintf("the cost %d is negative", op.Cost)
	case op.MaxWait < 0 || op.MaxWait > MaxBooking:
		return fmt.Sprintf("the wait %s is not within 0 to %s", op.MaxWait, MaxBooking)
	case leases && op.Lease == "" && (op.Cost > 0 || op.Verb == Refund):
		return "a lease is missing"
	case op.At < 0 || op.At >= exact || op.ResetAfter < 0:
		return "a refund of the past is missing its instant"
	}
	return ""
}
