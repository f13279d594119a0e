package failover

import (
	"context"

	"github.com/headgate/headgate/core"
)

// givesBack tells whether a step has a Refund or a Reset.
func givesBack(ops []core.Op) bool {
	for i := range ops {
		if ops[i].Verb == core.Refund || ops[i].Verb == core.Reset {
			return true
		}
	}
	return false
}

// onlyGivesBack tells whether a step has nothing else.
func onlyGivesBack(ops []core.Op) bool {
	for i := range ops {
		if ops[i].Verb != core.Refund && ops[i].Verb != core.Reset {
			return false
		}
	}
	return true
}

// giveBack carries out a step that has Refunds or Resets. What concerns the
// fallback alone is done first, apart from the rest.
func (s *Store) giveBack(ctx context.Context, ops []core.Op, out []core.Decision) error {
	if err := core.CheckOps(ops, out); err != nil {
		return err
	}
	turn := s.breaker.turn.Load()
	t := s.steps.Get().(*step)
	defer s.free(t)
	for i := range ops {
		if s.isLocal(&ops[i], turn) {
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
	if err := s.giveBackTo(ctx, turn, t.ops, rest); err != nil {
		return err
	}
	for n, i := range t.index {
		out[i] = rest[n]
	}
	return nil
}

// giveBackTo carries out a step that concerns the primary. When it cannot be
// asked, what it has to be told waits. When it may have been told, only what
// can be said twice does, and the error is the caller's to see.
func (s *Store) giveBackTo(ctx context.Context, turn uint64, ops []core.Op, out []core.Decision) error {
	err := s.ask(ctx, turn, ops, out)
	if err == nil || !blames(ctx, err) {
		return err
	}
	pure := onlyGivesBack(ops)
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
	if err := s.decide(ctx, turn, ops, out); err != nil {
		return err
	}
	if pure {
		return late
	}
	return nil
}
