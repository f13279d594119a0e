package memstore

import "github.com/headgate/headgate/core"

// take carries out a quick Take, unless there is more to it than to count: the
// key is new, its limit has changed, or core has to tell. It reports whether it
// has, and when it has looked, or unread if that is of no use any more.
//
// Nearly all decisions are made here, so it is written to be quick. The clock
// is read before the lock is taken, so that it is held for a short time; what
// was read counts unless another step has gone by a later instant.
func (s *Store) take(op *core.Op, d *core.Decision) (now int64, done bool) {
	v := s.classes.lookup(op).Load()
	if v == nil || !v.matches(op) || v.steady.Every == 0 {
		return unread, false
	}
	if r := v.pinned.Load(); r != nil && r.key == op.Key {
		now = s.clock()
		if r.take(v, op, now, d) {
			s.tidySometimes(now)
			return now, true
		}
		hash, h := s.shardFor(op.Key, v)
		return h.take(hash, v, op, now, d)
	}
	hash, h := s.shardFor(op.Key, v)
	r := h.pinned.Load()
	now = s.clock()
	if r != nil && r.is(hash, v, op.Key) && r.take(v, op, now, d) {
		s.tidySometimes(now)
		return now, true
	}
	return h.take(hash, v, op, now, d)
}

// shardFor returns the hash of a key of class v, and the shard that it is in.
func (s *Store) shardFor(key string, v *limitClass) (hash uint64, h *shard) {
	subject := s.keyHash(key)
	return v.hash(subject), &s.shards[s.shardOf(subject)]
}

// tidySometimes is for takes without the lock. The instant draws who tidies: a count
// that all share, or a random number, would cost too much.
func (s *Store) tidySometimes(now int64) {
	if uint64(now)*spread>>32%tidyInstants == 0 {
		s.tidy(now)
	}
}

// take is the part of a take that needs the lock. It reports as that does.
func (h *shard) take(hash uint64, v *limitClass, op *core.Op, now int64, d *core.Decision) (at int64, done bool) {
	h.mu.Lock()
	if r := h.pinned.Load(); r != nil && r.hash == uint32(hash>>32) {
		h.unpin()
	}
	if now < h.latest {
		h.mu.Unlock()
		return unread, false
	}
	i := h.seek(h.home(uint32(hash>>32)), uint32(hash>>32), op.Key)
	if i < 0 || !h.commit(i, v, now, op.Cost, d) {
		h.mu.Unlock()
		return now, false
	}
	h.latest = now
	h.steps++
	due := h.steps%tidyEvery == 0
	h.mu.Unlock()
	if due {
		h.store.tidy(now)
	}
	return now, true
}

// commit carries out a quick Take on slot i, if that is as expected and
// stays in use. If the slot changes, it is fresh later than was expected before.
func (h *shard) commit(i int, v *limitClass, now, cost int64, d *core.Decision) bool {
	c := &h.slots[i]
	if c.class&^idle != v.id || h.extState(i) != nil {
		return false
	}
	used, mark, good := v.steady.Take(c.used, c.mark, now, cost, d)
	switch {
	case !good || d.ResetAfter == 0:
		return false
	case d.Allowed:
		c.used, c.mark, c.class = used, mark, v.id
	}
	h.countHit(i, v)
	return true
}

// quick reports whether the op is a Take that core.Steady can decide if its limit
// is steady. Nothing that core.CheckOps looks for is wrong with it.
func quick(op *core.Op) bool {
	return op.Verb == core.Take && op.Limit.Algorithm == core.GCRA && op.Cost > 0 &&
		op.MaxWait == 0 && op.At == 0 && op.ResetAfter == 0
}
