// This file has the paths of a Take on a pinned key, of one or several quick Takes, and of a
// single op on a known key.
//
//	path     when                            cost
//	pinned   a Take of the key that its      no lock: one compare-and-swap, and a hash
//	         shard was asked for 64 times    unless the key was pinned last of its
//	         in a row, and no other since    limit; with a list, a lock and no search
//	quick    Takes on up to 16 keys, all     a hash for each key, a lock for each
//	         held, or of a step that is      shard, at most three divisions for
//	         refused                         each Take
//	general  every other step                as quick, and core.Decide on copies of
//	                                         the states; new keys are inserted and
//	                                         others swept
//
// The first two paths are for Takes of at least one unit that book nothing and
// are not UpTo, under limits for which a key is two numbers and perhaps a list (see
// core.Compact), and for keys without strikes or bans. A single Peek takes them too if there is a
// list, and so does a single op on leases. They leave refusals under a core.Ban
// to the general path, which step.go has. No path allocates for a key that is held, except
// for a few bytes when a key is pinned or gets its first strike, for a list that grows, and
// on the general path for leases.
//
// A [Prepared] step takes the same paths. Its several Takes are of one key, so they have one hash
// and one lock.
// Steps on keys of one shard wait for each other. A step that is not quick, on a pinned
// key, takes the lock and unpins the key.

package memstore

import (
	"math/bits"
	"sync/atomic"

	"github.com/headgate/headgate/core"
)

// take carries out a quick Take under the compact limit of class v, unless the key
// is new, its limit has changed, or core has to decide. done reports whether it
// did. Otherwise it has changed nothing, d is not to be read, and looked reports
// whether the key was looked up at now.
//
// Nearly all decisions are made here. The clock is read before the lock is taken,
// so that the lock is held for a short time. The instant counts unless another
// step has used a later one.
func (s *Store) take(v *limitClass, op *core.Op, d *core.Decision) (now int64, looked, done bool) {
	// The key of the class that was pinned last is known by itself, so no hash is needed.
	if r := v.pinned.Load(); r != nil && r.key == op.Key {
		now = s.clock()
		if r.take(v, op, now, d) {
			return now, true, true
		}

		hash, h := s.shardFor(op.Key, v)
		looked, done = h.take(hash, v, op, now, d)
		return now, looked, done
	}

	// Another key of the class may have been pinned later, in another shard.
	hash, h := s.shardFor(op.Key, v)
	r := h.pinned.Load()
	now = s.clock()
	if r != nil && r.is(hash, v, op.Key) && r.take(v, op, now, d) {
		return now, true, true
	}

	looked, done = h.take(hash, v, op, now, d)
	return now, looked, done
}

// shardFor returns the hash of a key of class v, and the shard that it is in.
func (s *Store) shardFor(key string, v *limitClass) (hash uint64, h *shard) {
	keyHash := s.keyHash(key)
	return v.hash(keyHash), &s.shards[s.shardOf(keyHash)]
}

// take is the part of Store.take that needs the lock.
func (h *shard) take(hash uint64, v *limitClass, op *core.Op, now int64, d *core.Decision) (looked, done bool) {
	h.mu.Lock()
	// The count of a pinned key is not in its slot. Another key of the shard with the same hash
	// unpins it too, which costs only time.
	if r := h.pinned.Load(); r != nil && r.hash == uint32(hash>>32) {
		h.unpin()
	}

	// Another step has used a later instant, and time must not go back for a key. The general
	// path reads the clock again.
	if now < h.latest {
		h.mu.Unlock()
		return false, false
	}

	i := h.seek(h.home(uint32(hash>>32)), uint32(hash>>32), op.Key)
	if i < 0 || !h.commit(i, v, op, now, d) {
		h.mu.Unlock()
		return true, false
	}

	h.countHit(i, v)
	h.latest = now
	h.mu.Unlock()
	return true, true
}

// commit carries out a quick Take on slot i if the slot is of class v, has no
// rareState and stays in use, and the Take is no strike. It notes no expiry: a
// Take only makes the slot fresh later than was noted before.
func (h *shard) commit(i int, v *limitClass, op *core.Op, now int64, d *core.Decision) bool {
	c := &h.slots[i]
	if v.compact.Leased() {
		l := leaseSlotOf(h, i, v, op)
		return l.compact != nil && l.take(op, v.id, now, d)
	}
	if c.class != v.id || h.rareState(i) != nil {
		return false
	}
	if v.compact.Windowed() && op.CheckWindows(now) != nil {
		return false
	}
	if v.compact.Listed() {
		return h.commitListed(i, v, op, now, d)
	}

	// The two numbers are charged once it is known that the slot stays in use.
	used, mark, good := v.compact.Take(c.used, c.mark, now, op.Cost, d)
	if !good || d.ResetAfter == 0 || !d.Allowed && op.Ban != nil {
		return false
	}
	if d.Allowed {
		c.used, c.mark = used, mark
	}
	return true
}

// commitListed is commit for a slot with a list, which is charged in its place. It peeks too.
func (h *shard) commitListed(i int, v *limitClass, op *core.Op, now int64, d *core.Decision) bool {
	if op.Verb == core.Peek {
		c := &h.slots[i]
		return v.compact.PeekListed(c.used, c.mark, h.list(i), now, op.Cost, d) && d.ResetAfter > 0
	}
	good := h.takeListed(i, &v.compact, op, now, d)
	return good && d.ResetAfter > 0 && (d.Allowed || op.Ban == nil)
}

// quick reports whether the op is a Take that core.Compact can decide if its limit has one and the
// op is sound.
func quick(op *core.Op) bool {
	return op.Verb == core.Take && !op.UpTo && op.Cost > 0 && op.MaxWait == 0 && op.At == 0 && op.ResetAfter == 0
}

// sound reports whether core.CheckOps finds no fault in a quick op of class v. Nearly all ops have
// no ban, no lease and no windows, and are spared the call.
func sound(v *limitClass, op *core.Op) bool { return v.bare && op.Ban == nil || soundBesides(v, op) }

// soundBesides is sound for an op that may have a ban, a lease or windows.
func soundBesides(v *limitClass, op *core.Op) bool {
	switch {
	case v.compact.Leased():
		return op.Lease != "" && op.Ban == nil
	case v.compact.Windowed() && !op.Windows.Ordered():
		return false
	}
	return op.Ban == nil || op.Ban.Validate() == nil
}

// inPlace reports whether the only op, under a limit with a list, is one that core.Compact can
// decide and in which core.CheckOps finds no fault.
func inPlace(ops []core.Op, out []core.Decision) bool {
	op := &ops[0]
	if quickRelease(op) {
		return true
	}
	known := op.Verb == core.Peek || op.Verb == core.Take && op.Limit.Leased()
	return known && core.CheckOps(ops, out) == nil
}

// quickRelease reports whether the op is a Refund of a lease in which core.CheckOps finds no fault.
func quickRelease(op *core.Op) bool {
	return op.Verb == core.Refund && op.Limit.Leased() && op.Lease != "" && op.Ban == nil && !op.UpTo &&
		op.Cost >= 0 && op.MaxWait == 0 && op.At >= 0 && op.At < exact && op.ResetAfter >= 0
}

// exact is the end of the instants that an op may have.
const exact = 1 << 53

// pinned is a key that was asked for many times in a row. While its shard
// points to it, its count is here and not in its slot, in one word, so that a
// Take of the key needs no lock. Every other step on the shard takes the lock
// and unpins the key first. The class of the key points to it too, until
// another key of the class is pinned: the key of the class that was pinned last
// is found without a hash.
type pinned struct {
	base  int64 // the instant from which marks count
	bits  uint8 // of a mark in state
	hash  uint32
	class classID
	key   string

	// Of a key with a list. Its count stays in its slot, which needs the lock, but is found without
	// a search.
	shard *shard // or nil
	slot  int

	// The state is in a cache line of its own. It is written all the time, and
	// a step that checks whether this is its key need not wait for that.
	_     [cacheLine - 56]byte
	state atomic.Uint64 // see pack, or unpinned, which it always is for a key with a list
	_     [cacheLine - 8]byte
}

// minMarkBits is the minimum width of a mark, enough for 71 minutes.
const minMarkBits = 32

// unpinned is the state after the count was moved back to the slot. No key has so many units.
const unpinned = 1<<64 - 1

// pinAfter is how often in a row a shard is asked for a key before the key is
// pinned, which takes two allocations.
const pinAfter = 64

// pack puts the used units and, below them, the microseconds from base to mark
// into a word.
func (p *pinned) pack(used, mark int64) uint64 {
	return uint64(used)<<(p.bits&63) | uint64(mark-p.base)
}

// unpack is the inverse of pack.
func (p *pinned) unpack(w uint64) (used, mark int64) {
	used = int64(w >> (p.bits & 63))
	return used, p.base + int64(w-uint64(used)<<(p.bits&63))
}

// is reports whether p is the pinned form of a key of class v.
func (p *pinned) is(hash uint64, v *limitClass, key string) bool {
	return p.hash == uint32(hash>>32) && p.class == v.id && p.key == key
}

// take carries out a quick Take of the key, which is of class v, at now, if
// core.Compact can decide it and the key stays in use.
func (p *pinned) take(v *limitClass, op *core.Op, now int64, d *core.Decision) (done bool) {
	for {
		w := p.state.Load()
		if w == unpinned {
			return p.shard != nil && p.takeListed(v, op, now, d)
		}

		used, mark := p.unpack(w)
		used, mark, good := v.compact.Take(used, mark, now, op.Cost, d)
		if !good {
			return false
		}
		// A refusal writes nothing: it neither changes the count nor needs the newest one.
		if !d.Allowed {
			return d.ResetAfter > 0 && op.Ban == nil
		}
		// The mark would not fit into its bits.
		if uint64(mark-p.base)>>(p.bits&63) != 0 {
			return false
		}
		// It fails if another Take of the key came in between, or a step that unpinned it.
		if p.state.CompareAndSwap(w, p.pack(used, mark)) {
			return true
		}
	}
}

// takeListed is take for a key with a list.
func (p *pinned) takeListed(v *limitClass, op *core.Op, now int64, d *core.Decision) (done bool) {
	h := p.shard
	h.mu.Lock()
	if h.pinned.Load() == p && now >= h.latest && h.commit(p.slot, v, op, now, d) {
		h.latest, done = now, true
	}
	h.mu.Unlock()
	return done
}

// countHit notes that slot i, of class v and without rareState, was asked for,
// and pins its key after pinAfter times in a row.
func (h *shard) countHit(i int, v *limitClass) {
	c := &h.slots[i]
	if h.recent != c.hash {
		h.recent, h.streak = c.hash, 0
	}

	// A count and a mark share a word, so a large capacity leaves no room for a mark.
	listed, left := v.compact.Listed(), bits.LeadingZeros64(uint64(v.compact.MaxUsed())+1)
	if h.streak++; h.streak != h.pinAfter || left < minMarkBits && !listed {
		return
	}

	// A debt may have left more units, which no Take has written off yet.
	if c.used > v.compact.MaxUsed() && !listed {
		h.streak = 0
		return
	}

	h.unpin()
	r := &pinned{base: c.mark, bits: uint8(left), hash: c.hash, class: v.id, key: h.keyOf(i)}
	if listed {
		r.shard, r.slot = h, i
		r.state.Store(unpinned)
	} else {
		r.state.Store(r.pack(c.used, c.mark))
	}
	h.pinned.Store(r)
	v.pinned.Store(r)
}

// unpin moves the count of the shard's pinned key back into its slot.
func (h *shard) unpin() {
	r := h.pinned.Load()
	if r == nil {
		return
	}

	h.pinned.Store(nil)
	v := (*h.classes.list.Load())[r.class]
	v.pinned.CompareAndSwap(r, nil)
	h.streak = 0
	if r.shard != nil {
		return
	}

	// The slot is still there: no slot moves or is removed while a key of its shard is pinned.
	i := h.seek(h.home(r.hash), r.hash, r.key)
	for h.slots[i].class != r.class {
		i = h.seek(h.next(i), r.hash, r.key)
	}

	// A Take that still holds r leaves the key to the slot from here on.
	c := &h.slots[i]
	c.used, c.mark = r.unpack(r.state.Swap(unpinned))
	h.latest = max(h.latest, v.compact.Began(c.used, c.mark))
}

// lock takes the lock and unpins the shard's key, for every step but a quick Take
// of another key.
func (h *shard) lock() {
	h.mu.Lock()
	h.unpin()
}

// maxFastTakes is the maximum number of ops in fastTakes, which live on the
// stack.
const maxFastTakes = 16

// fastTakes is a step of several quick Takes on different keys.
type fastTakes struct {
	of     []fastTake
	shards [maxFastTakes]uint32 // see lockLater; each once
	locks  int                  // number of shards
}

// fastTake is one Take and the slot of its key.
type fastTake struct {
	class *limitClass
	hash  uint64 // no other key of the step has the same
	shard uint32
	at    int32 // the slot, or absent; before evaluate where to look for it
	used  int64 // of the slot once the Take is charged
	mark  int64
}

// absent is the slot of a key that the store does not hold.
const absent = -1

// takeAll is take for a step of several ops on different keys. If it has not
// carried them out it has changed nothing, out is not to be read, and read reports
// whether it has read the clock at now.
func (s *Store) takeAll(ops []core.Op, out []core.Decision) (now int64, read, done bool) {
	if len(ops) > min(maxFastTakes, len(out)) {
		return 0, false, false
	}

	// Nearly all steps are of few ops. To clear memory for the most there may be takes longer than
	// to find a key.
	var few [4]fastTake
	c := fastTakes{of: few[:]}
	if len(ops) > len(few) {
		c.of = make([]fastTake, maxFastTakes)
	}
	if !c.locate(s, ops) {
		return 0, false, false
	}

	// Before the locks, which are then held for a shorter time.
	now = s.clock()
	for _, i := range c.shards[:c.locks] {
		s.shards[i].lock()
	}

	done = !c.overtaken(s, now) && c.decide(s, ops, out, now)

	for _, i := range c.shards[:c.locks] {
		if done {
			s.shards[i].latest = now
		}
		s.shards[i].mu.Unlock()
	}
	return now, true, done
}

// locate finds the slots of all ops. It reports whether each op is a quick Take
// under a compact limit, on a key that no other op uses.
func (f *fastTakes) locate(s *Store, ops []core.Op) bool {
	var keyHash uint64
	for i := range ops {
		op := &ops[i]
		v := s.classes.lookup(op)
		if v == nil || !v.compact.Valid() || !quick(op) || !sound(v, op) {
			return false
		}

		// Rules about one caller have the same key and so the same shard.
		if i == 0 || op.Key != ops[i-1].Key {
			keyHash = s.keyHash(op.Key)
			f.lockLater(s.shardOf(keyHash))
		}

		p := &f.of[i]
		p.class, p.hash, p.shard = v, v.hash(keyHash), s.shardOf(keyHash)

		// Takes on one key would have to be decided one upon the other.
		for j := range i {
			if f.of[j].hash == p.hash {
				return false
			}
		}
	}

	return true
}

// lockLater puts a shard among those that are to be locked, in ascending order, as every step takes
// its locks.
func (f *fastTakes) lockLater(shard uint32) {
	i := f.locks
	for i > 0 && f.shards[i-1] > shard {
		i--
	}
	if i > 0 && f.shards[i-1] == shard {
		return
	}
	copy(f.shards[i+1:f.locks+1], f.shards[i:f.locks])
	f.shards[i] = shard
	f.locks++
}

// overtaken reports whether another step has used a later instant.
func (f *fastTakes) overtaken(s *Store, now int64) bool {
	for _, i := range f.shards[:f.locks] {
		if now < s.shards[i].latest {
			return true
		}
	}
	return false
}

// decide carries out the Takes, unless a slot has to be added, removed or
// decided by core. In that case it changes nothing, returns false, and out must
// not be read.
func (f *fastTakes) decide(s *Store, ops []core.Op, out []core.Decision, now int64) bool {
	f.approach(s, len(ops))

	known := true
	for i := range ops {
		p, op, d := &f.of[i], &ops[i], &out[i]
		if !p.evaluate(s, op, d, now) {
			return false
		}
		known = known && p.at != absent
	}

	if !core.Granted(ops, out) {
		return f.undoRefused(s, ops, out)
	}

	if known {
		f.commit(s, ops, out)
	}
	return known
}

// approach finds for each of n ops the first slot that may be that of its key. It reads the tags
// and then the slots, without waiting for any of them, so that the processor waits for the memory
// of all at the same time.
func (f *fastTakes) approach(s *Store, n int) {
	for i := range f.of[:n] {
		p := &f.of[i]
		h := &s.shards[p.shard]
		if p.at = int32(h.home(uint32(p.hash >> 32))); h.count > 0 {
			p.used = int64(h.tags[p.at])
		}
	}

	for i := range f.of[:n] {
		p := &f.of[i]
		h := &s.shards[p.shard]
		if h.count > 0 {
			p.at = int32(h.nextTagged(int(p.at), uint32(p.hash>>32)))
			p.used = h.slots[p.at].used
		}
	}
}

// evaluate decides a Take as if it were alone, and changes nothing. It reports
// whether it could, and whether the slot stays in use if the Take is refused. A
// key without a slot is certain to be new only where no overflow bucket may
// have counted it.
func (f *fastTake) evaluate(s *Store, op *core.Op, d *core.Decision, now int64) (good bool) {
	h, hash := &s.shards[f.shard], uint32(f.hash>>32)
	i := h.seek(int(f.at), hash, op.Key)
	switch {
	case i < 0 && f.class.compact.Listed():
		return false
	case i < 0:
		f.at = absent
		f.used, f.mark, good = f.class.compact.Take(0, 0, now, op.Cost, d)
		return good && h.buckets == 0 && s.keys.Load() <= s.maxKeys-maxFastTakes
	}

	c := &h.slots[i]
	f.at = int32(i)
	if f.class.compact.Leased() {
		l := leaseSlotOf(h, i, f.class, op)
		return l.compact != nil && l.try(op, now, d)
	}
	if c.class != f.class.id || h.rareState(i) != nil {
		return false
	}

	if f.class.compact.Windowed() && op.CheckWindows(now) != nil {
		return false
	}
	if f.class.compact.Listed() {
		good = h.tryListed(i, &f.class.compact, op, now, d)
	} else {
		f.used, f.mark, good = f.class.compact.Take(c.used, c.mark, now, op.Cost, d)
	}
	return good && d.ResetAfter > 0
}

// commit writes the slots of all allowed Takes as evaluate has decided.
func (f *fastTakes) commit(s *Store, ops []core.Op, out []core.Decision) {
	for i := range ops {
		if !out[i].Allowed {
			continue
		}
		p := &f.of[i]
		h := &s.shards[p.shard]
		slot := &h.slots[p.at]
		if p.class.compact.Leased() {
			l := leaseSlotOf(h, int(p.at), p.class, &ops[i])
			l.take(&ops[i], p.class.id, out[i].At, &out[i])
			continue
		}
		if p.class.compact.Listed() {
			d := out[i]
			p.class.compact.TakeListed(&slot.used, &slot.mark, h.list(int(p.at)), d.At, ops[i].Cost, &d)
			continue
		}
		slot.used, slot.mark, slot.class = p.used, p.mark, p.class.id
	}
}

// undoRefused turns the decisions on a refused step into decisions on Takes
// that did not happen. It reports whether all slots stay in use and no Take is a strike.
func (f *fastTakes) undoRefused(s *Store, ops []core.Op, out []core.Decision) bool {
	for i := range ops {
		p, d, n := &f.of[i], &out[i], ops[i].Cost
		if !d.Allowed && ops[i].Ban != nil {
			return false
		}
		if !d.Allowed || p.class.compact.Leased() {
			continue
		}

		// A key without a slot needs none for a Take that did not happen.
		if p.class.compact.Listed() {
			h := &s.shards[p.shard]
			slot := &h.slots[p.at]
			p.class.compact.UntryListed(slot.used, slot.mark, h.list(int(p.at)), n, d)
		} else {
			p.class.compact.Untake(p.used, p.mark, n, d)
		}
		if d.ResetAfter == 0 && p.at != absent {
			return false
		}
	}
	return true
}

// decideKnown is decideStep for a single op on a key that the store holds: it
// needs no room for the state. v is the op's class, or nil if it is not known yet.
// It returns the instant of the search, and whether the store holds the key.
func (s *Store) decideKnown(v *limitClass, ops []core.Op, out []core.Decision) (now int64, known bool, err error) {
	if v == nil {
		if v, err = s.classes.classOf(&ops[0]); err != nil {
			return 0, false, err
		}
	}
	p := s.locationOf(v, &ops[0])
	now = s.clock()
	known, err = s.shards[p.shard].decide(&p, ops, out, now)
	return now, known, err
}

// decide is the part of decideKnown that needs the lock.
func (h *shard) decide(p *location, ops []core.Op, out []core.Decision, now int64) (known bool, err error) {
	h.lock()
	defer h.mu.Unlock()
	i := h.find(p, &ops[0])
	if i < 0 {
		return false, nil
	}

	if now < h.latest {
		now = h.store.clock()
	}
	h.observe(now)
	if err := ops[0].CheckWindows(now); err != nil {
		return true, err
	}

	h.load(i, &h.state)
	// A key gets its first strike only where there is room to keep it.
	if ops[0].Ban != nil && h.state.Conduct.None() && !h.store.roomForAside() {
		op := ops[0]
		dropBan(&op)
		ops = []core.Op{op}
	}
	if ops[0].Verb == core.Grant && len(h.state.Credits) == 0 && !h.store.roomForAside() {
		op := ops[0]
		dropCredit(&op)
		ops = []core.Op{op}
	}

	states := [1]*core.State{&h.state}
	core.Decide(ops, states[:], now, out)
	h.keep(i, &h.state, p.class, &ops[0], &out[0])
	return true, nil
}
