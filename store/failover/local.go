package failover

import (
	"context"
	"math"

	"github.com/headgate/headgate/core"
)

// step is room for the operations of one step as the fallback sees them.
type step struct {
	ops   []core.Op
	out   []core.Decision
	index []int // where they stand in the caller's step
}

// room returns space for n decisions.
func (t *step) room(n int) []core.Decision {
	if cap(t.out) < n {
		t.out = make([]core.Decision, n)
	}
	t.out = t.out[:n]
	return t.out
}

// free gives the step back to the pool without anything of its ops.
func (s *Store) free(t *step) {
	clear(t.ops)
	t.ops, t.index = t.ops[:0], t.index[:0]
	s.steps.Put(t)
}

// part is what this instance may grant of a limit.
func (s *Store) part(l core.Limit) core.Limit {
	if s.instances == nil {
		return l
	}
	return s.shares.part(l, s.instances())
}

// decide has the fallback carry out a step in the generation. What is given back was
// charged by the primary; the fallback has a copy of the charge without its
// instant.
func (s *Store) decide(ctx context.Context, generation uint64, ops []core.Op, out []core.Decision) error {
	t := s.steps.Get().(*step)
	defer s.free(t)
	for i := range ops {
		op := ops[i]
		op.Limit = s.part(op.Limit)
		if op.Verb == core.Refund {
			op.At, op.ResetAfter, op.Origin = 0, 0, 0
		}
		t.ops = append(t.ops, op)
	}
	if err := s.fallback.Apply(ctx, t.ops, out); err != nil {
		return err
	}
	s.local.Add(1)
	for i := range ops {
		if ops[i].Verb == core.Take {
			out[i].Origin = origin(generation)
		}
		if out[i].RetryAfter == core.Never && ops[i].Cost <= ops[i].Limit.Capacity() {
			out[i].RetryAfter = confirmations * s.interval
		}
	}
	return nil
}

// origin is the [core.Decision.Origin] of what the fallback grants in the generation.
// The primary's decisions have none. Leases do not live for as many generations as
// there are origins.
func origin(generation uint64) uint32 { return uint32(1 + generation%math.MaxUint32) }

// isLocal reports whether a refund concerns the fallback alone: units that it
// granted, and leases that the primary cannot have heard of.
func (s *Store) isLocal(op *core.Op, generation uint64) bool {
	if op.Verb != core.Refund || s.fallback == nil {
		return false
	}
	if op.Limit.Leased() {
		return isOpen(generation) && op.Origin == origin(generation)
	}
	return op.Origin != 0
}

// takeBack gives back to the fallback what it granted itself.
func (s *Store) takeBack(ctx context.Context, op core.Op, d *core.Decision) error {
	t := s.steps.Get().(*step)
	defer s.free(t)
	op.Limit, op.Origin = s.part(op.Limit), 0
	t.ops = append(t.ops, op)
	out := t.room(1)
	err := s.fallback.Apply(ctx, t.ops, out)
	*d = out[0]
	return err
}
