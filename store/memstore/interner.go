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
func (l *limitClassKey) matches(op *core.Op) bool {
	return l.limit.Equal(&op.Limit) && l.rule == op.Rule
}

// counts reports whether the op counts keys of this class. The limit may
// differ, because a changed limit continues the count.
func (l *limitClassKey) counts(op *core.Op) bool {
	return l.limit.Algorithm == op.Limit.Algorithm && l.rule == op.Rule
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

// classOf returns the op's class, or an error if its limit is not valid.
func (i *interner) classOf(op *core.Op) (*limitClass, error) {
	recent := i.lookup(op)
	if v := recent.Load(); v != nil && v.matches(op) {
		return v, nil
	}
	v, err := i.find(op)
	if err == nil && v.id != uninterned {
		recent.Store(v)
	}
	return v, err
}

// lookup returns the place where the op's class is looked up first. The place
// is cheap to compute. Classes that share a place are found more slowly.
func (i *interner) lookup(op *core.Op) *atomic.Pointer[limitClass] {
	n := uint64(op.Limit.Quota)*spread + uint64(op.Limit.Period)
	if last := len(op.Rule) - 1; last >= 0 {
		n += uint64(op.Rule[last])<<8 + uint64(last)
	}
	return &i.recent[n*spread>>56]
}

func (i *interner) find(op *core.Op) (*limitClass, error) {
	i.mu.RLock()
	v := i.all[limitClassKey{op.Rule, op.Limit}]
	i.mu.RUnlock()
	if v != nil {
		return v, nil
	}
	if err := op.Limit.Validate(); err != nil {
		return nil, fmt.Errorf("%w (%s, rule %q): %w", core.ErrOp, op.Verb, op.Rule, err)
	}
	return i.add(limitClassKey{op.Rule, op.Limit}), nil
}

// add returns the class of a rule and a limit, and adds it to the list if it is new. Once the list
// is full, a new class is uninterned: it has only a salt, because its slots carry the rule and the
// limit themselves (see shard.write).
func (i *interner) add(key limitClassKey) *limitClass {
	i.mu.Lock()
	defer i.mu.Unlock()
	if v := i.all[key]; v != nil {
		return v
	}

	v := &limitClass{id: uninterned, salt: (maphash.String(i.seed, key.rule) + uint64(key.limit.Algorithm)) * spread}
	if len(i.all) == maxClasses {
		return v
	}

	key.rule = strings.Clone(key.rule)
	list := *i.list.Load()
	v.limitClassKey, v.id, v.compact = key, classID(len(list)), key.limit.Compact()

	// Readers of the older list never look beyond its own length.
	list = append(list, v)
	i.list.Store(&list)
	i.all[key] = v
	return v
}

// compactOf returns the arithmetic of a class with that limit.
func (i *interner) compactOf(id classID, l *core.Limit) core.Compact {
	if id &^= shared; id != uninterned {
		return (*i.list.Load())[id].compact
	}
	return l.Compact()
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
func (l *limitClass) hash(keyHash uint64) uint64 { return keyHash + l.salt }
