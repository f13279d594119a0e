package replay

import (
	"cmp"
	"hash/maphash"
	"slices"
	"strings"
	"time"
)

// seed is that of all hashes of a process.
var seed = maphash.MakeSeed()

func hashOf(key string) uint64 { return maphash.String(seed, key) }

// distinct counts different keys in bounded memory: exactly up to maxDistinct, and by a sample of
// about as many beyond that. The zero value is ready for use.
type distinct struct {
	slots []uint64 // hashes at their place or behind it, 0 for none; as many as a power of two
	n     int
	level uint // of the sample: one in 1<<level
}

// maxDistinct bounds the memory of a distinct to two megabytes.
const maxDistinct = 1 << 17

func (d *distinct) add(hash uint64) {
	hash |= 1 << 63 // so that none is 0
	if hash&(1<<d.level-1) != 0 {
		return
	}
	if d.slots == nil {
		d.slots = make([]uint64, 64)
	}

	// The low bits choose the sample, so the place is by others.
	mask := uint64(len(d.slots) - 1)
	i := hash >> 32 & mask
	for d.slots[i] != 0 {
		if d.slots[i] == hash {
			return
		}
		i = (i + 1) & mask
	}
	d.slots[i] = hash
	if d.n++; d.n > len(d.slots)/2 {
		d.grow()
	}
}

// grow makes room. Beyond the bound half of the sample stays, so each key is in it or not
// whenever it came.
func (d *distinct) grow() {
	old := d.slots
	if size := 2 * len(old); d.n < maxDistinct {
		d.slots = make([]uint64, size)
	} else {
		d.level++
		d.slots = make([]uint64, len(old))
	}

	d.n = 0
	for _, hash := range old {
		if hash != 0 {
			d.add(hash)
		}
	}
}

// count returns how many keys there were. It is exact if the level is 0.
func (d *distinct) count() int64 { return int64(d.n) << d.level }

// top finds the most frequent keys in bounded memory. Their counts are exact unless there are more
// than maxTop keys, and otherwise at most short too low. The zero value is ready for use.
type top struct {
	counts map[topKey]*int64
	short  int64
}

type topKey struct {
	policy string
	key    string
}

const maxTop = 1 << 16

func (t *top) add(policy, key string) {
	if n := t.counts[topKey{policy, key}]; n != nil {
		*n++
		return
	}
	if t.counts == nil {
		t.counts = map[topKey]*int64{}
	}
	if len(t.counts) >= maxTop {
		t.shrink()
	}

	// The key is in the memory of a line that is used again.
	n := int64(1)
	t.counts[topKey{policy, strings.Clone(key)}] = &n
}

// shrink forgets the half of the keys that is least frequent.
func (t *top) shrink() {
	// The median is the bound, so at least half of them go.
	all := make([]int64, 0, len(t.counts))
	for _, n := range t.counts {
		all = append(all, *n)
	}
	slices.Sort(all)
	bound := all[len(all)/2]
	t.short += bound
	for k, n := range t.counts {
		if *n <= bound {
			delete(t.counts, k)
		}
	}
}

// first returns the most frequent keys, at most n.
func (t *top) first(n int) []Touched {
	list := []Touched{}
	for k, count := range t.counts {
		list = append(list, Touched{k.policy, k.key, *count})
	}
	slices.SortFunc(list, func(a, b Touched) int {
		return cmp.Or(cmp.Compare(b.Times, a.Times), cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Key, b.Key))
	})
	return list[:min(n, len(list))]
}

// timeline counts over time in as many buckets, whose width doubles when the time needs it. The
// zero value is ready for use.
type timeline struct {
	start   int64 // microseconds
	width   int64
	buckets [buckets]int64
	used    int
}

// buckets is how many parts a timeline has.
const buckets = 60

func (t *timeline) add(at, n int64) {
	t.begin(at)
	for at-t.start >= buckets*t.width {
		t.widen()
	}

	i := max(0, int((at-t.start)/t.width))
	t.buckets[i] += n
	t.used = int((max(at, t.start)-t.start)/t.width) + 1
}

// begin has the timeline begin in the second of the instant, unless it has begun.
func (t *timeline) begin(at int64) {
	if t.width == 0 {
		t.start, t.width = at-at%1e6, 1e6
	}
}

// widen makes one bucket of two neighbours, for a time that is longer than all of them.
func (t *timeline) widen() {
	for i := range buckets / 2 {
		t.buckets[i] = t.buckets[2*i] + t.buckets[2*i+1]
	}
	clear(t.buckets[buckets/2:])
	t.width *= 2
	t.used = (t.used + 1) / 2
}

// report returns the buckets up to the last.
func (t *timeline) report() Timeline {
	return Timeline{Start: timeOf(t.start), Step: time.Duration(t.width) * time.Microsecond,
		Counts: append([]int64{}, t.buckets[:t.used]...)}
}

// timeOf returns an instant of a log in UTC, the zero time for none.
func timeOf(at int64) time.Time {
	if at == 0 {
		return time.Time{}
	}
	return time.UnixMicro(at).UTC()
}
