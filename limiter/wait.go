// This file lets requests wait for their turn.

package limiter

import (
	"context"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/waitline"
)

const (
	// minPause is the shortest pause between two calls of a store that returns no
	// RetryAfter.
	minPause = time.Millisecond

	// pollPause is the time between two questions about the leases of a key that other
	// processes may hold. Releases in this process need no question.
	pollPause = 50 * time.Millisecond
)

// wait is the state of one request that may wait.
type wait struct {
	queue   *waitline.Queue
	turn    waitline.Turn
	start   time.Time
	maxWait time.Duration // by the context's deadline
	waited  time.Duration
	key     waitline.Key // under which it is counted among those that wait
	queued  bool

	interested bool   // in releases
	released   uint64 // the releases of its keys before the last question

	asked    bool // the last question was a Take
	began    time.Time
	answered time.Time
	retry    time.Time      // when to ask for leases again by the last answer
	slot     *waitline.Slot // that the last answer has booked, until the request is in its line
}

// decide lets the store decide, and waits if mayWait is true and a rule says so.
func (res *Result) decide(ctx context.Context, mayWait bool) error {
	if !mayWait {
		return res.ask(ctx)
	}
	start, answered := time.Now(), time.Time{}
	if res.lease == "" && res.limiter.queue.Lines() == 0 { // most requests end here
		if err := res.ask(ctx); err != nil || res.allowed {
			return err
		}
		answered = time.Now()
	}
	return res.waitForTurn(ctx, start, answered)
}

// waitForTurn lets a request wait that came at start. The store has refused it at the instant
// answered, or is still to be asked if that is zero.
func (res *Result) waitForTurn(ctx context.Context, start, answered time.Time) (err error) {
	w := wait{queue: &res.limiter.queue, start: start, maxWait: core.MaxBooking}
	w.turn = w.queue.Arrive(start)
	if deadline, ok := ctx.Deadline(); ok {
		// A turn at the very deadline would come too late.
		w.maxWait = min(w.maxWait, deadline.Sub(start)-time.Microsecond)
	}
	defer w.leave(ctx, res)

	again := true
	if !answered.IsZero() {
		w.asked, w.began, w.answered = true, start, answered
		again, err = w.heed(ctx, res)
	}
	for again {
		if res.aside > 0 {
			res.takeBack(ctx)
		}
		w.boundBookings(res)
		if err := w.ask(ctx, res); err != nil {
			return err
		}
		again, err = w.heed(ctx, res)
	}
	return err
}

// heed waits as the last answer says. again reports whether the store has to be asked once
// more.
func (w *wait) heed(ctx context.Context, res *Result) (again bool, err error) {
	i, span := w.reason(res)
	if i < 0 {
		return false, nil
	}
	if res.allowed {
		w.slot = res.newSlot(w.answered)
	}
	if res.notQueued = w.enter(res.limiter, waitline.KeyOf(&res.ops[i])); res.notQueued != nil {
		return false, nil
	}
	return w.waitInLine(ctx, res, i, span)
}

// remaining returns the time for which the request may still wait for rule i.
func (w *wait) remaining(res *Result, i int) time.Duration {
	if res.ops[i].Soft || res.calls[i].maxWait == 0 {
		return 0
	}
	return max(0, min(w.maxWait, res.calls[i].maxWait)-w.waited)
}

// boundBookings lets the store book slots for a request in a line, where it may wait for
// them. A request that has just come books none: thousands may come while the store decides.
func (w *wait) boundBookings(res *Result) {
	for i := range res.ops {
		res.ops[i].MaxWait = 0
		if w.turn.InLine() {
			res.ops[i].MaxWait = min(w.remaining(res, i), w.turn.Horizon(waitline.KeyOf(&res.ops[i])))
		}
	}
}

// reason returns the rule for which the request has to wait longest, and for how long, or -1
// if it has nothing to wait for or that would take too long. A lease may be released at any
// time, so the request waits for one only if nothing else is missing.
func (w *wait) reason(res *Result) (longest int, span time.Duration) {
	lease := -1
	longest = -1
	for i := range res.ops {
		d := &res.out[i]
		pause := d.Wait
		if !res.allowed {
			if res.ops[i].Soft || d.Allowed {
				continue
			}
			if w.waitsForLease(res, i) && d.RetryAfter != core.Never {
				if lease < 0 {
					lease = i
				}
				continue
			}
			if pause = max(d.RetryAfter, minPause); pause > w.remaining(res, i) {
				return -1, 0
			}
		}

		if pause > span {
			longest, span = i, pause
		}
	}

	if longest < 0 {
		return lease, 0
	}
	return longest, span
}

// enter takes a place in the queue for the whole wait, or returns an error.
func (w *wait) enter(l *Limiter, k waitline.Key) error {
	switch {
	case w.queued:
		return nil
	case l.isClosed():
		return ErrClosed
	}
	switch l.queue.Enter(k) {
	case waitline.ErrFull:
		return ErrQueueFull
	case waitline.ErrDrained:
		return ErrClosed
	}
	w.key, w.queued = k, true
	l.tellQueue(k, 1)
	return nil
}

// leave ends the wait.
func (w *wait) leave(ctx context.Context, res *Result) {
	l := res.limiter
	w.leaveLine(ctx, res)
	if w.interested {
		l.queue.Interested(-1)
	}
	if w.queued {
		l.queue.Exit(w.key)
		l.tellQueue(w.key, -1)
	}
}

// ask lets the store decide. If older requests wait for a key of the request, it only
// peeks: the request may have to be refused at once for another reason.
func (w *wait) ask(ctx context.Context, res *Result) error {
	if res.lease != "" && w.wantsLease(res) {
		w.countReleases(res)
	}
	if w.isBehind(res) {
		if again, err := w.peek(ctx, res); !again || err != nil {
			return err
		}
		if res.aside > 0 {
			res.takeBack(ctx)
		}
	}
	w.asked = true
	return w.askStore(ctx, res)
}

// wantsLease reports whether the request may wait for a lease.
func (w *wait) wantsLease(res *Result) bool {
	for i := range res.ops {
		if w.waitsForLease(res, i) {
			return true
		}
	}
	return false
}

func (w *wait) waitsForLease(res *Result, i int) bool {
	return res.ops[i].Limit.Leased() && w.waitsFor(res, i)
}

// waitsFor reports whether the request may wait for its units under rule i.
func (w *wait) waitsFor(res *Result, i int) bool {
	return res.ops[i].Cost > 0 && w.remaining(res, i) > 0
}

// countReleases notes how many releases of its keys the request has seen before it asks.
func (w *wait) countReleases(res *Result) {
	if !w.interested {
		w.interested = true
		w.queue.Interested(1)
	}
	w.released = w.releases(res)
}

// releases returns a number that changes whenever units of a key that the request waits
// for come back.
func (w *wait) releases(res *Result) (n uint64) {
	for i := range res.ops {
		if w.waitsForLease(res, i) {
			n += w.queue.Releases(waitline.KeyOf(&res.ops[i]))
		}
	}
	return n
}

// isBehind reports whether an older request has to be served before this one.
func (w *wait) isBehind(res *Result) bool {
	now := time.Now()
	for i := range res.ops {
		if w.isBehindAt(res, i, now) {
			return true
		}
	}
	return false
}

// isBehindAt reports whether an older request has to be served before this one under rule i.
func (w *wait) isBehindAt(res *Result, i int, now time.Time) bool {
	return w.waitsFor(res, i) && w.turn.IsBehind(waitline.KeyOf(&res.ops[i]), now)
}

// peek asks the store without taking units. Rules under which older requests have to be
// served before refuse then, until the turn of this one. again reports whether the store has
// to be asked to take: no older one is left, or a ban has to count the refusal.
func (w *wait) peek(ctx context.Context, res *Result) (again bool, err error) {
	w.beginPeek(res)
	err = w.askStore(ctx, res)
	setVerbs(res, core.Take)
	w.asked = false
	if err != nil {
		return false, err
	}
	if w.isStruck(res) {
		return true, nil
	}
	res.allowed, res.degraded = false, false
	if !w.putBehind(res) {
		w.boundBookings(res)
		return true, nil
	}
	return false, nil
}

// beginPeek makes the ops Peeks. Under a rule where older requests have to be served before,
// the answer is to be when the units come back, and not whether they can be booked.
func (w *wait) beginPeek(res *Result) {
	setVerbs(res, core.Peek)
	now := time.Now()
	for i := range res.ops {
		if w.isBehindAt(res, i, now) {
			res.ops[i].MaxWait = 0
		}
	}
}

// setVerbs sets the verb of each op, also of those that were set aside.
func setVerbs(res *Result, v core.Verb) {
	ops := res.ops[:len(res.ops)+res.aside]
	for i := range ops {
		ops[i].Verb = v
	}
}

// isStruck reports whether a rule refuses the request whose Ban counts that.
func (w *wait) isStruck(res *Result) bool {
	for i := range res.ops {
		if op := &res.ops[i]; op.Ban != nil && !op.Soft && !res.out[i].Allowed {
			return true
		}
	}
	return false
}

// putBehind makes the rules refuse under which older requests have to be served before, and
// reports whether there are any.
func (w *wait) putBehind(res *Result) (behind bool) {
	now := time.Now()
	for i := range res.ops {
		d, c := &res.out[i], &res.calls[i]
		c.behind = false
		if !w.waitsFor(res, i) {
			continue
		}
		var retry time.Duration
		if retry, c.behind = w.turn.After(&res.ops[i], d, now); c.behind {
			d.Allowed, d.RetryAfter, behind = false, max(minPause, retry), true
		}
	}
	return behind
}

// askStore asks the store once, and notes what follows for the line.
func (w *wait) askStore(ctx context.Context, res *Result) error {
	w.turn.Ask()
	w.began = time.Now()
	err := res.ask(ctx)
	w.answered = time.Now()
	w.retry = w.began.Add(pollPause)
	for i := range res.out {
		if d := &res.out[i]; err == nil && !d.Allowed && res.ops[i].Limit.Leased() && d.RetryAfter < pollPause {
			if expiry := w.answered.Add(max(d.RetryAfter, minPause)); expiry.Before(w.retry) {
				w.retry = expiry
			}
		}
	}
	w.turn.Answered(err != nil || w.hasLeft(res, w.turn.Key()), w.retry)
	return err
}

// hasLeft reports whether units of the key are left by the last answer.
func (w *wait) hasLeft(res *Result, k waitline.Key) bool {
	for i := range res.ops {
		if k == waitline.KeyOf(&res.ops[i]) {
			return res.out[i].Remaining > 0
		}
	}
	return true // the store did not decide about it
}

// endOf returns when the request stops waiting for rule i.
func (w *wait) endOf(res *Result, i int) time.Time {
	return w.start.Add(min(w.maxWait, res.calls[i].maxWait))
}
