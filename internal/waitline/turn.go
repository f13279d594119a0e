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

	waiter    *waiter // nil while it is in no line
	key       Key     // of its line
	horizon   time.Duration
	unitsLeft bool // by the last answer the line's key has units left, or the store failed

	usedSlot bool // it was admitted by a slot
	hopeless bool // it was refused when it came to its line

	draining <-chan struct{} // nil once noticed
	drains   bool            // the queue is drained
	drainEnd time.Time       // when the wait for a slot or lease ends because of it
}

// Arrive returns the turn of a request that came at an instant.
func (q *Queue) Arrive(at time.Time) Turn { return Turn{queue: q, arrival: arrival{at, noNumber}} }

// InLine reports whether the request is in a line.
func (t *Turn) InLine() bool { return t.waiter != nil }

// IsIn reports whether the request is in the line for k.
func (t *Turn) IsIn(k Key) bool { return t.waiter != nil && t.key == k }

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
func (t *Turn) Wake() <-chan struct{} { return t.waiter.wake }

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
func (t *Turn) aheadLocked(k Key, now time.Time) *lineOfKey {
	l := t.queue.lines[k]
	if l == nil || !l.isAhead(t.arrival, now) {
		return nil
	}
	return l
}

// After returns the time until the turn of the request behind those in the line of the op's key,
// as far as that is known. behind is false if it is not behind any. d is the decision of a Peek.
func (t *Turn) After(op *core.Op, d *core.Decision, now time.Time) (retry time.Duration, behind bool) {
	q, k := t.queue, KeyOf(op)
	q.mu.Lock()
	defer q.mu.Unlock()

	l := t.aheadLocked(k, now)
	if l == nil {
		return 0, false
	}

	// A lease comes back when its holder ends, which no line can foresee.
	if op.Limit.Leased() || d.RetryAfter == core.Never {
		return d.RetryAfter, true
	}

	units := l.unitsBefore(t.arrival)
	if w := l.asking; w != nil && op.Limit.Books() && w.slot == nil && w.arrival.before(t.arrival) {
		units -= w.cost // the store may have booked for it already
	}

	before := q.endsOfLocked(k).expect(units)
	if !op.Limit.Books() {
		return max(d.RetryAfter, l.due.Add(periodsOf(&op.Limit, before+op.Cost)).Sub(now)), true
	}

	// The units that the store has left go to the older requests first.
	if d.Allowed {
		before -= d.Remaining - op.Cost
	}
	return d.RetryAfter + spanOf(&op.Limit, before), true
}

// Ask notes that the request is about to ask the store.
func (t *Turn) Ask() {
	if t.waiter == nil || !t.waiter.leased {
		return
	}

	q := t.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if l := q.lines[t.key]; l.waiters[0] == t.waiter { // or else an older one has come, and asks
		l.askNow = false // units that come back from now on may not be in the answer
	}
}

// Answered notes the answer of the store: whether units of the line's key are left, and when to ask
// for leases again.
func (t *Turn) Answered(unitsLeft bool, retry time.Time) {
	if t.waiter == nil {
		return
	}

	t.unitsLeft = unitsLeft
	if !t.waiter.leased {
		return
	}

	q := t.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if l := q.lines[t.key]; l.waiters[0] == t.waiter {
		l.due = retry
	}
}

// Answer is what a request has learned from the store when it joins its line.
type Answer struct {
	Op     *core.Op    // of the rule for which it waits; one of Ops
	Ops    []core.Op   // of the request; they may change while it asks
	Limit  *core.Limit // of Op, which lives longer than the request
	Leased bool        // it waits for a lease
	End    time.Time   // of its wait

	Took                bool          // the question was a Take
	Behind              bool          // it was none, because older requests wait
	AskedAt, AnsweredAt time.Time     // the question
	Span                time.Duration // after which the store is to be asked again
	Retry               time.Time     // when to ask for leases again
	UnitsLeft           bool          // units of the key are left
	Slot                *Slot         // that the answer has booked, or nil
}

// Join puts the request into the line of the answer's key, unless it is there, and adds what it has
// learned. It is in no other line. released reports whether leases of the request have come back
// since the question; it is called with the queue locked. hopeless reports that the turn would
// come too late, after the time retry, behind requests that came while the store decided. The
// caller gives the surplus back and calls [Queue.Canceled].
func (t *Turn) Join(a *Answer, released func() bool) (retry time.Duration, hopeless bool, surplus []*Slot) {
	q, k := t.queue, KeyOf(a.Op)
	lead := min(a.AnsweredAt.Sub(a.AskedAt)+minLead, maxLead)
	t.draining = q.draining

	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.openLocked(k, lead)
	l.lead = lead

	// Only a request that is new takes a place. One that has asked again keeps its own.
	isNew := t.waiter == nil
	if isNew {
		if t.arrival.number == noNumber {
			q.arrivals++
			t.arrival.number = q.arrivals
		}
		t.waiter = &waiter{arrival: t.arrival, wake: make(chan struct{}, 1)}
		t.key, t.unitsLeft = k, a.UnitsLeft
		l.insert(t.waiter)
	}

	t.learnLocked(l, a, isNew, released)

	// A request is hopeless only when it comes, before it has waited. With a slot it knows its
	// instant, and that of a lease is not known.
	if isNew && t.waiter != l.waiters[0] && t.waiter.slot == nil && !t.waiter.leased {
		now := time.Now()
		from := now
		if at := a.AnsweredAt.Add(a.Span - spanOf(&a.Op.Limit, a.Op.Cost)); at.Before(now) {
			from = at // a part of the first interval is over
		}
		if turn := l.turnOf(t.waiter, q.endsOfLocked(k), from); turn.After(t.waiter.end) {
			hopeless, t.hopeless = true, true
			retry = turn.Sub(now)
		}
	}

	return retry, hopeless, l.assignSlots()
}

// learnLocked updates the line by what the request has learned from the last answer: a slot,
// or when to ask again.
func (t *Turn) learnLocked(l *lineOfKey, a *Answer, isNew bool, released func() bool) {
	w := t.waiter
	w.ops, w.cost, w.limit, w.end, w.leased = a.Ops, a.Op.Cost, a.Limit, a.End, a.Leased

	if l.asking == w {
		l.asking = nil
	}

	first := l.waiters[0] == w
	switch {
	case a.Slot != nil:
		l.lost, l.won, l.farAhead, l.unitsAt = 0, l.won+1, false, time.Time{}
		t.placeLocked(l, a.Slot)
	case w.leased && first:
		l.due = a.Retry
		l.askNow = l.askNow || isNew && (!a.Took || released())
	case w.leased:
	case a.Behind, isNew && !first && a.Op.Limit.Books():
		// It may book as soon as it is the first.
		w.notBefore = time.Time{}
		l.askNow = l.askNow || first
	default:
		t.learnSpanLocked(l, a, isNew, first)
	}
}

// learnSpanLocked updates the line by an answer that has no units for the request yet.
func (t *Turn) learnSpanLocked(l *lineOfKey, a *Answer, isNew, first bool) {
	w, books := t.waiter, a.Op.Limit.Books()

	// The request asked in time for units that were to come, and has not got them: another
	// process was faster.
	if !isNew && !l.unitsAt.IsZero() && !a.AskedAt.Before(l.unitsAt.Add(-l.bookingLead())) {
		l.lost, l.won = l.lost+1, 0
	}

	unitsAt := a.AnsweredAt.Add(a.Span)
	if w.notBefore = unitsAt; books {
		w.notBefore = unitsAt.Add(-l.bookingLead())
	}

	if first {
		l.recordRefusal(w, unitsAt, a.Span)
	}
}

// placeLocked gives the slot that the request has just booked to the line, and so to this request
// or an older one.
func (t *Turn) placeLocked(l *lineOfKey, booked *Slot) {
	s := l.give(booked)

	// The line has no use for it that is better than this request's own.
	if s != nil && t.waiter.slot == nil {
		t.waiter.slot, s = s, nil
	}
	if s != nil {
		l.spare = append(l.spare, s)
	}
}

// Leave takes the request out of its line, if it is in one: admitted or not. tookLast reports
// whether its last question was a Take. A slot that it has not used goes to those behind it, and
// the next of them asks. The caller gives the surplus back and calls [Queue.Canceled].
func (t *Turn) Leave(admitted, tookLast bool) (surplus []*Slot) {
	w, q := t.waiter, t.queue
	if w == nil {
		return nil
	}

	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lines[t.key]

	if admitted {
		l.lost = 0
	}

	// A request that was refused when it came has not waited, so it says nothing about how waits
	// end.
	if !t.hopeless {
		q.endsOfLocked(t.key).add(admitted)
	}

	at := slices.Index(l.waiters, w)
	l.waiters = slices.Delete(l.waiters, at, at+1)
	if w.slot != nil {
		l.spare = append(l.spare, w.slot)
	}

	if at == 0 && len(l.waiters) > 0 {
		l.askNow = l.askNow || t.freesNext(l.waiters[0], admitted, tookLast)
	}
	if l.asking == w {
		l.asking = nil
	}
	t.waiter, w.slot = nil, nil

	surplus = l.assignSlots()
	q.closeEmptyLocked(t.key)
	return surplus
}

// freesNext reports whether the next of the line is to ask at once when this request, the
// first, leaves: unless the answer to this one, or its slot, says when the units of the next come.
func (t *Turn) freesNext(next *waiter, admitted, tookLast bool) bool {
	if t.waiter.leased {
		return t.unitsLeft
	}
	return admitted && !t.usedSlot || !tookLast || next.cost != t.waiter.cost
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
	l, w := q.lines[t.key], t.waiter

	if s = w.slot; s == nil {
		next, until = t.withoutSlotLocked(l, now)
		return next, until, nil
	}

	switch {
	case !s.Due.After(now):
		w.slot = nil
		t.usedSlot = true
		l.slotUsed(w, s)
		return UseSlot, now, s
	case t.drains && q.EndsBy(s.Due):
		return Close, now, nil
	}
	return Sleep, s.Due, nil
}

// withoutSlotLocked is Next of a request that has no slot.
func (t *Turn) withoutSlotLocked(l *lineOfKey, now time.Time) (next Do, until time.Time) {
	w := t.waiter
	end, atEnd := t.endLocked(l, now)
	late := !end.After(now)
	until = end

	if i := l.asker(); i >= 0 && l.waiters[i] == w {
		at := l.askAt(i)
		// A timer that runs late does not take a turn away. A lease has no turn to be late for.
		if !at.After(now) && (!late || !w.leased && atEnd == GiveUp && !at.After(end)) {
			t.horizon = l.startAsk(w)
			return Ask, now
		}
		if at.Before(end) {
			until = at
		}
	} else if last := end.Add(settleTime); late && !w.leased && last.After(now) && l.isServing(now) {
		// Those before it are having their turn, which may have come late. Its own may follow at
		// once.
		return Sleep, last
	}

	if late {
		return atEnd, now
	}
	return Sleep, until
}

// endLocked returns when the request, which has no slot, stops waiting, and what it does then.
func (t *Turn) endLocked(l *lineOfKey, now time.Time) (end time.Time, then Do) {
	q := t.queue
	// A drain without a deadline ends no wait before its time.
	if !t.drains || q.deadline.IsZero() {
		return t.waiter.end, GiveUp
	}

	if t.drainEnd.IsZero() {
		t.drainEnd = t.drainEndLocked(l, q.endsOfLocked(t.key), now, q.deadline)
	}
	if t.drainEnd.Before(t.waiter.end) {
		return t.drainEnd, Close
	}
	return t.waiter.end, GiveUp
}

// drainEndLocked returns when the request, which has no slot, stops waiting because of a drain
// that ends at the deadline: at once if its turn does not come before.
func (t *Turn) drainEndLocked(l *lineOfKey, e *ends, now, deadline time.Time) time.Time {
	margin := deadline.Add(-drainMargin)
	if t.waiter.leased {
		return margin
	}

	turn := l.turnOf(t.waiter, e, now)

	switch {
	case !turn.Before(deadline):
		return now
	case turn.Before(margin):
		return margin
	}
	return turn.Add(1)
}
