package memstore

import (
	"fmt"
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/headgate/headgate/core"
)

// A classID identifies a class in few bits.
type classID uint32

const (
	none       classID = 0
	maxClasses         = 1 << 14

	// uninterned is the class of slots that carry their rule and limit
	// themselves, because the list is full.
	uninterned classID = maxClasses + 1

	// shared marks the slot of an overflow bucket.
	shared classID = 1 << 31
)

// limitClassKey is what the keys of a class have in common: the rule and a
// valid limit.
type limitClassKey struct {
	rule  string
	limit core.Limit
}

// matches reports whether the op is of exactly this class.
func (k *limitClassKey) matches(op *core.Op) bool {
	return k.limit.Equal(&op.Limit) && k.rule == op.Rule
}

// counts reports whether the op counts keys of this class. The limit may
// differ, because a changed limit continues the count.
func (k *limitClassKey) counts(op *core.Op) bool {
	return k.limit.Algorithm == op.Limit.Algorithm && k.rule == op.Rule
}

// limitClass is a class with precomputed facts about it.
type limitClass struct {
	limitClassKey
	id      classID
	compact core.Compact
	salt    uint64                 // of the hashes of its keys: one for each rule and algorithm
	pinned  atomic.Pointer[pinned] // the key of this class that was pinned last, or nil
}

// interner numbers the classes that the store has seen. It never holds more
// than maxClasses, however many limits a program uses.
type interner struct {
	seed   maphash.Seed
	recent [256]atomic.Pointer[limitClass] // see lookup
	list   atomic.Pointer[[]*limitClass]   // by id; grows only
	mu     sync.RWMutex
	all    map[limitClassKey]*limitClass // guarded by mu
}

func newInterner() *interner {
	k := &interner{seed: maphash.MakeSeed(), all: make(map[limitClassKey]*limitClass)}
	k.list.Store(&[]*limitClass{none: {}})
	return k
}

// of returns the op's class, or an error if its limit is not valid.
func (k *interner) of(op *core.Op) (*limitClass, error) {
	recent := k.lookup(op)
	if v := recent.Load(); v != nil && v.matches(op) {
		return v, nil
	}
	v, err := k.find(op)
	if err == nil && v.id != uninterned {
		recent.Store(v)
	}
	return v, err
}

// lookup returns the place where the op's class is looked up first. The place
// is cheap to compute. Classes that share a place are found more slowly.
func (k *interner) lookup(op *core.Op) *atomic.Pointer[limitClass] {
	n := uint64(op.Limit.Quota)*spread + uint64(op.Limit.Period)
	if last := len(op.Rule) - 1; last >= 0 {
		n += uint64(op.Rule[last])<<8 + uint64(last)
	}
	return &k.recent[n*spread>>56]
}

func (k *interner) find(op *core.Op) (*limitClass, error) {
	k.mu.RLock()
	v := k.all[limitClassKey{op.Rule, op.Limit}]
	k.mu.RUnlock()
	if v != nil {
		return v, nil
	}
	if err := op.Limit.Validate(); err != nil {
		return nil, fmt.Errorf("%w (%s, rule %q): %w", core.ErrOp, op.Verb, op.Rule, err)
	}
	return k.add(limitClassKey{op.Rule, op.Limit}), nil
}

func (k *interner) add(new limitClassKey) *limitClass {
	k.mu.Lock()
	defer k.mu.Unlock()
	if v := k.all[new]; v != nil {
		return v
	}
	v := &limitClass{id: uninterned, salt: (maphash.String(k.seed, new.rule) + uint64(new.limit.Algorithm)) * spread}
	if len(k.all) == maxClasses {
		return v
	}
	new.rule = strings.Clone(new.rule)
	list := *k.list.Load()
	v.limitClassKey, v.id, v.compact = new, classID(len(list)), new.limit.Compact()
	// Readers of the older list never look beyond its own length.
	list = append(list, v)
	k.list.Store(&list)
	k.all[new] = v
	return v
}

// spread is the odd number next to 2^64 divided by the golden ratio.
const spread = 0x9E3779B97F4A7C15

// location identifies the shard and the class in which the key of an op is
// counted.
type location struct {
	shard uint32
	hash  uint32
	class classID
}

// hash returns the hash of a key, its rule and its algorithm.
func (v *limitClass) hash(keyHash uint64) uint64 { return keyHash + v.salt }
