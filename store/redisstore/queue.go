package redisstore

import (
	"context"
	"sync"
	"time"
	"unsafe"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/store/failover"
)

// stage is the progress of a waiter.
//
//	queued ---- fill ----> filled ---- markDone ----> done: it is woken
//	   |                     |
//	   +------- leave -------+---> abandoned ---- decided all the same ----> missed
//
// A waiter that is done because its call was late is missed too if the reply comes yet. One that
// leaves while it is queued was never sent.
type stage uint8

const (
	queued stage = iota
	filled       // in a batch that is about to be sent, or was sent
	done         // decided or failed, and about to be woken

	// The caller has left.

	abandoned // left; its result goes to who follows it
	missed    // decided after it had left or failed
)

// lane is the waiters whose steps may share a script call. They wait only while
// maxBatches are in flight, and for no longer than a gap while more may be.
//
//	a step comes --- fewer than maxBatches ---> its call begins at once, alone
//	   |
//	   +--- else ---> it waits ---> a batch of waiters begins
//	                                  when a call ends (end, refill),
//	                                  when the gap is over (resume), or
//	                                  when the waiters fill a batch (enter)
//
// A batch counts in batches from its begin to its end, before it is filled and while its call is
// in flight. So the goroutine that has begun one fills and sends it, or ends it.
type lane struct {
	slot        int
	batches     int       // that have begun and have not ended
	begun       time.Time // when the last of them did
	pace        pace
	rate        rate
	ops         int // of the waiters
	sent        int // of the batches in flight that were filled from them
	first, last *waiter
	timer       *time.Timer // begins a batch when the gap is over; nil until it is needed
	timed       bool        // the timer runs
}

// queue holds the lanes of a store: one for everything, or one for each hash
// slot that has a batch. Each waiter is a goroutine in Apply, so their number
// bounds the queue's memory.
type queue struct {
	maxOps int         // the maximum number of operations of a batch of several waiters
	serve  func(*lane) // goes on with a batch that has begun

	mu    sync.Mutex    // guards all below, and the lanes
	whole lane          // of all slots, where they may share a call
	slots map[int]*lane // that have a batch
}

// laneLocked returns the lane of a slot, for a caller that begins a batch in it or
// waits for one.
func (q *queue) laneLocked(slot int) *lane {
	if slot == anySlot {
		return &q.whole
	}

	l := q.slots[slot]
	if l == nil {
		if q.slots == nil {
			q.slots = map[int]*lane{}
		}
		l = &lane{slot: slot}
		q.slots[slot] = l
	}
	return l
}

// due returns how long it takes from now until another batch may begin. ok is false if
// enough are in flight.
func (l *lane) due(now time.Time) (pause time.Duration, ok bool) {
	switch {
	case l.batches < maxBatches:
		return 0, true
	case l.batches >= l.pace.maxCalls:
		return 0, false
	}
	return max(0, l.pace.gap()-now.Sub(l.begun)), true
}

// countBatchLocked counts a batch that begins now. The caller has to fill and send it, or end it.
func (l *lane) countBatchLocked(now time.Time) {
	l.batches++
	l.begun = now
}

// isFullLocked reports whether the waiters fill a batch that may begin.
func (q *queue) isFullLocked(l *lane) bool {
	return l.ops >= q.maxOps && l.batches < l.pace.full()
}

// start begins a batch, or returns nil if maxBatches are in flight. Then it reports whether
// the caller, with so many operations and so much time, is turned away.
func (q *queue) start(slot, ops int, left time.Duration, now time.Time) (l *lane, shed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()

	l = q.laneLocked(slot)
	if l.batches >= maxBatches {
		return nil, q.shedsLocked(l, ops, left, now)
	}

	l.countBatchLocked(now)
	return l, false
}

// enter begins a batch and returns its lane as own. If maxBatches are in flight, it puts w
// into the queue instead, until the deadline. If a batch of the waiters may then begin, it
// begins that batch and returns its lane as theirs, and whether they fill it.
func (q *queue) enter(slot int, w *waiter, deadline, now time.Time) (own, theirs *lane, full bool) {
	q.mu.Lock()
	defer q.mu.Unlock()

	l := q.laneLocked(slot)

	// A call may have ended since start.
	if l.batches < maxBatches {
		l.countBatchLocked(now)
		return l, nil, false
	}

	q.linkLocked(l, w)
	q.watchLocked(w, deadline, now)

	if !q.goOnLocked(l, now) {
		return nil, nil, false
	}
	return nil, l, l.ops >= q.maxOps
}

// goOnLocked begins a batch of the waiters if one may begin now, or sets the timer for it.
func (q *queue) goOnLocked(l *lane, now time.Time) bool {
	if l.first == nil {
		return false
	}

	pause, ok := l.due(now)
	if ok && pause == 0 || q.isFullLocked(l) {
		l.countBatchLocked(now)
		return true
	}

	// Nothing else would begin the batch when the gap is over.
	if ok && !l.timed {
		q.setTimerLocked(l, pause)
	}
	return false
}

// setTimerLocked has resume called after the pause. The timer of the lane must not run.
func (q *queue) setTimerLocked(l *lane, pause time.Duration) {
	l.timed = true
	if l.timer == nil {
		l.timer = time.AfterFunc(pause, func() { q.resume(l) })
		return
	}
	l.timer.Reset(pause)
}

// resume begins the batch for which the timer was set.
func (q *queue) resume(l *lane) {
	q.mu.Lock()
	l.timed = false
	begun := q.goOnLocked(l, time.Now())
	q.mu.Unlock()
	if begun {
		q.serve(l)
	}
}

// end ends a batch and returns false, unless another of the waiters may begin: then it
// returns true, and that has begun.
func (q *queue) end(l *lane) bool {
	q.mu.Lock()
	defer q.mu.Unlock()

	if l.first == nil {
		q.closeLocked(l)
		return false
	}
	return q.endLocked(l, time.Now())
}

// endLocked ends a batch, as end does, of a lane that may have waiters.
func (q *queue) endLocked(l *lane, now time.Time) bool {
	l.batches--
	if q.goOnLocked(l, now) {
		return true
	}

	// No batch may begin, so this one still has to be ended.
	l.batches++
	q.closeLocked(l)
	return false
}

// closeLocked ends a batch of a lane, and forgets a lane that has no other.
func (q *queue) closeLocked(l *lane) {
	l.batches--
	if l.batches == 0 && l != &q.whole {
		delete(q.slots, l.slot)
	}
}

// fill moves the oldest waiters into the batch that has begun: the first, and others
// while there are at most maxOps operations. If there are none, it ends the batch and
// returns false.
func (q *queue) fill(l *lane, b *batch) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.takeLocked(l, b)
}

// refill fills the batch anew if another call may begin now, and ends it otherwise. Its
// call took so long, or failed if that is 0. The client has connections for so many calls at a
// time as ready; more is for how many it should have, or 0 if it has.
func (q *queue) refill(l *lane, b *batch, took time.Duration, ready int) (more int, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()

	now := time.Now()

	// The batch still counts as in flight here, so the pace learns among how many it was.
	if took > 0 {
		more = l.pace.record(took, b.among, ready, now)
	}

	l.sent -= b.ops
	l.rate.record(b.ops, l.first != nil, now)

	b.clear()
	return more, q.endLocked(l, now) && q.takeLocked(l, b)
}

// takeLocked moves the oldest waiters into the batch, as fill does.
func (q *queue) takeLocked(l *lane, b *batch) bool {
	ops := 0
	for l.first != nil {
		// The first step goes however many operations it has.
		w := l.first
		if ops+len(w.ops) > q.maxOps && ops > 0 {
			break
		}

		ops += len(w.ops)
		q.unlinkLocked(w)
		w.stage = filled
		b.add(w)
	}

	if len(b.waiters) == 0 {
		q.closeLocked(l)
		return false
	}

	b.among, b.ops = l.batches, ops
	l.sent += ops

	// Those that are left need a call of their own, which a gap may have to come before.
	if l.first != nil && !l.timed {
		if pause, ok := l.due(l.begun); ok {
			q.setTimerLocked(l, pause)
		}
	}
	return true
}

// linkLocked puts w at the end of the lane's queue.
func (q *queue) linkLocked(l *lane, w *waiter) {
	w.lane, w.stage, w.prev, w.next = l, queued, l.last, nil
	if l.last == nil {
		l.first = w
	} else {
		l.last.next = w
	}

	l.last = w
	l.ops += len(w.ops)
}

// unlinkLocked takes w out of the queue of its lane. The stage of w is left to the caller.
func (q *queue) unlinkLocked(w *waiter) {
	l := w.lane
	l.ops -= len(w.ops)

	if w.prev == nil {
		l.first = w.next
	} else {
		w.prev.next = w.next
	}

	if w.next == nil {
		l.last = w.prev
	} else {
		w.next.prev = w.prev
	}

	w.prev, w.next = nil, nil
}

// leave takes w out of the queue or out of a batch, and returns its stage
// before. A waiter that is done stays, because its answer is there.
func (q *queue) leave(w *waiter) stage {
	q.mu.Lock()
	defer q.mu.Unlock()

	was := w.stage
	switch was {
	case queued:
		q.unlinkLocked(w)
		w.stage = abandoned
	case filled:
		w.stage = abandoned
	}
	return was
}

// markDone keeps the waiters of the batch that have not left; from then on they
// cannot leave. It returns those that have left, were decided all the same, and are followed.
func (q *queue) markDone(b *batch) (followed []*waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()

	for _, w := range b.waiters {
		switch {
		case w.stage != abandoned:
			w.stage = done
		case w.err == nil:
			// It is charged although its caller has left, who may follow what becomes of it.
			w.stage = missed

			if w.follower != nil {
				followed = append(followed, w)
			}
		}
	}

	b.dropAbandoned()
	return followed
}

// follow has f called with the decisions of a waiter that has left. It returns true if they
// are here, and f is for the caller to call.
func (q *queue) follow(w *waiter, f func([]core.Op, []core.Decision)) (here bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w.follower = f
	return w.stage == missed
}

// dropAbandoned removes the waiters of the batch that have left.
func (q *queue) dropAbandoned(b *batch) {
	q.mu.Lock()
	defer q.mu.Unlock()
	b.dropAbandoned()
}

// waiter is a step that waits to be decided together with others. It owns the
// memory of its step, because a batch may still read the step after the caller
// has left.
type waiter struct {
	step
	signals chan signal // has room for one of each
	texts   []byte      // the keys and leases of the operations

	copier failover.Copier // of the caller, or nil
	copied bool            // it has copied the decisions

	// The mutex of the queue guards these.
	lane       *lane
	stage      stage
	prev, next *waiter
	follower   func([]core.Op, []core.Decision) // of a waiter that has left, or nil

	// It guards these too.
	deadline time.Time   // until when the caller waits
	expired  bool        // it was woken at the deadline
	timer    *time.Timer // or nil
	fires    time.Time   // when the timer fires; zero: never
}

// signal is why a waiter is woken.
type signal uint8

const (
	doneSignal    signal = iota // it is done
	expiredSignal               // its deadline is over
)

// err returns the error of a waiter that was woken so.
func (s signal) err() error {
	if s == expiredSignal {
		return context.DeadlineExceeded
	}
	return nil
}

func newWaiter() any { return &waiter{signals: make(chan signal, 2)} }

// copyOps makes the step a copy of ops, whose texts may be memory of the caller.
func (w *waiter) copyOps(ops []core.Op) {
	w.ops, w.err = append(w.ops[:0], ops...), nil

	// The caller may use its memory again once it has left.
	if w.texts = w.texts[:0]; cap(w.texts) > maxTexts {
		w.texts = nil
	}
	for i := range w.ops {
		op := &w.ops[i]
		op.Key, op.Lease = w.keep(op.Key), w.keep(op.Lease)
	}

	if cap(w.out) < len(ops) {
		w.out = make([]core.Decision, len(ops))
	}
	w.out = w.out[:len(ops)]
}

// maxTexts is the capacity up to which the texts of a waiter are reused.
const maxTexts = 1 << 10

// keep returns a copy of the text, which holds until w is used again. It takes no allocation.
func (w *waiter) keep(text string) string {
	if text == "" {
		return ""
	}
	n := len(w.texts)
	w.texts = append(w.texts, text...)
	return unsafe.String(&w.texts[n], len(text))
}

// wait waits until w is done or its deadline is over, and no longer than ctx allows.
func (w *waiter) wait(ctx context.Context) error {
	over := ctx.Done()
	if over == nil { // a receive takes half as long as a select
		return (<-w.signals).err()
	}

	select {
	case s := <-w.signals:
		return s.err()
	case <-over:
		return ctx.Err()
	}
}

// waitAnswered waits for the answer of a waiter that is done.
func (w *waiter) waitAnswered() {
	for <-w.signals != doneSignal {
	}
}

// watchLocked has w woken at the deadline. The timer that runs for an earlier step of w is not
// stopped: most steps are done long before their deadline, and so change no timer.
func (q *queue) watchLocked(w *waiter, deadline, now time.Time) {
	w.deadline, w.expired = deadline, false
	if !w.fires.IsZero() && !w.fires.After(deadline) {
		return
	}

	w.fires = deadline
	if w.timer == nil {
		w.timer = time.AfterFunc(deadline.Sub(now), func() { q.expire(w) })
		return
	}
	w.timer.Reset(deadline.Sub(now))
}

// expire wakes w if its deadline is over, and has the timer fire then if it is not. The timer of
// w calls it.
func (q *queue) expire(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()

	w.fires = time.Time{}
	if w.expired || w.stage != queued && w.stage != filled {
		return
	}

	if now := time.Now(); now.Before(w.deadline) {
		q.watchLocked(w, w.deadline, now)
		return
	}
	w.expired = true
	w.signals <- expiredSignal
}

// extend gives w, whose deadline was over, until another one.
func (q *queue) extend(w *waiter, deadline, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.stage == queued || w.stage == filled {
		q.watchLocked(w, deadline, now)
	}
}

// shedsLocked reports whether a caller with so many operations is to be turned away, because
// those before it and its own take longer than three quarters of the time that it has left.
func (q *queue) shedsLocked(l *lane, ops int, left time.Duration, now time.Time) bool {
	return l.ops > unshed*q.maxOps && !l.rate.within(l.sent+l.ops+ops, left*3/4, now)
}
