package memstore

import (
	"errors"
	"slices"

	"github.com/headgate/headgate/core"
)

// A holder is the place of the state of an op's key.
type holder uint8

const (
	nowhere          holder = iota // a new key that the step cannot charge
	ownEntry                       // a slot of the key's own
	ownEntryToCome                 // a slot to be inserted, for which room is reserved
	ownEntryOfBucket               // the same, which begins with what a bucket has counted
	overflowBucket                 // the overflow bucket of the key's shard and class
	noBucket                       // a state that is used up, as there is no room for a bucket
	holderCount
)

// step carries out any number of ops. It lives in a pool, so that its slices
// are reused.
type step struct {
	locations []location
	holders   []holder
	first     []int // for each op, the first op with the same state
	states    []core.State
	shares    []*core.State // for each op, its state among states
	locked    []uint32      // shards, in the order in which they are locked
	changed   []core.Op     // see useOverflow
	now       int64
	booked    int  // keys for which room is reserved
	opened    int  // overflow buckets to be inserted
	full      bool // no room was found: new keys go to overflow buckets
	calendar  bool // an op has the windows of a calendar

	bookedBytes int64              // of these keys and buckets
	overflowed  [holderCount]int64 // Takes by their holder, in overflowBucket and noBucket
}

// locate finds the locations of all ops, or returns an error for limits that
// are not valid.
func (t *step) locate(s *Store, ops []core.Op) error {
	n := len(ops)
	t.locations = slices.Grow(t.locations[:0], n)[:n]
	t.holders = slices.Grow(t.holders[:0], n)[:n]
	t.first = slices.Grow(t.first[:0], n)[:n]
	t.states = slices.Grow(t.states[:0], n)[:n]
	t.shares = slices.Grow(t.shares[:0], n)[:n]

	var errs []error
	for i := range ops {
		v, err := s.classes.classOf(&ops[i])
		if err != nil {
			errs = append(errs, err)
			continue
		}
		t.calendar = t.calendar || ops[i].Windows != nil
		t.locations[i] = s.locationOf(v, &ops[i])
		t.locked = append(t.locked, t.locations[i].shard)
	}

	slices.Sort(t.locked)
	t.locked = slices.Compact(t.locked)
	return errors.Join(errs...)
}

// run decides the ops under the locks of all their shards. Shards are locked in
// ascending order, so steps cannot deadlock.
func (t *step) run(s *Store, ops []core.Op, out []core.Decision) error {
	for _, i := range t.locked {
		s.shards[i].lock()
	}

	defer t.unlock(s)

	// Another step may have used a later instant before the locks were taken, and time must not
	// go back for any key. Under the locks the clock is the latest.
	for _, i := range t.locked {
		if t.now < s.shards[i].latest {
			t.now = s.clock()
			break
		}
	}
	for _, i := range t.locked {
		s.shards[i].observe(t.now)
	}

	if t.calendar {
		for i := range ops {
			if err := ops[i].CheckWindows(t.now); err != nil {
				return err
			}
		}
	}

	if err := t.findStates(s, ops); err != nil {
		return err
	}

	ops = t.useOverflow(s, ops)
	core.Decide(ops, t.shares, t.now, out)
	t.keepAll(s, ops, out)
	return nil
}

// unlock gives back what was reserved and not used, and then the locks.
func (t *step) unlock(s *Store) {
	t.cancel(s)
	for _, i := range t.locked {
		s.shards[i].mu.Unlock()
	}
}

// cancel gives back the reserved room that was not used.
func (t *step) cancel(s *Store) {
	s.keys.Add(int64(-t.booked))
	s.bytes.Add(-t.bookedBytes)
	t.booked, t.bookedBytes = 0, 0
}

// keepAll stores every state as the step has decided, once for all ops that
// share it. It finds each slot again, because inserting and removing move
// slots.
func (t *step) keepAll(s *Store, ops []core.Op, out []core.Decision) {
	for i := range ops {
		if t.first[i] != i {
			continue
		}

		op, p, st := &ops[i], &t.locations[i], &t.states[i]
		h := &s.shards[p.shard]
		at := -1

		switch t.holders[i] {
		case ownEntry:
			at = h.find(p, op)
		case ownEntryToCome, ownEntryOfBucket:
			// A key that is fresh after all needs no slot, and cancel gives its room back.
			if lasts(st, &out[i]) {
				st.Changed = true // a new slot has nothing yet, so the whole state is written
				at = h.insert(p, op)
				t.booked--
				t.bookedBytes -= bytesOf(len(op.Key), &op.Limit, p.class)
			}
		case overflowBucket:
			if at = h.findBucket(p, op); at < 0 && lasts(st, &out[i]) {
				at = h.insertBucket(p)
				t.bookedBytes -= bucketBytes(&op.Limit, p.class)
			}
		}

		if at >= 0 {
			h.keep(at, st, p.class, op, &out[i])
		}
	}

	t.sweepNewKeys(s)
}

// sweepNewKeys sweeps a little of each shard for which the step had a new key.
func (t *step) sweepNewKeys(s *Store) {
	for i, holder := range t.holders {
		if (holder == ownEntryToCome || holder == ownEntryOfBucket) && t.first[i] == i {
			s.shards[t.locations[i].shard].sweep(t.now, sweepInsert, grace)
		}
	}
}

// lasts reports whether a state has to be kept.
func lasts(st *core.State, d *core.Decision) bool {
	return (st.Changed || st.ConductChanged) && st.ForgetAfter(d) > 0
}

// release clears the step and gives it back to the pool.
func (t *step) release(s *Store) {
	t.clearStates()
	clear(t.shares)
	clear(t.changed)
	t.changed, t.locked = t.changed[:0], t.locked[:0]
	t.opened, t.full, t.calendar, t.overflowed = 0, false, false, [holderCount]int64{}
	s.steps.Put(t)
}

// clearStates makes the states zero but for the memory of their logs.
func (t *step) clearStates() {
	for i := range t.states {
		t.states[i] = core.State{Log: t.states[i].Log[:0]}
	}
}

var errNoRoom = errors.New("no room for a new key")

// findStates finds the states of all ops. When the store is full it first looks
// for room, and only then sends new keys to overflow buckets. Looking for room
// moves slots, so all states are found again after it.
func (t *step) findStates(s *Store, ops []core.Op) error {
	err := t.tryFindStates(s, ops)
	if err != errNoRoom {
		return err
	}

	// The first try may have reserved room and lent states of slots that are about to move.
	t.cancel(s)
	t.full = true
	t.clearStates()

	size := int64(0)
	for i := range ops {
		size += bytesOf(len(ops[i].Key), &ops[i].Limit, t.locations[i].class)
	}
	s.makeRoom(t, len(ops), size)
	return t.tryFindStates(s, ops)
}

// tryFindStates is findStates without a second look. The states are zero when it begins.
func (t *step) tryFindStates(s *Store, ops []core.Op) error {
	for i := range ops {
		if j := t.twin(ops, i); j >= 0 {
			t.join(i, j)
			continue
		}

		t.first[i], t.shares[i] = i, &t.states[i]
		h, op := &s.shards[t.locations[i].shard], &ops[i]
		if n := h.find(&t.locations[i], op); n >= 0 {
			h.load(n, t.shares[i])
			t.holders[i] = ownEntry
			continue
		}

		if err := t.admit(s, h, ops, i); err != nil {
			return err
		}
	}
	return nil
}

// twin returns the index of an earlier op on the same key, or -1.
func (t *step) twin(ops []core.Op, i int) int {
	for j := range i {
		if t.twins(ops, i, j) {
			return j
		}
	}
	return -1
}

// twins reports whether two ops are on the same key.
func (t *step) twins(ops []core.Op, i, j int) bool {
	return t.locations[i] == t.locations[j] && ops[i].ID() == ops[j].ID()
}

// join makes op i share the state of op j.
func (t *step) join(i, j int) {
	t.first[i], t.holders[i], t.shares[i] = t.first[j], t.holders[j], t.shares[j]
}

// admit decides where the key of op i, which has no slot, is counted.
func (t *step) admit(s *Store, h *shard, ops []core.Op, i int) error {
	op, p := &ops[i], &t.locations[i]
	leased := op.Limit.Leased()

	// Leases that were taken in a bucket stay there. Other units that it has counted come with a
	// key that is given room, as if all of them were the key's.
	b := h.findBucket(p, op)
	counted := b >= 0 && (!leased || h.leases(b, op.Key, t.now))
	stays := counted && leased
	size := bytesOf(len(op.Key), &op.Limit, p.class)

	switch charged := t.charged(ops, i); {
	case charged && !stays && s.reserve(size):
		t.booked++
		t.bookedBytes += size
		t.holders[i] = ownEntryToCome
		if counted {
			t.holders[i] = ownEntryOfBucket
			h.load(b, t.shares[i])
			// The bucket keeps its own list, which the step would change.
			t.shares[i].Others = slices.Clone(t.shares[i].Others)
		}
	case charged && !stays && !t.full:
		return errNoRoom
	case charged, counted, (b >= 0 || h.buckets >= maxBuckets) && s.isFull(size):
		t.enter(h, b, ops, i)
	default:
		t.holders[i] = nowhere
	}

	return nil
}

// charges reports whether the op may charge units to its key, ban it, or give it credit.
func charges(op *core.Op) bool {
	switch op.Verb {
	case core.Take, core.Debit:
		return op.Cost > 0
	}
	return op.Verb == core.Impose || op.Verb == core.Grant
}

// charged reports whether an op of the step charges the key of op i.
func (t *step) charged(ops []core.Op, i int) bool {
	for j := i; j < len(ops); j++ {
		if charges(&ops[j]) && (j == i || t.twins(ops, i, j)) {
			return true
		}
	}
	return false
}
