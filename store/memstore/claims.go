package memstore

import (
	"slices"

	"github.com/headgate/headgate/core"
)

// maxFastTakes is the most ops that are carried out as fastTakes, which lie on the
// stack.
const maxFastTakes = 16

// fastTakes are a step of quick Takes, each on a key of its own. What take is for
// a single op they are for several: quick, and sure to leave to the general
// step whatever is more than to count.
type fastTakes struct {
	of     [maxFastTakes]fastTake
	shards [maxFastTakes]uint32 // each once, in the order in which they are locked
	locks  int                  // how many of shards there are
}

// fastTake is what one Take asks of the slot of its key.
type fastTake struct {
	class *limitClass
	hash  uint64 // no other key of the step has the same
	shard uint32
	at    int32 // the slot, or absent
	used  int64 // as the slot is to be once the Take is charged
	mark  int64
}

// absent stands for the slot of a key that the store does not hold.
const absent = -1

// takeAll carries out a step of Takes if fastTakes can, and otherwise nothing. It
// returns what take does.
func (s *Store) takeAll(ops []core.Op, out []core.Decision) (now int64, done bool) {
	var c fastTakes
	if !c.locate(s, ops) {
		return unread, false
	}
	now = s.clock()
	for _, i := range c.shards[:c.locks] {
		s.shards[i].lock()
	}
	due, late := false, c.overtaken(s, now)
	if !late && c.decide(s, ops, out, now) {
		due, done = c.countSteps(s, now), true
	}
	for _, i := range c.shards[:c.locks] {
		s.shards[i].mu.Unlock()
	}
	switch {
	case late:
		return unread, false
	case due:
		s.tidy(now)
	}
	return now, done
}

// locate finds where the keys of all ops are. It reports whether each is a
// quick Take under a limit that is steady, on a key of its own.
func (c *fastTakes) locate(s *Store, ops []core.Op) bool {
	var subject uint64
	for i := range ops {
		op := &ops[i]
		v := s.classes.lookup(op).Load()
		if !quick(op) || v == nil || !v.matches(op) || v.steady.Every == 0 {
			return false
		}
		if i == 0 || op.Key != ops[i-1].Key {
			subject = s.keyHash(op.Key)
			c.shards[c.locks] = s.shardOf(subject)
			c.locks++
		}
		p := &c.of[i]
		p.class, p.hash, p.shard = v, v.hash(subject), s.shardOf(subject)
		for j := range i {
			if c.of[j].hash == p.hash {
				return false
			}
		}
	}
	if c.locks > 1 {
		slices.Sort(c.shards[:c.locks])
		c.locks = len(slices.Compact(c.shards[:c.locks]))
	}
	return true
}

// overtaken reports whether another step has gone by a later instant.
func (c *fastTakes) overtaken(s *Store, now int64) bool {
	for _, i := range c.shards[:c.locks] {
		if now < s.shards[i].latest {
			return true
		}
	}
	return false
}

// countSteps notes a step at now in its shards, and reports whether to tidy after it.
func (c *fastTakes) countSteps(s *Store, now int64) (due bool) {
	for _, i := range c.shards[:c.locks] {
		h := &s.shards[i]
		h.latest = now
		h.steps++
		due = due || h.steps%tidyEvery == 0
	}
	return due
}

// decide carries out the Takes, unless a slot is not as expected or is to
// come or to go. Then it changes nothing, and out is not to be read.
func (c *fastTakes) decide(s *Store, ops []core.Op, out []core.Decision, now int64) bool {
	known := true
	for i := range ops {
		p, op, d := &c.of[i], &ops[i], &out[i]
		if !p.evaluate(s, op, d, now) {
			return false
		}
		known = known && p.at != absent
	}
	if !core.Granted(ops, out) {
		return c.undoRefused(ops, out)
	}
	if known {
		c.commit(s, ops, out)
	}
	return known
}

// evaluate decides a Take as if it were alone, and changes nothing. It reports
// whether it can, and the slot stays in use if it is refused. A
// key without a slot is new for sure only where no bucket may have counted it.
func (p *fastTake) evaluate(s *Store, op *core.Op, d *core.Decision, now int64) (good bool) {
	h, hash := &s.shards[p.shard], uint32(p.hash>>32)
	i := h.seek(h.home(hash), hash, op.Key)
	if i < 0 {
		p.at = absent
		_, _, good = p.class.steady.Take(0, 0, now, op.Cost, d)
		return good && h.buckets == 0 && s.keys.Load() <= s.max-maxFastTakes
	}
	c := &h.slots[i]
	if c.class&^idle != p.class.id || h.extState(i) != nil {
		return false
	}
	p.at = int32(i)
	p.used, p.mark, good = p.class.steady.Take(c.used, c.mark, now, op.Cost, d)
	return good && d.ResetAfter > 0
}

// commit leaves the slots of all Takes that are allowed as evaluate has decided.
func (c *fastTakes) commit(s *Store, ops []core.Op, out []core.Decision) {
	for i := range ops {
		if !out[i].Allowed {
			continue
		}
		p := &c.of[i]
		h := &s.shards[p.shard]
		slot := &h.slots[p.at]
		slot.used, slot.mark, slot.class = p.used, p.mark, p.class.id
	}
}

// undoRefused makes the decisions on a refused step tell that nothing was charged. It
// reports whether all slots stay in use.
func (c *fastTakes) undoRefused(ops []core.Op, out []core.Decision) bool {
	for i := range ops {
		p, d, n := &c.of[i], &out[i], ops[i].Cost
		if !d.Allowed {
			continue
		}
		p.class.steady.Untake(d, n)
		if d.ResetAfter == 0 && p.at != absent {
			return false
		}
	}
	return true
}
