// This file counts new keys of a full store in overflow buckets.
//
// A seeded hash divides the store into at least 64 shards, and a shard has one bucket for each
// pair of rule and limit. A key that is given room later starts from the units that its bucket
// had used, so that it gains nothing by the move. Leases of Concurrency stay where they were
// taken until they end. A Reset of a key that is counted in a bucket changes nothing, because it
// would free the other keys too. A limit that is changed while the store is full starts new
// buckets.
//
// Buckets come on top of MaxKeys, but not of MaxBytes, at most 256 for each shard. When a shard
// has that many, for as many pairs of rule and limit, or MaxBytes leaves no room for another, the
// new keys of a further pair are refused, as if their bucket were always used up.

package memstore

import (
	"strconv"

	"github.com/headgate/headgate/core"
)

// maxBuckets is the maximum number of overflow buckets of a shard.
const maxBuckets = 256

// bucketHash returns the hash of the overflow bucket of a class.
func bucketHash(id classID) uint32 { return uint32(uint64(id) * spread >> 32) }

// enter counts op i in its overflow bucket, which is slot b or, if b is
// negative, a new slot. If there is no room for one, it refuses the op.
func (t *step) enter(h *shard, b int, ops []core.Op, i int) {
	t.holders[i] = overflowBucket

	// A bucket is of one rule and limit, so two keys of the step may have the same.
	for j := range i {
		if t.holders[j] == overflowBucket && t.locations[i].shard == t.locations[j].shard &&
			ops[i].Rule == ops[j].Rule && ops[i].Limit == ops[j].Limit {
			t.join(i, j)
			return
		}
	}

	switch {
	case b >= 0:
		h.load(b, t.shares[i])
	case h.buckets+t.opened < maxBuckets && t.reserveBucket(h.store, &ops[i], t.locations[i].class):
		t.opened++
	default:
		t.holders[i] = noBucket
		useUp(t.shares[i], &ops[i], t.now)
	}
}

// reserveBucket reserves the memory of an overflow bucket.
func (t *step) reserveBucket(s *Store, op *core.Op, id classID) bool {
	size := bucketBytes(&op.Limit, id)
	if !addUpTo(&s.bytes, size, s.maxBytes) {
		return false
	}
	t.bookedBytes += size
	return true
}

// useUp turns a fresh state into that of a key which has just used up the limit of op. Its
// lease, if any, has an id that no op has.
func useUp(st *core.State, op *core.Op, now int64) {
	all := [1]core.Op{{Rule: op.Rule, Limit: op.Limit, Windows: op.Windows, Cost: op.Limit.Capacity()}}
	core.Decide(all[:], []*core.State{st}, now, make([]core.Decision, 1))
}

// useOverflow returns the ops in the form for overflow buckets. A Reset becomes a
// Peek, because it would free the other keys that are counted in the bucket. A lease id
// gets a prefix for its key, because several keys may use the same ids. An op without a
// bucket gives nothing back, books nothing and goes into no debt. Refusals for units that
// other keys may have used are no strikes, and neither are those for which there is no room. A
// Grant for which there is no room is refused.
func (t *step) useOverflow(s *Store, ops []core.Op) []core.Op {
	t.changed = t.changed[:0]
	for i, holder := range t.holders {
		inBucket := holder == overflowBucket || holder == noBucket
		banless := ops[i].Ban != nil && (inBucket || !t.strikes(s, i))
		creditless := ops[i].Verb == core.Grant && (inBucket || !t.lends(s, i))
		if !inBucket && !banless && !creditless {
			continue
		}

		// The ops are the caller's, so a copy is changed.
		if len(t.changed) == 0 {
			t.changed = append(t.changed, ops...)
		}

		if banless {
			dropBan(&t.changed[i])
		}
		if creditless {
			dropCredit(&t.changed[i])
		}
		if inBucket {
			t.shareBucket(&t.changed[i], holder)
		}
	}

	if len(t.changed) == 0 {
		return ops
	}
	return t.changed
}

// shareBucket makes op one for a bucket, or for none.
func (t *step) shareBucket(op *core.Op, bucket holder) {
	if op.Verb == core.Take {
		t.overflowed[bucket]++
	}
	if op.Verb == core.Reset || bucket == noBucket && (op.Verb == core.Refund || op.Verb == core.Debit) {
		op.Verb, op.Cost = core.Peek, 0
	}

	if bucket == noBucket {
		op.MaxWait = 0
	}
	if op.Limit.Leased() && op.Lease != "" {
		op.Lease = leasesOf(op.Key) + op.Lease
	}
}

// dropBan makes op ignore bans.
func dropBan(op *core.Op) {
	if op.Ban = nil; op.Verb == core.Impose {
		op.Verb, op.Cost = core.Peek, 0
	}
}

// dropCredit makes op a Grant that is refused, as of units that have ended.
func dropCredit(op *core.Op) { op.CreditUntil = 0 }

// lends reports whether there is room for a credit of the key of op i, which has a slot of its own.
func (t *step) lends(s *Store, i int) bool { return len(t.shares[i].Credits) > 0 || s.roomForAside() }

// strikes reports whether op i, whose key has a slot of its own, may strike it.
func (t *step) strikes(s *Store, i int) bool {
	return t.holders[i] != ownEntryOfBucket && (!t.shares[i].Conduct.None() || s.roomForAside())
}

// leasesOf returns the prefix of the ids of the key's leases in an overflow
// bucket. No other key has a prefix that begins with it.
func leasesOf(key string) string { return strconv.Itoa(len(key)) + ":" + key }
