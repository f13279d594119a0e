package failover

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/core"
)

// hasRefunds reports whether a step has a Refund or a Reset.
func hasRefunds(ops []core.Op) bool {
	for i := range ops {
		if ops[i].Verb == core.Refund || ops[i].Verb == core.Reset {
			return true
		}
	}
	return false
}

// onlyRefunds reports whether a step has nothing else.
func onlyRefunds(ops []core.Op) bool {
	for i := range ops {
		if ops[i].Verb != core.Refund && ops[i].Verb != core.Reset {
			return false
		}
	}
	return true
}

// refund carries out a step that has Refunds or Resets. What concerns the
// fallback alone is done first, apart from the rest.
func (s *Store) refund(ctx context.Context, ops []core.Op, out []core.Decision) error {
	if err := core.CheckOps(ops, out); err != nil {
		return err
	}
	generation := s.breaker.generation.Load()
	t := s.steps.Get().(*step)
	defer s.free(t)
	for i := range ops {
		if s.isLocal(&ops[i], generation) {
			if err := s.takeBack(ctx, ops[i], &out[i]); err != nil {
				return err
			}
			continue
		}
		t.ops, t.index = append(t.ops, ops[i]), append(t.index, i)
	}
	if len(t.ops) == 0 {
		return nil
	}
	rest := t.room(len(t.ops))
	if err := s.refundAtPrimary(ctx, generation, t.ops, rest); err != nil {
		return err
	}
	for n, i := range t.index {
		out[i] = rest[n]
	}
	return nil
}

// refundAtPrimary carries out a step that concerns the primary. When it cannot be
// asked, what it has to be told waits. When it may have been told, only what
// can be said twice does, and the error is the caller's to see.
func (s *Store) refundAtPrimary(ctx context.Context, generation uint64, ops []core.Op, out []core.Decision) error {
	err := s.ask(ctx, generation, ops, out)
	if err == nil || !blames(ctx, err) {
		return err
	}
	pure := onlyRefunds(ops)
	if s.fallback == nil && !pure {
		return err
	}
	late := s.postpone(ops, err)
	if s.fallback == nil {
		for i := range ops {
			out[i] = core.Decision{Allowed: true}
		}
		return late
	}
	if err := s.decide(ctx, generation, ops, out); err != nil {
		return err
	}
	if pure {
		return late
	}
	return nil
}

// maxWaiting is how many operations wait for the primary at most.
const maxWaiting = 4096

// waiting are operations that the primary has to be told when it is back. The
// zero value is ready.
type waiting struct {
	mu   sync.Mutex
	list []pendingOp
	lost atomic.Uint64
}

// pendingOp is an operation that is of use until an instant.
type pendingOp struct {
	op    core.Op
	until time.Time // zero: for ever
}

func (w *waiting) len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.list)
}

// add reports whether there was room.
func (w *waiting) add(e pendingOp) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.list) >= maxWaiting {
		w.lost.Add(1)
		return false
	}
	w.list = append(w.list, e)
	return true
}

// oldest returns the first that is still of use, and forgets those before it. The
// operation stays in the list until settled or postponed is called, so that one which
// is on its way to the primary counts as waiting.
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

// settled takes the oldest off the list.
func (w *waiting) settled() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drop()
}

// postponed puts the oldest behind all others.
func (w *waiting) postponed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = append(w.list, w.list[0])
	w.drop()
}

// drop is called with the lock held.
func (w *waiting) drop() {
	w.list[0] = pendingOp{}
	if w.list = w.list[1:]; len(w.list) == 0 {
		w.list = nil
	}
}

// repeatable reports whether an operation may be carried out twice: releasing a
// lease may.
func repeatable(op *core.Op) bool {
	return op.Verb == core.Refund && op.Limit.Leased()
}

// postpone lets the Refunds and Resets of a step wait that the primary did not
// carry out because of cause. If it may have carried them out, only those wait
// that are repeatable. The error tells that some do not wait.
func (s *Store) postpone(ops []core.Op, cause error) (err error) {
	unsent := errors.Is(cause, ErrOpen)
	for i := range ops {
		op := ops[i]
		switch {
		case op.Verb != core.Refund && op.Verb != core.Reset:
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
		if !s.waiting.add(e) {
			err = fmt.Errorf("failover: %d operations wait already: %w", maxWaiting, cause)
		}
	}
	s.background.arm()
	return err
}

// settleUp tells the primary what has waited. What fails waits on if it may be
// carried out twice, and is lost otherwise, as it may have been carried out.
func (s *Store) settleUp(ctx context.Context) {
	for s.State() == Closed {
		e, ok := s.waiting.oldest()
		if !ok {
			return
		}
		generation := s.breaker.generation.Load()
		within, cancel := context.WithTimeout(ctx, s.slow)
		err := s.call(within, e.op)
		cancel()
		if err != nil && !errors.Is(err, core.ErrOp) {
			s.fellShort(ctx, generation, e, err)
			return
		}
		s.waiting.settled()
		s.breaker.succeed(generation)
	}
}

// fellShort deals with what the primary could not be told.
func (s *Store) fellShort(ctx context.Context, generation uint64, e pendingOp, err error) {
	if repeatable(&e.op) {
		s.waiting.postponed()
	} else {
		s.waiting.settled()
		s.waiting.lost.Add(1)
	}
	if ctx.Err() == nil && s.breaker.fail(generation) {
		s.open(generation, []core.Op{e.op}, err)
	}
}
