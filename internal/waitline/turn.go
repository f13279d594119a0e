// This file has the turn of one request: it joins a line, learns what it does next, and hands on
// what it has when it leaves.

package waitline

import (
	"slices"
	"time"

	"github.com/headgate/headgate/core"
)

// drainMargin is how long before the deadline of a drain requests stop waiting for
// leases, so that their answers are not cut off. No store can say when a lease is
// released.
const drainMargin = 100 * time.Millisecond

// Turn is the place of one request among those that wait. It is for one goroutine at a time.
type Turn struct {
	queue   *Queue
	arrival arrival

	in      *waiter // nil while it is in no line
	key     Key     // of its line
	horizon time.Duration
	left    bool // by the last answer the line's key has units left, or the store failed

	usedSlot bool // it was admitted by a slot
	hopeless bool // it was refused when it came to its line

	draining <-chan struct{} // nil once noticed
	drains   bool            // the queue is drained
	drained  time.Time       // when the wait for a slot or lease ends because of it
}

// Arrive returns the turn of a request that came at an instant.
func (q *Queue) Arrive(at time.Time) Turn { return Turn{queue: q, arrival: arrival{at, noNumber}} }

// InLine reports whether the request is in a line.
func (t *Turn) InLine() bool { return t.in != nil }

// IsIn reports whether the request is in the line for k.
func (t *Turn) IsIn(k Key) bool { return t.in != nil && t.key == k }

// Key returns the key of the line that the request is in, or was in last.
func (t *Turn) Key() Key { return t.key }

// Horizon returns how far ahead of the instant of its units the request may book under the key.
func (t *Turn) Horizon(k Key) time.Duration {
	if t.key == k {
		return t.horizon
	}
	return core.MaxBooking
}

// Wake returns the channel that is sent to when the line may have changed for the request,
// which is in one.
func (t *Turn) Wake() <-chan struct{} { return t.in.wake }

// Draining returns the channel that is closed when the queue is drained, or nil once
// [Turn.Drain] was called.
func (t *Turn) Draining() <-chan struct{} { return t.draining }

// Drain notes that the queue is drained.
func (t *Turn) Drain() { t.draining, t.drains = nil, true }

// IsBehind reports whether an older request in the line for k has to be served before this one.
func (t *Turn) IsBehind(k Key, now time.Time) bool {
	q := t.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	return t.aheadLocked(k, now) != nil
}

// aheadLocked returns the line for k if an older request in it has to be served before this
// one, or else nil.
func (t *Turn) aheadLocked(k Key, now time.Time) *line {
	n := t.queue.lines[k]
	if n == nil || !n.isAhead(t.arrival, now) {
		return nil
	}
	return n
}

// After returns the time until the turn of the request behind those in the line of the op's key,
// as far as that is known. behind is false if it is not behind any. d is the decision of a Peek.
func (t *Turn) After(op *core.Op, d *core.Decision, now time.Time) (retry time.Duration, behind bool) {
	q, k := t.queue, KeyOf(op)
	q.mu.Lock()
	defer q.mu.Unlock()
	n := t.aheadLocked(k, now)
	if n == nil {
		return 0, false
	}
	if op.Limit.Leased() || d.RetryAfter == core.Never {
		return d.RetryAfter, true
	}

	units := n.unitsBefore(t.arrival)
	if x := n.asking; x != nil && op.Limit.Books() && x.slot == nil && x.arrival.before(t.arrival) {
		units -= x.cost // the store may have booked for it already
	}
	before := q.endsOfLocked(k).expect(units)
	if !op.Limit.Books() {
		return max(d.RetryAfter, n.due.Add(periodsOf(&op.Limit, before+op.Cost)).Sub(now)), true
	}
	if d.Allowed {
		before -= d.Remaining - op.Cost
	}
	return d.RetryAfter + spanOf(&op.Limit, before), true
}

// Ask notes that the request is about to ask the store.
func (t *Turn) Ask() {
	if t.in == nil || !t.in.leased {
		return
	}
	q := t.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := q.lines[t.key]; n.waiters[0] == t.in { // or else an older one has come, and asks
		n.free = false // units that come back from now on may not be in the answer
	}
}

// Answered notes the answer of the store: whether units of the line's key are left, and when to ask
// for leases again.
func (t *Turn) Answered(left bool, retry time.Time) {
	if t.in == nil {
		return
	}
	t.left = left
	if !t.in.leased {
		return
	}
	q := t.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := q.lines[t.key]; n.waiters[0] == t.in {
		n.due = retry
	}
}

// Answer is what a request has learned from the store when it joins its line.
type Answer struct {
	Op     *core.Op    // of the rule for which it waits; one of Ops
	Ops    []core.Op   // of the request; they may change while it asks
	Limit  *core.Limit // of Op, which lives longer than the request
	Leased bool        // it waits for a lease
	End    time.Time   // of its wait

	Asked           bool          // the question was a Take
	Behind          bool          // it was none, because older requests wait
	Began, Answered time.Time     // the question
	Span            time.Duration // after which the store is to be asked again
	Retry           time.Time     // when to ask for leases again
	Left            bool          // units of the key are left
	Slot            *Slot         // that the answer has booked, or nil
}

// Join puts the request into the line of the answer's key, unless it is there, and adds what it has
// learned. It is in no other line. released reports whether leases of the request have come back
// since the question; it is called with the queue locked. hopeless reports that the turn would come too late, after the
// time retry, behind requests that came while the store decided. The caller gives the surplus
// back and calls [Queue.Canceled].
func (t *Turn) Join(a *Answer, released func() bool) (retry time.Duration, hopeless bool, surplus []*Slot) {
	q, k := t.queue, KeyOf(a.Op)
	lead := min(a.Answered.Sub(a.Began)+minLead, maxLead)
	t.draining = q.draining

	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.openLocked(k, lead)
	n.lead = lead
	isNew := t.in == nil
	if isNew {
		if t.arrival.number == noNumber {
			q.arrivals++
			t.arrival.number = q.arrivals
		}
		t.in = &waiter{arrival: t.arrival, wake: make(chan struct{}, 1)}
		t.key, t.left = k, a.Left
		n.insert(t.in)
	}

	t.learnLocked(n, a, isNew, released)
	if isNew && t.in != n.waiters[0] && t.in.slot == nil && !t.in.leased {
		now := time.Now()
		from := now
		if at := a.Answered.Add(a.Span - spanOf(&a.Op.Limit, a.Op.Cost)); at.Before(now) {
			from = at // a part of the first interval is over
		}
		if turn := n.turnOf(t.in, q.endsOfLocked(k), from); turn.After(t.in.end) {
			hopeless, t.hopeless = true, true
			retry = turn.Sub(now)
		}
	}
	return retry, hopeless, n.settle()
}

// learnLocked tells the line what the request has learned from the last answer: a slot, or when
// to ask again.
func (t *Turn) learnLocked(n *line, a *Answer, isNew bool, released func() bool) {
	x := t.in
	x.ops, x.cost, x.limit, x.end, x.leased = a.Ops, a.Op.Cost, a.Limit, a.End, a.Leased
	if n.asking == x {
		n.asking = nil
	}

	first := n.waiters[0] == x
	switch {
	case a.Slot != nil:
		n.lost, n.won, n.farAhead, n.comes = 0, n.won+1, false, time.Time{}
		t.placeLocked(n, a.Slot)
	case x.leased && first:
		n.due = a.Retry
		n.free = n.free || isNew && (!a.Asked || released())
	case x.leased:
	case a.Behind, isNew && !first && a.Op.Limit.Books():
		// It may book as soon as it is the first.
		x.notBefore = time.Time{}
		n.free = n.free || first
	default:
		t.learnSpanLocked(n, a, isNew, first)
	}
}

// learnSpanLocked tells the line that the store has no units for the request yet.
func (t *Turn) learnSpanLocked(n *line, a *Answer, isNew, first bool) {
	x, books := t.in, a.Op.Limit.Books()
	if !isNew && !n.comes.IsZero() && !a.Began.Before(n.comes.Add(-n.ahead())) {
		n.lost, n.won = n.lost+1, 0
	}

	comes := a.Answered.Add(a.Span)
	if x.notBefore = comes; books {
		x.notBefore = comes.Add(-n.ahead())
	}
	if first {
		n.refused(x, comes, a.Span)
	}
}

// placeLocked gives the slot that the request has just booked to the line, and so to this request
// or an older one.
func (t *Turn) placeLocked(n *line, booked *Slot) {
	s := n.give(booked)
	if s != nil && t.in.slot == nil {
		t.in.slot, s = s, nil
	}
	if s != nil {
		n.spare = append(n.spare, s)
	}
}

// Leave takes the request out of its line, if it is in one: admitted or not, and whether its
// last question was a Take. A slot that it has not used goes to those behind it, and the next of
// them asks. The caller gives the surplus back and calls [Queue.Canceled].
func (t *Turn) Leave(admitted, asked bool) (surplus []*Slot) {
	x, q := t.in, t.queue
	if x == nil {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.lines[t.key]
	if admitted {
		n.lost = 0
	}
	if !t.hopeless {
		q.endsOfLocked(t.key).note(admitted)
	}

	at := slices.Index(n.waiters, x)
	n.waiters = slices.Delete(n.waiters, at, at+1)
	if x.slot != nil {
		n.spare = append(n.spare, x.slot)
	}
	if at == 0 && len(n.waiters) > 0 {
		n.free = n.free || t.freesNext(n.waiters[0], admitted, asked)
	}
	if n.asking == x {
		n.asking = nil
	}
	t.in, x.slot = nil, nil
	surplus = n.settle()
	q.closeEmptyLocked(t.key)
	return surplus
}

// freesNext reports whether the next of the line is to ask at once when this request, the
// first, leaves: unless the answer to this one, or its slot, says when the units of the next come.
func (t *Turn) freesNext(next *waiter, admitted, asked bool) bool {
	if t.in.leased {
		return t.left
	}
	return admitted && !t.usedSlot || !asked || next.cost != t.in.cost
}

// Do is what a request in a line does next.
type Do uint8

const (
	Sleep Do = iota // until the instant, or until it is woken
	Ask
	UseSlot
	GiveUp
	Close // it gives up because the queue is drained
)

// Next returns what the request, which is in a line, does next, and until when it sleeps. A slot
// that it uses is its own from then on.
func (t *Turn) Next(now time.Time) (next Do, until time.Time, s *Slot) {
	q := t.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	n, x := q.lines[t.key], t.in

	if s = x.slot; s == nil {
		next, until = t.withoutSlotLocked(n, now)
		return next, until, nil
	}
	switch {
	case !s.Due.After(now):
		x.slot = nil
		t.usedSlot = true
		n.slotUsed(x, s)
		return UseSlot, now, s
	case t.drains && q.EndsBy(s.Due):
		return Close, now, nil
	}
	return Sleep, s.Due, nil
}

// withoutSlotLocked is Next of a request that has no slot.
func (t *Turn) withoutSlotLocked(n *line, now time.Time) (next Do, until time.Time) {
	x := t.in
	end, atEnd := t.endLocked(n, now)
	late := !end.After(now)
	until = end

	if i := n.asker(); i >= 0 && n.waiters[i] == x {
		at := n.askAt(i)
		// A timer that runs late does not take a turn away. A lease has no turn to be late for.
		if !at.After(now) && (!late || !x.leased && atEnd == GiveUp && !at.After(end)) {
			t.horizon = n.ask(x)
			return Ask, now
		}
		if at.Before(end) {
			until = at
		}
	} else if last := end.Add(settleTime); late && !x.leased && last.After(now) && n.moves(now) {
		return Sleep, last
	}

	if late {
		return atEnd, now
	}
	return Sleep, until
}

// endLocked returns when the request, which has no slot, stops waiting, and what it does then.
func (t *Turn) endLocked(n *line, now time.Time) (end time.Time, then Do) {
	q := t.queue
	if !t.drains || q.deadline.IsZero() {
		return t.in.end, GiveUp
	}

	if t.drained.IsZero() {
		t.drained = t.drainEndLocked(n, q.endsOfLocked(t.key), now, q.deadline)
	}
	if t.drained.Before(t.in.end) {
		return t.drained, Close
	}
	return t.in.end, GiveUp
}

// drainEndLocked returns when the request, which has no slot, stops waiting because of a drain
// that ends at the deadline: at once if its turn does not come before.
func (t *Turn) drainEndLocked(n *line, e *ends, now, deadline time.Time) time.Time {
	margin := deadline.Add(-drainMargin)
	if t.in.leased {
		return margin
	}
	turn := n.turnOf(t.in, e, now)
	switch {
	case !turn.Before(deadline):
		return now
	case turn.Before(margin):
		return margin
	}
	return turn.Add(1)
}
