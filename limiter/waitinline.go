// This file lets a request wait in a line, and hands on what it has when it leaves.

package limiter

import (
	"context"
	"slices"
	"time"

	"github.com/headgate/headgate/core"
)

// What a request in a line does next.
type action uint8

const (
	sleeps action = iota
	asks
	usesSlot
	givesUp
	closes // gives up because of a Shutdown
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
		next, until, s := w.next(res, now)
		if slept { // or else the time of a question is no wait
			w.waited = now.Sub(w.start)
		}
		switch next {
		case asks:
			return true, nil
		case usesSlot:
			res.use(s, now)
			w.leaveLine(ctx, res)
			return false, res.renewAfterWait(ctx)
		case givesUp:
			w.age(res, now)
			return false, nil
		case closes:
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
	op := &res.ops[i]
	k := keyOf(op)
	if w.in != nil && w.line != k {
		w.leaveLine(ctx, res)
	}
	lines := &w.queue.lines
	lead := min(w.answered.Sub(w.began)+minLead, maxLead)
	w.draining = w.queue.draining

	q := w.queue
	q.mu.Lock()
	n := lines.open(k, lead)
	n.lead = lead
	isNew := w.in == nil
	if isNew {
		if w.arrival.number == noNumber {
			lines.arrivals++
			w.arrival.number = lines.arrivals
		}
		w.in = &waiter{arrival: w.arrival, wake: make(chan struct{}, 1)}
		w.line, w.left = k, w.hasLeft(res, k)
		n.insert(w.in)
	}
	w.noteAnswerLocked(res, n, i, span, isNew)
	if now := time.Now(); isNew && w.in != n.waiters[0] && w.in.slot == nil && !w.in.leased {
		from := now
		if at := w.answered.Add(span - spanOf(&op.Limit, op.Cost)); at.Before(now) {
			from = at // a part of the first interval is over
		}
		if turn := n.turnOf(w.in, q.endsOfLocked(k), from); turn.After(w.in.end) {
			hopeless, w.hopeless = true, true
			res.refuseBooking()
			res.out[i].Allowed, res.out[i].RetryAfter = false, turn.Sub(now)
		}
	}
	surplus := n.settle()
	q.mu.Unlock()
	res.limiter.cancelSlots(ctx, k, surplus)
	return hopeless
}

// noteAnswerLocked tells the line n of rule i what the request has learned from the last
// answer: a slot, or when to ask again.
func (w *wait) noteAnswerLocked(res *Result, n *line, i int, span time.Duration, isNew bool) {
	x, op := w.in, &res.ops[i]
	x.ops, x.cost, x.limit, x.end = res.ops, op.Cost, &res.calls[i].terms.limit, w.endOf(res, i)
	x.leased = w.waitsForLease(res, i)
	if n.asking == x {
		n.asking = nil
	}

	switch first := n.waiters[0] == x; {
	case w.slot != nil:
		n.lost, n.won, n.farAhead, n.comes = 0, n.won+1, false, time.Time{}
		w.placeLocked(n)
	case x.leased:
		w.noteLeasesLocked(res, n, first, isNew)
	case !w.asked && res.calls[i].behind, isNew && !first && op.Limit.Books():
		// It may book as soon as it is the first.
		x.notBefore = time.Time{}
		n.free = n.free || first
	default:
		if !isNew && !n.comes.IsZero() && !w.began.Before(n.comes.Add(-n.ahead())) {
			n.lost, n.won = n.lost+1, 0
		}
		comes := w.answered.Add(span)
		if x.notBefore = comes; op.Limit.Books() {
			x.notBefore = comes.Add(-n.ahead())
		}
		if first {
			n.refused(x, comes, span)
		}
	}
}

// placeLocked gives the slot that the request has just booked to the line, and so to this request
// or an older one.
func (w *wait) placeLocked(n *line) {
	s := n.give(w.slot)
	if s != nil && w.in.slot == nil {
		w.in.slot, s = s, nil
	}
	if s != nil {
		n.spare = append(n.spare, s)
	}
	w.slot = nil
}

// noteLeasesLocked notes when the line asks for leases next.
func (w *wait) noteLeasesLocked(res *Result, n *line, first, isNew bool) {
	if !first {
		return
	}
	n.due = w.retry
	if isNew && (!w.asked || w.released != w.releases(res)) {
		n.free = true
	}
}

// leaveLine takes the request out of its line, if it is in one. A slot that it has not used
// goes to those behind it, and the next of them asks.
func (w *wait) leaveLine(ctx context.Context, res *Result) {
	x, q := w.in, w.queue
	if x == nil {
		return
	}
	q.mu.Lock()
	n := q.lines.of[w.line]
	if res.allowed {
		n.lost = 0
	}
	if !w.hopeless {
		q.endsOfLocked(w.line).note(res.allowed)
	}
	at := slices.Index(n.waiters, x)
	n.waiters = slices.Delete(n.waiters, at, at+1)
	if x.slot != nil {
		n.spare = append(n.spare, x.slot)
	}
	if at == 0 && len(n.waiters) > 0 {
		n.free = n.free || w.freesNext(res, n.waiters[0])
	}
	if n.asking == x {
		n.asking = nil
	}
	w.in, x.slot = nil, nil
	surplus := n.settle()
	q.lines.closeEmpty(w.line)
	q.mu.Unlock()
	res.limiter.cancelSlots(ctx, w.line, surplus)
}

// endsOfLocked returns how requests in line for k have ended.
func (q *waitQueue) endsOfLocked(k waitKey) *ends { return &q.lines.ends[q.lines.bucket(k)] }

// freesNext reports whether the next of the line is to ask at once when this request, the
// first, leaves: unless the answer to this one, or its slot, says when the units of the next come.
func (w *wait) freesNext(res *Result, next *waiter) bool {
	if w.in.leased {
		return w.left
	}
	return res.allowed && !w.usedSlot || !w.asked || next.cost != w.in.cost
}

// next returns what the request does next, and until when it sleeps. A slot that it uses is
// its own from then on.
func (w *wait) next(res *Result, now time.Time) (next action, until time.Time, s *slot) {
	q := w.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	n, x := q.lines.of[w.line], w.in

	if s = x.slot; s != nil {
		switch {
		case !s.due.After(now):
			x.slot = nil
			w.usedSlot = true
			n.slotUsed(x, s)
			return usesSlot, now, s
		case w.drains && q.endsBy(s.due):
			return closes, now, nil
		}
		return sleeps, s.due, nil
	}
	next, until = w.nextWithoutSlotLocked(n, now)
	return next, until, nil
}

// nextWithoutSlotLocked is next of a request that has no slot.
func (w *wait) nextWithoutSlotLocked(n *line, now time.Time) (next action, until time.Time) {
	x := w.in
	end, atEnd := w.endLocked(n, now)
	late := !end.After(now)
	until = end

	if i := n.asker(); i >= 0 && n.waiters[i] == x {
		at := n.askAt(i)
		// A timer that runs late does not take a turn away. A lease has no turn to be late for.
		if !at.After(now) && (!late || !x.leased && atEnd == givesUp && !at.After(end)) {
			w.horizon = n.ask(x)
			return asks, now
		}
		if at.Before(end) {
			until = at
		}
	} else if last := end.Add(settleTime); late && !x.leased && last.After(now) && n.moves(now) {
		return sleeps, last
	}

	if late {
		return atEnd, now
	}
	return sleeps, until
}

// endLocked returns when the request, which has no slot, stops waiting, and what it does then.
func (w *wait) endLocked(n *line, now time.Time) (end time.Time, then action) {
	q := w.queue
	if !w.drains || q.deadline.IsZero() {
		return w.in.end, givesUp
	}

	if w.drained.IsZero() {
		w.drained = w.drainEndLocked(n, q.endsOfLocked(w.line), now, q.deadline)
	}
	if w.drained.Before(w.in.end) {
		return w.drained, closes
	}
	return w.in.end, givesUp
}

// drainEndLocked returns when the request, which has no slot, stops waiting because of a Shutdown
// that ends at the deadline: at once if its turn does not come before.
func (w *wait) drainEndLocked(n *line, e *ends, now, deadline time.Time) time.Time {
	margin := deadline.Add(-drainMargin)
	if w.in.leased {
		return margin
	}
	turn := n.turnOf(w.in, e, now)
	switch {
	case !turn.Before(deadline):
		return now
	case turn.Before(margin):
		return margin
	}
	return turn.Add(1)
}

// sleepUntil waits for d, or until the line may have changed for the request. It returns an
// error if ctx or the limiter ends before.
func (w *wait) sleepUntil(ctx context.Context, l *Limiter, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.in.wake:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-l.life.Done():
		return ErrClosed
	case <-w.draining:
		w.draining, w.drains = nil, true
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
