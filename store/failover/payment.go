// This file charges to the primary what its keys owe, and has its late charges pay for that.
//
//	        gate: it owes             pay: beginPayment
//	idle ------------------> queued ---------------------> on its way
//	 ^                                                      |  |
//	 |  decided: units that were charged are paid           |  |
//	 +------------------------------------------------------+  |  it may have been charged,
//	 |  it was not sent: all is owed still                  |  |  or may not
//	 +------------------------------------------------------+  v
//	                                                         final: it is not sent again,
//	                                                         and owed until time has paid it
//
// The fields queued, sending, back and final of a debt say which state it has.

package failover

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/headgate/headgate/core"
)

// maxPayments is how many payments are on their way at a time.
const maxPayments = 4

// payments are the keys that are to pay. A few goroutines send the payments, and end with the
// last one. The zero value is ready for use.
type payments struct {
	mu      sync.Mutex // guards all below
	queue   []core.ID
	senders int
	closed  bool

	running sync.WaitGroup
}

// add has a key pay.
func (p *payments) add(m *mirror, id core.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if p.closed {
		return
	}
	p.queue = append(p.queue, id)
	if p.senders < maxPayments {
		p.senders++
		p.running.Go(func() { p.send(m) })
	}
}

func (p *payments) send(m *mirror) {
	for {
		id, ok := p.next()
		if !ok {
			return
		}
		m.pay(id)
	}
}

// next removes the first key of the queue. It returns false if there is none, and the
// goroutine ends.
func (p *payments) next() (id core.ID, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if p.closed || len(p.queue) == 0 {
		p.senders--
		return id, false
	}
	id, p.queue = p.queue[0], p.queue[1:]
	return id, true
}

// close waits for the payments on their way. Later ones do not begin.
func (p *payments) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()

	p.running.Wait()
}

// pay charges to the primary what a key owes. What does not fit stays owed. If it is not known
// whether the primary has charged it, it stays owed until time has paid it, and is not sent
// again.
func (m *mirror) pay(id core.ID) {
	op, ok := m.owed.beginPayment(id)
	if !ok {
		return
	}

	b := m.primary.breakerOf(id.Key)
	generation := b.generation.Load()
	if isOpen(generation) {
		_, _ = m.owed.endPayment(id, nil, ErrOpen)
		return
	}

	op.Windows = op.Limit.Windows(time.Now().UnixMicro())
	ctx, cancel := context.WithTimeout(b.background.life, m.primary.patience)
	defer cancel()
	out := make([]core.Decision, 1)
	err := m.primary.call(ctx, []core.Op{op}, out)
	if refund, ok := m.owed.endPayment(id, &out[0], err); ok {
		_ = m.primary.postpone([]core.Op{refund}, ErrOpen) // which counts what is lost
	}

	switch {
	case err == nil:
		b.succeed(generation, out[0].At)
	case b.background.life.Err() != nil, errors.Is(err, core.ErrOp), m.primary.excused(err):
	case b.fail(generation, err):
		m.primary.open(b, generation, []core.Op{op}, err)
	}
}

// beginPayment marks what a key owes as on its way, and returns the Take that pays it. A key that
// owes nothing leaves the queue.
func (o *owed) beginPayment(id core.ID) (op core.Op, ok bool) {
	h := o.shardOf(id.Key)
	h.mu.Lock()
	defer h.mu.Unlock()

	k := h.keys[id]
	if k == nil || k.units == 0 {
		if k != nil {
			k.queued = false
		}
		return op, false
	}
	k.sending = k.units
	return core.Op{Verb: core.Take, UpTo: true, Rule: k.rule, Key: k.key, Limit: k.limit, Cost: k.units}, true
}

// endPayment records what became of a payment: d is the primary's decision unless there is an
// error. It returns the refund of units that have come back to the fallback meanwhile, if there
// are any.
func (o *owed) endPayment(id core.ID, d *core.Decision, err error) (refund core.Op, ok bool) {
	h := o.shardOf(id.Key)
	h.mu.Lock()
	defer h.mu.Unlock()

	k := h.keys[id]
	if k == nil {
		return refund, false
	}

	n, back := k.sending, k.back
	k.queued, k.sending, k.back = false, 0, 0

	switch {
	case err == nil:
		paid := k.payLocked(min(n, d.Taken), d)
		h.next = min(h.next, k.end())
		k.units -= min(back-min(back, paid), k.units) // what did not fit has come back too
		return k.refundLocked(min(back, paid))
	case wasNotSent(err):
		k.units -= min(back, k.units) // the key may end sooner, and stays until the next look
	default:
		k.final = true
	}
	return refund, false
}

// wasNotSent reports whether an error proves that the primary has not carried out a step.
func wasNotSent(err error) bool {
	if errors.Is(err, ErrOpen) {
		return true
	}
	var unsent interface{ Unsent() bool }
	return errors.As(err, &unsent) && unsent.Unsent()
}

// follow settles the charges of a step that the primary did not decide in time, if it decides
// it yet. granted says whether the fallback has granted the step.
func (m *mirror) follow(err error, granted bool) {
	var pending interface {
		WhenDecided(func([]core.Op, []core.Decision))
	}
	if errors.As(err, &pending) {
		pending.WhenDecided(func(ops []core.Op, out []core.Decision) { m.settleLate(ops, out, granted) })
	}
}

// settleLate settles the primary's late decisions. Their charges pay for what the keys owe. The
// rest of a Take goes back, as its caller was told otherwise, and that of a Debit stays, as it was
// used. A lease that the fallback has granted instead is the same one, and ends with its request.
func (m *mirror) settleLate(ops []core.Op, out []core.Decision, granted bool) {
	var undo []core.Op
	for i := range ops {
		op, d := &ops[i], &out[i]
		if !charges(op) || d.Taken == 0 || op.Limit.Leased() && granted {
			continue
		}

		unpaid := d.Taken
		if !op.Limit.Leased() {
			unpaid -= m.owed.pay(op, unpaid-d.FromCredit, d)
		}
		if unpaid > 0 && op.Verb == core.Take {
			back := op.Refund(*d)
			back.Cost = unpaid
			undo = append(undo, back)
		}
	}
	_ = m.primary.postpone(undo, ErrOpen) // which counts what is lost
}
