package memstore

import (
	"hash/maphash"

	"github.com/headgate/headgate/core"
)

// spread is the odd number next to 2^64 divided by the golden ratio.
const spread = 0x9E3779B97F4A7C15

// location is where the key of an op is counted.
type location struct {
	shard uint32
	hash  uint32
	class classID
}

// keyHash is a hash of a key, under the store's own seed, so that nobody can aim
// at a shard or at a slot.
func (s *Store) keyHash(key string) uint64 { return maphash.String(s.seed, key) }

// hash is of a key, its rule and its algorithm.
func (v *limitClass) hash(subject uint64) uint64 { return subject + v.salt }

// shardOf is the shard of a key under GCRA, whatever the rule, so that a
// step of several rules about one key takes one lock.
func (s *Store) shardOf(subject uint64) uint32 { return uint32(subject & s.mask) }

// locate finds the op's place, or what is wrong with its limit.
func (s *Store) locate(op *core.Op) (location, error) {
	v, err := s.classes.of(op)
	if err != nil {
		return location{}, err
	}
	subject := s.keyHash(op.Key)
	hash, shard := v.hash(subject), s.shardOf(subject)
	if op.Limit.Algorithm != core.GCRA {
		shard = s.shardOf(hash)
	}
	return location{shard, uint32(hash >> 32), v.id}, nil
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
	id := h.slots[i].class &^ idle
	if id == p.class && id != uninterned {
		return true
	}
	return id&shared == 0 && h.classOf(i).counts(op)
}

// insert adds a slot for the op's key, with a copy of the key.
func (h *shard) insert(p *location, op *core.Op) int {
	return h.add(newEntry(p, op.Key))
}
