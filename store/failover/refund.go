package failover

import (
	"context"

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
