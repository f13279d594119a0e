// This file has the table in which a rule looks up overrides.

package policy

import (
	"bytes"
	"cmp"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unique"

	"github.com/headgate/headgate/core"
)

// table has the overrides of a policy. Any number of goroutines look up, without a lock,
// while one changes it. A nil table is empty.
//
// Whatever a look-up reads is never changed: a change replaces the map of one shard, or the list of
// prefixes. So a single change costs a copy of one shard, and one of a prefix a copy of all
// prefixes; those who change many at once call apply once.
type table struct {
	shards   []atomic.Pointer[map[string]ownLimit] // by the hash of the key, in a power of two
	prefixes atomic.Pointer[listOfPrefixes]
}

// ownLimit is an override. Equal limits are kept once in the process.
type ownLimit struct {
	limit  unique.Handle[core.Limit] // of the zero Limit for a ban alone
	until  int64                     // of the limit, in microseconds since the Unix epoch, 0 for no end
	banned int64                     // the end of a ban, 0 without one
}

// listOfPrefixes has the overrides of prefixes, without their "*", in alphabetic order. The texts
// stand one behind the other, as a search among many reads faster there than all over the memory.
type listOfPrefixes struct {
	text    []byte
	ends    []uint32 // in text; each begins where the one before ends
	own     []ownLimit
	parents []int32 // the longest other prefix that each one begins with, or -1
}

// at returns a prefix.
func (l *listOfPrefixes) at(i int) []byte {
	if i == 0 {
		return l.text[:l.ends[0]]
	}
	return l.text[l.ends[i-1]:l.ends[i]]
}

// manyShards is the number of shards of a table beside a policy, which may have MaxOverridesBeside
// entries and changes often. A shard has about 400 of them then.
const manyShards = 256

var shardSeed = maphash.MakeSeed()

// newTable returns the table of a policy's own overrides, or nil for none.
func newTable(overrides map[string]Override) *table {
	if len(overrides) == 0 {
		return nil
	}
	t := &table{shards: make([]atomic.Pointer[map[string]ownLimit], 1)}
	changes := make(map[string]*Override, len(overrides))
	for key, o := range overrides {
		changes[key] = &o
	}
	t.apply(changes)
	return t
}

// newLargeTable returns an empty table for the overrides beside a policy.
func newLargeTable() *table {
	return &table{shards: make([]atomic.Pointer[map[string]ownLimit], manyShards)}
}

// instant is the time of one look-up in microseconds since the Unix epoch. The clock is read if an
// override has an end, and once. The zero value has not read it.
type instant int64

func (i *instant) before(end int64) bool {
	if *i == 0 {
		*i = instant(time.Now().UnixMicro())
	}
	return int64(*i) < end
}

// noLimit is that of a ban alone.
var noLimit = unique.Make(core.Limit{})

// bans reports whether the ban of the override is in force, and limits whether its limit is.
func (o *ownLimit) bans(at *instant) bool { return o.banned != 0 && at.before(o.banned) }

// limits is described at bans.
func (o *ownLimit) limits(at *instant) bool {
	return (o.until == 0 || at.before(o.until)) && o.limit != noLimit
}

// inForce reports whether anything of the override is, or, where limits alone count, its limit.
func (o *ownLimit) inForce(at *instant, limits bool) bool {
	return !limits && o.bans(at) || o.limits(at)
}

// find returns the override of a key that is in force: its own, or that of the longest prefix. With
// limits, one that only bans does not count. matched compares what was found in several tables: it
// is 0 for nothing, the length of the prefix, or more than any for the key itself.
func (t *table) find(key string, at *instant, limits bool) (own ownLimit, matched int) {
	if t == nil {
		return own, 0
	}

	// The key itself comes before each prefix.
	if shard := t.shard(key).Load(); shard != nil {
		if o, ok := (*shard)[key]; ok && o.inForce(at, limits) {
			return o, maxOverriddenKey + 1
		}
	}

	list := t.prefixes.Load()
	if list == nil {
		return own, 0
	}

	// All prefixes of the key come before it, and the longest is the last one that does, or an
	// ancestor of the last one.
	i := list.lastBefore(key)
	if i < 0 {
		return own, 0
	}
	for common := commonLength(list.at(i), key); i >= 0; i = int(list.parents[i]) {
		if n := len(list.at(i)); n <= common && list.own[i].inForce(at, limits) {
			return list.own[i], n
		}
	}
	return own, 0
}

// shard returns that of the key.
func (t *table) shard(key string) *atomic.Pointer[map[string]ownLimit] {
	if len(t.shards) == 1 {
		return &t.shards[0]
	}
	return &t.shards[maphash.String(shardSeed, key)&uint64(len(t.shards)-1)]
}

// lastBefore returns the index of the last prefix that is not after the key, or -1.
func (l *listOfPrefixes) lastBefore(key string) int {
	low, high := 0, len(l.ends)
	for low < high {
		if middle := int(uint(low+high) / 2); string(l.at(middle)) <= key {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low - 1
}

// commonLength returns how many bytes a and b begin with in common.
func commonLength(a []byte, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// apply puts the overrides in place of those of their keys; nil takes one away.
func (t *table) apply(changes map[string]*Override) {
	prefixes := map[string]*Override{}
	byShard := map[*atomic.Pointer[map[string]ownLimit]]map[string]*Override{}
	for key, o := range changes {
		if prefix, ok := OverriddenPrefix(key); ok {
			prefixes[prefix] = o
			continue
		}
		shard := t.shard(key)
		if byShard[shard] == nil {
			byShard[shard] = map[string]*Override{}
		}
		byShard[shard][key] = o
	}

	for shard, changed := range byShard {
		changeShard(shard, changed)
	}
	if len(prefixes) > 0 {
		t.changePrefixes(prefixes)
	}
}

func changeShard(shard *atomic.Pointer[map[string]ownLimit], changed map[string]*Override) {
	var before map[string]ownLimit
	if old := shard.Load(); old != nil {
		before = *old
	}

	// A map that only grew in place would keep the room of all that was ever in it.
	next := make(map[string]ownLimit, len(before)+len(changed))
	for key, o := range before {
		if _, replaced := changed[key]; !replaced {
			next[key] = o
		}
	}
	for key, o := range changed {
		if o != nil {
			next[strings.Clone(key)] = o.own()
		}
	}

	if len(next) == 0 {
		shard.Store(nil)
		return
	}
	shard.Store(&next)
}

func (t *table) changePrefixes(changed map[string]*Override) {
	before := t.prefixes.Load()
	if before == nil {
		before = &listOfPrefixes{}
	}
	next := newListOfPrefixes(len(before.ends) + len(changed))

	// Both are in alphabetic order, so the next one is the lesser of the two that come first.
	i := 0
	for _, prefix := range slices.Sorted(maps.Keys(changed)) {
		for ; i < len(before.ends) && string(before.at(i)) < prefix; i++ {
			next.add(before.at(i), before.own[i])
		}
		if i < len(before.ends) && string(before.at(i)) == prefix {
			i++
		}
		if o := changed[prefix]; o != nil {
			next.add([]byte(prefix), o.own())
		}
	}
	for ; i < len(before.ends); i++ {
		next.add(before.at(i), before.own[i])
	}

	if len(next.ends) == 0 {
		next = nil
	}
	t.prefixes.Store(next)
}

func newListOfPrefixes(n int) *listOfPrefixes {
	return &listOfPrefixes{ends: make([]uint32, 0, n), own: make([]ownLimit, 0, n), parents: make([]int32, 0, n)}
}

// add adds a prefix that comes after all others.
func (l *listOfPrefixes) add(prefix []byte, own ownLimit) {
	// A prefix comes before what begins with it, so it is the last one or an ancestor of it.
	parent := int32(len(l.ends) - 1)
	for parent >= 0 && !bytes.HasPrefix(prefix, l.at(int(parent))) {
		parent = l.parents[parent]
	}

	l.text = append(l.text, prefix...)
	l.ends = append(l.ends, uint32(len(l.text)))
	l.own, l.parents = append(l.own, own), append(l.parents, parent)
}

// own returns the form of an override in a table.
func (o *Override) own() ownLimit {
	return ownLimit{unique.Make(o.Limit), microsOf(o.Until), microsOf(o.BannedUntil)}
}

// microsOf returns an end in a table, 0 for the zero time.
func microsOf(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return cmp.Or(t.UnixMicro(), -1) // which is as long ago, and not 0
}

// timeOf is the inverse of microsOf.
func timeOf(micros int64) (t time.Time) {
	if micros != 0 {
		t = time.UnixMicro(micros).UTC()
	}
	return t
}

// override is the inverse of own.
func (o ownLimit) override() Override {
	return Override{o.limit.Value(), timeOf(o.until), timeOf(o.banned)}
}

// all calls f for every entry, until f returns false.
func (t *table) all(f func(key string, o Override) bool) {
	for i := range t.shards {
		if shard := t.shards[i].Load(); shard != nil {
			for key, o := range *shard {
				if !f(key, o.override()) {
					return
				}
			}
		}
	}
	if list := t.prefixes.Load(); list != nil {
		for i := range list.ends {
			if !f(string(list.at(i))+"*", list.own[i].override()) {
				return
			}
		}
	}
}

// size returns the number of entries.
func (t *table) size() (n int) {
	for i := range t.shards {
		if shard := t.shards[i].Load(); shard != nil {
			n += len(*shard)
		}
	}
	if list := t.prefixes.Load(); list != nil {
		n += len(list.ends)
	}
	return n
}
