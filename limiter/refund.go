package limiter

import (
	"context"
	"errors"
	"github.com/headgate/headgate/core"
	"time"
)

// cleanupTimeout bounds the store calls that are made after a request, which its
// end must not cut short.
const cleanupTimeout = time.Second

// cleanupContext is a context for what has to be done although ctx may have ended.
func cleanupContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
}

// charged tells whether units were taken by op i.
func (res *Result) charged(i int) bool {
	return res.allowed && res.out[i].Allowed && res.ops[i].Cost > 0
}

// leased tells whether op i holds a lease.
func (res *Result) leased(i int) bool { return res.ops[i].Lease != "" && res.charged(i) }

// holdsLeases tells whether any op does.
func (res *Result) holdsLeases() bool {
	if res.lease == "" || res.released.Load() {
		return false
	}
	for i := range res.ops {
		if res.leased(i) {
			return true
		}
	}
	return false
}

// refundOp is the op that undoes op i.
func (res *Result) refundOp(i int) core.Op { return res.ops[i].Refund(res.out[i]) }

// Refund gives back the units that were taken, and the leases, as if they had
// never been taken; a second call does nothing. Units that the passage of time
// has given back already are not given back twice. After an error some may or
// may not have been given back.
func (res *Result) Refund(ctx context.Context) error {
	if res == nil || !res.refunded.CompareAndSwap(false, true) {
		return nil
	}
	leases := res.released.CompareAndSwap(false, true)
	var undo []core.Op
	for i := range res.ops {
		if res.charged(i) && (leases || !res.leased(i)) {
			undo = append(undo, res.refundOp(i))
		}
	}
	return res.applyRefunds(ctx, undo)
}

// Release ends the leases, so that others can have them. Once it has succeeded
// another call does nothing.
func (res *Result) Release(ctx context.Context) error {
	if res == nil || res.lease == "" || !res.released.CompareAndSwap(false, true) {
		return nil
	}
	err := res.releaseLeases(ctx)
	if err != nil {
		res.released.Store(false)
	}
	return err
}

// releaseLater releases the leases now, or later if the store fails.
func (res *Result) releaseLater(ctx context.Context) {
	if !res.released.CompareAndSwap(false, true) {
		return
	}
	undo := res.leaseRefunds()
	if err := res.applyRefunds(ctx, undo); err != nil {
		res.limiter.addReleases(undo)
		res.limiter.report(ctx, err)
	}
}

func (res *Result) releaseLeases(ctx context.Context) error {
	return res.applyRefunds(ctx, res.leaseRefunds())
}

// leaseRefunds are the ops that end the leases.
func (res *Result) leaseRefunds() (undo []core.Op) {
	for i := range res.ops {
		if res.leased(i) {
			undo = append(undo, res.refundOp(i))
		}
	}
	return undo
}

func (res *Result) applyRefunds(ctx context.Context, ops []core.Op) error {
	if len(ops) == 0 {
		return nil
	}
	return res.limiter.apply(ctx, ops, make([]core.Decision, len(ops)))
}

// Renew holds the leases for another Period from now, and reports whether they
// are held. A lease that had expired is taken anew if there is room. It is true
// for a result without leases, and false for one that was refused or released.
func (res *Result) Renew(ctx context.Context) (held bool, err error) {
	switch {
	case res == nil:
		return true, nil
	case !res.allowed || res.released.Load():
		return false, nil
	}
	var ops []core.Op
	for i := range res.ops {
		if res.leased(i) {
			op := res.ops[i]
			op.Soft, op.MaxWait = false, 0
			ops = append(ops, op)
		}
	}
	out := make([]core.Decision, len(ops)) // none for a result without leases
	if err := res.limiter.apply(ctx, ops, out); err != nil {
		return false, err
	}
	if res.released.Load() { // meanwhile: the renewal may have come second
		return false, res.releaseLeases(ctx)
	}
	for i := range out {
		if !out[i].Allowed {
			return false, nil
		}
	}
	return true, nil
}

// end is the end of a request that was answered with status: it gives back
// what its rules say, and the leases unless someone holds on to them.
func (res *Result) end(ctx context.Context, status int, holding bool) {
	releasing := res.lease != "" && !holding && res.released.CompareAndSwap(false, true)
	var undo []core.Op
	for i := range res.ops {
		switch {
		case !res.charged(i):
		case res.leased(i):
			if releasing {
				undo = append(undo, res.refundOp(i))
			}
		case res.refunds(ctx, i, status):
			undo = append(undo, res.refundOp(i))
		}
	}
	if len(undo) == 0 {
		return
	}
	ctx, cancel := cleanupContext(ctx)
	defer cancel()
	if err := res.applyRefunds(ctx, undo); err != nil {
		res.limiter.addReleases(undo)
		res.limiter.report(ctx, err)
	}
}

// refunds asks rule i about the status.
func (res *Result) refunds(ctx context.Context, i, status int) (yes bool) {
	r := res.calls[i].rule
	if r.RefundIf == nil || res.refunded.Load() {
		return false
	}
	defer func() {
		if v := recover(); v != nil {
			yes = false
			res.limiter.report(ctx, r.ruleError(panicked(v)))
		}
	}()
	return r.RefundIf(status)
}

// cancelBooking turns a result whose booked slot will not be used into a refusal.
func (res *Result) cancelBooking(ctx context.Context) {
	tidy, cancel := cleanupContext(ctx)
	defer cancel()
	res.limiter.report(ctx, res.Refund(tidy))
	res.allowed = false
	for i := range res.out {
		if d := &res.out[i]; d.Wait > 0 {
			d.Allowed, d.RetryAfter, d.Wait = false, d.Wait, 0
		}
	}
}

// ruleOf is the name of the rule that err is about, or "".
func ruleOf(err error) string {
	var e *RuleError
	if errors.As(err, &e) {
		return e.Rule
	}
	return ""
}
