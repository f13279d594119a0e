// This file marks decisions, so that a refund finds the units where they are.

package failover

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/core"
)

// A mark is the lower half of the [core.Decision.Origin] of a Take or Debit. The upper half
// is the origin that the deciding store has set itself, which may be a Store too.
//
//	0                 the primary decided, and the fallback has no copy of the charge
//	1 to maxCopies    the primary decided; the number of the copy in the fallback
//	byFallback + n    the fallback decided; n is of the generation
const (
	markBits   = 16
	markMask   = 1<<markBits - 1
	byFallback = 1 << (markBits - 1)
)

// maxDepth is how many Stores may be one over another. Their marks fill an origin.
const maxDepth = 2

// depth returns how many Stores decide one over another in s.
func depth(s core.Store) int {
	switch s := s.(type) {
	case *Store:
		if s == nil {
			return 0
		}
		return s.depth
	case strict:
		return s.store.depth
	case local:
		return s.store.depth
	}
	return 0
}

// marked returns the origin of a decision that the deciding store gave the origin
// below.
func marked(below, mark uint32) uint32 { return below<<markBits | mark }

// fallbackMark is the mark of decisions by the fallback in the generation. There
// are more marks than generations in the life of a lease.
func fallbackMark(generation uint64) uint32 {
	return byFallback | uint32(generation)&(byFallback-1)
}

// maxCopies is how many of the latest copies of charges are remembered.
const maxCopies = 1 << 13

// copies remembers what the fallback decided about its copies of the charges of
// the primary: a refund has to name the instant of the copy by the fallback's
// clock. The zero value is ready for use.
type copies struct {
	once sync.Once
	seed maphash.Seed
	list []charge

	// Every copy writes it, and every step reads what is around it. In a cache line of its own it
	// does not take that away from the other processors.
	_      [cacheLine]byte
	latest atomic.Uint32
	_      [cacheLine]byte
}

// cacheLine is the size of a cache line on nearly all machines.
const cacheLine = 64

// charge is a copy of a charge.
type charge struct {
	busy atomic.Bool // while it is written or read
	key  uint64      // the hash of its key
	at   int64       // when the primary charged, by its own clock

	// Of the fallback's decision, what a refund has to name.
	origin     uint32
	taken      int64
	copiedAt   int64
	resetAfter time.Duration
}

func (c *copies) allocate() {
	c.seed, c.list = maphash.MakeSeed(), make([]charge, maxCopies)
}

// hash returns the hash of a key.
func (c *copies) hash(key string) uint64 {
	c.once.Do(c.allocate)
	return maphash.String(c.seed, key)
}

// add remembers the fallback's decision about the copy of a charge that the primary
// made at the instant to the key with that hash, and returns its mark. It never waits: if another
// goroutine is at the same place, the copy is not remembered.
func (c *copies) add(key uint64, at int64, d *core.Decision) (mark uint32) {
	n := c.latest.Add(1) % maxCopies
	e := &c.list[n]
	if !e.busy.CompareAndSwap(false, true) {
		return 0
	}

	e.key, e.at = key, at
	e.origin, e.taken, e.copiedAt, e.resetAfter = d.Origin, d.Taken, d.At, d.ResetAfter
	e.busy.Store(false)
	return 1 + n
}

// find returns what a refund has to name of the fallback's decision about the copy of the
// charge that op, a Refund, undoes. It returns false if there was no copy, or if others have
// come since in its place.
func (c *copies) find(op *core.Op) (d core.Decision, ok bool) {
	mark := op.Origin & markMask
	if mark == 0 || mark > maxCopies {
		return d, false
	}

	key := c.hash(op.Key)
	e := &c.list[mark-1]
	if !e.busy.CompareAndSwap(false, true) {
		return d, false
	}

	// Its place may hold a later copy by now. The key and the instant prove that it does not.
	if ok = e.at == op.At && e.key == key; ok {
		d = core.Decision{Origin: e.origin, Taken: e.taken, At: e.copiedAt, ResetAfter: e.resetAfter}
	}
	e.busy.Store(false)
	return d, ok
}
