package redisstore

import (
	"slices"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/store/failover"
)

// batch is the waiters whose steps are decided by one script call.
type batch struct {
	waiters []*waiter
	steps   []*step            // of the waiters
	among   int                // how many batches of the lane there were when it was filled
	ops     int                // of its waiters then
	alone   waiter             // the only one, of a caller that does not wait for others
	failure error              // of a step that was sent by itself and is no longer in the batch
	decided []failover.Decided // memory for copyDecided
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

// dropAbandoned removes the waiters whose callers have left. The caller holds the queue's mutex.
func (b *batch) dropAbandoned() {
	hasLeft := func(w *waiter) bool { return w.stage >= abandoned }
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

	// The places behind the rest must not keep waiters alive.
	clear(all[len(b.waiters):])
	clear(b.steps[len(b.steps):len(all)])
}

// copyDecided has the steps that were decided copied, all of them by the Copier of the first.
// Nearly always that is the Copier of all. The caller of a step that is not copied does so itself,
// also if the Copier panics.
func (b *batch) copyDecided() {
	var c failover.Copier
	list := b.decided[:0]
	for _, w := range b.waiters {
		if c == nil {
			c = w.copier
		}
		if c != nil && w.copier == c && w.err == nil {
			list = append(list, failover.Decided{Ops: w.ops, Out: w.out})
		}
	}
	if b.decided = list; len(list) == 0 {
		return
	}

	defer func() {
		_ = recover()
		b.noteCopied(c)
	}()
	c.Copy(list)
}

// noteCopied tells the waiters with the Copier what it has copied.
func (b *batch) noteCopied(c failover.Copier) {
	list := b.decided
	for _, w := range b.waiters {
		if w.copier == c && w.err == nil {
			w.copied, list = list[0].Copied, list[1:]
		}
	}
	clear(b.decided)
}

// fail gives all waiters an error.
func (b *batch) fail(err error) {
	for _, w := range b.waiters {
		w.err = err
	}
}

// step is one call of [Store.Apply] that is decided together with others. Its
// operations have passed CheckOps and the check of their limits.
type step struct {
	ops []core.Op
	out []core.Decision
	err error
}
