// This file lets requests wait for their turn.

package limiter

import (
	"context"
	"slices"
	"time"

	"github.com/headgate/headgate/core"
)

const (
	// minPause is the shortest pause between two calls of a store that returns no
	// RetryAfter.
	minPause = time.Millisecond

	// pollPause is the time between two questions about the leases of a key that other
	// processes may hold. Releases in this process need no question.
	pollPause = 50 * time.Millisecond

	// drainMargin is how long before the deadline of a Shutdown requests stop waiting for
	// leases, so that their answers are not cut off. No store can say when a lease is
	// released.
	drainMargin = 100 * time.Millisecond
)

// wait is the state of one request that may wait.
type wait struct {
	start   time.Time
	maxWait time.Duration // by the context's deadline
	waited  time.Duration
	key     waitKey // under which it is counted among those that wait
	queued  bool

	arrival    arrival
	interested bool   // in releases
	released   uint64 // the releases of its keys before the last question
	in         *waiter
	line       waitKey // of in

	asked    bool // the last question was a Take
	began    time.Time
	answered time.Time
	retry    time.Time // when to ask for leases again by the last answer
	left     bool      // by the last answer the line's key has units left, or the store failed
	slot     *slot     // that the last answer has booked, until the request is in its line

	draining <-chan struct{} // nil once noticed
	drains   bool            // a Shutdown has begun
	drained  time.Time       // when the wait for a slot or lease ends because of it
}

// decide lets the store decide, and waits if mayWait is true and a rule says so.
func (res *Result) decide(ctx context.Context, mayWait bool) error {
	if !mayWait {
		return res.ask(ctx)
	}
	w := wait{start: time.Now(), maxWait: core.MaxBooking}
	w.arrival.at = w.start
	if deadline, ok := ctx.Deadline(); ok {
		// A turn at the very deadline would come too late.
		w.maxWait = min(w.maxWait, deadline.Sub(w.start)-time.Microsecond)
	}
	defer w.leave(ctx, res)
	for {
		if again, err := w.step(ctx, res); !again {
			return err
		}
		if res.aside > 0 {
			res.takeBack(ctx)
		}
	}
}

// step asks the store once and waits as its decisions say. again reports whether the
// store has to be asked once more.
func (w *wait) step(ctx context.Context, res *Result) (again bool, err error) {
	w.boundBookings(res)
	if err := w.ask(ctx, res); err != nil {
		return false, err
	}
	i, span := w.reason(res)
	if i < 0 {
		return false, nil
	}
	if res.allowed {
		w.slot = res.newSlot(w.answered)
	}
	if res.notQueued = w.enter(res.limiter, keyOf(&res.ops[i])); res.notQueued != nil {
		return false, nil
	}
	return w.waitInLine(ctx, res, i, span)
}

func keyOf(op *core.Op) waitKey { return waitKey{op.Rule, op.Key} }

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
		if w.in != nil {
			res.ops[i].MaxWait = w.remaining(res, i)
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
func (w *wait) enter(l *Limiter, p waitKey) error {
	switch {
	case w.queued:
		return nil
	case l.isClosed():
		return ErrClosed
	}
	err := l.queue.enter(p)
	if err == nil {
		w.key, w.queued = p, true
		l.tellQueue(p, 1)
	}
	return err
}

// leave ends the wait.
func (w *wait) leave(ctx context.Context, res *Result) {
	l := res.limiter
	w.leaveLine(ctx, res)
	if w.interested {
		l.queue.lines.interested.Add(-1)
	}
	if w.queued {
		l.queue.leave(w.key)
		l.tellQueue(w.key, -1)
	}
}

// ask lets the store decide. If older requests wait for a key of the request, it only
// peeks: the request may have to be refused at once for another reason.
func (w *wait) ask(ctx context.Context, res *Result) error {
	forLease := res.lease != "" && w.wantsLease(res)
	if !forLease && res.limiter.queue.lines.count.Load() == 0 {
		w.asked = true
		return res.ask(ctx)
	}
	w.arrive(res, forLease)
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

// arrive gives the request its number, and counts the releases of its keys.
func (w *wait) arrive(res *Result, forLease bool) {
	lines := &res.limiter.queue.lines
	if w.arrival.number == 0 {
		w.arrival.number = lines.arrivals.Add(1)
	}
	if !forLease {
		return
	}
	if !w.interested {
		w.interested = true
		lines.interested.Add(1)
	}
	w.released = w.releases(res)
}

// releases returns a number that changes whenever units of a key that the request waits
// for come back.
func (w *wait) releases(res *Result) (n uint64) {
	for i := range res.ops {
		if w.waitsForLease(res, i) {
			n += res.limiter.queue.lines.counter(keyOf(&res.ops[i])).Load()
		}
	}
	return n
}

// isBehind reports whether an older request has to be served before this one.
func (w *wait) isBehind(res *Result) bool {
	q := &res.limiter.queue
	now := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range res.ops {
		if w.lineAhead(res, i, now) != nil {
			return true
		}
	}
	return false
}

// lineAhead returns the line of rule i if an older request in it has to be served before
// this one, or else nil. The caller holds the lock.
func (w *wait) lineAhead(res *Result, i int, now time.Time) *line {
	if !w.waitsFor(res, i) {
		return nil
	}
	n := res.limiter.queue.lines.of[keyOf(&res.ops[i])]
	if n == nil || !n.isAhead(w.arrival, now) {
		return nil
	}
	return n
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
	q := &res.limiter.queue
	now := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range res.ops {
		if w.lineAhead(res, i, now) != nil {
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
	q := &res.limiter.queue
	now := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range res.ops {
		n := w.lineAhead(res, i, now)
		res.calls[i].behind = n != nil
		if n != nil {
			d := &res.out[i]
			d.RetryAfter = max(minPause, w.turn(n, q.endsOf(keyOf(&res.ops[i])), &res.ops[i], d, now))
			d.Allowed, behind = false, true
		}
	}
	return behind
}

// turn returns the time until the turn of the request behind those in the line, as far as
// that is known. d is the decision of a Peek.
func (w *wait) turn(n *line, e *ends, op *core.Op, d *core.Decision, now time.Time) time.Duration {
	if op.Limit.Leased() || d.RetryAfter == core.Never {
		return d.RetryAfter
	}
	before := e.expect(n.unitsBefore(w.arrival))
	if !op.Limit.Books() {
		return max(d.RetryAfter, n.due.Add(periodsOf(&op.Limit, before+op.Cost)).Sub(now))
	}
	if d.Allowed {
		before -= d.Remaining - op.Cost
	}
	return d.RetryAfter + spanOf(&op.Limit, before)
}

// askStore asks the store once, and notes what follows for the line.
func (w *wait) askStore(ctx context.Context, res *Result) error {
	q := &res.limiter.queue
	if w.in != nil && w.in.leased {
		q.mu.Lock()
		if n := q.lines.of[w.line]; n.waiters[0] == w.in { // or else an older one has come, and asks
			n.free = false // units that come back from now on may not be in the answer
		}
		q.mu.Unlock()
	}
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
	if w.in == nil {
		return err
	}
	w.left = err != nil || w.hasLeft(res, w.line)
	if w.in.leased {
		q.mu.Lock()
		if n := q.lines.of[w.line]; n.waiters[0] == w.in {
			n.due = w.retry
		}
		q.mu.Unlock()
	}
	return err
}

// answeredAt returns when the last answer came.
func (w *wait) answeredAt() time.Time {
	if w.answered.IsZero() { // the first question, without a line
		w.began, w.answered = w.start, time.Now()
	}
	return w.answered
}

// hasLeft reports whether units of the key are left by the last answer.
func (w *wait) hasLeft(res *Result, k waitKey) bool {
	for i := range res.ops {
		if k == keyOf(&res.ops[i]) {
			return res.out[i].Remaining > 0
		}
	}
	return true // the store did not decide about it
}

// endOf returns when the request stops waiting for rule i.
func (w *wait) endOf(res *Result, i int) time.Time {
	return w.start.Add(min(w.maxWait, res.calls[i].maxWait))
}

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
	for {
		now := time.Now()
		next, until, s := w.next(res, now)
		w.waited = now.Sub(w.start)
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
	answered, lines := w.answeredAt(), &res.limiter.queue.lines
	lead := min(2*answered.Sub(w.began)+minLead, maxLead)
	w.arrive(res, false)
	w.draining = res.limiter.queue.draining

	q := &res.limiter.queue
	q.mu.Lock()
	n := lines.open(k, lead)
	n.lead = lead
	isNew := w.in == nil
	if isNew {
		w.in = &waiter{arrival: w.arrival, wake: make(chan struct{}, 1)}
		w.line, w.left = k, w.hasLeft(res, k)
		n.insert(w.in)
	}
	x := w.in
	x.ops, x.cost, x.limit, x.end = res.ops, op.Cost, &res.calls[i].terms.limit, w.endOf(res, i)
	x.leased, x.asking = w.waitsForLease(res, i), false
	switch first := n.waiters[0] == x; {
	case w.slot != nil:
		w.place(n)
	case x.leased:
		w.noteLeases(res, n, first, isNew)
	case !w.asked && res.calls[i].behind, op.MaxWait == 0 && op.Limit.Books():
		x.notBefore = time.Time{}
		n.free = n.free || first // it may book now
	default:
		x.notBefore = answered.Add(span)
		if first {
			n.free, n.due = false, x.notBefore
		}
	}
	if now := time.Now(); isNew && x.slot == nil && !x.leased {
		if turn := n.turnOf(x, q.endsOf(k), now); turn.After(x.end) {
			hopeless = true
			res.refuseBooking()
			res.out[i].Allowed, res.out[i].RetryAfter = false, turn.Sub(now)
		}
	}
	surplus := n.settle()
	q.mu.Unlock()
	res.limiter.cancelSlots(ctx, k, surplus)
	return hopeless
}

// place gives the slot that the request has just booked to the line, and so to this request
// or an older one. The caller holds the lock.
func (w *wait) place(n *line) {
	s := n.give(w.slot)
	if s != nil && w.in.slot == nil {
		w.in.slot, s = s, nil
	}
	if s != nil {
		n.spare = append(n.spare, s)
	}
	w.slot = nil
}

// noteLeases notes when the line asks for leases next. The caller holds the lock.
func (w *wait) noteLeases(res *Result, n *line, first, isNew bool) {
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
	x, q := w.in, &res.limiter.queue
	if x == nil {
		return
	}
	q.mu.Lock()
	n := q.lines.of[w.line]
	q.endsOf(w.line).note(res.allowed)
	at := slices.Index(n.waiters, x)
	n.waiters = slices.Delete(n.waiters, at, at+1)
	if x.slot != nil {
		n.spare = append(n.spare, x.slot)
	}
	if at == 0 && len(n.waiters) > 0 {
		n.free = n.free || w.freesNext(res, n.waiters[0])
	}
	w.in, x.slot = nil, nil
	surplus := n.settle()
	q.lines.closeEmpty(w.line)
	q.mu.Unlock()
	res.limiter.cancelSlots(ctx, w.line, surplus)
}

// endsOf returns how requests in line for k have ended. The caller holds the lock.
func (q *waitQueue) endsOf(k waitKey) *ends { return &q.lines.ends[q.lines.bucket(k)] }

// freesNext reports whether the next of the line is to ask at once when this request, the
// first, leaves: unless the answer to this one holds for the next.
func (w *wait) freesNext(res *Result, next *waiter) bool {
	if w.in.leased {
		return w.left
	}
	return res.allowed || !w.asked || next.cost != w.in.cost
}

// next returns what the request does next, and until when it sleeps. A slot that it uses is
// its own from then on.
func (w *wait) next(res *Result, now time.Time) (next action, until time.Time, s *slot) {
	q := &res.limiter.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	n, x := q.lines.of[w.line], w.in
	if s = x.slot; s != nil {
		switch {
		case !s.due.After(now):
			x.slot = nil
			return usesSlot, now, s
		case w.drains && q.endsBy(s.due):
			return closes, now, nil
		}
		return sleeps, s.due, nil
	}

	end, atEnd := x.end, givesUp
	if w.drains && !q.deadline.IsZero() {
		if w.drained.IsZero() {
			w.drained = w.drainEnd(n, q.endsOf(w.line), now, q.deadline)
		}
		if w.drained.Before(end) {
			end, atEnd = w.drained, closes
		}
	}
	late := !end.After(now)
	until = end
	if i := n.asker(); i >= 0 && n.waiters[i] == x {
		at := n.askAt(i)
		if !at.After(now) && (!late || !x.leased && atEnd == givesUp && !at.After(end)) {
			x.asking = true
			return asks, now, nil
		}
		if at.Before(end) {
			until = at
		}
	} else if last := end.Add(settleTime); late && !x.leased && last.After(now) && n.moves(now) {
		return sleeps, last, nil
	}
	if late {
		return atEnd, now, nil
	}
	return sleeps, until, nil
}

// drainEnd returns when the request, which has no slot, stops waiting because of a Shutdown
// that ends at the deadline: at once if its turn does not come before. The caller holds the
// lock.
func (w *wait) drainEnd(n *line, e *ends, now, deadline time.Time) time.Time {
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
