package memstore

import (
	"errors"
	"slices"

	"github.com/headgate/headgate/core"
)

// A holder says where the state of an op's key is kept.
type holder uint8

const (
	nobody   holder = iota // a new key that the step cannot charge
	itself                 // a slot of the key's own
	itselfTo               // a slot to be inserted, for which room is reserved
	bucket                 // the overflow bucket of the key's shard and class
)

// step carries out any number of ops. It lives in a pool, so that none of this
// is allocated anew.
type step struct {
	places  []location
	holders []holder
	first   []int // the first op that has the same state
	states  []core.State
	shares  []*core.State // for each op, its state among states
	locked  []uint32      // shards, in the order in which they are locked
	changed []core.Op     // see useOverflow
	now     int64
	booked  int  // keys for which room is reserved
	opened  int  // overflow buckets to be inserted
	full    bool // no room was found: new keys go to overflow buckets
}

// decideStep does what Apply promises. The clock was read at now, or is unread.
func (s *Store) decideStep(ops []core.Op, out []core.Decision, now int64) error {
	t := s.steps.Get().(*step)
	defer t.release(s)
	if err := t.locate(s, ops); err != nil {
		return err
	}
	t.now = now
	due, err := t.run(s, ops, out)
	if due {
		s.tidy(t.now)
	}
	return err
}

// locate finds the places of all ops, and what is wrong with their limits.
func (t *step) locate(s *Store, ops []core.Op) error {
	n := len(ops)
	t.places = slices.Grow(t.places[:0], n)[:n]
	t.holders = slices.Grow(t.holders[:0], n)[:n]
	t.first = slices.Grow(t.first[:0], n)[:n]
	t.states = slices.Grow(t.states[:0], n)[:n]
	t.shares = slices.Grow(t.shares[:0], n)[:n]
	var errs []error
	for i := range ops {
		p, err := s.locate(&ops[i])
		if err != nil {
			errs = append(errs, err)
			continue
		}
		t.places[i] = p
		t.locked = append(t.locked, p.shard)
	}
	slices.Sort(t.locked)
	t.locked = slices.Compact(t.locked)
	return errors.Join(errs...)
}

// run decides the ops under the locks of all their shards. Everybody locks in
// the order of the shards, so nobody waits for one who waits for him.
func (t *step) run(s *Store, ops []core.Op, out []core.Decision) (due bool, err error) {
	for _, i := range t.locked {
		s.shards[i].lock()
	}
	defer t.unlock(s)
	for _, i := range t.locked {
		if t.now < s.shards[i].latest {
			t.now = s.clock()
			break
		}
	}
	for _, i := range t.locked {
		h := &s.shards[i]
		h.observe(t.now)
		h.steps++
		due = due || h.steps%tidyEvery == 0
	}
	if err := t.findStates(s, ops); err != nil {
		return false, err
	}
	ops = t.useOverflow(ops)
	core.Decide(ops, t.shares, t.now, out)
	t.keepAll(s, ops, out)
	return due, nil
}

func (t *step) unlock(s *Store) {
	t.cancel(s)
	for _, i := range t.locked {
		s.shards[i].mu.Unlock()
	}
}

// cancel gives back the room that was reserved and not used.
func (t *step) cancel(s *Store) {
	s.keys.Add(int64(-t.booked))
	t.booked = 0
}

// keepAll leaves every state as the step has decided, once for all ops that share
// it. A slot may have moved since it was found: inserting and removing move
// slots.
func (t *step) keepAll(s *Store, ops []core.Op, out []core.Decision) {
	for i := range ops {
		if t.first[i] != i {
			continue
		}
		op, p, st := &ops[i], &t.places[i], &t.states[i]
		h := &s.shards[p.shard]
		fresh := st.Changed && out[i].ResetAfter > 0
		at := -1
		switch t.holders[i] {
		case itself:
			at = h.find(p, op)
		case itselfTo:
			if fresh {
				at = h.insert(p, op)
				t.booked--
			}
		case bucket:
			if at = h.findBucket(p, op); at < 0 && fresh {
				at = h.insertBucket(p)
			}
		}
		if at >= 0 {
			h.keep(at, st, p.class, op.Rule, &out[i])
		}
	}
	for i, who := range t.holders {
		if who == itselfTo && t.first[i] == i {
			s.shards[t.places[i].shard].sweep(t.now, sweepInsert, forgetSecondTime)
		}
	}
}

// release gives the step back to the pool without anything of its ops.
func (t *step) release(s *Store) {
	clear(t.states)
	clear(t.shares)
	clear(t.changed)
	t.changed, t.locked = t.changed[:0], t.locked[:0]
	t.opened, t.full = 0, false
	s.steps.Put(t)
}
