package limiter

import (
	"context"
	"errors"
	"github.com/headgate/headgate/core"
	"time"
)

// tidyTimeout bounds the store calls that are made after a request, which its
// end must not cut short.
const tidyTimeout = time.Second

// tidying is a context for what has to be done although ctx may have ended.
func tidying(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), tidyTimeout)
}

// charged tells whether units were taken by op i.
func (g *Grant) charged(i int) bool {
	return g.allowed && g.out[i].Allowed && g.ops[i].Cost > 0
}

// leased tells whether op i holds a lease.
func (g *Grant) leased(i int) bool { return g.ops[i].Lease != "" && g.charged(i) }

// holdsLeases tells whether any op does.
func (g *Grant) holdsLeases() bool {
	if g.lease == "" || g.released.Load() {
		return false
	}
	for i := range g.ops {
		if g.leased(i) {
			return true
		}
	}
	return false
}

// undoing is the op that undoes op i.
func (g *Grant) undoing(i int) core.Op { return g.ops[i].Refund(g.out[i]) }

// Refund gives back the units that were taken, and the leases, as if they had
// never been taken; a second call does nothing. Units that the passage of time
// has given back already are not given back twice. After an error some may or
// may not have been given back.
func (g *Grant) Refund(ctx context.Context) error {
	if g == nil || !g.refunded.CompareAndSwap(false, true) {
		return nil
	}
	leases := g.released.CompareAndSwap(false, true)
	var undo []core.Op
	for i := range g.ops {
		if g.charged(i) && (leases || !g.leased(i)) {
			undo = append(undo, g.undoing(i))
		}
	}
	return g.undo(ctx, undo)
}

// Release ends the leases, so that others can have them. Once it has succeeded
// another call does nothing.
func (g *Grant) Release(ctx context.Context) error {
	if g == nil || g.lease == "" || !g.released.CompareAndSwap(false, true) {
		return nil
	}
	err := g.releaseAgain(ctx)
	if err != nil {
		g.released.Store(false)
	}
	return err
}

// letGo releases the leases now, or later if the store fails.
func (g *Grant) letGo(ctx context.Context) {
	if !g.released.CompareAndSwap(false, true) {
		return
	}
	undo := g.releasing()
	if err := g.undo(ctx, undo); err != nil {
		g.limiter.owe(undo)
		g.limiter.report(ctx, err)
	}
}

func (g *Grant) releaseAgain(ctx context.Context) error { return g.undo(ctx, g.releasing()) }

// releasing are the ops that end the leases.
func (g *Grant) releasing() (undo []core.Op) {
	for i := range g.ops {
		if g.leased(i) {
			undo = append(undo, g.undoing(i))
		}
	}
	return undo
}

func (g *Grant) undo(ctx context.Context, ops []core.Op) error {
	if len(ops) == 0 {
		return nil
	}
	return g.limiter.apply(ctx, ops, make([]core.Decision, len(ops)))
}

// Renew holds the leases for another Period from now, and reports whether they
// are held. A lease that had expired is taken anew if there is room. It is true
// for a grant without leases, and false for one that was refused or released.
func (g *Grant) Renew(ctx context.Context) (held bool, err error) {
	switch {
	case g == nil:
		return true, nil
	case !g.allowed || g.released.Load():
		return false, nil
	}
	var ops []core.Op
	for i := range g.ops {
		if g.leased(i) {
			op := g.ops[i]
			op.Soft, op.MaxWait = false, 0
			ops = append(ops, op)
		}
	}
	out := make([]core.Decision, len(ops)) // none for a grant without leases
	if err := g.limiter.apply(ctx, ops, out); err != nil {
		return false, err
	}
	if g.released.Load() { // meanwhile: the renewal may have come second
		return false, g.releaseAgain(ctx)
	}
	for i := range out {
		if !out[i].Allowed {
			return false, nil
		}
	}
	return true, nil
}

// finish is the end of a request that was answered with status: it gives back
// what its rules say, and the leases unless someone holds on to them.
func (g *Grant) finish(ctx context.Context, status int, holding bool) {
	releasing := g.lease != "" && !holding && g.released.CompareAndSwap(false, true)
	var undo []core.Op
	for i := range g.ops {
		switch {
		case !g.charged(i):
		case g.leased(i):
			if releasing {
				undo = append(undo, g.undoing(i))
			}
		case g.refunds(ctx, i, status):
			undo = append(undo, g.undoing(i))
		}
	}
	if len(undo) == 0 {
		return
	}
	ctx, cancel := tidying(ctx)
	defer cancel()
	if err := g.undo(ctx, undo); err != nil {
		g.limiter.owe(undo)
		g.limiter.report(ctx, err)
	}
}

// refunds asks rule i about the status.
func (g *Grant) refunds(ctx context.Context, i, status int) (yes bool) {
	r := g.calls[i].rule
	if r.RefundIf == nil || g.refunded.Load() {
		return false
	}
	defer func() {
		if v := recover(); v != nil {
			yes = false
			g.limiter.report(ctx, r.fault(panicked(v)))
		}
	}()
	return r.RefundIf(status)
}

// giveUp turns a grant whose booked slot will not be used into a refusal.
func (g *Grant) giveUp(ctx context.Context) {
	tidy, cancel := tidying(ctx)
	defer cancel()
	g.limiter.report(ctx, g.Refund(tidy))
	g.allowed = false
	for i := range g.out {
		if d := &g.out[i]; d.Wait > 0 {
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
