package limiter

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/observe/events"
)

// charges are what a step was charged: units that may be refunded or settled, and leases that
// are renewed and released.
type charges struct {
	step

	refunded, released atomic.Bool
	leasesNotified     atomic.Bool // that they have ended, or that there are none
	ended              atomic.Bool // the end of an admission has come, but handlers may refer to it

	settlement atomic.Pointer[settlement]
}

// settlement is what a caller has reported to [Result.Settle]: the units that were used,
// by rule. It is never written.
type settlement struct{ actual map[string]int64 }

// recycle makes the charges those of no request.
func (c *charges) recycle() {
	c.step.recycle()
	unset(&c.refunded)
	unset(&c.released)
	unset(&c.leasesNotified)
	if c.settlement.Load() != nil {
		c.settlement.Store(nil)
	}
}

// unset makes b false. It writes only if b is true, because an atomic write is the most
// expensive part of recycling.
func unset(b *atomic.Bool) {
	if b.Load() {
		b.Store(false)
	}
}

// ask has the store decide. Leases that it may have given to a client which left before the
// answer are released.
func (c *charges) ask(ctx context.Context) error {
	err := c.step.ask(ctx)
	if err != nil {
		c.releaseUnanswered(ctx)
	}
	return err
}

// charged reports whether units were taken by op i.
func (c *charges) charged(i int) bool {
	op := &c.ops[i]
	return c.allowed && c.out[i].Allowed && op.Cost > 0 && (op.Verb == core.Take || op.Verb == core.Debit)
}

// leased reports whether op i holds a lease.
func (c *charges) leased(i int) bool { return c.ops[i].Lease != "" && c.charged(i) }

// holdsLeases is [Result.HoldsLeases].
func (c *charges) holdsLeases() bool { return c.lease != "" && c.holdsGranted() }

// holdsGranted reports whether the store has granted a lease that is not released.
func (c *charges) holdsGranted() bool {
	if c.released.Load() {
		return false
	}
	for i := range c.asked {
		if c.leased(i) {
			return true
		}
	}
	return false
}

// leaseCount returns how many leases the step was granted.
func (c *charges) leaseCount() (n int64) {
	for i := range c.asked {
		if c.leased(i) {
			n++
		}
	}
	return n
}

// cleanupTimeout bounds the store calls at the end of a request. The end of its
// context must not cut them short.
const cleanupTimeout = time.Second

// cleanupContext returns a context for calls that have to be made although ctx may
// have ended.
func cleanupContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
}

// refundOp returns the op that undoes op i.
func (c *charges) refundOp(i int) core.Op { return c.ops[i].Refund(c.out[i]) }

// refund is [Result.Refund].
func (c *charges) refund(ctx context.Context) error {
	if !c.refunded.CompareAndSwap(false, true) {
		return nil
	}
	leases := c.endLeases()

	var undo []core.Op
	// What Settle has named keeps its charge, and each charge is corrected once.
	for i := range c.asked {
		switch {
		case !c.charged(i), c.leased(i) && !leases:
		case c.leased(i), !c.settles(i) && c.correct(i):
			undo = append(undo, c.refundOp(i))
		}
	}
	return c.applyRefunds(ctx, undo, 0)
}

// release is [Result.Release].
func (c *charges) release(ctx context.Context) error {
	if c.lease == "" || !c.endLeases() {
		return nil
	}
	err := c.releaseLeases(ctx)
	if err != nil {
		c.released.Store(false)
	}
	return err
}

// releaseLater settles what was reported and releases the leases, in the background.
func (c *charges) releaseLater(ctx context.Context) {
	c.ended.Store(true)
	l, undo := c.engine, c.settleOps()
	settled := len(undo)
	if c.endLeases() {
		undo = append(undo, c.leaseRefunds()...)
	}
	l.background.run(func() { l.giveBack(ctx, undo, settled) })
}

// releaseUnanswered releases the leases that the store may have given to a client which
// left before the answer. They would last until their ttl.
func (c *charges) releaseUnanswered(ctx context.Context) {
	if c.lease == "" || ctx.Err() == nil {
		return
	}
	var undo []core.Op
	for i := range c.asked {
		if op := &c.ops[i]; op.Verb == core.Take && op.Lease != "" && op.Cost > 0 {
			undo = append(undo, c.refundOp(i))
		}
	}
	l := c.engine
	l.background.run(func() { l.giveBack(ctx, undo, 0) })
}

func (c *charges) releaseLeases(ctx context.Context) error {
	return c.applyRefunds(ctx, c.leaseRefunds(), 0)
}

// leaseRefunds returns the ops that end the leases.
func (c *charges) leaseRefunds() (undo []core.Op) {
	for i := range c.asked {
		if c.leased(i) {
			undo = append(undo, c.refundOp(i))
		}
	}
	return undo
}

// applyRefunds carries out ops that give units back. The first of them, as many as settled, are
// those of Settle, which may charge units too.
func (c *charges) applyRefunds(ctx context.Context, ops []core.Op, settled int) error {
	if len(ops) == 0 {
		return nil
	}
	out := make([]core.Decision, len(ops))
	if err := c.engine.apply(ctx, ops, out); err != nil {
		return err
	}
	if c.notified { // or else no hook knows that they were charged
		c.engine.notifyUnits(ops, out, settled)
	}
	c.engine.queue.WakeForReleases(ops)
	return nil
}

// renew is [Result.Renew], and returns the indices of the ops whose units others hold.
func (c *charges) renew(ctx context.Context) (held bool, taken []int, err error) {
	if !c.allowed || c.released.Load() {
		return false, nil, nil
	}

	var ops []core.Op
	var indices []int
	for i := range c.asked {
		if c.leased(i) {
			op := c.ops[i]
			op.Soft, op.MaxWait = true, 0 // a lease that is lost does not end the others
			ops, indices = append(ops, op), append(indices, i)
		}
	}

	out := make([]core.Decision, len(ops)) // none for a result without leases
	if err := c.engine.apply(ctx, ops, out); err != nil {
		return false, nil, err
	}
	if c.released.Load() { // meanwhile: the renewal may have come second
		return false, nil, c.releaseLeases(ctx)
	}

	// A lease that had expired was taken anew if there was room, and is held as before.
	for k, i := range indices {
		if !out[k].Allowed {
			taken = append(taken, i)
		}
	}
	return len(taken) == 0, taken, nil
}

// end ends a request that was answered with status: it gives units back as the rules say,
// and unless a connection outlives the request, settles what the handler or the answer has
// reported and releases the leases. Units that a rule gives back for the status are back before
// the answer; settling and the release of leases alone do not delay it.
func (c *charges) end(ctx context.Context, status int, holding bool) {
	releasing := c.lease != "" && !holding && c.endLeases()
	l, mayBeLate := c.engine, true
	var settle, undo []core.Op

	if !holding {
		settle = c.settleOps()
	}

	seen := c.rare.read().seen
	seen.Status = status
	for i := range c.asked {
		switch {
		case !c.charged(i):
		case c.leased(i):
			if releasing {
				undo = append(undo, c.refundOp(i))
			}
		case c.refunds(ctx, i, status):
			if c.correct(i) {
				undo = append(undo, c.refundOp(i))
				mayBeLate = false
			}
		default:
			if op, ok := c.usedOp(ctx, i, seen); ok {
				settle = append(settle, op)
			}
		}
	}

	// What is settled comes first.
	settled := len(settle)
	if settled > 0 {
		undo = append(settle, undo...)
	}

	// The answer waits for units that its status gives back, as the client may use them at once.
	switch {
	case len(undo) == 0:
	case mayBeLate:
		l.background.run(func() { l.giveBack(ctx, undo, settled) })
	default:
		l.giveBack(ctx, undo, settled)
	}
}

// usedOp returns the op that settles rule i by the answer. There is none if the charge stays.
func (c *charges) usedOp(ctx context.Context, i int, seen Seen) (op core.Op, ok bool) {
	rule := c.calls[i].rule
	if rule.Charge == nil || c.settles(i) {
		return op, false
	}

	// A rule has one function for a request, in the order of the rules.
	for _, u := range c.rare.read().used {
		if u.rule != rule {
			continue
		}
		seen.Charged = c.out[i].Taken
		units, err := u.units(ctx, seen)
		if err == nil && units > seen.Charged && c.ops[i].Limit.MaxDebt() == 0 {
			err = fmt.Errorf("%d units are more than the %d charged, and %s has no debt", units, seen.Charged,
				c.ops[i].Limit)
		}

		// What cannot be read leaves the charge.
		if err != nil {
			costUnread(c.engine, rule, err)
			return op, false
		}
		if units == seen.Charged || !c.correct(i) {
			return op, false
		}
		return c.settleOp(i, units), true
	}
	return op, false
}

// mayRefund reports whether any rule in force may give units back, or settle by the answer.
func (c *charges) mayRefund() bool { return c.set != nil && c.set.refunds && !c.inParts }

// refunds reports whether rule i gives its units back for the status.
func (c *charges) refunds(ctx context.Context, i, status int) (yes bool) {
	r := c.calls[i].rule
	if r.RefundIf == nil || c.settles(i) {
		return false
	}
	defer func() {
		if v := recover(); v != nil {
			yes = false
			c.engine.report(ctx, r.ruleError(panicked(v)))
		}
	}()
	return r.RefundIf(status)
}

// refundRefused gives back what a step has charged that a Peek refuses, because a Peek
// stops no Take.
func (c *charges) refundRefused(ctx context.Context, err error) {
	if err != nil || c.allowed || c.alone || !core.Granted(c.ops[:c.asked], c.out[:c.asked]) {
		return
	}
	var undo []core.Op
	for i := range c.asked {
		if op := &c.ops[i]; op.Verb == core.Take && c.out[i].Allowed && op.Cost > 0 {
			undo = append(undo, c.refundOp(i))
			d := &c.out[i]
			d.Credit += d.FromCredit
			d.Remaining = min(d.Remaining+op.Cost, op.Limit.Capacity()+d.Credit)
			d.FromCredit, d.CreditUntil = 0, 0
		}
	}
	c.engine.repay(ctx, undo)
}

// cancelBooking turns a step whose booked slot will not be used into a refusal.
func (c *charges) cancelBooking(ctx context.Context) {
	tidy, cancel := cleanupContext(ctx)
	defer cancel()
	c.engine.report(ctx, c.refund(tidy))
	c.refuseBooking()
}

// renewAfterWait renews leases that may have expired during a wait.
func (c *charges) renewAfterWait(ctx context.Context) error {
	if !c.holdsLeases() {
		return nil
	}
	c.recordAsking()

	held, _, err := c.renew(ctx)
	if err != nil || held {
		return err
	}

	// Another holds the units by now, so the request is refused as if it had just come.
	c.cancelBooking(ctx)
	for i := range c.asked {
		if d := &c.out[i]; c.ops[i].Lease != "" {
			d.Allowed, d.RetryAfter = false, c.ops[i].Limit.Period
		}
	}
	return nil
}

// settle is [Result.Settle].
func (c *charges) settle(ctx context.Context, actual map[string]int64) error {
	if err := c.checkActual(actual); err != nil {
		return err
	}

	// An adapter settles at the end of the request, in the step that also releases its leases.
	s := &settlement{actual: maps.Clone(actual)}
	if !c.settlement.CompareAndSwap(nil, s) || c.admitted && !c.ended.Load() {
		return nil
	}

	ops := c.settleOps()
	settled := len(ops)
	if c.lease != "" && c.endLeases() {
		ops = append(ops, c.leaseRefunds()...)
	}

	// What was used has been used, also where the caller has left.
	ctx, cancel := cleanupContext(ctx)
	defer cancel()
	err := c.applyRefunds(ctx, ops, settled)
	if err != nil {
		c.engine.addReleases(ops)
	}
	return err
}

// checkActual returns every mistake in the units reported to Settle.
func (c *charges) checkActual(actual map[string]int64) error {
	var errs []error
	for _, rule := range slices.Sorted(maps.Keys(actual)) {
		if fault := c.actualFault(rule, actual[rule]); fault != "" {
			errs = append(errs, fmt.Errorf("%w: rule %q: %s", core.ErrOp, rule, fault))
		}
	}
	return errors.Join(errs...)
}

// actualFault returns what is wrong with n units used under the rule, or "".
func (c *charges) actualFault(rule string, n int64) string {
	// A rule of the name may not apply to the request; then i is below 0.
	i := c.asked - 1
	for i >= 0 && c.calls[i].rule.Name != rule {
		i--
	}

	switch {
	case n < 0:
		return fmt.Sprintf("%d units cannot be used", n)
	case i < 0 && c.mayPassUncounted(rule), i >= 0 && c.ops[i].Soft && !c.out[i].Allowed:
		return ""
	case i < 0 || !c.charged(i):
		return "it charged nothing that could be settled"
	case c.leased(i):
		return "leases are released, not settled"
	case n > c.out[i].Taken && c.ops[i].Limit.MaxDebt() == 0:
		return fmt.Sprintf("%d units are more than the %d charged, and %s has no debt",
			n, c.out[i].Taken, c.ops[i].Limit)
	}
	return ""
}

// mayPassUncounted reports whether a request may pass the rule of the name without being
// counted: the store did not decide, or the lists of the rule exempt callers.
func (c *charges) mayPassUncounted(name string) bool {
	if c.set == nil { // nothing was decided
		return false
	}
	r := c.set.named(name)
	return r != nil && (c.isUndecided() || c.allowed && r.Access != nil)
}

// settles reports whether rule i is settled instead of refunded.
func (c *charges) settles(i int) bool {
	s := c.settlement.Load()
	if s == nil {
		return false
	}
	_, named := s.actual[c.calls[i].rule.Name]
	return named
}

// correct reports whether the charge of rule i is to be refunded or settled now: it has
// not been before.
func (c *charges) correct(i int) bool {
	return atomic.CompareAndSwapUint32(&c.calls[i].corrected, 0, 1)
}

// settleOps returns the ops that settle the named rules.
func (c *charges) settleOps() (ops []core.Op) {
	s := c.settlement.Load()
	if s == nil {
		return nil
	}

	for i := range c.asked {
		used, named := s.actual[c.calls[i].rule.Name]
		if !named || !c.charged(i) || !c.correct(i) {
			continue
		}

		if op := c.settleOp(i, used); op.Cost > 0 {
			ops = append(ops, op)
		}
	}
	return ops
}

// settleOp returns the op that settles op i: its cost is 0 if what was charged was used.
func (c *charges) settleOp(i int, used int64) core.Op {
	// A refund of what was not used becomes a debit of what was used beyond the charge.
	op := c.refundOp(i)
	if op.Cost -= used; op.Cost < 0 {
		op = c.ops[i]
		op.Verb, op.Cost, op.Soft, op.MaxWait = core.Debit, used-c.out[i].Taken, false, 0
		if op.Windows != nil {
			op.Windows = c.calls[i].terms.windowsNow() // the request may have begun in another window
		}
	}
	return op
}

// endLeases notes that the leases are released, and reports whether they were not before.
func (c *charges) endLeases() bool {
	if !c.released.CompareAndSwap(false, true) {
		return false
	}

	// A lease that was never reported as taken is not reported as ended.
	if c.notified && c.lease != "" && c.leasesNotified.CompareAndSwap(false, true) {
		e := events.Lease{Ended: true}
		if !c.leasesAsked.IsZero() { // or else another limiter took them
			c.engine.held.Add(-c.leaseCount())
			e.Held = time.Since(c.leasesAsked)
		}
		if c.engine.hooks.Lease != nil {
			c.notifyLeases(e)
		}
	}
	return true
}

// notifyLeases reports each lease of the step to the hooks.
func (c *charges) notifyLeases(e events.Lease) {
	for i := range c.asked {
		if c.leased(i) {
			e.Rule, e.Key, e.Units = c.ops[i].Rule, c.ops[i].Key, c.ops[i].Cost
			e.Lost = e.Ended && c.calls[i].isLeaseLost()
			c.engine.hooks.Lease(e)
		}
	}
}

// notifyCorrections reports to the hooks the units that the parts of the request have given back
// or charged beyond their limits.
func (c *charges) notifyCorrections() {
	for i := range c.asked {
		if !c.decides(i) {
			c.engine.notifyUnits(c.ops[i:i+1], c.out[i:i+1], 0)
		}
	}
}
