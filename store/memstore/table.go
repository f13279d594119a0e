package memstore

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/headgate/headgate/core"
)

// table is a hash table with open addressing: a slot lies at the home of its
// hash or, if that is taken, in the next free place after it. A search reads
// tags, of which many fit into a cache line, and then almost only the slot that
// it looks for. A table may have any size, so that it can grow in small steps
// and waste little.
type table struct {
	tags  []uint8 // for each slot some bits of its hash, or free
	slots []entry
	exts  []ext // of each slot, or nil if no slot has any
	count int
}

const free uint8 = 0

func tagOf(hash uint32) uint8 { return max(1, uint8(hash)) }

// minSlots is the minimum size of a table. A table is resized when more than
// 7/8 of it are taken, or fewer than 1/4, which leaves it 3/4 full.
const minSlots = 8

// roomFor returns the size for a table of n keys.
func roomFor(n int) int { return max(minSlots, n*4/3+1) }

// home returns the place where a slot with that hash should lie. It keeps the
// order of the hashes, so that a resize runs through both tables in order.
func (t *table) home(hash uint32) int {
	return int(uint64(hash) * uint64(len(t.tags)) >> 32)
}

func (t *table) next(i int) int {
	if i++; i == len(t.tags) {
		return 0
	}
	return i
}

// put adds a slot, which is not in the table yet, and returns its place.
func (t *table) put(c entry, a ext) int {
	if 8*(t.count+1) > 7*len(t.slots) {
		t.resize(t.count + 1)
	}
	t.count++
	return t.fill(&c, a)
}

// fill puts a slot into the first free place from its home on.
func (t *table) fill(c *entry, a ext) int {
	i := t.home(c.hash)
	for t.tags[i] != free {
		i = t.next(i)
	}
	t.tags[i], t.slots[i] = tagOf(c.hash), *c
	if a != (ext{}) {
		*t.putExt(i) = a
	}
	return i
}

// seek returns the first slot with that hash and key from place i on, or -1.
func (t *table) seek(i int, hash uint32, key string) int {
	tag := tagOf(hash)
	for ; i < len(t.tags) && t.tags[i] != free; i = t.next(i) {
		if t.tags[i] == tag && t.slots[i].hash == hash && t.isOf(i, key) {
			return i
		}
	}
	return -1
}

// isOf reports whether slot i holds that key.
func (t *table) isOf(i int, key string) bool {
	c := &t.slots[i]
	if c.size == long {
		return t.exts[i].key == key
	}
	return string(c.text[:c.size]) == key
}

// putExt returns the ext of slot i, after making room for it.
func (t *table) putExt(i int) *ext {
	if t.exts == nil {
		t.exts = make([]ext, len(t.slots))
	}
	return &t.exts[i]
}

// cut takes slot i out, moves the slots that it had displaced back towards
// their homes, and calls moved for each.
func (t *table) cut(i int, moved func(from, to int)) {
	t.count--
	for j := t.next(i); t.tags[j] != free; j = t.next(j) {
		if !t.between(t.home(t.slots[j].hash), i, j) {
			continue
		}
		t.tags[i], t.slots[i] = t.tags[j], t.slots[j]
		if t.exts != nil {
			t.exts[i] = t.exts[j]
		}
		moved(j, i)
		i = j
	}
	t.tags[i], t.slots[i] = free, entry{}
	if t.exts != nil {
		t.exts[i] = ext{}
	}
}

// between reports whether a slot that lies at j and has its home at h may lie
// at i, which comes before j: whether i is not before h.
func (t *table) between(h, i, j int) bool {
	if i <= j {
		return h <= i || h > j
	}
	return h <= i && h > j
}

// sparse reports whether the table should shrink.
func (t *table) sparse() bool {
	return len(t.slots) > 2*minSlots && 4*t.count < len(t.slots)
}

// resize moves the slots to a table with room for n. It also uses the room that
// the allocator adds by rounding up.
func (t *table) resize(n int) {
	old := *t
	t.slots = slices.Grow([]entry(nil), roomFor(n))
	t.slots = t.slots[:cap(t.slots)]
	t.tags, t.exts = make([]uint8, len(t.slots)), nil
	for k, tag := range old.tags {
		switch {
		case tag == free:
		case old.exts == nil:
			t.fill(&old.slots[k], ext{})
		default:
			t.fill(&old.slots[k], old.exts[k])
		}
	}
}

// shard is a part of the store with a lock of its own. The lock guards all
// fields except earliest and pinned, which may be read without it.
//
// The fields for a decision on a known key come first, in two cache lines.
type shard struct {
	shardHead
	_     [(cacheLine - (unsafe.Sizeof(shardHead{})+unsafe.Sizeof(probe{}))%cacheLine) % cacheLine]byte
	probe probe
}

// cacheLine is the size of a cache line on nearly all machines, of which the size of a
// shard is a multiple.
const cacheLine = 64

// shardHead is a shard without its probe.
type shardHead struct {
	mu sync.Mutex
	table
	latest  int64  // the instant of the last step
	pending int64  // no slot that the sweep has passed is fresh before it
	steps   uint32 // single steps carried out, to tidy now and then

	recent uint32 // hash of the key that was asked for last
	streak uint32 // how many times in a row

	pinAfter uint32 // the streak after which a key is pinned; see the constant
	pinned   atomic.Pointer[pinned]

	earliest atomic.Int64 // no slot is fresh before it, see sweep
	store    *Store
	classes  *interner
	buckets  int        // overflow buckets among the slots
	cursor   int        // where the sweep continues
	state    core.State // a copy of the state that is being decided
}

// probe is the memory for asking core about the state of a slot.
type probe struct {
	op    [1]core.Op
	out   [1]core.Decision
	state core.State

	// Copies of what the state points to.
	log    []core.Entry
	leases []core.Lease
}

// never is an instant that does not come.
const never = math.MaxInt64

func (h *shard) open(s *Store) {
	h.store, h.classes = s, s.classes
	h.pending, h.pinAfter = never, pinAfter
	h.earliest.Store(never)
}

// keep stores slot i as a step has decided op, which is of class id. A slot of another
// limit that the step has not changed stays, because it may be fresh under the limit of
// op alone. Where there is no room to note which Takes are void, none is.
func (h *shard) keep(i int, st *core.State, id classID, op *core.Op, d *core.Decision) {
	if st.Void.Until != 0 && h.aside(i) == nil && !h.store.roomForAside() {
		st.Void = core.Aside{}.Void
	}
	switch own := h.slots[i].class&^marks == id && id != uninterned; {
	case d.ResetAfter == 0 && (st.Changed || own) && st.ForgetAfter(d) == 0:
		h.remove(i)
	case !st.Changed:
		if st.ConductChanged {
			h.keepConduct(i, st, op.Rule, d.At)
		}
	case st.Limit.Equal(&op.Limit):
		h.save(i, st, id, op.Rule)
		h.noteExpiry(freshAt(st, d))
	default:
		// The decision is under another limit than the state, under which the key
		// may be fresh earlier or later.
		h.save(i, st, h.slots[i].class&^marks, op.Rule)
		h.noteExpiry(h.expiry(i, d.At))
	}
}

// keepConduct stores the conduct of st in slot i and leaves the rest. st becomes the state
// of the slot.
func (h *shard) keepConduct(i int, st *core.State, rule string, now int64) {
	conduct := st.Conduct
	h.load(i, st)
	st.Conduct = conduct
	h.save(i, st, h.slots[i].class&^marks, rule)
	h.noteExpiry(h.expiry(i, now))
}

// countStep notes a single step at now, and reports whether to tidy after it.
func (h *shard) countStep(now int64) (due bool) {
	h.observe(now)
	h.steps++
	return h.steps%tidyEvery == 0
}

// observe notes the time of a step. When the clock has stepped back, the noted
// future instants are void.
func (h *shard) observe(now int64) {
	if now < h.latest {
		h.lowerEarliest(min(h.earliest.Load(), now))
		h.pending = min(h.pending, now)
	}
	h.latest = now
}

// freshAt returns the instant at which the key of a state is fresh, as d has left it.
func freshAt(st *core.State, d *core.Decision) int64 {
	return d.At + st.ForgetAfter(d).Microseconds()
}

// noteExpiry notes when a slot will be fresh.
func (h *shard) noteExpiry(at int64) {
	if at >= h.pending { // which is not before h.earliest
		return
	}
	h.pending = at
	if at < h.earliest.Load() {
		h.lowerEarliest(at)
	}
}

// lowerEarliest lowers the instant before which no slot is fresh.
func (h *shard) lowerEarliest(at int64) {
	h.earliest.Store(at)
	h.store.lowerEarliest(at)
}

// add puts a slot into the table.
func (h *shard) add(c entry, a ext) int {
	size := len(h.slots)
	i := h.put(c, a)
	if len(h.slots) != size {
		h.restart()
	}
	return i
}

// remove forgets slot i.
func (h *shard) remove(i int) {
	h.state.Log, h.state.Head, h.state.Others, h.state.Leases = nil, 0, nil, nil // they may be those of the slot
	if h.slots[i].class&shared != 0 {
		h.buckets--
		h.store.overflowKeys.Add(-1)
	} else {
		h.store.keys.Add(-1)
	}
	h.store.bytes.Add(-h.bytes(i))
	h.cut(i, h.moved)
	if h.sparse() {
		h.resize(h.count)
		h.restart()
	}
}
