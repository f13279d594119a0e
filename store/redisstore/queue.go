package redisstore

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/core"
)

// maxBatches is how many script calls of a lane are in flight at a time. With
// two, one is on the wire while the next fills; more of them carry fewer steps
// each, which gains nothing unless they are full. Up to maxFull full ones may
// be in flight in all, so that a server need not wait for the next.
const (
	maxBatches = 2
	maxFull    = 4
)

// stage is the progress of a waiter.
type stage uint8

const (
	queued stage = iota
	filled       // in a batch that is about to be sent, or was sent
	done         // decided or failed, and about to be woken
	left         // left; its result is not delivered
)

// lane is the waiters whose steps may share a script call. They wait only while
// maxBatches are in flight.
type lane struct {
	slot        int
	batches     int
	ops         int // of the waiters
	first, last *waiter
}

// queue holds the lanes of a store: one for everything, or one for each hash
// slot that has a batch. Each waiter is a goroutine in Apply, so their number
// bounds the queue's memory.
type queue struct {
	maxOps int // the maximum number of operations of a batch of several waiters

	mu    sync.Mutex
	whole lane
	slots map[int]*lane
}

// lane returns the lane of a slot, for a caller that begins a batch in it or
// waits for one.
func (q *queue) lane(slot int) *lane {
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

// start begins a batch, or returns nil if enough are in flight.
func (q *queue) start(slot int) *lane {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lane(slot)
	if l.batches >= maxBatches {
		return nil
	}
	l.batches++
	return l
}

// enter begins a batch and returns its lane as own. If enough are in flight, it
// puts w into the queue instead. If the waiters then fill a batch that may begin,
// it begins that batch and returns its lane as full.
func (q *queue) enter(slot int, w *waiter) (own, full *lane) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lane(slot)
	if l.batches < maxBatches {
		l.batches++
		return l, nil
	}
	q.link(l, w)
	if l.ops < q.maxOps || l.batches == maxFull {
		return nil, nil
	}
	l.batches++
	return nil, l
}

// end ends a batch and returns false, unless a waiter is queued: then it returns
// true, and the batch goes on.
func (q *queue) end(l *lane) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l.first != nil {
		return true
	}
	q.close(l)
	return false
}

// close ends a batch of a lane without a queue. The caller holds the mutex.
func (q *queue) close(l *lane) {
	l.batches--
	if l.batches == 0 && l != &q.whole {
		delete(q.slots, l.slot)
	}
}

// fill moves the oldest waiters into the batch: the first, and others while there
// are at most maxOps operations. If there are none, or too few while enough
// batches are in flight, it ends the batch and returns false.
func (q *queue) fill(l *lane, b *batch) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	b.clear()
	if l.batches > maxBatches && l.ops < q.maxOps {
		q.close(l)
		return false
	}
	for n := 0; l.first != nil; {
		w := l.first
		if n += len(w.ops); n > q.maxOps && len(b.waiters) > 0 {
			break
		}
		q.unlink(w)
		w.stage = filled
		b.add(w)
	}
	if len(b.waiters) == 0 {
		q.close(l)
		return false
	}
	return true
}

// link puts w at the end of the lane's queue.
func (q *queue) link(l *lane, w *waiter) {
	w.lane, w.stage, w.prev, w.next = l, queued, l.last, nil
	if l.last == nil {
		l.first = w
	} else {
		l.last.next = w
	}
	l.last = w
	l.ops += len(w.ops)
}

func (q *queue) unlink(w *waiter) {
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
		q.unlink(w)
		w.stage = left
	case filled:
		w.stage = left
	}
	return was
}

// markDone keeps the waiters of the batch that have not left; from then on they
// cannot leave.
func (q *queue) markDone(b *batch) {
	q.mu.Lock()
	defer q.mu.Unlock()
	b.dropLeft()
	for _, w := range b.waiters {
		w.stage = done
	}
}

// dropLeft removes the waiters of the batch that have left.
func (q *queue) dropLeft(b *batch) {
	q.mu.Lock()
	defer q.mu.Unlock()
	b.dropLeft()
}

// waiter is a step that waits to be decided together with others. It owns the
// memory of its step, because a batch may still read the step after the caller
// has left.
type waiter struct {
	step
	ownOps   []core.Op
	ownOut   []core.Decision
	deadline time.Time
	timer    *time.Timer
	ready    chan struct{} // has room for the one message that the waiter is done

	// The mutex of the queue guards these.
	lane       *lane
	stage      stage
	prev, next *waiter
}

func newWaiter() any {
	w := &waiter{timer: time.NewTimer(time.Hour), ready: make(chan struct{}, 1)}
	w.timer.Stop()
	return w
}

// own makes the step a copy of ops, whose texts may be memory of the caller.
func (w *waiter) own(ops []core.Op) {
	w.ownOps = append(w.ownOps[:0], ops...)
	for i := range w.ownOps {
		op := &w.ownOps[i]
		op.Key, op.Lease = strings.Clone(op.Key), strings.Clone(op.Lease)
	}
	if cap(w.ownOut) < len(ops) {
		w.ownOut = make([]core.Decision, len(ops))
	}
	w.step = step{ops: w.ownOps, out: w.ownOut[:len(ops)]}
}

// decide carries out ops, whose keys share a server: at once and alone while
// few calls are in flight, else together with others that wait.
func (s *Store) decide(ctx context.Context, ops []core.Op, out []core.Decision) error {
	now := time.Now()
	deadline := now.Add(s.timeout)
	if end, ok := ctx.Deadline(); ok && end.Before(deadline) {
		deadline = end
	}
	slot := s.slotOf(ops)
	if slot == noSlot {
		return s.decideAlone(ctx, deadline, ops, out)
	}
	l := s.queue.start(slot)
	if l == nil {
		w := s.waiters.Get().(*waiter)
		w.own(ops)
		w.deadline = deadline
		own, full := s.queue.enter(slot, w)
		if full != nil {
			go s.serve(full)
		}
		if own == nil {
			return s.await(ctx, w, deadline.Sub(now), out)
		}
		l = own
		s.waiters.Put(w)
	}
	defer s.handOver(l)
	return s.decideAlone(ctx, deadline, ops, out)
}

// decideAlone sends the step by itself, under its caller's context.
func (s *Store) decideAlone(ctx context.Context, deadline time.Time, ops []core.Op, out []core.Decision) error {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	w, b := s.waiters.Get().(*waiter), s.batches.Get().(*batch)
	w.step, w.stage = step{ops: ops, out: out}, filled
	b.add(w)
	if err := s.send(ctx, b); err != nil {
		return err
	}
	err := w.err
	w.step = step{}
	b.clear()
	s.waiters.Put(w)
	s.batches.Put(b)
	return err
}

// await waits until w is done, for at most d and no longer than ctx allows. A
// waiter is reused only when no batch refers to it any more.
func (s *Store) await(ctx context.Context, w *waiter, d time.Duration, out []core.Decision) error {
	w.timer.Reset(d)
	var err error
	select {
	case <-w.ready:
	case <-ctx.Done():
		err = ctx.Err()
	case <-w.timer.C:
		err = context.DeadlineExceeded
	}
	w.timer.Stop()
	if err != nil {
		if s.queue.leave(w) != done {
			return fmt.Errorf("redisstore: %w", err)
		}
		<-w.ready
	}
	if w.err != nil {
		return w.err
	}
	copy(out, w.out)
	s.waiters.Put(w)
	return nil
}
