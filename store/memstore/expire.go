// This file finds and forgets fresh keys.

package memstore

import "github.com/headgate/headgate/core"

// These numbers bound how much a sweep looks at, and how often. A sweep goes round
// the slots of a shard, a few at a time, and forgets those that are fresh. It also
// learns when the next of them will be fresh, so that it looks at none before that.
//
// A key keeps its slot for a while after it has become fresh, unless the store is full: one that
// comes again and again would else be forgotten and inserted anew for each of its requests.
const (
	sweepInsert = 8   // slots for each key that is inserted
	sweepRoom   = 128 // slots looked at to make room in a full store
	roomShards  = 64  // shards that are swept to make room

	tidyPause  = 1000 // microseconds from one tidying of the store to the next
	tidySlots  = 256  // slots that it looks at for each such pause
	maxTidy    = 512  // and at most, which takes about a tenth of a millisecond
	tidyShards = 64   // shards that it asks whether they need it

	grace = 1_000_000 // microseconds for which a fresh key keeps its slot
)

// sweep looks at up to n slots, forgets those that have been fresh for the grace, and returns how
// many it looked at. A now that was read under another shard's lock may precede this shard's last
// step. Settling a slot at an instant before its last step would take time back, so sweep uses the
// later of the two.
func (h *shard) sweep(now int64, n int, grace int64) int {
	now = max(now, h.latest)
	since := now - grace
	if since < h.earliest.Load() {
		return 0
	}

	// What the sweep learns is as of now, also for a step at an earlier instant that comes next.
	h.latest = now

	for done := range n {
		// A round has ended, and with it pending has become the earliest instant of all slots.
		if h.cursor >= len(h.slots) {
			h.lowerEarliest(h.pending)
			h.restart()
			if since < h.earliest.Load() {
				return done
			}
		}

		// After a removal another slot may lie at this place, and is looked at next.
		if len(h.slots) == 0 || !h.expire(h.cursor, now, since) {
			h.cursor++
		}
	}
	return n
}

// expire forgets slot i if it has been fresh since the instant, and otherwise notes when it is
// fresh.
func (h *shard) expire(i int, now, since int64) bool {
	if h.tags[i] == free {
		return false
	}

	// A slot that was written after the instant is fresh later than it was written.
	at := h.expiry(i, max(since, min(now, h.written(i))))
	if at > since {
		h.recordExpiry(at)
		shrinkLeases(h, i)
		return false
	}

	h.remove(i)
	return true
}

// expiry returns the instant at which slot i is fresh, or now if it is fresh
// already.
func (h *shard) expiry(i int, now int64) int64 {
	c := &h.slots[i]
	if h.rareState(i) != nil {
		return h.expiryByCore(i, now)
	}

	g := &(*h.classes.list.Load())[c.class&^shared].compact
	if g.Listed() {
		// A key without units, whose ban was lifted or whose last lease was released, is fresh now.
		if c.used == 0 || g.Leased() && g.Leases(c.used) == 0 {
			return now
		}
		if began, fresh := g.Span(c.mark, h.list(i)); began <= now {
			return max(now, fresh)
		}
	} else if at, good := g.Fresh(c.used, c.mark, now); good {
		return at
	}
	return h.expiryByCore(i, now)
}

// written returns an instant that slot i was not written before, as far as that is known.
func (h *shard) written(i int) int64 {
	c := &h.slots[i]
	l := &h.classOf(i).limit
	if !l.Algorithm.Listed() || c.used == 0 {
		return c.mark
	}
	a := h.classes.compactOf(c.class, l)
	if a.Leased() && a.Leases(c.used) == 0 {
		return c.mark
	}
	began, _ := a.Span(c.mark, h.list(i))
	return began
}

// expiryByCore asks core when slot i is fresh. It settles a copy, because a
// sweep may use a limit that is no longer in force and must change nothing.
func (h *shard) expiryByCore(i int, now int64) int64 {
	q := &h.probe
	h.load(i, &q.state)
	q.leases = append(q.leases[:0], q.state.Leases...)
	q.state.Leases = q.leases

	q.op[0] = core.Op{Verb: core.Peek, Limit: q.state.Limit}
	states := [1]*core.State{&q.state}
	core.Decide(q.op[:], states[:], now, q.out[:])

	clear(q.leases) // the probe must not retain their ids
	q.state.Others, q.state.Leases = nil, nil
	return freshAt(&q.state, &q.out[0])
}

// restart makes the next sweep begin a new round.
func (h *shard) restart() { h.cursor, h.pending = 0, never }

// moved notes that a slot went to another place. If the round has passed that
// place but not the slot, another round has to follow.
func (h *shard) moved(from, to int) {
	if to < h.cursor && h.cursor <= from {
		h.pending = min(h.pending, h.earliest.Load())
	}
}

// tidyIfDue tidies the store unless that was done within the pause. The caller holds no lock.
func (s *Store) tidyIfDue(now int64) {
	if isDue(now - s.tidied.Load()) {
		s.tidy(now)
	}
}

// isDue reports whether a pause has passed, or the clock has stepped back by one. Readings of the
// clock that overtake one another differ by less.
func isDue(passed int64) bool { return uint64(passed+tidyPause) >= 2*tidyPause }

// tidy sweeps slots of shards that need it and are not busy: as many as time has passed for, so
// that the memory of fresh keys comes back in a time that depends little on the load.
func (s *Store) tidy(now int64) {
	before := s.tidied.Load()
	passed := now - before
	if !isDue(passed) || !s.tidied.CompareAndSwap(before, now) {
		return
	}
	if now-grace < s.earliest.Load() {
		return
	}

	n := min(maxTidy, tidySlots*max(1, passed/tidyPause))
	toSweep := int(n)
	for range tidyShards {
		if toSweep -= s.sweepNext(now, toSweep, grace); toSweep <= 0 {
			return
		}
	}
	if toSweep == int(n) {
		s.rescanInTurn(tidyShards)
	}
}

// sweepNext sweeps the next shard, unless it is busy, and returns how many slots it
// looked at.
func (s *Store) sweepNext(now int64, n int, grace int64) int {
	h := &s.shards[s.nextShard.Add(1)&s.mask]
	if now-grace < h.earliest.Load() || !h.mu.TryLock() {
		return 0
	}
	defer h.mu.Unlock()
	h.unpin()
	return h.sweep(now, n, grace)
}

// makeRoom looks for fresh keys, first in the shards of the step, which it has
// locked, and then in others, until n more keys of size bytes in all have room or enough
// slots were looked at.
func (s *Store) makeRoom(t *step, n int, size int64) {
	if t.now < s.earliest.Load() {
		return
	}

	toSweep := sweepRoom
	for _, i := range t.locked {
		toSweep -= s.shards[i].sweep(t.now, toSweep, 0)
	}

	for range roomShards {
		if toSweep <= 0 || s.keys.Load()+int64(n) <= s.maxKeys && s.bytes.Load() <= s.keyBytes-size {
			return
		}
		toSweep -= s.sweepNext(t.now, toSweep, 0)
	}

	if toSweep == sweepRoom {
		s.rescanInTurn(roomShards)
	}
}

// rescanInTurn rescans the store, of which the last n shards that were asked had no slot to look
// at, so that s.earliest may be too early. That reads every shard, and is done once for each time
// that all were asked in turn.
func (s *Store) rescanInTurn(n uint64) {
	if s.nextShard.Load()&s.mask < n {
		s.rescan()
	}
}

// lowerEarliest notes that a shard may have a slot that is fresh at that
// instant.
func (s *Store) lowerEarliest(at int64) {
	for {
		old := s.earliest.Load()
		if old <= at || s.earliest.CompareAndSwap(old, at) {
			return
		}
	}
}

// rescan finds again when the first slot will be fresh. If a shard learns of an
// earlier one meanwhile, rescan either reads that instant or the shard lowers the
// result afterwards.
func (s *Store) rescan() {
	s.earliest.Store(never)
	first := int64(never)
	for i := range s.shards {
		first = min(first, s.shards[i].earliest.Load())
	}
	s.lowerEarliest(first)
}
