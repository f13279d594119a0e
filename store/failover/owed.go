// This file keeps the units that the fallback granted by itself, and that the primary does not
// know.

package failover

import (
	"hash/maphash"
	"math"
	"math/bits"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/core"
)

const (
	// owedShards is into how many shards the keys are divided: one for each bit of a word.
	owedShards = 64

	// maxOwed is how many keys of a shard may owe.
	maxOwed = 256

	// settled is how long it is remembered that a key has paid: no answer of the primary that
	// was on its way comes later. In microseconds, as all instants here, by the fallback's clock.
	settled = int64(time.Minute / time.Microsecond)

	// idleEvery is the time from one look whether any key owes to the next.
	idleEvery = int64(time.Second / time.Microsecond)
)

// owed holds the keys that owe units to the primary. Its zero value lacks a seed.
//
// While the fallback decides about a key, the shard of the key is held by all that do so. Who
// compares a decision of the primary holds it alone, and so knows of each unit that the
// fallback has granted.
type owed struct {
	// busy is false if no key owes, and the fallback decides no step. It becomes true while
	// a shard is held, and false while all of them are held alone.
	busy atomic.Bool

	keys      atomic.Int64  // that are in a shard
	forgotten atomic.Uint64 // units that are not owed, for lack of room
	idle      atomic.Int64  // when to look next whether any key owes
	visited   atomic.Uint64 // the shard that was tidied last
	seed      maphash.Seed
	shards    [owedShards]owedShard
}

type owedShard struct {
	granting sync.RWMutex // see owed

	mu   sync.Mutex // guards all below
	keys map[core.ID]*debt
	next int64 // when to look next for keys that can be forgotten
}

// debt is what a key owes.
type debt struct {
	rule, key string
	limit     core.Limit

	units int64 // that are owed
	until int64 // when nothing that the fallback granted is in use any longer

	// paid is what was paid lately, by charges of the primary until the instant paidAt of its
	// clock: decisions until then do not know of all of it.
	paid, paidAt int64
	paidReset    time.Duration // of that charge's decision

	looked  int64 // when the key was granted units or compared last
	sending int64 // units that are on their way to the primary
	back    int64 // of these, units that have come back to the fallback meanwhile
	queued  bool  // for a payment
	final   bool  // the primary may have the latest payment, so there is no other
}

// number returns the number of the key's shard.
func (o *owed) number(key string) int { return int(maphash.String(o.seed, key) % owedShards) }

func (o *owed) shardOf(key string) *owedShard { return &o.shards[o.number(key)] }

// grants reports whether an operation may change what is owed if the fallback decides it.
func grants(op *core.Op) bool {
	return (op.Verb == core.Take || op.Verb == core.Debit) && op.Cost > 0 || op.Verb == core.Reset
}

// hold holds the shards of the keys to which the fallback may grant units in a step, and
// returns them as bits. It must be followed by release.
func (o *owed) hold(ops []core.Op) (held uint64) {
	for i := range ops {
		if grants(&ops[i]) {
			held |= 1 << o.number(ops[i].Key)
		}
	}
	if held == 0 {
		return 0
	}

	// A shard is a bit, so keys that share one hold it once, and all steps hold the shards in one
	// order.
	for bit := held; bit != 0; bit &= bit - 1 {
		o.shards[bits.TrailingZeros64(bit)].granting.RLock()
	}
	if !o.busy.Load() {
		o.busy.Store(true)
	}
	return held
}

// release ends a hold of shards.
func (o *owed) release(held uint64) {
	for bit := held; bit != 0; bit &= bit - 1 {
		o.shards[bits.TrailingZeros64(bit)].granting.RUnlock()
	}
}

// recordGranted records what the fallback granted in a step. Its shards are held.
func (o *owed) recordGranted(ops []core.Op, out []core.Decision) {
	for i := range ops {
		op, d := &ops[i], &out[i]
		switch {
		case !grants(op):
		case op.Verb == core.Reset:
			o.forget(op)
		case d.Taken > 0:
			o.add(op, d)
		}
	}
}

// add records that the fallback granted the units of a decision.
func (o *owed) add(op *core.Op, d *core.Decision) {
	h := o.shardOf(op.Key)
	h.mu.Lock()
	defer h.mu.Unlock()

	k := h.keys[op.ID()]

	// Nothing of what the key owed is in use any longer. A payment on its way still has to end.
	if k != nil && d.At >= k.until {
		*k = debt{rule: k.rule, key: k.key, queued: k.queued, sending: k.sending, back: k.back}
	}
	if k == nil {
		if k = o.newDebtLocked(h, op, d.At); k == nil {
			o.forgotten.Add(uint64(d.Taken))
			return
		}
	}

	// The debt lasts until the latest of its units has come back to the fallback.
	k.limit = op.Limit
	k.units += min(d.Taken, math.MaxInt64-k.units)
	k.until = max(k.until, d.At+int64(d.ResetAfter/time.Microsecond))
	k.looked = max(k.looked, d.At)
	h.next = min(h.next, k.until)
}

// newDebtLocked returns the debt of a key that owes nothing yet, or nil if there is no room.
func (o *owed) newDebtLocked(h *owedShard, op *core.Op, now int64) *debt {
	// Keys that owe nothing any longer make room for others.
	if len(h.keys) >= maxOwed {
		o.tidyLocked(h, now)
	}
	if len(h.keys) >= maxOwed {
		return nil
	}
	if h.keys == nil {
		h.keys, h.next = map[core.ID]*debt{}, math.MaxInt64
	}

	id := op.ID()
	id.Key = strings.Clone(id.Key)
	k := &debt{rule: id.Rule, key: id.Key}
	h.keys[id] = k
	o.keys.Add(1)
	return k
}

// mayPay reports whether the key owes units for which no payment is on its way.
func (d *debt) mayPay() bool { return d.units > 0 && !d.queued && !d.final }

// isClear reports whether the key can be forgotten at once.
func (d *debt) isClear() bool { return d.units == 0 && d.paid == 0 && !d.queued }

// end returns when the key can be forgotten.
func (d *debt) end() int64 {
	if d.units > 0 {
		return d.until
	}
	return min(d.until, d.looked+settled)
}

// tidyLocked forgets the keys whose time is over.
func (o *owed) tidyLocked(h *owedShard, now int64) {
	if now < h.next {
		return
	}

	h.next = math.MaxInt64
	for id, k := range h.keys {
		if end := k.end(); end <= now {
			o.dropLocked(h, id)
		} else {
			h.next = min(h.next, end)
		}
	}
}

func (o *owed) dropLocked(h *owedShard, id core.ID) {
	if _, ok := h.keys[id]; ok {
		delete(h.keys, id)
		o.keys.Add(-1)
	}
}

// forget drops what a key owes, as a Reset does.
func (o *owed) forget(op *core.Op) {
	h := o.shardOf(op.Key)
	h.mu.Lock()
	defer h.mu.Unlock()

	o.dropLocked(h, op.ID())
}

// lower takes units from what a key owes, because they come back to the fallback. If the key
// has paid for some of them, it returns the refund of those at the primary.
func (o *owed) lower(op *core.Op) (refund core.Op, ok bool) {
	h := o.shardOf(op.Key)
	h.mu.Lock()
	defer h.mu.Unlock()

	k := h.keys[op.ID()]
	if k == nil || op.Limit.Leased() {
		return refund, false
	}

	// Units that come back are first those that are owed and not on their way to the primary.
	// A key may end sooner with fewer, and stays until the next look all the same.
	n := min(op.Cost, k.units-min(k.sending, k.units))
	k.units -= n

	// The others come from what was paid, and only then from what is on its way.
	paid := min(op.Cost-n, k.paid)
	k.back += min(op.Cost-n-paid, max(0, k.sending-k.back))
	return k.refundLocked(paid)
}

// refundLocked takes n units from what the key has paid, and returns the refund of them at the
// primary. ok is false if n is 0.
func (d *debt) refundLocked(n int64) (refund core.Op, ok bool) {
	d.paid -= n
	refund = core.Op{
		Verb: core.Refund, Rule: d.rule, Key: d.key, Limit: d.limit, Cost: n, At: d.paidAt, ResetAfter: d.paidReset,
	}
	return refund, n > 0
}

// pay makes a charge of the primary pay for what the key owes, and returns how many of its
// units do. d is the primary's decision.
func (o *owed) pay(op *core.Op, units int64, d *core.Decision) int64 {
	h := o.shardOf(op.Key)
	h.mu.Lock()
	defer h.mu.Unlock()

	k := h.keys[op.ID()]
	if k == nil {
		return 0
	}

	defer func() { h.next = min(h.next, k.end()) }()
	return k.payLocked(min(units, k.units-k.sending), d)
}

// payLocked records that the primary has charged n units for the key, and returns how many of
// them were owed.
func (d *debt) payLocked(n int64, decision *core.Decision) int64 {
	n = max(0, min(n, d.units))
	if n == 0 {
		return 0
	}

	d.units, d.paid = d.units-n, d.paid+n
	if decision.At >= d.paidAt {
		d.paidAt, d.paidReset = decision.At, decision.ResetAfter
	}
	return n
}

// unknownTo returns how many units the primary did not know at an instant of its clock.
func (d *debt) unknownTo(at int64) int64 {
	if at > d.paidAt {
		return d.units
	}
	return d.units + d.paid
}

// ageLocked lowers what is owed to what is still in use in the fallback, whose latest decision on
// the key is inFallback. own are the units in use there that are known to be no part of it.
func (d *debt) ageLocked(part core.Limit, inFallback *core.Decision, own int64) {
	d.looked = inFallback.At
	switch {
	case inFallback.At >= d.until:
		d.units, d.paid = 0, 0
	case inFallback.Remaining > 0: // else more than the capacity may be in use
		d.units = min(d.units, max(d.sending, part.Capacity()-inFallback.Remaining-own))
	}
}

// checkIdle makes busy false if no key owes any longer. It looks now and then, because it has to
// wait for all shards.
func (o *owed) checkIdle(now int64) {
	h := &o.shards[o.visited.Add(1)%owedShards]
	if h.mu.TryLock() {
		o.tidyLocked(h, now)
		h.mu.Unlock()
	}

	due := o.idle.Load()
	if o.keys.Load() > 0 || now < due || !o.idle.CompareAndSwap(due, now+idleEvery) {
		return
	}

	// With all shards held alone the fallback grants nothing, so no key can begin to owe.
	for i := range o.shards {
		o.shards[i].granting.Lock()
	}
	if o.keys.Load() == 0 {
		o.busy.Store(false)
	}
	for i := range o.shards {
		o.shards[i].granting.Unlock()
	}
}
