package failover

import (
	"context"

	"github.com/headgate/headgate/core"
)

// mirror charges to the fallback what the primary has admitted, as far as this
// instance's part goes, and takes from it what it has more left of a key than
// the primary. An error leaves the fallback colder and harms nobody.
func (s *Store) mirror(ctx context.Context, ops []core.Op, out []core.Decision) {
	if s.fallback == nil || onlyPeeks(ops) {
		return
	}
	t := s.steps.Get().(*step)
	defer s.free(t)
	granted := core.Granted(ops, out)
	for i := range ops {
		t.ops = append(t.ops, s.copied(&ops[i], granted && out[i].Allowed))
	}
	if s.fallback.Apply(ctx, t.ops, t.room(len(ops))) == nil {
		s.capToPrimary(ctx, t, ops, out)
	}
}

// copied is op as the fallback is told of it. A lease that the primary has
// granted is held whatever the part is.
func (s *Store) copied(op *core.Op, charged bool) core.Op {
	c := *op
	c.Soft, c.At, c.ResetAfter, c.Origin = true, 0, 0, 0
	if !c.Limit.Leased() {
		c.Limit = s.part(c.Limit)
	}
	if c.Verb == core.Take && !charged {
		c.Verb, c.Cost = core.Peek, 0
	}
	return c
}

// capToPrimary leaves keys no more units in the fallback than they have left at the
// primary. Leases end by themselves.
func (s *Store) capToPrimary(ctx context.Context, t *step, ops []core.Op, out []core.Decision) {
	more := t.ops[:0]
	for i := range ops {
		surplus := t.out[i].Remaining - out[i].Remaining
		if ops[i].Verb != core.Take || ops[i].Limit.Leased() || surplus <= 0 {
			continue
		}
		op := t.ops[i]
		op.Verb, op.Cost, op.MaxWait = core.Take, surplus, 0
		more = append(more, op)
	}
	if len(more) > 0 {
		_ = s.fallback.Apply(ctx, more, t.out) // see mirror
	}
}

func onlyPeeks(ops []core.Op) bool {
	for i := range ops {
		if ops[i].Verb != core.Peek {
			return false
		}
	}
	return true
}
