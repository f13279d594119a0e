package memstore

import (
	"strings"

	"github.com/headgate/headgate/core"
)

// slot is what is kept of one key, in 48 bytes.
type slot struct {
	key  string
	hash uint32
	kind kindID // none marks a free slot
	used int64
	mark int64
	more *more
}

// more holds what few algorithms, or few stores, need.
type more struct {
	log    []core.Entry
	head   int
	leases []core.Lease
	over   int64
	kind   *kind // of a slot that is unlisted
}

// kindOf returns the rule and the limit under which the slot was written.
func (k *kinds) kindOf(c *slot) *kind {
	id := c.kind &^ marks
	if id == unlisted {
		return c.more.kind
	}
	return &(*k.list.Load())[id]
}

// load copies the slot's state into st. A log or leases are lent: whoever
// changes them has to save.
func (k *kinds) load(c *slot, st *core.State) {
	st.Limit = k.kindOf(c).limit
	st.Used, st.Mark, st.Changed = c.used, c.mark, false
	if m := c.more; m != nil {
		st.Log, st.Head, st.Leases, st.Over = m.log, m.head, m.leases, m.over
	} else if st.Log != nil || st.Leases != nil || st.Over != 0 {
		st.Log, st.Head, st.Leases, st.Over = nil, 0, nil, 0
	}
}

// save copies st, written under the limit of kind id, into the slot. The slot
// is in use then.
func (c *slot) save(st *core.State, id kindID, rule string) {
	c.kind = id | c.kind&shared
	c.used, c.mark = st.Used, st.Mark
	if len(st.Log) == 0 && len(st.Leases) == 0 && st.Over == 0 && id != unlisted {
		c.more = nil
		return
	}
	if c.more == nil {
		c.more = new(more)
	}
	m := c.more
	m.log, m.head, m.leases, m.over = st.Log, st.Head, st.Leases, st.Over
	if id != unlisted {
		m.kind = nil
	} else if m.kind == nil || m.kind.limit != st.Limit {
		m.kind = &kind{strings.Clone(rule), st.Limit}
	}
}
