package redisstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/core"
)

// waiter is a step that waits to be decided together with others. It owns what
// its step refers to: it may be left while a batch still reads it.
type waiter struct {
	step
	ownOps   []core.Op
	ownOut   []core.Decision
	deadline time.Time
	timer    *time.Timer
	ready    chan struct{} // has room for the one message that it is done

	// These are guarded by the mutex of the queue.
	lane       *lane
	stage      stage
	prev, next *waiter
}

func newWaiter() any {
	w := &waiter{timer: time.NewTimer(time.Hour), ready: make(chan struct{}, 1)}
	w.timer.Stop()
	return w
}

// own makes the step a copy of ops, whose texts may be another's memory.
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

// decide carries out ops, whose keys share a server: at once and alone while few
// calls are under way, else together with others that wait.
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

// decideAlone sends the step by itself and on behalf of its caller.
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

// await waits for at most d until c is done, and no longer than ctx allows.
// Only a waiter that nobody else knows any more is used again.
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
