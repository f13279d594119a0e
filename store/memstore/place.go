package memstore

import (
	"hash/maphash"
	"strings"

	"github.com/headgate/headgate/core"
)

// spread is the odd number next to 2^64 divided by the golden ratio.
const spread = 0x9E3779B97F4A7C15

// place is where the key of an op is counted.
type place struct {
	shard uint32
	hash  uint32
	kind  kindID
}

// locate finds the op's place, or what is wrong with its limit. The hash is of
// the key, the rule and the algorithm, under the store's own seed, so that
// nobody can aim at a shard or at a slot.
func (s *Store) locate(op *core.Op) (place, error) {
	rule := maphash.String(s.seed, op.Rule)
	id, err := s.kinds.id(op, rule)
	if err != nil {
		return place{}, err
	}
	h := maphash.String(s.seed, op.Key) + (rule+uint64(op.Limit.Algorithm))*spread
	return place{uint32(h & s.mask), uint32(h >> 32), id}, nil
}

// find returns the slot of the op's key, or -1.
func (h *shard) find(p *place, op *core.Op) int {
	if h.count == 0 {
		return -1
	}
	for i := h.home(p.hash); ; i = h.next(i) {
		c := &h.slots[i]
		if c.kind == none {
			return -1
		}
		if c.hash == p.hash && c.key == op.Key && h.isOf(c, p, op) {
			return i
		}
	}
}

func (h *shard) isOf(c *slot, p *place, op *core.Op) bool {
	if c.kind&^idle == p.kind && p.kind != unlisted {
		return true
	}
	return c.kind&shared == 0 && h.kinds.kindOf(c).counts(op)
}

// insert adds a slot for the op's key, with a copy of the key.
func (h *shard) insert(p *place, op *core.Op) int {
	return h.add(slot{key: strings.Clone(op.Key), hash: p.hash, kind: p.kind})
}
