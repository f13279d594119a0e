package memstore

// table is a hash table with open addressing: a slot lies at the home of its
// hash or, if that is taken, in the next free place after it. Its size is any
// number, so that it can grow by little and waste little.
type table struct {
	slots []slot
	count int
}

// The table is moved to a larger one when more than 3/4 of it are taken, and to
// a smaller one when fewer than 1/4 are; a tenth over 5/3 of the keys leaves it
// 3/5 full.
const fewestSlots = 8

// roomFor is the size that a table of n keys is moved to.
func roomFor(n int) int { return max(fewestSlots, n*5/3+1) }

// home is where a slot with that hash should lie. It keeps the order of the
// hashes, so that moving a table runs through both in order.
func (t *table) home(hash uint32) int {
	return int(uint64(hash) * uint64(len(t.slots)) >> 32)
}

func (t *table) next(i int) int {
	if i++; i == len(t.slots) {
		return 0
	}
	return i
}

// put adds a slot, which is not in the table yet, and returns its place.
func (t *table) put(c slot) int {
	if 4*(t.count+1) > 3*len(t.slots) {
		t.resize(t.count + 1)
	}
	i := t.home(c.hash)
	for t.slots[i].kind != none {
		i = t.next(i)
	}
	t.slots[i] = c
	t.count++
	return i
}

// cut takes slot i out, moves those that it had displaced back towards their
// homes, and calls moved for each.
func (t *table) cut(i int, moved func(from, to int)) {
	t.count--
	for j := t.next(i); t.slots[j].kind != none; j = t.next(j) {
		if !t.between(t.home(t.slots[j].hash), i, j) {
			continue
		}
		t.slots[i] = t.slots[j]
		moved(j, i)
		i = j
	}
	t.slots[i] = slot{}
}

// between tells whether a slot that lies at j and has its home at h may lie at
// i, which comes before j: whether i is not before h.
func (t *table) between(h, i, j int) bool {
	if i <= j {
		return h <= i || h > j
	}
	return h <= i && h > j
}

// sparse tells whether the table should be moved to a smaller one.
func (t *table) sparse() bool {
	return len(t.slots) > 2*fewestSlots && 4*t.count < len(t.slots)
}

// resize moves the slots to a table with room for n.
func (t *table) resize(n int) {
	old := t.slots
	t.slots = make([]slot, roomFor(n))
	for k := range old {
		if old[k].kind == none {
			continue
		}
		i := t.home(old[k].hash)
		for t.slots[i].kind != none {
			i = t.next(i)
		}
		t.slots[i] = old[k]
	}
}
