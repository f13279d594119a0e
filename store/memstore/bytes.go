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

	extStateBytes = 32  // as the allocator rounds it
	rareBytes     = 64  // the same of a rareState
	classBytes    = 240 // of the rule and the limit of a slot whose class is uninterned
	recordBytes   = 8   // of an entry in a list, at most
	idBytes       = 48  // of the id of a lease, which in a bucket begins with its key

	// asideBytes is what a key takes more for an aside, such as that of a key which has
	// strikes or bans, at most.
	asideBytes = int64(unsafe.Sizeof(core.Aside{})) + rareBytes + extStateBytes + extBytes

	// otherBytes is what a segment of another length takes.
	otherBytes = int64(unsafe.Sizeof(core.Aside{}.Others[0]))

	// Of MaxBytes, 1/bucketShare is reserved for overflow buckets, and for strikes. A half
	// of that is for buckets alone.
	bucketShare = 8
)

// bytesOf returns the memory of a key of that length under a valid limit when its state is as
// large as the limit allows.
func bytesOf(key int, l *core.Limit, id classID) int64 {
	size, records, room := slotBytes, l.MaxRecords(), maxText-key
	if room < 0 {
		size, room = size+int64(key)+16, maxText
	}
	if id == uninterned {
		size += classBytes
	}

	// The slot alone holds a short key and a state of two numbers, with a list that fits beside the
	// key. Anything more is in an ext.
	rare := l.Leased() || id == uninterned || l.NeedsWindows()
	list := listBytes(l)
	if records*recordBytes <= int64(room) || l.Leased() {
		list = 0
	}
	if rare {
		size += rareBytes
	}
	if rare || list > 0 {
		size += extStateBytes
	}
	if size > slotBytes {
		size += extBytes
	}

	// The capacity of the leases is a power of two.
	if l.Leased() {
		return size + idBytes*records + int64(unsafe.Sizeof(core.Lease{}))<<bits.Len64(uint64(records-1))
	}
	return size + list
}

// listBytes returns the most memory that a list beside a slot takes, as the allocator rounds it.
func listBytes(l *core.Limit) int64 {
	list := l.MaxRecords() * recordBytes
	return list + list/4
}
