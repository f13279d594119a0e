// This file keeps the fallback's counts and has it decide.

package failover

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/core"
)

// mirror keeps the counts of the fallback as they are at the primary, and has it decide. A unit
// of a key has one of these states:
//
//	      the primary admits: record copies the charge
//	free ------------------------------------------------> in use in both
//	 | ^                                                         ^
//	 | |  time, a Refund or a Reset                              |  a charge of the primary
//	 | +-----------------------------+                           |  pays for it: see payment
//	 |    the fallback grants: decide |                          |
//	 +-----------------------------> owed -----------------------+
//
//	owed   is in debt.units: gate refuses what would exceed the limit together with it
//	paid   is in debt.paid for a minute: answers on their way do not know of the charge yet
type mirror struct {
	primary   *primary
	fallback  core.Store // or nil
	instances func() int // or nil

	shares   shares
	copies   copies
	owed     owed
	payments payments
	steps    sync.Pool // of *step
	local    atomic.Uint64
}

// step is memory for the operations of one step in the form for the fallback.
type step struct {
	ops   []core.Op
	sent  []core.Op // the operations in the form for the primary
	out   []core.Decision
	index []int // their indices in the caller's step

	more     []core.Op       // operations that follow in the fallback
	after    []core.Decision // on them
	followed []int           // the indices in ops of what they follow

	copies  []core.Op // refunds of charges in the fallback
	over    []bool    // for each operation, whether it is refused by the gate
	refused bool      // whether the step is
	paying  []core.ID // keys that are to pay, with memory of their own
}

// resized returns space for n decisions, in list if it is large enough.
func resized(list []core.Decision, n int) []core.Decision {
	if cap(list) < n {
		list = make([]core.Decision, n)
	}
	return list[:n]
}

// outFor returns space for the decisions on n operations.
func (s *step) outFor(n int) []core.Decision {
	s.out = resized(s.out, n)
	return s.out
}

// free clears the step and gives it back to the pool.
func (m *mirror) free(t *step) {
	clear(t.ops)
	clear(t.sent)
	clear(t.more)
	clear(t.copies)
	clear(t.paying)
	t.ops, t.sent, t.index, t.more, t.copies = t.ops[:0], t.sent[:0], t.index[:0], t.more[:0], t.copies[:0]
	m.steps.Put(t)
}

// part returns the limit under which this instance may grant by itself.
func (m *mirror) part(l core.Limit) core.Limit {
	if m.instances == nil {
		return l
	}
	return m.shares.part(l, m.instances())
}

// copied returns the limit under which the copies of the primary's charges are kept: the part,
// or the whole limit while the number of instances is not known. The part will grow then, and
// a count that ended at a part of one unit would be too low.
func (m *mirror) copied(l core.Limit) core.Limit {
	if m.instances == nil {
		return l
	}
	n := m.instances()
	if n >= UnknownInstances {
		return l
	}
	return m.shares.part(l, n)
}

// decide makes the fallback carry out a step in the generation. Its Refunds are
// of units that the primary granted.
func (m *mirror) decide(ctx context.Context, generation uint64, ops []core.Op, out []core.Decision) error {
	t := m.steps.Get().(*step)
	defer m.free(t)

	for i := range ops {
		op := ops[i]
		if op.Verb == core.Refund {
			op = m.refundOfCopy(&op)
		}
		op.Limit = m.part(op.Limit)
		t.ops = append(t.ops, op)
	}

	// The shards are held until the grants are recorded: gate must not miss one.
	held := m.owed.hold(ops)
	defer m.owed.release(held)
	if err := m.fallback.Apply(ctx, t.ops, out); err != nil {
		return err
	}
	if held != 0 {
		m.owed.recordGranted(ops, out)
	}

	m.local.Add(1)
	for i := range ops {
		out[i].Fallback = true
		if charges(&ops[i]) {
			out[i].Origin = marked(out[i].Origin, fallbackMark(generation))
		}
	}
	return nil
}

// refundOfCopy returns the refund of the fallback's copy of the units that op
// refunds at the primary, or a Peek if the fallback has no copy, or remembers it no
// longer: then its count stays too high until time passes, never too low. The copies
// of leases are known by the lease.
func (m *mirror) refundOfCopy(op *core.Op) core.Op {
	c := *op
	if c.Limit.Leased() {
		c.At, c.ResetAfter, c.Origin = 0, 0, 0
		return c
	}

	d, ok := m.copies.find(op)
	if !ok {
		c.Verb, c.Cost = core.Peek, 0
		c.At, c.ResetAfter, c.Origin = 0, 0, 0
		return c
	}
	c.Cost = min(max(0, c.Cost-c.FromCredit), d.Taken) // the copy of a Debit may be smaller
	return c.Refund(d)
}

// takeBack refunds at the fallback the units that it granted itself.
func (m *mirror) takeBack(ctx context.Context, op core.Op, d *core.Decision) error {
	t := m.steps.Get().(*step)
	defer m.free(t)

	// The primary was charged for units that were paid, so it gives those back too.
	if refund, ok := m.owed.lower(&op); ok {
		_ = m.primary.postpone([]core.Op{refund}, ErrOpen) // which counts what is lost
	}

	// The fallback has set its half of the origin itself, and knows no marks.
	op.Limit, op.Origin = m.part(op.Limit), op.Origin>>markBits
	t.ops = append(t.ops, op)
	out := t.outFor(1)
	err := m.fallback.Apply(ctx, t.ops, out)
	*d = out[0]
	d.Fallback = true
	return err
}

// maxShares is how many limits are remembered with their parts. The parts of
// other limits are computed each time.
const maxShares = 1024

// shares returns the parts of limits. The zero value is ready for use.
type shares struct{ known atomic.Pointer[partsByLimit] }

// partsByLimit holds the parts for one number of instances. It is replaced as a whole.
type partsByLimit struct {
	instances int
	parts     map[core.Limit]core.Limit
}

// part returns the limit under which one of n instances may grant by itself.
func (s *shares) part(l core.Limit, n int) core.Limit {
	if n <= 1 {
		return l
	}

	p := s.known.Load()
	if p != nil && p.instances == n {
		if part, ok := p.parts[l]; ok {
			return part
		}
	}

	// The table is copied for each new limit. There are few, and a reader needs no lock.
	part := l.Part(int64(n))
	next := &partsByLimit{instances: n, parts: map[core.Limit]core.Limit{}}
	if p != nil && p.instances == n {
		if len(p.parts) >= maxShares {
			return part
		}
		next.parts = maps.Clone(p.parts)
	}

	next.parts[l] = part
	s.known.CompareAndSwap(p, next) // if another was faster, the part is computed again
	return part
}

// record charges to the fallback the units that the primary has admitted, up to
// this instance's part, and marks the primary's decisions with the copies. It then
// removes the units by which a key has more left in the fallback than at the
// primary. Errors are ignored: after one, the fallback only knows less of the
// counts.
func (m *mirror) record(ctx context.Context, ops []core.Op, out []core.Decision) {
	if m.fallback == nil || onlyPeeks(ops) {
		return
	}

	t := m.steps.Get().(*step)
	defer m.free(t)

	granted := core.Granted(ops, out)
	for i := range ops {
		t.ops = append(t.ops, ops[i])
		m.makeCopy(&t.ops[i], &out[i], granted)
	}

	if !granted && len(ops) == 1 {
		hasten(&t.ops[0], &ops[0], &out[0])
	}

	err := m.fallback.Apply(ctx, t.ops, t.outFor(len(ops)))
	m.markCopies(t, out, err == nil && (granted || len(ops) > 1))
	if err != nil {
		return
	}

	// Busy is read once more, because the fallback may have granted units before followPrimary took
	// away what the primary lacks. What it grants later is of the units that it was left.
	busy := m.owed.busy.Load()
	m.followPrimary(ctx, t, ops, out, busy)
	if busy || m.owed.busy.Load() {
		m.gate(ctx, t, ops, out)
	}
}

// hasten turns the Peek that is the copy of a refused Take into a Take of a unit, where none
// is left at the primary, so that none may be left in the fallback either. Stores refuse a
// Take faster than they answer a Peek.
func hasten(c, op *core.Op, d *core.Decision) {
	if op.Verb == core.Take && !op.UpTo && op.Cost > 0 && op.Ban == nil && !op.Limit.Leased() && d.Remaining == 0 {
		c.Verb, c.Cost, c.MaxWait = core.Take, 1, 0
	}
}

// markCopies marks the primary's decisions about Takes with the copies in the
// fallback, if they may have been carried out there.
func (m *mirror) markCopies(t *step, out []core.Decision, carriedOut bool) {
	for i := range t.ops {
		mark, op := uint32(0), &t.ops[i]
		if carriedOut && charges(op) && op.Cost > 0 && t.out[i].Allowed && !op.Limit.Leased() {
			mark = m.copies.add(m.copies.hash(op.Key), out[i].At, &t.out[i])
		}
		out[i].Origin = marked(out[i].Origin, mark)
	}
}

// makeCopy turns an operation of the primary into the form for the fallback, where d is the
// primary's decision. An UpTo Take becomes a Take of the units that the primary has taken, a
// Debit becomes one of those, and a Take that was not charged becomes a Peek. Units of credit are
// not copied, because the fallback knows none. A lease that the primary has granted is held
// whatever the part is.
func (m *mirror) makeCopy(c *core.Op, d *core.Decision, granted bool) {
	if c.Verb == core.Refund {
		*c = m.refundOfCopy(c)
	} else {
		if c.UpTo || c.Verb == core.Debit {
			c.UpTo, c.Cost = false, d.Taken
		}
		c.Cost = max(0, c.Cost-d.FromCredit)
		c.Soft, c.At, c.ResetAfter, c.Origin = true, 0, 0, 0
		if c.Verb == core.Take && !(granted && d.Allowed) || c.Verb >= core.Grant {
			c.Verb, c.Cost = core.Peek, 0
		}
	}

	if !c.Limit.Leased() {
		c.Limit = m.copied(c.Limit)
	}
}

// followPrimary leaves keys no more units in the fallback than they have left at
// the primary, and bans those that the primary has banned. Leases end by themselves. While it is
// busy, the former is left to gate.
func (m *mirror) followPrimary(ctx context.Context, t *step, ops []core.Op, out []core.Decision, busy bool) {
	more, of := t.more[:0], t.followed[:0]
	for i := range ops {
		if out[i].Banned {
			if more = banCopy(more, &t.ops[i], &t.out[i], &out[i]); len(more) > len(of) {
				of = append(of, i)
			}
			continue
		}

		// While keys owe, gate compares what remains, and takes away less.
		surplus := t.out[i].Remaining - ofLimit(&out[i])
		if !charges(&ops[i]) || ops[i].Limit.Leased() || surplus <= 0 || busy {
			continue
		}

		op := t.ops[i]
		op.Verb, op.Ban, op.Cost, op.MaxWait = core.Take, nil, surplus, 0
		more, of = append(more, op), append(of, i)
	}

	t.more, t.followed = more, of
	if len(more) == 0 {
		return
	}

	t.after = resized(t.after, len(more))
	if err := m.fallback.Apply(ctx, more, t.after); err == nil {
		m.drainRefused(ctx, t, out)
	}
}

// drainRefused takes from the fallback what followPrimary could not, because others have
// taken some of it meanwhile.
func (m *mirror) drainRefused(ctx context.Context, t *step, out []core.Decision) {
	var surplus map[int]int64 // of the operations of the step, in the rare case
	for n, i := range t.followed {
		d := &t.after[n]
		if left := d.Remaining - ofLimit(&out[i]); !d.Allowed && left > 0 && t.more[n].Verb == core.Take {
			if surplus == nil {
				surplus = map[int]int64{}
			}
			surplus[i] = left
		}
	}

	for i, n := range surplus {
		m.drain(ctx, t, &t.ops[i], n)
	}
}

// banCopy appends to more the operation that bans the key of op in the fallback, for as long
// as the primary refuses it in its decision d. The fallback's own decision on the copy is
// known: it may have a shorter ban of an outage.
func banCopy(more []core.Op, op *core.Op, known, d *core.Decision) []core.Op {
	if known.Banned && known.RetryAfter >= d.RetryAfter || d.RetryAfter == 0 || d.RetryAfter == core.Never {
		return more
	}
	for i := range more {
		if more[i].Verb == core.Impose && more[i].ID() == op.ID() {
			return more
		}
	}
	ban := *op.Ban
	ban.For = min(max(d.RetryAfter, time.Millisecond), ban.Max)
	c := *op
	c.Verb, c.Ban, c.Cost = core.Impose, &ban, 0
	return append(more, c)
}

// ofLimit returns the units that remain without those of credit.
func ofLimit(d *core.Decision) int64 { return d.Remaining - d.Credit }

// charges reports whether the op charges units that a Refund can give back.
func charges(op *core.Op) bool { return op.Verb == core.Take || op.Verb == core.Debit }

func onlyPeeks(ops []core.Op) bool {
	for i := range ops {
		if ops[i].Verb != core.Peek {
			return false
		}
	}
	return true
}

// forPrimary returns op with the origin that the primary has set itself.
func (m *mirror) forPrimary(op core.Op) core.Op {
	if m.fallback != nil {
		op.Origin >>= markBits
	}
	return op
}
