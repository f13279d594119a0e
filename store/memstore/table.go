package memstore

import (
	"slices"

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
	tails tails // of leases
	exts  []ext // of each slot, or nil if no slot has any
	count int
}

const free uint8 = 0

// tagOf returns the tag of a hash, which is not free.
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

// next returns the place after i, which is the first after the last.
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
	if a.text != nil || a.rareState != nil {
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

// nextTagged returns the first place from i on that is free or may have a slot with that hash. It
// reads no slot.
func (t *table) nextTagged(i int, hash uint32) int {
	tag := tagOf(hash)
	for t.tags[i] != free && t.tags[i] != tag {
		i = t.next(i)
	}
	return i
}

// isOf reports whether slot i holds that key.
func (t *table) isOf(i int, key string) bool {
	c := &t.slots[i]
	if c.size == long {
		return string(t.exts[i].text) == key
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

// newList gives slot i a list of at least n bytes beside it, which are zero, and of at most a
// quarter more: what the allocator adds for a long key would be more than writeList keeps.
func (t *table) newList(i, n int) []byte {
	e := t.putExt(i)
	text := append(slices.Grow([]byte(nil), len(e.text)+n), e.text...)
	e.text = text[:len(text):min(cap(text), len(text)+n+n/4)]
	return e.list()
}

// dropList takes the list beside slot i away.
func (t *table) dropList(i int) {
	e := &t.exts[i]
	e.text = slices.Clip(append([]byte(nil), e.text...))
}

// writeList writes the state to slot i and its list. A list that has no room in the slot stays
// beside it until the slot is removed, or has a limit that is counted with less than most bytes.
func (t *table) writeList(i int, a core.Compact, st *core.State, most int64) {
	c := &t.slots[i]
	if int64(len(t.listBeside(i))) > most {
		t.dropList(i)
	}

	used, mark, fits := a.Pack(st, t.list(i))
	if !fits {
		used, mark, _ = a.Pack(st, t.newList(i, a.ListSize(st)))
	}
	c.used, c.mark = used, mark
}

// takeListed is core.Compact.TakeListed for slot i, whose list becomes longer if it has to.
func (t *table) takeListed(i int, a *core.Compact, op *core.Op, now int64, d *core.Decision) bool {
	c := &t.slots[i]
	return a.TakeListed(&c.used, &c.mark, t.list(i), now, op.Cost, d) ||
		t.growList(i, a, now) && a.TakeListed(&c.used, &c.mark, t.list(i), now, op.Cost, d)
}

// tryListed is core.Compact.TryListed for slot i, whose list becomes longer if it has to.
func (t *table) tryListed(i int, a *core.Compact, op *core.Op, now int64, d *core.Decision) bool {
	c := &t.slots[i]
	return a.TryListed(c.used, c.mark, t.list(i), now, op.Cost, d) ||
		t.growList(i, a, now) && a.TryListed(c.used, c.mark, t.list(i), now, op.Cost, d)
}

// growList gives slot i a longer list if only that is missing for a Take at now. It reports whether
// it did.
func (t *table) growList(i int, a *core.Compact, now int64) bool {
	c, list := &t.slots[i], t.list(i)
	n := a.LongerSize(c.mark, list, now)
	if n == 0 {
		return false
	}

	c.mark = a.MoveLog(c.mark, list, t.newList(i, n))
	return true
}

// removeSlot takes slot i out, moves the slots that it had displaced back towards
// their homes, and calls moved for each.
func (t *table) removeSlot(i int, moved func(from, to int)) {
	t.count--

	// Every slot up to the next free place may have been displaced by this one. One whose home
	// comes after the hole has to stay, or a search from its home would not find it.
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

	// The slots come in the order of their homes, so both tables are read and written once.
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
