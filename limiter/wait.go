// This file lets requests wait for their turn.

package limiter

import (
	"context"
	"fmt"
	"slices"
	"strings"
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

	tookLast bool // the last question was a Take
	askedAt  time.Time
	answered time.Time
	retry    time.Time      // when to ask for leases again by the last answer
	slot     *waitline.Slot // that the last answer has booked, until the request is in its line
}

// decide lets the store decide, and waits if mayWait is true and a rule says so.
func (c *course) decide(ctx context.Context, mayWait bool) error {
	if !mayWait || c.alone {
		return c.ask(ctx)
	}
	start, answered := time.Now(), time.Time{}
	if c.lease == "" && c.engine.queue.Lines() == 0 { // most requests end here
		if err := c.ask(ctx); err != nil || c.allowed {
			return err
		}
		answered = time.Now()
	}
	return c.waitForTurn(ctx, start, answered)
}

// waitForTurn lets a request wait that came at start. The store has refused it at the instant
// answered, or is still to be asked if that is zero.
func (c *course) waitForTurn(ctx context.Context, start, answered time.Time) (err error) {
	w := wait{queue: &c.engine.queue, start: start, maxWait: core.MaxBooking}
	w.turn = w.queue.Arrive(start)
	if deadline, ok := ctx.Deadline(); ok {
		// A turn at the very deadline would come too late.
		w.maxWait = min(w.maxWait, deadline.Sub(start)-time.Microsecond)
	}
	defer w.leave(ctx, c)

	again := true
	if !answered.IsZero() {
		w.tookLast, w.askedAt, w.answered = true, start, answered
		again, err = w.heed(ctx, c)
	}

	for again {
		if c.asked < len(c.calls) {
			c.takeBack(ctx)
		}
		w.boundBookings(c)
		if err := w.ask(ctx, c); err != nil {
			return err
		}
		again, err = w.heed(ctx, c)
	}
	return err
}

// heed waits as the last answer says. again reports whether the store has to be asked once
// more.
func (w *wait) heed(ctx context.Context, c *course) (again bool, err error) {
	i, span := w.reason(c)
	if i < 0 {
		return false, nil
	}
	if c.allowed {
		w.slot = c.newSlot(w.answered)
	}
	if err := w.enter(c.engine, waitline.KeyOf(&c.ops[i])); err != nil {
		c.rare.write().notQueued = err
		return false, nil
	}
	return w.waitInLine(ctx, c, i, span)
}

// ask lets the store decide. If older requests wait for a key of the request, it only
// peeks: the request may have to be refused at once for another reason.
func (w *wait) ask(ctx context.Context, c *course) error {
	if c.lease != "" && w.wantsLease(c) {
		w.countReleases(c)
	}

	// A Take would overtake those who came before.
	if w.isBehind(c) {
		if again, err := w.peek(ctx, c); !again || err != nil {
			return err
		}
		if c.asked < len(c.calls) {
			c.takeBack(ctx)
		}
	}

	w.tookLast = true
	return w.askStore(ctx, c)
}

// askStore asks the store once, and notes what follows for the line.
func (w *wait) askStore(ctx context.Context, c *course) error {
	w.turn.Ask()
	w.askedAt = time.Now()
	err := c.ask(ctx)
	w.answered = time.Now()
	w.retry = w.askedAt.Add(pollPause)

	// A lease may end before the next poll, and then the store is asked as soon as it has.
	for i := range c.asked {
		if d := &c.out[i]; err == nil && !d.Allowed && c.ops[i].Limit.Leased() && d.RetryAfter < pollPause {
			if expiry := w.answered.Add(max(d.RetryAfter, minPause)); expiry.Before(w.retry) {
				w.retry = expiry
			}
		}
	}

	w.turn.Answered(err != nil || w.hasLeft(c, w.turn.Key()), w.retry)
	return err
}

// hasLeft reports whether units of the key are left by the last answer.
func (w *wait) hasLeft(c *course, k waitline.Key) bool {
	for i := range c.asked {
		if k == waitline.KeyOf(&c.ops[i]) {
			return c.out[i].Remaining > 0
		}
	}
	return true // the store did not decide about it
}

// remaining returns the time for which the request may still wait for rule i.
func (w *wait) remaining(c *course, i int) time.Duration {
	if c.ops[i].Soft || c.calls[i].maxWait == 0 {
		return 0
	}
	return max(0, min(w.maxWait, c.calls[i].maxWait)-w.waited)
}

// boundBookings lets the store book slots for a request in a line, where it may wait for
// them. A request that has just come books none: thousands may come while the store decides.
func (w *wait) boundBookings(c *course) {
	for i := range c.asked {
		c.ops[i].MaxWait = 0
		if w.turn.InLine() {
			c.ops[i].MaxWait = min(w.remaining(c, i), w.turn.Horizon(waitline.KeyOf(&c.ops[i])))
		}
	}
}

// reason returns the rule for which the request has to wait longest, and for how long, or -1
// if it has nothing to wait for or that would take too long.
func (w *wait) reason(c *course) (longest int, span time.Duration) {
	lease := -1
	longest = -1
	for i := range c.asked {
		d := &c.out[i]

		pause := d.Wait
		if !c.allowed {
			if c.ops[i].Soft || d.Allowed {
				continue
			}

			// A lease may be released at any time, so it is waited for only if nothing else is
			// missing.
			if w.waitsForLease(c, i) && d.RetryAfter != core.Never {
				if lease < 0 {
					lease = i
				}
				continue
			}

			// What is refused for good, or for longer than the request may wait, ends the search.
			if pause = max(d.RetryAfter, minPause); pause > w.remaining(c, i) {
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
func (w *wait) enter(l *engine, k waitline.Key) error {
	switch {
	case w.queued:
		return nil
	case l.isClosed():
		return ErrClosed
	}

	// The place bounds how many wait, and those of one key among them.
	switch l.queue.Enter(k) {
	case waitline.ErrFull:
		return ErrQueueFull
	case waitline.ErrDrained:
		return ErrClosed
	}

	w.key, w.queued = k, true
	l.notifyQueue(k, 1)
	return nil
}

// leave ends the wait.
func (w *wait) leave(ctx context.Context, c *course) {
	l := c.engine
	w.leaveLine(ctx, c)
	if w.interested {
		l.queue.Interested(-1)
	}
	if w.queued {
		l.queue.Exit(w.key)
		l.notifyQueue(w.key, -1)
	}
}

// waitInLine waits in the line of rule i until the slot of the request comes, or until the
// store is to be asked again, but not before the span that the last answer named. again is
// false if the wait has ended.
func (w *wait) waitInLine(ctx context.Context, c *course, i int, span time.Duration) (again bool, err error) {
	if hopeless := w.join(ctx, c, i, span); hopeless {
		return false, nil
	}

	before := w.waited
	defer func(rule string) { c.recordWaited(rule, w.waited-before, w.waited) }(c.ops[i].Rule)
	for slept := false; ; {
		now := time.Now()
		next, until, s := w.turn.Next(now)
		// Until it has slept, the time went into asking the store, which is no wait.
		if slept {
			w.waited = now.Sub(w.start)
		}

		switch next {
		case waitline.Ask:
			return true, nil
		case waitline.UseSlot:
			c.use(s, now)
			w.leaveLine(ctx, c)
			return false, c.renewAfterWait(ctx)
		case waitline.GiveUp:
			w.age(c, now)
			return false, nil
		case waitline.Close:
			c.rare.write().stopped = ErrClosed
			w.age(c, now)
		default:
			slept = true
			if err := w.sleepUntil(ctx, c.engine, until.Sub(now)); err != nil {
				c.rare.write().stopped = err
			}
		}

		// The caller or the limiter has ended: what was booked is given to those behind.
		if c.rare.read().stopped != nil {
			w.waited = time.Since(w.start)
			w.leaveLine(ctx, c)
			c.refuseBooking()
			return false, nil
		}
	}
}

// join puts the request into the line of rule i, unless it is there, and adds what it has
// learned from the last answer. It reports whether the turn would come too late, behind
// requests that came while the store decided.
func (w *wait) join(ctx context.Context, c *course, i int, span time.Duration) (hopeless bool) {
	k := waitline.KeyOf(&c.ops[i])
	if w.turn.InLine() && !w.turn.IsIn(k) {
		w.leaveLine(ctx, c)
	}

	retry, hopeless, surplus := w.turn.Join(&waitline.Answer{
		Op: &c.ops[i], Ops: c.ops[:c.asked], Limit: &c.calls[i].terms.limit,
		Leased: w.waitsForLease(c, i), End: w.endOf(c, i),
		Took: w.tookLast, Behind: !w.tookLast && c.calls[i].behind, AskedAt: w.askedAt, AnsweredAt: w.answered,
		Span: span, Retry: w.retry, UnitsLeft: w.hasLeft(c, k), Slot: w.slot,
	}, func() bool { return w.released != w.releases(c) })
	w.slot = nil

	// Those before have booked the time until its end, so it is refused now rather than then.
	if hopeless {
		c.refuseBooking()
		c.out[i].Allowed, c.out[i].RetryAfter = false, retry
	}
	c.engine.cancelSlots(ctx, k, surplus)
	return hopeless
}

// leaveLine takes the request out of its line, if it is in one.
func (w *wait) leaveLine(ctx context.Context, c *course) {
	if w.turn.InLine() {
		surplus := w.turn.Leave(c.allowed, w.tookLast)
		c.engine.cancelSlots(ctx, w.turn.Key(), surplus)
	}
}

// sleepUntil waits for d, or until the line may have changed for the request. It returns an
// error if ctx or the limiter ends before.
func (w *wait) sleepUntil(ctx context.Context, l *engine, d time.Duration) error {
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
func (w *wait) age(c *course, now time.Time) {
	c.aged = now.Sub(w.answered)
	for i := range c.asked {
		if d := &c.out[i]; !d.Allowed && d.RetryAfter != core.Never {
			d.RetryAfter = max(minPause, d.RetryAfter-c.aged)
		}
	}
}

// endOf returns when the request stops waiting for rule i.
func (w *wait) endOf(c *course, i int) time.Time {
	return w.start.Add(min(w.maxWait, c.calls[i].maxWait))
}

// recordWaited records how long the request has just waited for its turn under the rule, and how
// long in all.
func (c *course) recordWaited(rule string, now, all time.Duration) {
	c.waited = all
	for i := range c.calls {
		if c.calls[i].rule.Name == rule {
			c.calls[i].waited += now
		}
	}
}

// wantsLease reports whether the request may wait for a lease.
func (w *wait) wantsLease(c *course) bool {
	for i := range c.asked {
		if w.waitsForLease(c, i) {
			return true
		}
	}
	return false
}

func (w *wait) waitsForLease(c *course, i int) bool {
	return c.ops[i].Limit.Leased() && w.waitsFor(c, i)
}

// waitsFor reports whether the request may wait for its units under rule i.
func (w *wait) waitsFor(c *course, i int) bool {
	return c.ops[i].Cost > 0 && w.remaining(c, i) > 0
}

// countReleases notes how many releases of its keys the request has seen before it asks.
func (w *wait) countReleases(c *course) {
	if !w.interested {
		w.interested = true
		w.queue.Interested(1)
	}
	w.released = w.releases(c)
}

// releases returns a number that changes whenever units of a key that the request waits
// for come back.
func (w *wait) releases(c *course) (n uint64) {
	for i := range c.asked {
		if w.waitsForLease(c, i) {
			n += w.queue.Releases(waitline.KeyOf(&c.ops[i]))
		}
	}
	return n
}

// isBehind reports whether an older request has to be served before this one.
func (w *wait) isBehind(c *course) bool {
	now := time.Now()
	for i := range c.asked {
		if w.isBehindAt(c, i, now) {
			return true
		}
	}
	return false
}

// isBehindAt reports whether an older request has to be served before this one under rule i.
func (w *wait) isBehindAt(c *course, i int, now time.Time) bool {
	return w.waitsFor(c, i) && w.turn.IsBehind(waitline.KeyOf(&c.ops[i]), now)
}

// peek asks the store without taking units. Rules under which older requests have to be
// served before refuse then, until the turn of this one. again reports whether the store has
// to be asked to take: no older one is left, or a ban has to count the refusal.
func (w *wait) peek(ctx context.Context, c *course) (again bool, err error) {
	w.turnIntoPeeks(c)
	err = w.askStore(ctx, c)
	setVerbs(c, core.Take)
	w.tookLast = false
	if err != nil {
		return false, err
	}

	if w.isStruck(c) {
		return true, nil
	}

	// A Peek has taken nothing, so the request is not admitted whatever the answer was.
	c.allowed, c.degraded = false, false
	if !w.putBehind(c) {
		w.boundBookings(c)
		return true, nil
	}
	return false, nil
}

// turnIntoPeeks makes the ops Peeks. Under a rule where older requests have to be served before,
// the answer is to be when the units come back, and not whether they can be booked.
func (w *wait) turnIntoPeeks(c *course) {
	setVerbs(c, core.Peek)
	now := time.Now()
	for i := range c.asked {
		if w.isBehindAt(c, i, now) {
			c.ops[i].MaxWait = 0
		}
	}
}

// setVerbs sets the verb of each op, also of those that were set aside.
func setVerbs(c *course, v core.Verb) {
	for i := range c.ops {
		c.ops[i].Verb = v
	}
}

// isStruck reports whether a rule refuses the request whose Ban counts that.
func (w *wait) isStruck(c *course) bool {
	for i := range c.asked {
		if op := &c.ops[i]; op.Ban != nil && !op.Soft && !c.out[i].Allowed {
			return true
		}
	}
	return false
}

// putBehind makes the rules refuse under which older requests have to be served before, and
// reports whether there are any.
func (w *wait) putBehind(c *course) (behind bool) {
	now := time.Now()
	for i := range c.asked {
		d, ruleCall := &c.out[i], &c.calls[i]
		ruleCall.behind = false
		if !w.waitsFor(c, i) {
			continue
		}

		var retry time.Duration
		if retry, ruleCall.behind = w.turn.After(&c.ops[i], d, now); ruleCall.behind {
			d.Allowed, d.RetryAfter, behind = false, max(minPause, retry), true
		}
	}
	return behind
}

// newSlot returns the slot that the last answer has booked.
func (c *course) newSlot(booked time.Time) *waitline.Slot {
	s := &waitline.Slot{Ops: slices.Clone(c.ops[:c.asked]), Out: slices.Clone(c.out[:c.asked]), Degraded: c.degraded,
		Booked: booked, Due: booked.Add(c.longestWait())}
	if c.lease != "" || c.isLocal() || c.asked < len(c.calls) {
		s.Owner = c
	}
	for i := range s.Ops {
		s.Ops[i].Key = strings.Clone(s.Ops[i].Key) // the line may keep it longer than the request lives
	}
	return s
}

// use gives the course what was granted to the slot, whose instant has come.
func (c *course) use(s *waitline.Slot, now time.Time) {
	copy(c.out, s.Out)
	c.allowed, c.degraded, c.aged = true, s.Degraded, now.Sub(s.Booked)
	c.over = true // by a Shadow rule, perhaps: each decision is looked at
	for i := range c.asked {
		c.out[i].Wait = 0
	}
}

// cancelSlot gives the units back. A slot of a single rule is kept if the store cannot take
// it back, because others have booked behind it: then the next request may use it.
func (e *engine) cancelSlot(ctx context.Context, s *waitline.Slot) {
	if owner, ok := s.Owner.(*course); ok {
		owner.cancelBooking(ctx)
		return
	}

	var undo []core.Op
	for i := range s.Ops {
		if s.Out[i].Allowed && s.Ops[i].Cost > 0 {
			undo = append(undo, s.Ops[i].Refund(s.Out[i]))
		}
	}

	out := e.repay(ctx, undo)
	if len(s.Ops) != 1 || len(out) != 1 {
		return
	}

	// The store has kept the slot if the key is in use for longer than it was with it.
	now, then := &out[0], &s.Out[0]
	s.Kept = !now.Fallback && now.At+now.ResetAfter.Microseconds() > then.At+then.ResetAfter.Microseconds()
}

// cancelSlots gives back the surplus of the line for k.
func (e *engine) cancelSlots(ctx context.Context, k waitline.Key, surplus []*waitline.Slot) {
	for len(surplus) > 0 {
		for _, s := range surplus {
			e.cancelSlot(ctx, s)
		}
		surplus = e.queue.Canceled(k, surplus)
	}
}

// allowWait lets the call wait at most max for every rule.
func (c *course) allowWait(max time.Duration) {
	for i := range c.asked {
		c.calls[i].maxWait = max
	}
}

// allowBooking lets the ops book their slots. It returns an error if one cannot.
func (c *course) allowBooking() error {
	if c.lease != "" {
		return errLease
	}
	if c.bans() {
		return errBan
	}

	for i := range c.asked {
		op := &c.ops[i]
		if op.Soft {
			continue
		}

		if !op.Limit.Books() {
			return fmt.Errorf("%w: rule %q: a %s limit books nothing", core.ErrOp, op.Rule, op.Limit.Algorithm)
		}
		op.MaxWait = core.MaxBooking
	}
	return nil
}

// longestWait returns the time until the slots under all rules are reached.
func (c *course) longestWait() (longest time.Duration) {
	for i := range c.asked {
		longest = max(longest, c.out[i].Wait)
	}
	return longest
}

// bans reports whether some rule that was asked bans.
func (c *course) bans() bool {
	return slices.ContainsFunc(c.ops, func(op core.Op) bool { return op.Ban != nil })
}
