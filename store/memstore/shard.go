// This file has the shards of a store, and what is in their slots.

package memstore

import (
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/headgate/headgate/core"
)

// shard is a part of the store with a lock of its own. mu guards all fields
// except earliest and pinned, which may be read without it.
//
// A key is held by a slot of its shard:
//
//	           it is charged,              64 quick Takes in a row
//	           and there is room             ------------------>
//	no slot -----------------------> held                          pinned
//	   ^                              |      <------------------
//	   |    a sweep finds that it has |      any other step on the shard but
//	   +------------------------------+      a quick Take of another key
//	           been fresh for a second
//
// The count of a held key is in the slot, and that of a pinned one in a word
// beside it. A step that leaves a held key fresh forgets it at once, and a sweep
// of a full store needs no second. The slot of an overflow bucket lives as a held
// one and is never pinned. Slots are added, moved and removed under mu, after
// the key of the shard was unpinned.
//
// The fields for a decision on a known key come first, in two cache lines: what it writes in one,
// and in the other what it only reads, of which each processor may keep a copy.
type shard struct {
	shardHead
	_     [(cacheLine - (unsafe.Sizeof(shardHead{})+unsafe.Sizeof(probe{}))%cacheLine) % cacheLine]byte
	probe probe
}

// cacheLine is the size of a cache line on nearly all machines, of which the size of a
// shard is a multiple.
const cacheLine = 64

// shardHead is a shard without its probe.
type shardHead struct {
	mu       sync.Mutex
	latest   int64 // the instant of the last step
	pinned   atomic.Pointer[pinned]
	recent   uint32 // hash of the key that was asked for last
	streak   uint16 // how many times in a row
	pinAfter uint16 // the streak after which a key is pinned; see the constant

	table
	pending int64 // no slot that the sweep has passed is fresh before it

	earliest atomic.Int64 // no slot is fresh before it, see sweep
	store    *Store
	classes  *interner
	buckets  int        // overflow buckets among the slots
	cursor   int        // where the sweep continues
	unused   int        // bytes among the tails
	state    core.State // a copy of the state that is being decided
}

// probe is the memory for asking core about the state of a slot.
type probe struct {
	op    [1]core.Op
	out   [1]core.Decision
	state core.State

	leases []core.Lease // a copy of those of the state
}

// never is an instant that does not come.
const never = math.MaxInt64

// open makes the zero value an empty shard of the store.
func (h *shard) open(s *Store) {
	h.store, h.classes = s, s.classes
	h.pending, h.pinAfter = never, pinAfter
	h.earliest.Store(never)
}

// find returns the slot of the op's key, or -1.
func (h *shard) find(p *location, op *core.Op) int {
	i := h.seek(h.home(p.hash), p.hash, op.Key)
	for i >= 0 && !h.counts(i, p, op) {
		i = h.seek(h.next(i), p.hash, op.Key)
	}
	return i
}

// counts reports whether a slot of the op's key is of its rule and algorithm.
func (h *shard) counts(i int, p *location, op *core.Op) bool {
	id := h.slots[i].class
	if id == p.class && id != uninterned {
		return true
	}
	return id&shared == 0 && h.classOf(i).counts(op)
}

// insert adds a slot for the op's key, with a copy of the key.
func (h *shard) insert(p *location, op *core.Op) int {
	return h.add(newEntry(p, op.Key))
}

// findBucket returns the slot of the overflow bucket of the op's shard and
// class, or -1. A bucket belongs to one limit, because units taken under one
// limit would come back sooner if they were read under another.
func (h *shard) findBucket(p *location, op *core.Op) int {
	if h.buckets == 0 {
		return -1
	}
	hash := bucketHash(p.class)
	for i := h.home(hash); h.tags[i] != free; i = h.next(i) {
		if h.slots[i].class == p.class|shared && h.classOf(i).matches(op) {
			return i
		}
	}
	return -1
}

// insertBucket adds the slot of an overflow bucket.
func (h *shard) insertBucket(p *location) int {
	h.buckets++
	h.store.overflowKeys.Add(1)
	return h.add(entry{hash: bucketHash(p.class), class: p.class | shared}, ext{})
}

// leases reports whether the key holds a lease in the overflow bucket of slot b.
func (h *shard) leases(b int, key string, now int64) bool {
	m := h.rareState(b)
	if m == nil {
		return false
	}
	prefix := leasesOf(key)
	for i := range m.leases {
		if l := &m.leases[i]; l.Expiry > now && strings.HasPrefix(l.ID, prefix) {
			return true
		}
	}
	return false
}

// keep stores slot i as a step has decided op, which is of class id. A slot of another
// limit that the step has not changed stays, because it may be fresh under the limit of
// op alone. Where there is no room to note that a Reset has made earlier Takes void, the
// note is dropped. A late Refund of such a Take then gives back units of others.
func (h *shard) keep(i int, st *core.State, id classID, op *core.Op, d *core.Decision) {
	if st.Void.Until != 0 && h.aside(i) == nil && !h.store.roomForAside() {
		st.Void = core.Aside{}.Void // the zero value of a type that core does not export
	}

	// A decision under another limit than the slot's says nothing about the slot, unless the step
	// has changed it.
	switch own := h.slots[i].class&^shared == id && id != uninterned; {
	case d.ResetAfter == 0 && (st.Changed || own) && st.ForgetAfter(d) == 0:
		h.remove(i)
	case !st.Changed:
		if st.ConductChanged {
			h.keepAside(i, st, op.Rule, d.At)
		}
	case st.Limit.Equal(&op.Limit):
		h.save(i, st, id, op.Rule)
		h.recordExpiry(freshAt(st, d))
	default:
		// The decision is under another limit than the state, under which the key
		// may be fresh earlier or later.
		h.save(i, st, h.slots[i].class&^shared, op.Rule)
		h.recordExpiry(h.expiry(i, d.At))
	}
}

// keepAside stores the conduct and the credits of st in slot i and leaves the rest. st becomes
// the state of the slot.
func (h *shard) keepAside(i int, st *core.State, rule string, now int64) {
	conduct, credits := st.Conduct, st.Credits
	h.load(i, st)
	st.Conduct, st.Credits = conduct, credits
	h.save(i, st, h.slots[i].class&^shared, rule)
	h.recordExpiry(h.expiry(i, now))
}

// load copies the state of slot i into st, whose log it uses again. Leases are lent: a caller
// that changes them has to save.
func (h *shard) load(i int, st *core.State) {
	c := &h.slots[i]
	st.Limit = h.classOf(i).limit
	st.Used, st.Mark, st.Changed, st.ConductChanged = c.used, c.mark, false, false

	// The state is reused from step to step, so what the slot has none of is cleared. Nearly
	// always there is nothing to clear, and the writes are spared.
	if len(st.Log) > 0 {
		st.Log, st.Head = st.Log[:0], 0
	}
	if m := h.rareState(i); m != nil {
		st.Leases, st.Over, st.Slot, st.Aside = m.leases, m.over, m.slot, core.Aside{}
		if m.aside != nil {
			st.Aside = *m.aside
		}
	} else if isRare(st) {
		st.Leases, st.Over, st.Slot, st.Aside = nil, 0, 0, core.Aside{}
	}

	if !st.Limit.Algorithm.Listed() {
		return
	}
	a := h.classes.compactOf(c.class, &st.Limit)
	if a.Leased() {
		st.Used, st.Mark = 0, 0
		leaseSlot{h, i, &a}.load(st)
		return
	}
	a.Unpack(c.used, c.mark, h.list(i), st)
}

// save copies st, written under the limit of class id, into slot i.
func (h *shard) save(i int, st *core.State, id classID, rule string) {
	c, m := &h.slots[i], h.rareState(i)
	old, before := c.class&^shared, int64(0)

	switch same := old == id && id != uninterned; {
	case same && (m == nil || m.aside == nil) && st.Aside.None() && !st.Limit.Leased():
		h.write(i, m, st, id, rule)
		return
	case old == uninterned && m == nil: // inserted, and so has no class yet, but is counted already
		if before = bytesOf(h.keyLen(i), &st.Limit, uninterned); c.class&shared != 0 {
			before += looseBytes(&st.Limit)
		}
	default:
		before = h.bytes(i)
	}

	h.write(i, m, st, id, rule)
	h.store.bytes.Add(h.bytes(i) - before)
}

// write is save without the count of bytes. m is the rareState of the slot, or nil.
func (h *shard) write(i int, m *rareState, st *core.State, id classID, rule string) {
	c := &h.slots[i]
	c.class = id | c.class&shared
	leases, over, slot := st.Leases, st.Over, st.Slot
	switch {
	case st.Limit.Leased():
		a := h.classes.compactOf(id, &st.Limit)
		if (leaseSlot{h, i, &a}).write(leases, int(st.Limit.MaxRecords())) {
			leases = nil
		}
	case st.Limit.Algorithm.Listed():
		h.writeList(i, h.classes.compactOf(id, &st.Limit), st, listBytes(&st.Limit))
		slot = 0
	default:
		c.used, c.mark = st.Used, st.Mark
	}

	// A slot that needs no more gives its rareState back.
	if id != uninterned && len(leases) == 0 && over|slot == 0 && st.Aside.None() {
		if m != nil {
			h.exts[i].rareState = nil
		}
		return
	}

	if m == nil {
		m = new(rareState)
		h.putExt(i).rareState = m
	}
	m.leases, m.over, m.slot = leases, over, slot

	if st.Aside.None() {
		m.aside = nil
	} else if m.aside == nil {
		kept := st.Aside // a copy, so that st does not escape
		m.aside = &kept
	} else {
		*m.aside = st.Aside
	}

	// Without a class the slot has to say itself what it is of.
	if id != uninterned {
		m.class = nil
	} else if m.class == nil || m.class.limit != st.Limit {
		m.class = &limitClassKey{strings.Clone(rule), st.Limit}
	}
}

// aside returns the aside of slot i, or nil.
func (h *shard) aside(i int) *core.Aside {
	if m := h.rareState(i); m != nil {
		return m.aside
	}
	return nil
}

// classOf returns the rule and the limit under which slot i was written.
func (h *shard) classOf(i int) *limitClassKey {
	id := h.slots[i].class &^ shared
	if id == uninterned {
		return h.rareState(i).class
	}
	return &(*h.classes.list.Load())[id].limitClassKey
}

// keyOf returns the key of slot i.
func (h *shard) keyOf(i int) string {
	if c := &h.slots[i]; c.size != long {
		return string(c.text[:c.size])
	}
	return string(h.exts[i].text)
}

// bytes returns bytesOf slot i, and what its aside takes, and its leases if they are not packed.
func (h *shard) bytes(i int) int64 {
	id, limit := h.slots[i].class, &h.classOf(i).limit
	size := bytesOf(h.keyLen(i), limit, id&^shared)
	if m := h.rareState(i); id&shared != 0 || m != nil && len(m.leases) > 0 {
		size += looseBytes(limit)
	}
	if a := h.aside(i); a != nil {
		size += asideBytes + int64(cap(a.Others))*otherBytes + int64(cap(a.Credits))*creditBytes
	}
	return size
}

// keyLen returns the length of the key of slot i.
func (h *shard) keyLen(i int) int {
	if c := &h.slots[i]; c.size != long {
		return int(c.size)
	}
	return len(h.exts[i].text)
}

// add puts a slot into the table.
func (h *shard) add(c entry, a ext) int {
	size := len(h.slots)
	i := h.put(c, a)
	if len(h.slots) != size {
		h.restart()
	}
	return i
}

// remove forgets slot i.
func (h *shard) remove(i int) {
	h.state.Log, h.state.Others, h.state.Leases = nil, nil, nil // the last two may be those of the slot

	if h.slots[i].class&shared != 0 {
		h.buckets--
		h.store.overflowKeys.Add(-1)
	} else {
		h.store.keys.Add(-1)
	}
	h.store.bytes.Add(-h.bytes(i))
	if h.classOf(i).limit.Leased() {
		p := tailOf(h.slots[i].used)
		h.slots[i].used = 0
		h.tails.free(h, p)
	}

	// A table of another size puts the slots into other places, so the sweep begins anew.
	h.removeSlot(i, h.moved)
	if h.sparse() {
		h.resize(h.count)
		h.restart()
	}
}

// observe notes the time of a step. When the clock has stepped back, the noted
// future instants are void.
func (h *shard) observe(now int64) {
	if now < h.latest {
		h.lowerEarliest(min(h.earliest.Load(), now))
		h.pending = min(h.pending, now)
	}
	h.latest = now
}

// recordExpiry records when a slot will be fresh.
func (h *shard) recordExpiry(at int64) {
	if at >= h.pending { // which is not before h.earliest
		return
	}
	h.pending = at
	if at < h.earliest.Load() {
		h.lowerEarliest(at)
	}
}

// lowerEarliest lowers the instant before which no slot is fresh.
func (h *shard) lowerEarliest(at int64) {
	h.earliest.Store(at)
	h.store.lowerEarliest(at)
}

// appendBans appends the bans of the shard's keys that have not ended.
func (h *shard) appendBans(list []core.Banned, rules []string, now int64) []core.Banned {
	h.mu.Lock()
	defer h.mu.Unlock()

	// A key under a ban has an aside, so a shard without exts has none.
	for i := range h.exts {
		a := h.aside(i)
		if a == nil || a.Conduct.Strikes > 0 || a.Conduct.Until <= now {
			continue
		}

		if rule := h.classOf(i).rule; slices.Contains(rules, rule) {
			list = append(list, core.Banned{Rule: rule, Key: h.keyOf(i), Until: a.Conduct.Until})
		}
	}
	return list
}

// freshAt returns the instant at which the key of a state is fresh, as d has left it.
func freshAt(st *core.State, d *core.Decision) int64 {
	return d.At + st.ForgetAfter(d).Microseconds()
}
