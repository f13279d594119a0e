package memstore

import (
	"math/bits"
	"sync/atomic"

	"github.com/headgate/headgate/core"
)

// pinned is a key that is asked for time and again. As long as its shard points to
// it, what the key has used is here and not in its slot, in one word, so that
// whoever asks for the key needs no lock, however many they are. All else that
// touches the shard takes the lock and unpins the key first. Its class points to it
// too, until another key of the class is pinned: the hottest is found without a hash.
type pinned struct {
	base  int64 // the instant from which marks count
	bits  uint8 // of a mark in state
	hash  uint32
	class classID
	key   string

	// The state is in a cache line of its own: it is written all the time, and
	// those who look whether this is their key need not wait for that.
	_     [cacheLine - 40]byte
	state atomic.Uint64 // see pack, or unpinned
	_     [cacheLine - 8]byte
}

// minMarkBits of a mark reach for 71 minutes.
const minMarkBits = 32

// unpinned stands in place of what was used when that is in the slot again. It
// reads as more than the limit allows, which is for core to decide.
const unpinned = 1<<64 - 1

// pinAfter is how often in a row a shard is asked for a key before the key is
// pinned, which takes two allocations.
const pinAfter = 64

// pack puts the units in use and below them the microseconds from base to mark
// into a word.
func (r *pinned) pack(used, mark int64) uint64 {
	return uint64(used)<<(r.bits&63) | uint64(mark-r.base)
}

func (r *pinned) unpack(w uint64) (used, mark int64) {
	used = int64(w >> (r.bits & 63))
	return used, r.base + int64(w-uint64(used)<<(r.bits&63))
}

// is reports whether this is the key of a class.
func (r *pinned) is(hash uint64, v *limitClass, key string) bool {
	return r.hash == uint32(hash>>32) && r.class == v.id && r.key == key
}

// take carries out a quick Take of the key, which is of class v, at now, if its limit can
// and the key stays in use.
func (r *pinned) take(v *limitClass, op *core.Op, now int64, d *core.Decision) (done bool) {
	if (now-r.base)>>(r.bits&63) != 0 {
		return false
	}
	for {
		w := r.state.Load()
		used, mark := r.unpack(w)
		used, mark, good := v.steady.Take(used, mark, now, op.Cost, d)
		if !good {
			return false
		}
		if !d.Allowed {
			return d.ResetAfter > 0
		}
		if r.state.CompareAndSwap(w, r.pack(used, mark)) {
			return true
		}
	}
}

// countHit notes that slot i, of class v and with no extState, was
// asked for.
func (h *shard) countHit(i int, v *limitClass) {
	c := &h.slots[i]
	if h.recent != c.hash {
		h.recent, h.streak = c.hash, 0
	}
	left := bits.LeadingZeros64(uint64(v.steady.Most) + 1)
	if h.streak++; h.streak != h.pinAfter || left < minMarkBits {
		return
	}
	h.unpin()
	r := &pinned{base: c.mark, bits: uint8(left), hash: c.hash, class: v.id}
	if c.size == long {
		r.key = h.exts[i].key
	} else {
		r.key = string(c.text[:c.size])
	}
	r.state.Store(r.pack(c.used, c.mark))
	h.pinned.Store(r)
	v.pinned.Store(r)
}

// unpin puts what the shard's pinned key has used back into its slot.
func (h *shard) unpin() {
	r := h.pinned.Load()
	if r == nil {
		return
	}
	h.pinned.Store(nil)
	(*h.classes.list.Load())[r.class].pinned.CompareAndSwap(r, nil)
	h.streak = 0
	i := h.seek(h.home(r.hash), r.hash, r.key)
	for h.slots[i].class&^idle != r.class {
		i = h.seek(h.next(i), r.hash, r.key)
	}
	c := &h.slots[i]
	c.used, c.mark = r.unpack(r.state.Swap(unpinned))
	h.latest = max(h.latest, c.mark)
}

// lock is for all but a Take of a key that is not the pinned one.
func (h *shard) lock() {
	h.mu.Lock()
	h.unpin()
}
