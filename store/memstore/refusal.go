package memstore

import "github.com/headgate/headgate/core"

// refusal is a copy of the slot of a key that is refused time and again. As a
// refusal changes nothing, the copy answers those who ask for the key once more
// without the lock, however many they are. It is never changed, and it is good
// for as long as its shard points to it: whoever changes the slot or takes it
// away has the shard forget it.
type refusal struct{ slot }

// refusalsKept is how often a key is refused before its refusal is kept, which
// takes an allocation. Refusals of other keys in between begin the count anew.
const refusalsKept = 16

// answer decides a plain Take at now if it is of this key and refused.
func (r *refusal) answer(hash uint64, v *listed, op *core.Op, now int64, d *core.Decision) (refused bool) {
	if r.hash != uint32(hash>>32) || r.kind&^idle != v.id || r.size == long || string(r.text[:r.size]) != op.Key {
		return false
	}
	_, _, good := v.gcra.take(r.used, r.mark, now, op.Cost, d)
	return good && !d.Allowed && d.ResetAfter > 0
}

// refuse notes that slot i, which has nothing aside of its state, was refused.
func (h *shard) refuse(i int) {
	c := &h.slots[i]
	if h.refused != c.hash {
		h.refused, h.refusals = c.hash, 0
	}
	if h.refusals++; h.refusals == refusalsKept {
		h.refusal.Store(&refusal{*c})
	}
}

// changed has the refusal forgotten if it is of a slot of that hash.
func (h *shard) changed(hash uint32) {
	if h.refused == hash {
		h.refusals = 0
	}
	if r := h.refusal.Load(); r != nil && r.hash == hash {
		h.refusal.Store(nil)
	}
}
