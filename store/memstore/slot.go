package memstore

import (
	"strings"

	"github.com/headgate/headgate/core"
)

// slot is what is kept of one key. It fills a cache line, so that a decision
// waits for memory once, and has no pointers, so that the garbage collector has
// nothing to look at, however many keys there are. What does not fit is aside.
type slot struct {
	hash uint32
	kind kindID
	used int64
	mark int64
	size uint8 // of the key, or long
	text [mostText]byte
}

// long is the size of a key that is kept aside.
const (
	mostText = 39
	long     = 255
)

// aside is what few slots have: a key that is long, and more of its state.
type aside struct {
	key string
	*more
}

// more holds what few algorithms, or few stores, need.
type more struct {
	log    []core.Entry
	head   int
	leases []core.Lease
	over   int64
	kind   *kind // of a slot that is unlisted
}

// newSlot returns the slot of a key, with a copy of it.
func newSlot(p *place, key string) (c slot, a aside) {
	c = slot{hash: p.hash, kind: p.kind, size: long}
	if len(key) > mostText {
		return c, aside{key: strings.Clone(key)}
	}
	c.size = uint8(copy(c.text[:], key))
	return c, a
}

// more returns what is kept aside of the state of slot i, or nil.
func (t *table) more(i int) *more {
	if t.asides == nil {
		return nil
	}
	return t.asides[i].more
}

// kindOf returns the rule and the limit under which slot i was written.
func (h *shard) kindOf(i int) *kind {
	id := h.slots[i].kind &^ marks
	if id == unlisted {
		return h.more(i).kind
	}
	return &(*h.kinds.list.Load())[id].kind
}

// load copies the state of slot i into st. A log or leases are lent: whoever
// changes them has to save.
func (h *shard) load(i int, st *core.State) {
	c := &h.slots[i]
	st.Limit = h.kindOf(i).limit
	st.Used, st.Mark, st.Changed = c.used, c.mark, false
	if m := h.more(i); m != nil {
		st.Log, st.Head, st.Leases, st.Over = m.log, m.head, m.leases, m.over
	} else if st.Log != nil || st.Leases != nil || st.Over != 0 {
		st.Log, st.Head, st.Leases, st.Over = nil, 0, nil, 0
	}
}

// save copies st, written under the limit of kind id, into slot i.
func (h *shard) save(i int, st *core.State, id kindID, rule string) {
	c := &h.slots[i]
	c.kind = id | c.kind&shared
	c.used, c.mark = st.Used, st.Mark
	m := h.more(i)
	if len(st.Log) == 0 && len(st.Leases) == 0 && st.Over == 0 && id != unlisted {
		if m != nil {
			h.asides[i].more = nil
		}
		return
	}
	if m == nil {
		m = new(more)
		h.putAside(i).more = m
	}
	m.log, m.head, m.leases, m.over = st.Log, st.Head, st.Leases, st.Over
	if id != unlisted {
		m.kind = nil
	} else if m.kind == nil || m.kind.limit != st.Limit {
		m.kind = &kind{strings.Clone(rule), st.Limit}
	}
}
