package redisstore

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/redis/go-redis/v9"
)

// batch is the waiters whose steps one script call decides.
type batch struct {
	waiters []*waiter
	steps   []*step // of the waiters
}

func newBatch() any { return new(batch) }

func (b *batch) add(w *waiter) {
	b.waiters, b.steps = append(b.waiters, w), append(b.steps, &w.step)
}

func (b *batch) clear() {
	clear(b.waiters)
	clear(b.steps)
	b.waiters, b.steps = b.waiters[:0], b.steps[:0]
}

// dropLeft forgets those who have left. The queue's mutex is held.
func (b *batch) dropLeft() {
	hasLeft := func(w *waiter) bool { return w.stage == left }
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

// split moves to another batch those whose steps ran, or will not.
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

// deadline is that of the most patient waiter: nobody waits for longer.
func (b *batch) deadline() time.Time {
	last := b.waiters[0].deadline
	for _, w := range b.waiters[1:] {
		if w.deadline.After(last) {
			last = w.deadline
		}
	}
	return last
}

// fail gives all waiters an error.
func (b *batch) fail(err error) {
	for _, w := range b.waiters {
		w.err = err
	}
}

// handOver hands a batch that has ended on to those who wait for one, so that its
// waiter need not stay.
func (s *Store) handOver(l *lane) {
	if s.queue.end(l) {
		go s.serve(l)
	}
}

// serve decides those who wait in the lane, batch after batch, until there are
// none. Every call ends at its deadline, so it ends soon after the last waiter
// has left.
func (s *Store) serve(l *lane) {
	b := s.batches.Get().(*batch)
	for s.queue.fill(l, b) {
		if err := s.sendTogether(b); err != nil {
			b.fail(err)
		}
		s.deliver(b)
		// Who is told now may ask again at once, and then shares the next call.
		runtime.Gosched()
	}
	s.batches.Put(b)
}

// deliver lets those who still wait for the batch have what it brought.
func (s *Store) deliver(b *batch) {
	s.queue.markDone(b)
	for _, w := range b.waiters {
		w.ready <- struct{}{}
	}
}

// sendTogether sends the batch on behalf of nobody in particular: a waiter who
// leaves takes nothing from the others. Nobody else could recover a panic, such
// as one of a hook of the client.
func (s *Store) sendTogether(b *batch) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("redisstore: panic: %v", v)
		}
	}()
	ctx, cancel := context.WithDeadline(context.Background(), b.deadline())
	defer cancel()
	return s.send(ctx, b)
}

// send decides the steps of the batch. It tries again only after errors which
// prove that nothing ran, and then without those who have left.
func (s *Store) send(ctx context.Context, b *batch) error {
	for pause := time.Millisecond; ; pause *= 2 {
		err := s.decideTogether(ctx, b.steps)
		if len(b.steps) > 1 && dividing(err) {
			s.sendOneByOne(ctx, b)
			return nil
		}
		if err == nil || !neverRan(err) || !sleep(ctx, pause) {
			return err
		}
		if s.queue.dropLeft(b); len(b.waiters) == 0 {
			return nil
		}
	}
}

// dividing reports whether the error proves that nothing was written, and may not
// be that of each step by itself. A slot is on its way to another node: meanwhile
// a script may only hold keys that have all arrived, or none of which has. Or the
// server's memory is full, and one step is of those that may not write then.
func dividing(err error) bool {
	return redis.HasErrorPrefix(err, "TRYAGAIN") || redis.HasErrorPrefix(err, "OOM")
}

// sendOneByOne sends each step of the batch by itself, and those again that did
// not run: the keys of one step may be apart too. Who is decided does not wait
// for them.
func (s *Store) sendOneByOne(ctx context.Context, b *batch) {
	for pause := time.Millisecond; ; pause *= 2 {
		s.queue.dropLeft(b)
		for i, each := range b.steps {
			each.err = nil
			if err := s.decideTogether(ctx, b.steps[i:i+1]); err != nil {
				each.err = err
			}
		}
		s.deliverDecided(b)
		if len(b.waiters) == 0 || !sleep(ctx, pause) {
			return
		}
	}
}

// deliverDecided leaves in the batch those whose steps did not run.
func (s *Store) deliverDecided(b *batch) {
	decided := s.batches.Get().(*batch)
	b.split(decided)
	s.deliver(decided)
	decided.clear()
	s.batches.Put(decided)
}

// step is one call of [Store.Apply] that is decided together with others. Its
// operations are as CheckOps and the limits want them.
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
		return err
	}
	script, args := s.call(steps)
	ints, err := s.run(ctx, script, args)
	if err != nil {
		return fmt.Errorf("redisstore: %w", err)
	}
	return decode(steps, ints)
}
