package redisstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/core"
)

// caller is a step that waits to be decided together with others. It owns what
// its step refers to: it may be left while a flight still reads it.
type caller struct {
	step
	ownOps   []core.Op
	ownOut   []core.Decision
	deadline time.Time
	timer    *time.Timer
	ready    chan struct{} // has room for the one message that it landed

	// These are guarded by the mutex of the queue.
	lane       *lane
	place      place
	prev, next *caller
}

func newCaller() any {
	c := &caller{timer: time.NewTimer(time.Hour), ready: make(chan struct{}, 1)}
	c.timer.Stop()
	return c
}

// own makes the step a copy of ops, whose texts may be another's memory.
func (c *caller) own(ops []core.Op) {
	c.ownOps = append(c.ownOps[:0], ops...)
	for i := range c.ownOps {
		op := &c.ownOps[i]
		op.Key, op.Lease = strings.Clone(op.Key), strings.Clone(op.Lease)
	}
	if cap(c.ownOut) < len(ops) {
		c.ownOut = make([]core.Decision, len(ops))
	}
	c.step = step{ops: c.ownOps, out: c.ownOut[:len(ops)]}
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
		c := s.callers.Get().(*caller)
		c.own(ops)
		c.deadline = deadline
		own, full := s.queue.enter(slot, c)
		if full != nil {
			go s.fly(full)
		}
		if own == nil {
			return s.await(ctx, c, deadline.Sub(now), out)
		}
		l = own
		s.callers.Put(c)
	}
	defer s.pass(l)
	return s.decideAlone(ctx, deadline, ops, out)
}

// decideAlone sends the step by itself and on behalf of its caller.
func (s *Store) decideAlone(ctx context.Context, deadline time.Time, ops []core.Op, out []core.Decision) error {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	c, f := s.callers.Get().(*caller), s.flights.Get().(*flight)
	c.step, c.place = step{ops: ops, out: out}, aboard
	f.add(c)
	if err := s.send(ctx, f); err != nil {
		return err
	}
	err := c.err
	c.step = step{}
	f.clear()
	s.callers.Put(c)
	s.flights.Put(f)
	return err
}

// await waits for at most d until c has landed, and no longer than ctx allows.
// Only a caller that nobody else knows any more is used again.
func (s *Store) await(ctx context.Context, c *caller, d time.Duration, out []core.Decision) error {
	c.timer.Reset(d)
	var err error
	select {
	case <-c.ready:
	case <-ctx.Done():
		err = ctx.Err()
	case <-c.timer.C:
		err = context.DeadlineExceeded
	}
	c.timer.Stop()
	if err != nil {
		if s.queue.leave(c) != landed {
			return fmt.Errorf("redisstore: %w", err)
		}
		<-c.ready
	}
	if c.err != nil {
		return c.err
	}
	copy(out, c.out)
	s.callers.Put(c)
	return nil
}
