// This file copies the decisions on several steps at once.

package failover

import (
	"context"
	"slices"
	"sync"

	"github.com/headgate/headgate/core"
)

// Decided is a step that a primary has decided, with its decisions.
type Decided struct {
	Ops []core.Op
	Out []core.Decision

	// Copied is set by [Copier.Copy] if it has copied the decisions. Those of other steps are
	// copied one by one when their callers have them.
	Copied bool
}

// A Copier keeps the counts of a fallback as they are at the primary. It is safe for concurrent
// use.
type Copier interface {
	// Copy copies decisions that no caller has yet, and marks them with the copies. It keeps
	// nothing of the steps.
	Copy(steps []Decided)
}

// copying is a primary that decides the steps of several callers by one call. The copies cost less
// together, because the fallback then waits for the memory of several keys at the same time.
type copying interface {
	// ApplyCopied is Apply. It may give the step, once it is decided, to c, and returns whether c
	// has copied it.
	ApplyCopied(ctx context.Context, ops []core.Op, out []core.Decision, c Copier) (copied bool, err error)
}

// single is a primary whose decisions are copied one by one.
type single struct{ core.Store }

// ApplyCopied implements copying.
func (s single) ApplyCopied(ctx context.Context, ops []core.Op, out []core.Decision, _ Copier) (bool, error) {
	return false, s.Apply(ctx, ops, out)
}

// together is the Copier of a Store. It makes one step of the copies of several:
//
//	steps of the callers     a a   b   c c     b   d
//	steps of the fallback    a a   b   c c  |  b   d
//
// The copies are Soft Takes, which do not depend on each other, and no key is in two of the
// callers' steps. So the fallback decides as if each step came by itself.
type together struct {
	mirror *mirror
	joints sync.Pool // of *joint
}

// joint is one step of the fallback, with copies of the decisions of several steps.
type joint struct {
	step                   // the copies
	of     []*Decided      // what they are copies of
	theirs []core.Decision // the decisions of these, one after the other
	keys   []uint64        // the hash of the key of each copy
	found  uint64          // a bit for each of these

	// The limit of the latest copy, and that of its key at the primary. Most are alike.
	limit, copied core.Limit
}

// maxJoint is the number of operations up to which steps are joined. It is that up to which a
// memstore decides at once.
const maxJoint = 16

func newJoint() any { return new(joint) }

// Copy implements [Copier]. While keys owe units it leaves all steps to their callers.
func (t *together) Copy(steps []Decided) {
	m := t.mirror
	if m.owed.busy.Load() {
		return
	}

	j := t.joints.Get().(*joint)
	j.limit = core.Limit{} // of which there may be more instances by now

	// A step for which there is no room begins the next joint.
	for i := range steps {
		d := &steps[i]
		if !joins(d.Ops, d.Out) {
			continue
		}
		if !j.hasRoom(m, d.Ops) {
			j.copy(m)
			j.hasRoom(m, d.Ops)
		}
		j.add(m, d)
	}
	j.copy(m)
	t.joints.Put(j)
}

// joins reports whether the copies of a step are Takes of a count alone: those that were charged,
// and a single one that has found nothing left. A key with credit has more than its count.
func joins(ops []core.Op, out []core.Decision) bool {
	if len(ops) == 0 || len(ops) > maxJoint {
		return false
	}

	for i := range ops {
		op, d := &ops[i], &out[i]
		switch {
		case op.Verb != core.Take || op.UpTo || op.Cost <= 0 || op.MaxWait != 0 || op.Windows != nil:
			return false
		case op.Limit.Leased(), d.Banned, d.Credit != 0, d.FromCredit != 0:
			return false
		case !d.Allowed && (len(ops) > 1 || op.Ban != nil || d.Remaining != 0):
			return false
		}
	}
	return true
}

// hasRoom reports whether a step may join, and notes the hashes of its keys if so. A step about a
// key that has joined has to wait, as its copy depends on what the other one leaves.
func (j *joint) hasRoom(m *mirror, ops []core.Op) bool {
	n := len(j.keys)
	if n+len(ops) > maxJoint {
		return false
	}

	// Nearly always the bits alone prove that the key is another.
	before := j.found
	for i := range ops {
		key := m.copies.hash(ops[i].Key)
		bit := uint64(1) << (key >> 58)
		if before&bit != 0 && slices.Contains(j.keys[:n], key) {
			j.keys, j.found = j.keys[:n], before
			return false
		}
		j.keys, j.found = append(j.keys, key), j.found|bit
	}
	return true
}

// add adds the copies of a step for which there is room.
func (j *joint) add(m *mirror, d *Decided) {
	for i := range d.Ops {
		j.ops = append(j.ops, d.Ops[i])
		c := &j.ops[len(j.ops)-1]
		c.Soft, c.At, c.ResetAfter, c.Origin = true, 0, 0, 0
		if !d.Out[i].Allowed {
			hasten(c, &d.Ops[i], &d.Out[i])
		}

		// The number of instances is asked for once a limit.
		if !c.Limit.Equal(&j.limit) {
			j.limit, j.copied = c.Limit, m.copied(c.Limit)
		}
		c.Limit = j.copied
	}
	j.of, j.theirs = append(j.of, d), append(j.theirs, d.Out[:len(d.Ops)]...)
}

// copy carries out the copies, as record does, and empties the joint. If the fallback fails, the
// callers try again one by one.
func (j *joint) copy(m *mirror) {
	if len(j.of) == 0 {
		return
	}

	ctx := context.Background()
	if err := m.fallback.Apply(ctx, j.ops, j.outFor(len(j.ops))); err == nil {
		j.mark(m)
		m.followPrimary(ctx, &j.step, j.ops, j.theirs, false)
		j.tell()
	}

	// The texts are memory of the callers.
	clear(j.ops)
	clear(j.more)
	clear(j.of)
	j.ops, j.more, j.of, j.theirs = j.ops[:0], j.more[:0], j.of[:0], j.theirs[:0]
	j.keys, j.found = j.keys[:0], 0
}

// mark marks the decisions with their copies.
func (j *joint) mark(m *mirror) {
	for i := range j.theirs {
		mark, d := uint32(0), &j.theirs[i]
		if d.Taken > 0 && j.out[i].Allowed {
			mark = m.copies.add(j.keys[i], d.At, &j.out[i])
		}
		d.Origin = marked(d.Origin, mark)
	}
}

// tell puts the marks into the callers' steps, which are copied now.
func (j *joint) tell() {
	marked := j.theirs
	for _, d := range j.of {
		for i := range d.Ops {
			d.Out[i].Origin = marked[i].Origin
		}
		marked, d.Copied = marked[len(d.Ops):], true
	}
}

// gate is the gate of a step that was copied together with others. Its copies are known by their
// marks.
func (t *together) gate(ctx context.Context, ops []core.Op, out []core.Decision) {
	m := t.mirror
	if !m.owed.busy.Load() {
		return
	}

	c := m.steps.Get().(*step)
	defer m.free(c)

	granted := core.Granted(ops, out)
	for i := range ops {
		c.ops = append(c.ops, ops[i])
		m.makeCopy(&c.ops[i], &out[i], granted)
	}

	// A copy that is remembered no longer counts as one that was not charged, so more is owed.
	for i := range c.outFor(len(ops)) {
		now := m.peekFallback(ctx, c, &c.ops[i])
		undo := ops[i].Refund(out[i])
		if copied, ok := m.copies.find(&undo); ok {
			now.Taken, now.At, now.ResetAfter, now.Origin = copied.Taken, copied.At, copied.ResetAfter, copied.Origin
		}
		c.out[i] = now
	}
	m.gate(ctx, c, ops, out)
}
