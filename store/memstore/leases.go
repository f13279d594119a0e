// This file has the memory of leases, which core.Compact keeps as records in two pieces of memory:
// in the slot, as far as its key leaves room, and in a tail. The tails of a shard lie side by side
// in one piece of memory, so that they take no more than their records and no pointer leads to
// them. A slot has the place of its tail in the upper bits of its used units. A long tail is a list
// beside the slot.

package memstore

import (
	"slices"

	"github.com/headgate/headgate/core"
)

// leaseSlot is slot i of a shard, which has leases that core.Compact can pack, or none.
type leaseSlot struct {
	h       *shard
	i       int
	compact *core.Compact // of the limit under which the leases were written
}

// leaseSlotOf returns the slot of an op of class v. Its compact is nil if slot i is of another key,
// or if core has to decide the op.
func leaseSlotOf(h *shard, i int, v *limitClass, op *core.Op) leaseSlot {
	l := leaseSlot{h: h, i: i}
	switch id := h.slots[i].class; {
	case h.rareState(i) != nil || op.Ban != nil:
	case id == v.id:
		l.compact = &v.compact
	case id&shared == 0 && h.classOf(i).counts(op):
		l.compact = &(*h.classes.list.Load())[id].compact
	}
	return l
}

// take carries out a Take, Peek or Refund of class id, unless core has to decide. Then it has
// changed nothing, and d is not to be read.
func (l leaseSlot) take(op *core.Op, id classID, now int64, d *core.Decision) (done bool) {
	c := &l.h.slots[l.i]
	head, tail := l.memory()
	done = l.compact.TakeLease(&c.used, &c.mark, head, tail, op, now, d)
	if !done && l.grow(op) {
		head, tail = l.memory()
		done = l.compact.TakeLease(&c.used, &c.mark, head, tail, op, now, d)
	}

	// A Peek of a fresh key forgets it on the general path.
	if op.Verb == core.Peek && d.ResetAfter == 0 {
		return false
	}

	// Without the lease the key is fresh sooner, and so it may be when one is renewed under a limit
	// with a shorter Period. A sweep also takes memory back that the key no longer needs.
	if done && (op.Verb == core.Refund || c.class != id) {
		l.h.recordExpiry(c.mark)
		if len(tail) > 0 && l.isLarge() {
			l.h.recordExpiry(now)
		}
	}
	return done
}

// try decides a Take of a step, and changes nothing that counts. The decision is that on a Take
// which did not happen.
func (l leaseSlot) try(op *core.Op, now int64, d *core.Decision) (done bool) {
	c := &l.h.slots[l.i]
	head, tail := l.memory()
	done = l.compact.TryLease(c.used, c.mark, head, tail, op, now, d)
	if !done && l.grow(op) {
		head, tail = l.memory()
		done = l.compact.TryLease(c.used, c.mark, head, tail, op, now, d)
	}
	return done
}

// load puts the leases into st, unless they are in the rareState of the slot.
func (l leaseSlot) load(st *core.State) {
	if c := &l.h.slots[l.i]; l.compact.Leases(c.used) > 0 {
		head, tail := l.memory()
		st.Leases = l.compact.UnpackLeases(c.used, c.mark, head, tail, nil)
	}
}

// write writes leases to the slot, of which there are never more than most. If it returns false it
// has written none, because core.Compact cannot pack them.
func (l leaseSlot) write(leases []core.Lease, most int) (done bool) {
	c := &l.h.slots[l.i]
	if len(leases) == 0 || !l.compact.Packs(leases) {
		l.setTail(0)
		c.used, c.mark = 0, 0
		return len(leases) == 0
	}
	if head, tail := l.memory(); len(leases) > l.compact.LeaseRoom(head, tail) {
		l.resize(len(leases), most)
	}

	head, tail := l.memory()
	used, mark, _ := l.compact.PackLeases(leases, head, tail)
	c.used, c.mark = c.used&^usedBits|used, mark
	return true
}

// memory returns the room of the slot beside its key, and the tail.
func (l leaseSlot) memory() (head, tail []byte) {
	if p := tailOf(l.h.slots[l.i].used); p != 0 {
		tail = l.h.tails.at(p)
	} else {
		tail = l.h.listBeside(l.i)
	}
	return l.h.room(l.i), tail
}

// grow makes room for one lease more if only that kept a Take from being carried out. It reports
// whether it did.
func (l leaseSlot) grow(op *core.Op) bool {
	n, quota := l.compact.Leases(l.h.slots[l.i].used), int(op.Limit.Quota)
	head, tail := l.memory()
	if op.Verb != core.Take || n < l.compact.LeaseRoom(head, tail) || n >= quota {
		return false
	}
	l.resize(n+1, quota)
	return true
}

// isLarge reports whether the tail is much larger than the leases need.
func (l leaseSlot) isLarge() bool {
	head, tail := l.memory()
	return len(tail) > 0 && l.compact.LeaseRoom(head, tail) > 4*l.compact.Leases(l.h.slots[l.i].used)+8
}

// isLeased reports whether slot i is of a leased limit. One that is uninterned and does not say yet
// what it is of is the slot whose leases are being written.
func isLeased(h *shard, i int) bool {
	if h.slots[i].class&^shared == uninterned {
		if m := h.rareState(i); m == nil || m.class == nil {
			return true
		}
	}
	return h.classOf(i).limit.Leased()
}

// shrinkLeases takes back what the leases of slot i, if it has any, need no more.
func shrinkLeases(h *shard, i int) {
	if !isLeased(h, i) {
		return
	}
	limit := &h.classOf(i).limit
	a := h.classes.compactOf(h.slots[i].class, limit)
	if l := (leaseSlot{h, i, &a}); l.isLarge() {
		l.resize(a.Leases(h.slots[i].used), int(limit.MaxRecords()))
	}
}

// resize gives the slot a tail for n leases and a few more, but not for more than most. The records
// stay as they are.
func (l leaseSlot) resize(n, most int) {
	head, _ := l.memory()
	n = max(n, min(n+n/16, most)) - l.compact.LeaseRoom(head, nil)
	l.setTail(max(0, l.compact.LeaseBytes(n)))
}

// setTail gives the slot a tail of at least n bytes, or none if n is 0, with the records of the
// tail before.
func (l leaseSlot) setTail(n int) {
	h, c := l.h, &l.h.slots[l.i]
	place := h.tails.add(h, n)

	// The tails may have moved to make room for the new one.
	_, before := l.memory()
	old := tailOf(c.used)
	switch {
	case place != 0:
		copy(h.tails.at(place), before)
	case n > 0:
		copy(h.newList(l.i, n), before)
	}

	if len(h.listBeside(l.i)) > 0 && (place != 0 || n == 0) {
		h.dropList(l.i)
	}
	c.used = c.used&usedBits | int64(place)<<32
	h.tails.free(h, old)
}

// tails are the tails of a shard's slots, one after the other, and those that no slot has any more,
// which the shard counts.
type tails struct{ memory []byte }

// tail is the place of a tail and, below it, its size, both in pairs of bytes. It is 0 for none.
type tail uint32

const (
	usedBits = 1<<32 - 1 // of the used units of a slot; those above are its tail

	sizeBits  = 12
	maxTail   = 4096                 // bytes
	maxMemory = 2 << (32 - sizeBits) // which is moved in a fraction of a millisecond

	// A shard with fewer unused bytes is not worth a look at all its slots, and neither is one with
	// so little room for another tail.
	minUnused = 4096
	minRoom   = 512
)

// tailOf returns the tail of a leased slot.
func tailOf(used int64) tail { return tail(used >> 32) }

// size returns the bytes of the tail.
func (t tail) size() int { return 2 * int(t&(1<<sizeBits-1)) }

// at returns the bytes of a tail.
func (t *tails) at(p tail) []byte { return t.memory[2*int(p>>sizeBits):][:p.size():p.size()] }

// append returns the next tail of n bytes.
func (t *tails) append(n int) tail {
	at := len(t.memory)
	t.memory = t.memory[:at+n]
	return tail(at/2<<sizeBits | n/2)
}

// add returns a new tail of n bytes, which are pairs, or 0 if there are none, or too many.
func (t *tails) add(h *shard, n int) tail {
	if n == 0 || n > maxTail {
		return 0
	}
	if len(t.memory)+n > cap(t.memory) && !t.rebuild(h, n) {
		return 0
	}
	return t.append(n)
}

// free gives a tail back, which no slot has any more.
func (t *tails) free(h *shard, p tail) {
	h.unused += p.size()
	switch {
	case h.unused == len(t.memory) && cap(t.memory) <= 2*minRoom:
		t.memory, h.unused = t.memory[:0], 0
	case h.unused == len(t.memory):
		t.memory, h.unused = nil, 0
	case h.unused >= minUnused && 2*h.unused > len(t.memory):
		t.rebuild(h, 0)
	}
}

// rebuild moves the tails to new memory, with room for n bytes and a sixteenth more than all need,
// or minRoom. It reports whether that is not too much.
func (t *tails) rebuild(h *shard, n int) bool {
	needed := len(t.memory) - h.unused + n
	if needed += max(needed/16, minRoom); needed > maxMemory {
		return false
	}

	old := *t
	t.memory, h.unused = slices.Grow([]byte(nil), needed), 0
	for i, tag := range h.tags {
		if tag == free || !isLeased(h, i) {
			continue
		}
		c := &h.slots[i]
		if p := tailOf(c.used); p != 0 {
			place := t.append(p.size())
			copy(t.at(place), old.at(p))
			c.used = c.used&usedBits | int64(place)<<32
		}
	}
	return true
}
