// This file estimates the memory that keys need.

package memstore

import (
	"math/bits"
	"unsafe"

	"github.com/headgate/headgate/core"
)

// A table has up to 4/3 slots for each key, and the allocator rounds up by at most an
// eighth: together 3/2.
const (
	slotBytes  = int64(unsafe.Sizeof(entry{})+1) * 3 / 2
	extBytes   = int64(unsafe.Sizeof(ext{})) * 3 / 2
	shardBytes = int64(unsafe.Sizeof(shard{}))

	rareBytes   = 64  // of a rareState, as the allocator rounds it
	classBytes  = 240 // of the rule and the limit of a slot whose class is uninterned
	recordBytes = 8   // of an entry in a list, at most
	idBytes     = 48  // of the id of a lease that core.Compact cannot pack, such as one in a bucket

	// asideBytes is what a key takes more for an aside, such as that of a key which has
	// strikes or bans, at most.
	asideBytes = int64(unsafe.Sizeof(core.Aside{})) + rareBytes + extBytes

	// otherBytes is what a segment of another length takes.
	otherBytes = int64(unsafe.Sizeof(core.Aside{}.Others[0]))

	// creditBytes is what a credit takes.
	creditBytes = int64(unsafe.Sizeof(core.Aside{}.Credits[0]))

	// Of MaxBytes, 1/bucketShare is reserved for overflow buckets, and for strikes. A half
	// of that is for buckets alone.
	bucketShare = 8
)

// bytesOf returns the memory of a key of that length under a valid limit when its state is as
// large as the limit allows.
func bytesOf(key int, l *core.Limit, id classID) int64 {
	size, room := slotBytes, maxText-key
	hasExt := room < 0
	if hasExt {
		size, room = size+int64(key)+16, maxText
	}
	if id == uninterned {
		size += classBytes
	}

	// The slot alone holds a short key and a state of two numbers, with a list that fits beside the
	// key. Anything more is in an ext.
	rare := id == uninterned
	list := listBytes(l)
	switch {
	case l.Leased():
		size, list = size+tailBytes(l, room), longTailBytes(l, room)
	case l.MaxRecords()*recordBytes <= int64(room):
		list = 0
	}

	if rare {
		size += rareBytes
	}
	if rare || list > 0 || hasExt {
		size += extBytes
	}
	return size + list
}

// bucketBytes returns the memory of an overflow bucket, in whose leases ids begin with keys.
func bucketBytes(l *core.Limit, id classID) int64 { return bytesOf(0, l, id) + looseBytes(l) }

// looseBytes returns the most memory that the leases of a key take if core.Compact cannot pack
// them, or 0 if the limit has none. The capacity of their list is a power of two.
func looseBytes(l *core.Limit) int64 {
	if !l.Leased() {
		return 0
	}
	n := l.MaxRecords()
	return rareBytes + extBytes + idBytes*n +
		int64(unsafe.Sizeof(core.Lease{}))<<bits.Len64(uint64(n-1))
}

// tailBytes returns the most memory that the tail of a key with that room in its slot takes among
// the tails of its shard: a twelfth more than its records, for what is free or was given back.
func tailBytes(l *core.Limit, room int) int64 {
	if n := recordsBeside(l, room); n <= maxTail {
		return n + n/12
	}
	return 0
}

// longTailBytes returns the same of a tail that is a list, as the allocator rounds it.
func longTailBytes(l *core.Limit, room int) int64 {
	if n := recordsBeside(l, room); n > maxTail {
		return n + n/8
	}
	return 0
}

// recordsBeside returns the bytes of the leases for which a slot with that room has none.
func recordsBeside(l *core.Limit, room int) int64 {
	a := l.Compact()
	return int64(max(0, a.LeaseBytes(int(l.MaxRecords())-room/a.LeaseBytes(1))))
}

// listBytes returns the most memory that a list beside a slot takes, as the allocator rounds it.
func listBytes(l *core.Limit) int64 {
	list := l.MaxRecords() * recordBytes
	return list + list/4
}
