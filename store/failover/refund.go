// This file refunds units at the store that granted them.

package failover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/core"
)

// mayWait reports whether the operation may wait for the primary: a Refund or a Reset, a
// Lift or an Impose, which are repairs as a Reset is. Where this package speaks of Resets, it
// means these too.
func mayWait(op *core.Op) bool {
	switch op.Verb {
	case core.Refund, core.Reset, core.Lift, core.Impose:
		return true
	}
	return false
}

// hasRefunds reports whether a step has a Refund or a Reset.
func hasRefunds(ops []core.Op) bool {
	for i := range ops {
		if mayWait(&ops[i]) {
			return true
		}
	}
	return false
}

// onlyRefunds reports whether all operations of a step are Refunds or Resets.
func onlyRefunds(ops []core.Op) bool {
	for i := range ops {
		if !mayWait(&ops[i]) {
			return false
		}
	}
	return true
}

// refund carries out a step that has Refunds or Resets. Operations that concern
// the fallback alone come first, apart from the others.
func (s *Store) refund(ctx context.Context, ops []core.Op, out []core.Decision) error {
	if err := core.CheckOps(ops, out); err != nil {
		return err
	}
	t := s.mirror.steps.Get().(*step)
	defer s.mirror.free(t)

	for i := range ops {
		if s.isLocal(&ops[i]) {
			if err := s.mirror.takeBack(ctx, ops[i], &out[i]); err != nil {
				return err
			}
			continue
		}
		t.ops, t.sent, t.index = append(t.ops, ops[i]), append(t.sent, s.mirror.forPrimary(ops[i])), append(t.index, i)
	}

	if len(t.ops) == 0 {
		return nil
	}
	decided := t.outFor(len(t.ops))
	if err := s.refundAtPrimary(ctx, t, decided); err != nil {
		return err
	}

	for n, i := range t.index {
		out[i] = decided[n]
	}
	return nil
}

// refundAtPrimary carries out a step that concerns the primary. If the primary
// cannot be asked, the Refunds and Resets wait. If it may have carried them
// out, only the repeatable ones wait, and a step without a Take returns the error.
func (s *Store) refundAtPrimary(ctx context.Context, t *step, out []core.Decision) error {
	ops := t.ops
	r := s.primary.routeOf(ops)
	err := s.ask(ctx, r, ops, t.sent, out)
	if err == nil || !isPrimaryFault(ctx, err) || lends(ops) {
		return err
	}

	pure := onlyRefunds(ops)
	if s.mirror.fallback == nil && !pure {
		return err
	}

	late := s.primary.postpone(t.sent, err)
	if s.mirror.fallback == nil {
		for i := range ops {
			out[i] = core.Decision{Allowed: true}
		}
		return late
	}

	if err := s.mirror.decide(ctx, r.generation, ops, out); err != nil {
		return errors.Join(err, late)
	}

	// A caller that waits for the decision on a Take has it from the fallback. Others learn what is
	// lost.
	if pure || !takes(ops) {
		return late
	}
	return nil
}

// lends reports whether a step grants or revokes credit, which only the primary has. Then it is
// the primary's or an error, and no part of it waits.
func lends(ops []core.Op) bool {
	return slices.ContainsFunc(ops, func(op core.Op) bool { return op.Verb == core.Grant || op.Verb == core.Revoke })
}

// takes reports whether a step has a Take, of which the caller needs the decision.
func takes(ops []core.Op) bool {
	return slices.ContainsFunc(ops, func(op core.Op) bool { return op.Verb == core.Take })
}

// maxWaiting is the maximum number of operations that wait for a shard of the primary.
const maxWaiting = 4096

// waiting is the list of operations that a shard has to carry out when it is back.
type waiting struct {
	mu     sync.Mutex
	list   []pendingOp
	closed bool
	lost   *atomic.Uint64 // of the Store
}

// pendingOp is an operation that is useful until an instant.
type pendingOp struct {
	op    core.Op
	until time.Time // zero means for ever
}

func (w *waiting) len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.list)
}

// ErrClosed is wrapped by the error of a Refund or Reset that would have to wait for
// the primary, but the store is closed.
var ErrClosed = errors.New("the store is closed")

var errFull = fmt.Errorf("%d operations wait already", maxWaiting)

// add appends e, or returns why it is lost.
func (w *waiting) add(e pendingOp) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	switch {
	case w.closed:
		w.lost.Add(1)
		return ErrClosed
	case len(w.list) >= maxWaiting:
		w.lost.Add(1)
		return errFull
	}

	w.list = append(w.list, e)
	return nil
}

// close loses all operations.
func (w *waiting) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.lost.Add(uint64(len(w.list)))
	w.list = nil
}

// oldest returns the first operation that is still useful, and forgets those
// before it. The operation stays in the list until removeOldest or requeueOldest
// is called, so that an operation on its way to the primary counts as waiting.
func (w *waiting) oldest() (e pendingOp, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()

	for len(w.list) > 0 {
		e = w.list[0]
		if e.until.IsZero() || time.Now().Before(e.until) {
			return e, true
		}
		w.dropLocked()
	}
	return pendingOp{}, false
}

// removeOldest removes the operation that oldest has returned.
func (w *waiting) removeOldest() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dropLocked()
}

// requeueOldest moves the first operation behind all others.
func (w *waiting) requeueOldest() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = append(w.list, w.list[0])
	w.dropLocked()
}

// dropLocked removes the first operation.
func (w *waiting) dropLocked() {
	w.list[0] = pendingOp{}
	if w.list = w.list[1:]; len(w.list) == 0 {
		w.list = nil
	}
}

// repeatable reports whether an operation may be carried out twice, as the
// release of a lease may.
func repeatable(op *core.Op) bool {
	return op.Verb == core.Refund && op.Limit.Leased()
}

// isLocal reports whether a refund concerns the fallback alone: units that it
// granted, and leases of which the primary cannot know.
func (s *Store) isLocal(op *core.Op) bool {
	if op.Verb != core.Refund || s.mirror.fallback == nil {
		return false
	}

	mark := op.Origin & markMask
	if op.Limit.Leased() {
		generation := s.primary.breakerOf(op.Key).generation.Load()
		return isOpen(generation) && mark == fallbackMark(generation)
	}
	return mark >= byFallback
}
