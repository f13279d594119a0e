// This file refunds units at the store that granted them.

package failover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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
	t := s.steps.Get().(*step)
	defer s.free(t)
	for i := range ops {
		if s.isLocal(&ops[i]) {
			if err := s.takeBack(ctx, ops[i], &out[i]); err != nil {
				return err
			}
			continue
		}
		t.ops, t.sent, t.index = append(t.ops, ops[i]), append(t.sent, s.forPrimary(ops[i])), append(t.index, i)
	}
	if len(t.ops) == 0 {
		return nil
	}
	rest := t.room(len(t.ops))
	if err := s.refundAtPrimary(ctx, t, rest); err != nil {
		return err
	}
	for n, i := range t.index {
		out[i] = rest[n]
	}
	return nil
}

// forPrimary returns op with the origin that the primary has set itself.
func (s *Store) forPrimary(op core.Op) core.Op {
	if s.fallback != nil {
		op.Origin >>= markBits
	}
	return op
}

// refundAtPrimary carries out a step that concerns the primary. If the primary
// cannot be asked, the Refunds and Resets wait. If it may have carried them
// out, only the repeatable ones wait, and a step without a Take returns the error.
func (s *Store) refundAtPrimary(ctx context.Context, t *step, out []core.Decision) error {
	ops := t.ops
	r := s.routeOf(ops)
	err := s.ask(ctx, r, ops, t.sent, out)
	if err == nil || !blames(ctx, err) {
		return err
	}
	pure := onlyRefunds(ops)
	if s.fallback == nil && !pure {
		return err
	}
	late := s.postpone(t.sent, err)
	if s.fallback == nil {
		for i := range ops {
			out[i] = core.Decision{Allowed: true}
		}
		return late
	}
	if err := s.decide(ctx, r.generation, ops, out); err != nil {
		return errors.Join(err, late)
	}
	if pure || !takes(ops) {
		return late
	}
	return nil
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
		w.drop()
	}
	return pendingOp{}, false
}

// removeOldest removes the first operation.
func (w *waiting) removeOldest() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drop()
}

// requeueOldest moves the first operation behind all others.
func (w *waiting) requeueOldest() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = append(w.list, w.list[0])
	w.drop()
}

// drop removes the first entry. The caller holds the lock.
func (w *waiting) drop() {
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

// postpone makes the Refunds and Resets of a step wait after the primary failed
// to carry them out with cause. If it may have carried them out, only the
// repeatable ones wait. err wraps cause if some do not wait.
func (s *Store) postpone(ops []core.Op, cause error) (err error) {
	unsent := wasNotSent(cause)
	for i := range ops {
		op := ops[i]
		switch {
		case !mayWait(&op):
			continue
		case !unsent && !repeatable(&op):
			err = cause
			continue
		}
		op.Key, op.Lease = strings.Clone(op.Key), strings.Clone(op.Lease)
		e := pendingOp{op: op}
		if repeatable(&op) {
			e.until = time.Now().Add(op.Limit.Period)
		}
		b := s.breakerOf(op.Key)
		if lost := b.waiting.add(e); lost != nil {
			err = fmt.Errorf("failover: %w: %w", lost, cause)
		}
		b.background.arm()
	}
	return err
}

// sendWaiting sends the operations that wait for the breaker's shard. An operation that
// fails waits on if it is repeatable or was not sent, and is dropped otherwise, because the
// primary may have carried it out. One whose key has moved waits for the other shard.
func (s *Store) sendWaiting(ctx context.Context, b *breaker) {
	for b.state() == Closed {
		e, ok := b.waiting.oldest()
		if !ok {
			return
		}
		if to := s.breakerOf(e.op.Key); to != b {
			b.waiting.removeOldest()
			_ = to.waiting.add(e) // which counts what is lost
			to.background.arm()
			continue
		}
		generation := b.generation.Load()
		within, cancel := context.WithTimeout(ctx, s.patience)
		out := make([]core.Decision, 1)
		err := s.call(within, []core.Op{e.op}, out)
		cancel()
		if err != nil && !errors.Is(err, core.ErrOp) {
			s.noteUnconfirmed(ctx, b, generation, e, err)
			return
		}
		b.waiting.removeOldest()
		b.succeed(generation, out[0].At)
	}
}

// noteUnconfirmed handles an operation that the primary did not confirm.
func (s *Store) noteUnconfirmed(ctx context.Context, b *breaker, generation uint64, e pendingOp, err error) {
	if repeatable(&e.op) || wasNotSent(err) {
		b.waiting.requeueOldest()
	} else {
		b.waiting.removeOldest()
		s.lost.Add(1)
	}
	if ctx.Err() == nil && !s.excused(err) && b.fail(generation, err) {
		s.open(b, generation, []core.Op{e.op}, err)
	}
}
