package memstore

import (
	"strings"

	"github.com/headgate/headgate/core"
)

// entry is what is kept of one key. It fills a cache line, so that a decision
// waits for memory once, and has no pointers, so that the garbage collector has
// nothing to look at, however many keys there are. The rest is in an ext.
type entry struct {
	hash  uint32
	class classID
	used  int64
	mark  int64
	size  uint8 // of the key, or long
	text  [maxText]byte
}

// long is the size of a key that is kept in an ext.
const (
	maxText = 39
	long    = 255
)

// ext is the part of a slot that few slots have: a long key, and more of its
// state.
type ext struct {
	key string
	*extState
}

// extState is the part of the state that few algorithms, or few stores, need.
type extState struct {
	log    []core.Entry
	head   int
	leases []core.Lease
	over   int64
	slot   int64
	class  *limitClassKey // of a slot that is uninterned

	aside *core.Aside // or nil
}

// newEntry returns the slot of a key, with a copy of the key.
func newEntry(p *location, key string) (c entry, a ext) {
	c = entry{hash: p.hash, class: p.class, size: long}
	if len(key) > maxText {
		return c, ext{key: strings.Clone(key)}
	}
	c.size = uint8(copy(c.text[:], key))
	return c, a
}

// extState returns the extState of slot i, or nil.
func (t *table) extState(i int) *extState {
	if t.exts == nil {
		return nil
	}
	return t.exts[i].extState
}

// classOf returns the rule and the limit under which slot i was written.
func (h *shard) classOf(i int) *limitClassKey {
	id := h.slots[i].class &^ marks
	if id == uninterned {
		return h.extState(i).class
	}
	return &(*h.classes.list.Load())[id].limitClassKey
}

// load copies the state of slot i into st. A log or leases are lent: a caller
// that changes them has to save.
func (h *shard) load(i int, st *core.State) {
	c := &h.slots[i]
	st.Limit = h.classOf(i).limit
	st.Used, st.Mark, st.Changed, st.ConductChanged = c.used, c.mark, false, false
	if m := h.extState(i); m != nil {
		st.Log, st.Head, st.Leases, st.Over, st.Slot = m.log, m.head, m.leases, m.over, m.slot
		st.Aside = core.Aside{}
		if m.aside != nil {
			st.Aside = *m.aside
		}
	} else if st.Log != nil || st.Leases != nil || st.Over|st.Slot != 0 || !st.Aside.None() {
		st.Log, st.Head, st.Leases, st.Over, st.Slot = nil, 0, nil, 0, 0
		st.Aside = core.Aside{}
	}
}

// save copies st, written under the limit of class id, into slot i.
func (h *shard) save(i int, st *core.State, id classID, rule string) {
	c, m := &h.slots[i], h.extState(i)
	old, before := c.class&^marks, int64(0)
	switch same := old == id && id != uninterned; {
	case same && m == nil && !extended(st): // nearly always
		c.class = id | c.class&shared
		c.used, c.mark = st.Used, st.Mark
		return
	case same && (m == nil || m.aside == nil) && st.Aside.None():
		h.write(i, st, id, rule)
		return
	case old == uninterned && m == nil: // inserted, and so has no class yet, but is counted already
		before = bytesOf(h.longKey(i), &st.Limit, uninterned)
	default:
		before = h.bytes(i)
	}
	h.write(i, st, id, rule)
	h.store.bytes.Add(h.bytes(i) - before)
}

// aside returns the aside of slot i, or nil.
func (h *shard) aside(i int) *core.Aside {
	if m := h.extState(i); m != nil {
		return m.aside
	}
	return nil
}

// extended reports whether a state needs an extState if its class is known.
func extended(st *core.State) bool {
	return int64(len(st.Log)|len(st.Leases))|st.Over|st.Slot != 0 || !st.Aside.None()
}

// write is save without the count of bytes.
func (h *shard) write(i int, st *core.State, id classID, rule string) {
	c := &h.slots[i]
	c.class = id | c.class&shared
	c.used, c.mark = st.Used, st.Mark

	m := h.extState(i)
	if id != uninterned && !extended(st) {
		if m != nil {
			h.exts[i].extState = nil
		}
		return
	}

	if m == nil {
		m = new(extState)
		h.putExt(i).extState = m
	}
	m.log, m.head, m.leases, m.over, m.slot = st.Log, st.Head, st.Leases, st.Over, st.Slot

	if st.Aside.None() {
		m.aside = nil
	} else if m.aside == nil {
		kept := st.Aside // a copy, so that st does not escape
		m.aside = &kept
	} else {
		*m.aside = st.Aside
	}

	if id != uninterned {
		m.class = nil
	} else if m.class == nil || m.class.limit != st.Limit {
		m.class = &limitClassKey{strings.Clone(rule), st.Limit}
	}
}
