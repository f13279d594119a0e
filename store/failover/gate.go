// This file compares the decisions of the primary with what its keys owe.
//
// Let time stand still, L be the limit, and let one instance deliver A units that the primary
// admitted and G that the fallback granted by itself. Then A + G <= L, in whatever order the
// answers of the primary come:
//
//   - The takes at the primary have an order; the take that leaves r units has L-r in use, its
//     own included. Let K be the last in that order whose answer is delivered, and P the units
//     charged before K that paid for granted ones. Then A <= L - r - P.
//   - K passed the gate, so r >= owed + P, where owed are the granted units that were not paid
//     when K came. (If it is not known whether a payment came before K, it counts as if not.)
//   - With K the fallback was left at most r - owed - P units. It grants no others afterwards:
//     what it grants of them makes owed larger and what it has left smaller, by the same.
//   - So G <= P + owed + (r - owed - P) = P + r, and A + G <= L.
//
// The fallback alone decides while no answer was delivered: G <= its part <= L. Several
// instances have all their A in the L-r units of the primary, and their parts for G. Two which
// both believe to be alone deliver at most L each.

package failover

import (
	"context"

	"github.com/headgate/headgate/core"
)

// gate turns the primary's admissions into refusals where its charges and the units that its
// keys owe would exceed a limit together. t holds the copies of the step in the fallback, and
// the fallback's decisions about them.
func (m *mirror) gate(ctx context.Context, t *step, ops []core.Op, out []core.Decision) {
	t.over, t.paying, t.refused = t.over[:0], t.paying[:0], false
	exceeds := false

	for i := range ops {
		over := m.compare(ctx, t, i, &ops[i], &out[i])
		t.over = append(t.over, over)
		exceeds = exceeds || over
		t.refused = t.refused || over && !ops[i].Soft
	}

	if exceeds {
		m.withdraw(ctx, t, ops, out)
	}
	for _, id := range t.paying { // what withdraw has not paid
		m.payments.add(m, id)
	}
	m.owed.checkIdle(t.out[0].At)
}

// compare leaves the key of operation i no more units in the fallback than it has at the
// primary, less those that it owes, and reports whether the primary has charged a Take that
// leaves fewer there than the key owes. It reports of a lease that the primary has granted
// whether the instance holds more than the quota with it.
func (m *mirror) compare(ctx context.Context, t *step, i int, op *core.Op, d *core.Decision) (over bool) {
	h := m.owed.shardOf(op.Key)
	h.granting.Lock()
	defer h.granting.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()

	m.owed.tidyLocked(h, t.out[i].At)
	if op.Verb == core.Reset {
		m.owed.dropLocked(h, op.ID())
	}

	k := h.keys[op.ID()]
	took := op.Verb == core.Take && d.Taken > d.FromCredit

	switch {
	case !charges(op), d.Banned:
		return false
	case op.Limit.Leased():
		// The fallback holds the leases of both stores, and the copy did not fit beside them.
		return k != nil && took && !t.out[i].Allowed
	case k == nil:
		// It owes nothing, so the fallback is only left what the primary has.
		m.drain(ctx, t, &t.ops[i], t.out[i].Remaining-ofLimit(d))
		return false
	}

	// What the copy of this step charged is known to the primary.
	inFallback := m.peekFallback(ctx, t, &t.ops[i])
	k.ageLocked(t.ops[i].Limit, &inFallback, t.out[i].Taken)
	unknown := k.unknownTo(d.At)
	left := ofLimit(d) - unknown

	// The charge of a Take that is over pays for owed units, or goes back.
	if over = took && left < 0; over {
		left += d.Taken - d.FromCredit
		if t.out[i].Taken > 0 {
			inFallback, _ = m.applyMore(ctx, t, t.ops[i].Refund(t.out[i]))
		}
	}
	m.drain(ctx, t, &t.ops[i], inFallback.Remaining-max(0, left))

	// The rest is paid in the background: the request does not wait for that.
	if ofLimit(d) > 0 && k.mayPay() {
		k.queued = true
		t.paying = append(t.paying, core.ID{Rule: k.rule, Key: k.key, Algorithm: op.Limit.Algorithm})
	}
	if k.isClear() {
		m.owed.dropLocked(h, op.ID())
	}
	return over
}

// peekFallback returns what the fallback has left of the key of an operation in the form for it.
func (m *mirror) peekFallback(ctx context.Context, t *step, op *core.Op) core.Decision {
	peek := *op
	peek.Verb, peek.UpTo, peek.Soft, peek.Ban, peek.MaxWait = core.Peek, false, false, nil, 0
	d, _ := m.applyMore(ctx, t, peek)
	return d
}

// drain takes n units of the key in the fallback if n is above 0, or all if it has fewer left.
func (m *mirror) drain(ctx context.Context, t *step, op *core.Op, n int64) {
	if n <= 0 {
		return
	}
	take := *op
	take.Verb, take.UpTo, take.Soft, take.Ban, take.MaxWait, take.Cost = core.Take, true, false, nil, 0, n
	_, _ = m.applyMore(ctx, t, take) // see record
}

// applyMore carries out one more operation in the fallback.
func (m *mirror) applyMore(ctx context.Context, t *step, op core.Op) (core.Decision, error) {
	t.more = append(t.more[:0], op)
	t.after = resized(t.after, 1)
	err := m.fallback.Apply(ctx, t.more, t.after)
	return t.after[0], err
}

// withdraw makes refusals of the operations that are over, and takes back the charges of the
// others if the step is refused by that. The charge of one that is over pays for what its key
// owes; what it need not pay goes back to the primary, and so do the other charges.
func (m *mirror) withdraw(ctx context.Context, t *step, ops []core.Op, out []core.Decision) {
	copies := t.copies[:0]
	t.sent = t.sent[:0]

	for i := range ops {
		op, d := &ops[i], &out[i]
		unpaid := d.Taken
		if op.Verb != core.Take || unpaid == 0 || !t.over[i] && !t.refused {
			continue
		}

		if t.over[i] && !op.Limit.Leased() {
			unpaid -= m.owed.pay(op, unpaid-d.FromCredit, d)
		}
		if unpaid > 0 {
			undo := m.forPrimary(op.Refund(*d))
			undo.Cost = unpaid
			t.sent = append(t.sent, undo)
		}
		if !t.over[i] && t.out[i].Taken > 0 {
			copies = append(copies, t.ops[i].Refund(t.out[i]))
		}
		m.refuse(ctx, t, i, op, d)
	}

	t.copies = copies
	if len(copies) > 0 {
		t.after = resized(t.after, len(copies))
		_ = m.fallback.Apply(ctx, copies, t.after) // see record
	}
	_ = m.primary.postpone(t.sent, ErrOpen) // which counts what is lost
}

// refuse turns a decision of the primary on operation i into that on a Take that did not
// happen, and into a refusal if the operation itself is over.
func (m *mirror) refuse(ctx context.Context, t *step, i int, op *core.Op, d *core.Decision) {
	d.Remaining += d.Taken
	d.Credit += d.FromCredit
	d.Taken, d.Wait, d.Origin, d.FromCredit, d.CreditUntil = 0, 0, 0, 0, 0
	if !t.over[i] {
		return
	}

	// The copy of an UpTo Take has the cost that was granted, so the fallback is asked with the
	// full one.
	inFallback := t.out[i]
	if !op.Limit.Leased() {
		again := t.ops[i]
		again.Cost = op.Cost
		inFallback = m.peekFallback(ctx, t, &again)
	}

	// Both stores are fresh at ResetAfter, so a retry is worthwhile then at the latest, or sooner
	// if the fallback says when it would allow the Take.
	d.Allowed = false
	d.Remaining = min(d.Remaining, inFallback.Remaining+d.Credit)
	d.ResetAfter = max(d.ResetAfter, inFallback.ResetAfter)
	d.RetryAfter = d.ResetAfter
	if inFallback.RetryAfter > 0 {
		d.RetryAfter = min(d.RetryAfter, inFallback.RetryAfter)
	}
}
