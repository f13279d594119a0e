package memstore

import (
	"errors"
	"slices"

	"github.com/headgate/headgate/core"
)

var errNoRoom = errors.New("no room for a new key")

// findStates finds the states of all ops. When the store is full it first looks for
// room, and only then sends new keys to overflow buckets. Looking for room
// moves slots, so all is found anew after it.
func (t *step) findStates(s *Store, ops []core.Op) error {
	err := t.tryFindStates(s, ops)
	if err != errNoRoom {
		return err
	}
	t.cancel(s)
	t.full = true
	s.makeRoom(t, len(ops))
	return t.tryFindStates(s, ops)
}

func (t *step) tryFindStates(s *Store, ops []core.Op) error {
	for i := range ops {
		if j := t.twin(ops, i); j >= 0 {
			t.join(i, j)
			continue
		}
		t.first[i], t.states[i], t.shares[i] = i, core.State{}, &t.states[i]
		h, op := &s.shards[t.places[i].shard], &ops[i]
		if n := h.find(&t.places[i], op); n >= 0 {
			h.load(n, t.shares[i])
			t.holders[i] = itself
			continue
		}
		if err := t.admit(s, h, ops, i); err != nil {
			return err
		}
	}
	return nil
}

// twin is an earlier op on the same key, or -1.
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
	return t.places[i] == t.places[j] && ops[i].Key == ops[j].Key && ops[i].Rule == ops[j].Rule &&
		ops[i].Limit.Algorithm == ops[j].Limit.Algorithm
}

// join makes op i share the state of op j.
func (t *step) join(i, j int) {
	t.first[i], t.holders[i], t.shares[i] = t.first[j], t.holders[j], t.shares[j]
}

// admit decides who counts the key of op i, which has no slot.
func (t *step) admit(s *Store, h *shard, ops []core.Op, i int) error {
	op, p := &ops[i], &t.places[i]
	leased := op.Limit.Leased()
	b := h.findBucket(p, op)
	counted := b >= 0 && (!leased || h.leases(b, op.Key, t.now))
	stays := counted && leased
	switch charged := t.charged(ops, i); {
	case charged && !stays && s.reserve():
		t.booked++
		t.holders[i] = itselfTo
		if counted {
			h.load(b, t.shares[i])
			t.shares[i].Log = slices.Clone(t.shares[i].Log)
		}
	case charged && !stays && !t.full:
		return errNoRoom
	case charged, counted, b >= 0 && s.keys.Load() >= s.max:
		return t.enter(h, b, ops, i)
	default:
		t.holders[i] = nobody
	}
	return nil
}

// charged reports whether an op of the step charges the key of op i.
func (t *step) charged(ops []core.Op, i int) bool {
	for j := i; j < len(ops); j++ {
		if ops[j].Verb == core.Take && ops[j].Cost > 0 && (j == i || t.twins(ops, i, j)) {
			return true
		}
	}
	return false
}
