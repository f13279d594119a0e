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

	extStateBytes = 96  // as the allocator rounds it
	classBytes    = 240 // of the rule and the limit of a slot whose class is uninterned
	idBytes       = 48  // of the id of a lease, which in a bucket begins with its key

	// asideBytes is what a key takes more for an aside, such as that of a key which has
	// strikes or bans, at most.
	asideBytes = int64(unsafe.Sizeof(core.Aside{})) + extStateBytes + extBytes

	// otherBytes is what a segment of another length takes.
	otherBytes = int64(unsafe.Sizeof(core.Aside{}.Others[0]))

	// Of MaxBytes, 1/bucketShare is reserved for overflow buckets, and for strikes. A half
	// of that is for buckets alone.
	bucketShare = 8
)

// bytesOf returns the memory of a key under a valid limit when its state is as large as
// the limit allows. The capacity of a list is a power of two.
func bytesOf(key string, l *core.Limit, id classID) int64 {
	size, records := slotBytes, l.MaxRecords()
	if len(key) > maxText {
		size += int64(len(key)) + 16
	}
	if id == uninterned {
		size += classBytes
	}

	// The slot alone holds a short key and a state of two numbers. Anything more is in an ext.
	if records > 0 || id == uninterned || l.NeedsWindows() {
		size += extStateBytes
	}
	if size > slotBytes {
		size += extBytes
	}

	if records == 0 {
		return size
	}
	room := int64(1) << bits.Len64(uint64(records-1))
	if l.Leased() {
		return size + room*int64(unsafe.Sizeof(core.Lease{})) + records*idBytes
	}
	return size + room*int64(unsafe.Sizeof(core.Entry{}))
}
