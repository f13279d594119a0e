package memstore

import (
	"fmt"
	"hash/maphash"
	"math/bits"
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

// is reports whether the class is exactly that of the rule and the limit.
func (l *limitClassKey) is(rule string, limit *core.Limit) bool {
	return l.limit.Equal(limit) && l.rule == rule
}

// matches reports whether the op is of exactly this class.
func (l *limitClassKey) matches(op *core.Op) bool { return l.is(op.Rule, &op.Limit) }

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
	bare    bool   // its ops have neither leases nor windows
	salt    uint64 // of the hashes of its keys: one for each rule and algorithm

	// What is above is never written, and read by every step of the class.
	_      [cacheLine]byte
	pinned atomic.Pointer[pinned] // the key of this class that was pinned last, or nil
	_      [cacheLine]byte
}

// interner numbers the classes that the store has seen. It never holds more
// than maxClasses, however many limits a program uses.
type interner struct {
	table atomic.Pointer[classTable]    // replaced by a larger one as it fills
	list  atomic.Pointer[[]*limitClass] // by id; grows only
	mu    sync.Mutex                    // for adding a class
}

func newInterner() *interner {
	i := &interner{}
	i.table.Store(newClassTable(maphash.MakeSeed(), minClassPlaces))
	i.list.Store(&[]*limitClass{none: {}})
	return i
}

// lookup returns the op's class, or nil if the store has not seen it. It takes no lock and writes
// nothing.
func (i *interner) lookup(op *core.Op) *limitClass {
	v, _ := i.table.Load().find(op.Rule, &op.Limit)
	return v
}

// classOf returns the op's class, or an error if its limit is not valid.
func (i *interner) classOf(op *core.Op) (*limitClass, error) {
	if v := i.lookup(op); v != nil {
		return v, nil
	}
	if err := op.Limit.Validate(); err != nil {
		return nil, fmt.Errorf("%w (%s, rule %q): %w", core.ErrOp, op.Verb, op.Rule, err)
	}
	return i.add(limitClassKey{op.Rule, op.Limit}), nil
}

// add returns the class of a rule and a limit, and adds it if it is new. Once maxClasses are held,
// a new class is uninterned: it has only a salt, because its slots carry the rule and the limit
// themselves (see shard.write).
func (i *interner) add(key limitClassKey) *limitClass {
	i.mu.Lock()
	defer i.mu.Unlock()
	table, list := i.table.Load(), *i.list.Load()
	v, place := table.find(key.rule, &key.limit)
	if v != nil {
		return v
	}

	salt := (maphash.String(table.seed, key.rule) + uint64(key.limit.Algorithm)) * spread
	v = &limitClass{id: uninterned, salt: salt}
	if len(list) > maxClasses {
		return v
	}

	key.rule = strings.Clone(key.rule)
	v.limitClassKey, v.id, v.compact = key, classID(len(list)), key.limit.Compact()
	v.bare = !v.compact.Leased() && !v.compact.Windowed()

	// Readers of the older list never look beyond its own length, and who has the older table looks
	// again here.
	list = append(list, v)
	i.list.Store(&list)
	place.Store(v)
	if 2*int(v.id) > len(table.places) {
		i.table.Store(table.grown(list[none+1:]))
	}
	return v
}

// classTable finds classes, by open addressing. Places are filled and never emptied, and half of
// them stay free, so that a search ends.
type classTable struct {
	seed   maphash.Seed
	places []atomic.Pointer[limitClass] // a power of two
	shift  uint                         // of a hash, whose upper bits are a place
}

const (
	minClassPlaces = 64

	// samplePlaces is how many places a search looks at before it reads the whole name.
	samplePlaces = 4
)

func newClassTable(seed maphash.Seed, places int) *classTable {
	shift := uint(bits.LeadingZeros64(uint64(places - 1)))
	return &classTable{seed, make([]atomic.Pointer[limitClass], places), shift}
}

// grown returns a table of twice the size, with the classes.
func (c *classTable) grown(classes []*limitClass) *classTable {
	next := newClassTable(c.seed, 2*len(c.places))
	for _, v := range classes {
		_, place := next.find(v.rule, &v.limit)
		place.Store(v)
	}
	return next
}

// find returns the class of a rule and a limit, and its place. If it is not in the table, it
// returns nil and the place that it would have.
func (c *classTable) find(rule string, l *core.Limit) (*limitClass, *atomic.Pointer[limitClass]) {
	at := sample(rule, l) >> c.shift
	place := c.at(at)
	if v := place.Load(); v == nil || v.is(rule, l) {
		return v, place
	}
	return c.findAfter(at, rule, l)
}

// findAfter is find for a class whose first place another has taken. Where several have, their
// names are like its own in the letters that sample reads.
func (c *classTable) findAfter(at uint64, rule string, l *core.Limit) (*limitClass, *atomic.Pointer[limitClass]) {
	for n := 1; ; n++ {
		if at++; n == samplePlaces {
			at = maphash.Comparable(c.seed, limitClassKey{rule, *l}) >> c.shift
		}
		place := c.at(at)
		if v := place.Load(); v == nil || v.is(rule, l) {
			return v, place
		}
	}
}

// at returns a place, where the first comes after the last.
func (c *classTable) at(place uint64) *atomic.Pointer[limitClass] {
	return &c.places[place&uint64(len(c.places)-1)]
}

// sample returns a hash of a few letters of the rule, and of the numbers in which most limits
// differ. Names that differ by a little in one letter differ in its upper bits.
func sample(rule string, l *core.Limit) uint64 {
	n := uint64(l.Quota)*spread + uint64(l.Period)
	if size := len(rule); size > 0 {
		n += uint64(rule[0])<<24 + uint64(rule[size/2])<<16 + uint64(rule[size-1])<<8 + uint64(size)
	}
	return n * spread
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
