package redisstore

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
)

// batch is the waiters whose steps are decided by one script call.
type batch struct {
	waiters []*waiter
	steps   []*step // of the waiters
	among   int     // how many batches of the lane there were when it was filled
	ops     int     // of its waiters then
	failure error   // of a step that was sent by itself and is no longer in the batch
}

func newBatch() any { return new(batch) }

func (b *batch) add(w *waiter) {
	b.waiters, b.steps = append(b.waiters, w), append(b.steps, &w.step)
}

// size returns how many steps the batch has, and how many operations.
func (b *batch) size() (steps, ops int) {
	for _, each := range b.steps {
		ops += len(each.ops)
	}
	return len(b.steps), ops
}

func (b *batch) clear() {
	clear(b.waiters)
	clear(b.steps)
	b.waiters, b.steps, b.failure = b.waiters[:0], b.steps[:0], nil
}

// dropLeft removes the waiters that have left. The caller holds the queue's
// mutex.
func (b *batch) dropLeft() {
	hasLeft := func(w *waiter) bool { return w.stage >= left }
	if !slices.ContainsFunc(b.waiters, hasLeft) {
		return
	}
	b.waiters = slices.DeleteFunc(b.waiters, hasLeft)
	clear(b.steps)
	b.steps = b.steps[:0]
	for _, w := range b.waiters {
		b.steps = append(b.steps, &w.step)
	}
}

// split moves the waiters whose steps ran, or will never run, to another batch.
func (b *batch) split(to *batch) {
	all := b.waiters
	b.waiters, b.steps = b.waiters[:0], b.steps[:0]
	for _, w := range all {
		if neverRan(w.err) {
			b.add(w)
		} else {
			to.add(w)
		}
	}
	clear(all[len(b.waiters):])
	clear(b.steps[len(b.steps):len(all)])
}

// fail gives all waiters an error.
func (b *batch) fail(err error) {
	for _, w := range b.waiters {
		w.err = err
	}
}

// handOver ends the batch of a caller. If steps wait, a goroutine goes on with
// them, so that the caller need not stay.
func (s *Store) handOver(l *lane) {
	if s.queue.end(l) {
		go s.serve(l)
	}
}

// gather serves the lane. Unless the batch is full, the callers that are awake come first:
// an answer wakes all callers of its batch, and they ask again at the same time.
func (s *Store) gather(l *lane, full bool) {
	if !full {
		runtime.Gosched()
	}
	s.serve(l)
}

// serve decides the waiting steps of the lane, batch after batch, until none may begin.
// Every call ends at its deadline, so serve ends soon after the last waiter has left.
func (s *Store) serve(l *lane) {
	b := s.batches.Get().(*batch)
	for ok := s.queue.fill(l, b); ok; {
		begun, took := time.Now(), time.Duration(0)
		steps, ops := b.size()
		v := s.serverFor(b.waiters[0].ops[0].Key)
		err := s.sendTogether(b, v, begun)
		ended := time.Since(begun)
		if err != nil {
			b.fail(err)
		} else {
			took = ended
		}
		s.tellCall(b, steps, ops, ended, err)
		s.deliver(b)
		s.leaveUntold(v, b, err)
		// A caller that is woken now may ask again at once, and then shares the
		// next call.
		runtime.Gosched()
		var more int
		if more, ok = s.queue.refill(l, b, took, s.connections()); more > 0 {
			s.connect(more, nil)
		}
	}
	s.batches.Put(b)
}

// deliver gives their results to the waiters that have not left, and to who follows the
// others.
func (s *Store) deliver(b *batch) {
	for _, w := range s.queue.markDone(b) {
		w.follower(w.ops, w.out)
	}
	for _, w := range b.waiters {
		w.ready <- struct{}{}
	}
}

// sendTogether sends the batch under a context of its own, so a waiter that
// leaves takes nothing from the others. It has more time than its waiters, also if all of them
// leave before: the client would drop the connection, and a reply that comes a little later
// would be lost. It recovers panics, such as one of a hook of the client, because no caller
// could.
func (s *Store) sendTogether(b *batch, v *server, begun time.Time) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("redisstore: panic: %v", v)
		}
	}()
	deadline := begun.Add(patienceOf(v.budget()))
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	if err = s.send(ctx, b); err != nil {
		err = s.judged(v, begun, deadline, err)
	}
	return err
}

// send decides the steps of the batch. It tries again only after errors which
// prove that no step ran, and then without the waiters that have left.
func (s *Store) send(ctx context.Context, b *batch) error {
	var before error
	for pause := time.Millisecond; ; pause *= 2 {
		err := s.decideTogether(ctx, b.steps)
		if before != nil && isLate(err) {
			err = &retryError{err, before}
		}
		if err != nil && len(b.steps) > 1 && dividing(err) {
			s.sendOneByOne(ctx, b)
			return nil
		}
		if err == nil || !neverRan(err) || s.refused(err) || !sleep(ctx, pause) {
			return ofCall(err)
		}
		before = err
		if s.queue.dropLeft(b); len(b.waiters) == 0 {
			return nil
		}
	}
}

// retryError is the error of a call that was late, after one whose error proves that it did
// not run.
type retryError struct{ late, before error }

func (e *retryError) Error() string { return e.late.Error() + ", after " + e.before.Error() }

// Unwrap returns the error of the call that was late.
func (e *retryError) Unwrap() error { return e.late }

// dividing reports whether the error proves that nothing was written, but need
// not occur for each step by itself. One cause is a slot that is moving to
// another node: until all of it has moved, a script may only use keys that have
// all arrived, or none of which has. The other is a full memory of the server, if
// only one step is under a limit that may not write then.
func dividing(err error) bool {
	return redis.HasErrorPrefix(err, "TRYAGAIN") || redis.HasErrorPrefix(err, "OOM")
}

// sendOneByOne sends each step of the batch by itself, and repeats the steps
// that did not run, because the keys of one step may be on two nodes too. A
// waiter whose step is decided does not wait for them.
func (s *Store) sendOneByOne(ctx context.Context, b *batch) {
	for pause := time.Millisecond; ; pause *= 2 {
		s.queue.dropLeft(b)
		for i, each := range b.steps {
			each.err = nil
			if err := s.decideTogether(ctx, b.steps[i:i+1]); err != nil {
				each.err = failedCall(ofCall(err))
				if !neverRan(err) {
					b.failure = err
				}
			}
		}
		s.deliverDecided(b)
		if len(b.waiters) == 0 || !sleep(ctx, pause) {
			return
		}
	}
}

// deliverDecided delivers the steps that ran, and leaves the others in the
// batch.
func (s *Store) deliverDecided(b *batch) {
	decided := s.batches.Get().(*batch)
	b.split(decided)
	s.deliver(decided)
	decided.clear()
	s.batches.Put(decided)
}

// step is one call of [Store.Apply] that is decided together with others. Its
// operations have passed CheckOps and the check of their limits.
type step struct {
	ops []core.Op
	out []core.Decision
	err error
}

// decideTogether carries out the steps one after the other, as if each were a
// call of its own, and puts into each its decisions or its error. All keys must
// be on one server, and in a Cluster in one slot. A returned error means that
// none of the steps is known to have been decided.
func (s *Store) decideTogether(ctx context.Context, steps []*step) error {
	if err := ctx.Err(); err != nil {
		return unsent(err)
	}
	v := s.serverFor(steps[0].ops[0].Key)
	script, args := s.call(steps)
	ints, err := s.run(ctx, v, script, args)
	if s.meetsBan(err) {
		script, args = s.call(steps)
		ints, err = s.run(ctx, v, script, args)
	}
	switch {
	case err == nil:
		return decode(steps, ints)
	case redis.HasErrorPrefix(err, "OOM"):
		return s.fullMemory(steps, err)
	}
	return fmt.Errorf("redisstore: %w", err)
}

// fullMemory returns the error of steps that a server without free memory refused, with
// the rule for whose limit it did.
func (s *Store) fullMemory(steps []*step, err error) error {
	for _, each := range steps {
		for i := range each.ops {
			op := &each.ops[i]
			if t, _ := s.limits.of(op); t.long {
				return fmt.Errorf("redisstore: rule %q, %v: the server's memory is full, and only states of up to %d records are written then: %w",
					op.Rule, op.Limit, maxSmall, err)
			}
		}
	}
	return fmt.Errorf("redisstore: the server's memory is full: %w", err)
}
