package memstore

import (
	"slices"

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
	size  uint8         // of the key, or long
	text  [maxText]byte // the key, unless it is long, and the list of core.Compact, if there is room
}

// long is the size of a key that is kept in an ext.
const (
	maxText = 39
	long    = 255
)

// ext is the part of a slot that few slots have. A list lies in the memory that text leaves behind
// its length, so that one address leads to it.
type ext struct {
	text []byte // a long key, or empty
	*rareState
}

// list returns the list of core.Compact, or nothing if the slot has room for it.
func (e *ext) list() []byte { return e.text[len(e.text):cap(e.text)] }

// rareState is the part of the state that few algorithms, or few stores, need.
type rareState struct {
	leases []core.Lease // with ids that core.Compact cannot pack
	over   int64
	slot   int64
	class  *limitClassKey // of a slot that is uninterned

	aside *core.Aside // or nil
}

// newEntry returns the slot of a key, with a copy of the key.
func newEntry(p *location, key string) (c entry, a ext) {
	c = entry{hash: p.hash, class: p.class, size: long}
	if len(key) > maxText {
		return c, ext{text: slices.Clip([]byte(key))}
	}
	c.size = uint8(copy(c.text[:], key))
	return c, a
}

// rareState returns the rareState of slot i, or nil.
func (t *table) rareState(i int) *rareState {
	if t.exts == nil {
		return nil
	}
	return t.exts[i].rareState
}

// list returns the list of slot i, or the room that the slot has for one.
func (t *table) list(i int) []byte {
	if list := t.listBeside(i); len(list) > 0 {
		return list
	}
	return t.room(i)
}

// listBeside returns the list of slot i for which the slot has no room, or nothing.
func (t *table) listBeside(i int) []byte {
	if t.exts == nil {
		return nil
	}
	return t.exts[i].list()
}

// room returns the bytes of slot i that its key leaves.
func (t *table) room(i int) []byte {
	c := &t.slots[i]
	if c.size == long {
		return c.text[:]
	}
	return c.text[c.size:]
}

// isRare reports whether a state has what a rareState may hold.
func isRare(st *core.State) bool {
	return len(st.Leases) > 0 || st.Over|st.Slot != 0 || !st.Aside.None()
}
