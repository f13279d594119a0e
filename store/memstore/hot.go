package memstore

import (
	"math/bits"
	"sync/atomic"

	"github.com/headgate/headgate/core"
)

// hot is a key that is asked for time and again. As long as its shard points to
// it, what the key has used is here and not in its slot, in one word, so that
// whoever asks for the key needs no lock, however many they are. All else that
// touches the shard takes the lock and recalls the key first. Its kind points to it
// too, until another key of the kind is hot: the hottest is found without a hash.
type hot struct {
	base int64 // the instant from which marks count
	bits uint8 // of a mark in state
	hash uint32
	kind kindID
	key  string

	// The state is in a cache line of its own: it is written all the time, and
	// those who look whether this is their key need not wait for that.
	_     [cacheLine - 40]byte
	state atomic.Uint64 // see pack, or recalled
	_     [cacheLine - 8]byte
}

// fewestBits of a mark reach for 71 minutes.
const fewestBits = 32

// recalled stands in place of what was used when that is in the slot again. It
// reads as more than the limit allows, which is for core to decide.
const recalled = 1<<64 - 1

// hotAfter is how often in a row a shard is asked for a key before the key is
// hot, which takes two allocations.
const hotAfter = 64

// pack puts the units in use and below them the microseconds from base to mark
// into a word.
func (r *hot) pack(used, mark int64) uint64 {
	return uint64(used)<<(r.bits&63) | uint64(mark-r.base)
}

func (r *hot) unpack(w uint64) (used, mark int64) {
	used = int64(w >> (r.bits & 63))
	return used, r.base + int64(w-uint64(used)<<(r.bits&63))
}

// is tells whether this is the key of a kind.
func (r *hot) is(hash uint64, v *listed, key string) bool {
	return r.hash == uint32(hash>>32) && r.kind == v.id && r.key == key
}

// take carries out a plain Take of the key, which is of kind v, at now, if its limit can
// and the key stays in use.
func (r *hot) take(v *listed, op *core.Op, now int64, d *core.Decision) (done bool) {
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

// heat notes that slot i, of kind v and with nothing aside of its state, was
// asked for.
func (h *shard) heat(i int, v *listed) {
	c := &h.slots[i]
	if h.recent != c.hash {
		h.recent, h.row = c.hash, 0
	}
	left := bits.LeadingZeros64(uint64(v.steady.Most) + 1)
	if h.row++; h.row != h.hotAfter || left < fewestBits {
		return
	}
	h.recall()
	r := &hot{base: c.mark, bits: uint8(left), hash: c.hash, kind: v.id}
	if c.size == long {
		r.key = h.asides[i].key
	} else {
		r.key = string(c.text[:c.size])
	}
	r.state.Store(r.pack(c.used, c.mark))
	h.hot.Store(r)
	v.hot.Store(r)
}

// recall puts what the shard's hot key has used back into its slot.
func (h *shard) recall() {
	r := h.hot.Load()
	if r == nil {
		return
	}
	h.hot.Store(nil)
	(*h.kinds.list.Load())[r.kind].hot.CompareAndSwap(r, nil)
	h.row = 0
	i := h.seek(h.home(r.hash), r.hash, r.key)
	for h.slots[i].kind&^idle != r.kind {
		i = h.seek(h.next(i), r.hash, r.key)
	}
	c := &h.slots[i]
	c.used, c.mark = r.unpack(r.state.Swap(recalled))
	h.latest = max(h.latest, c.mark)
}

// lock is for all but a Take of a key that is not the hot one.
func (h *shard) lock() {
	h.mu.Lock()
	h.recall()
}
