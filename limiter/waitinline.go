// This file lets a request wait in a line.

package limiter

import (
	"context"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/waitline"
)

// waitInLine waits in the line of rule i until the slot of the request comes, or until the
// store is to be asked again, at the earliest after the span if that was the answer. again
// is false if the wait has ended.
func (w *wait) waitInLine(ctx context.Context, res *Result, i int, span time.Duration) (again bool, err error) {
	if hopeless := w.join(ctx, res, i, span); hopeless {
		return false, nil
	}

	before := w.waited
	defer func(rule string) { res.noteWaited(rule, w.waited-before, w.waited) }(res.ops[i].Rule)
	for slept := false; ; {
		now := time.Now()
		next, until, s := w.turn.Next(now)
		if slept { // or else the time of a question is no wait
			w.waited = now.Sub(w.start)
		}

		switch next {
		case waitline.Ask:
			return true, nil
		case waitline.UseSlot:
			res.use(s, now)
			w.leaveLine(ctx, res)
			return false, res.renewAfterWait(ctx)
		case waitline.GiveUp:
			w.age(res, now)
			return false, nil
		case waitline.Close:
			res.stopped = ErrClosed
			w.age(res, now)
		default:
			slept = true
			res.stopped = w.sleepUntil(ctx, res.limiter, until.Sub(now))
		}

		if res.stopped != nil {
			w.waited = time.Since(w.start)
			w.leaveLine(ctx, res)
			res.refuseBooking()
			return false, nil
		}
	}
}

// join puts the request into the line of rule i, unless it is there, and adds what it has
// learned from the last answer. It reports whether the turn would come too late, behind
// requests that came while the store decided.
func (w *wait) join(ctx context.Context, res *Result, i int, span time.Duration) (hopeless bool) {
	k := waitline.KeyOf(&res.ops[i])
	if w.turn.InLine() && !w.turn.IsIn(k) {
		w.leaveLine(ctx, res)
	}

	retry, hopeless, surplus := w.turn.Join(&waitline.Answer{
		Op: &res.ops[i], Ops: res.ops, Limit: &res.calls[i].terms.limit,
		Leased: w.waitsForLease(res, i), End: w.endOf(res, i),
		Asked: w.asked, Behind: !w.asked && res.calls[i].behind, Began: w.began, Answered: w.answered,
		Span: span, Retry: w.retry, Left: w.hasLeft(res, k), Slot: w.slot,
	}, func() bool { return w.released != w.releases(res) })
	w.slot = nil
	if hopeless {
		res.refuseBooking()
		res.out[i].Allowed, res.out[i].RetryAfter = false, retry
	}
	res.limiter.cancelSlots(ctx, k, surplus)
	return hopeless
}

// leaveLine takes the request out of its line, if it is in one.
func (w *wait) leaveLine(ctx context.Context, res *Result) {
	if w.turn.InLine() {
		surplus := w.turn.Leave(res.allowed, w.asked)
		res.limiter.cancelSlots(ctx, w.turn.Key(), surplus)
	}
}

// sleepUntil waits for d, or until the line may have changed for the request. It returns an
// error if ctx or the limiter ends before.
func (w *wait) sleepUntil(ctx context.Context, l *Limiter, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.turn.Wake():
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-l.life.Done():
		return ErrClosed
	case <-w.turn.Draining():
		w.turn.Drain()
	}
	return nil
}

// age makes the decisions of the last answer those of now.
func (w *wait) age(res *Result, now time.Time) {
	res.aged = now.Sub(w.answered)
	for i := range res.out {
		if d := &res.out[i]; !d.Allowed && d.RetryAfter != core.Never {
			d.RetryAfter = max(minPause, d.RetryAfter-res.aged)
		}
	}
}
