// This file replays a log on several processors.

package replay

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/accesslog"
	"github.com/headgate/headgate/policy"
)

// lanes are replays side by side, each of the callers of its share. They decide as one replay does
// where every policy counts by the caller, as what becomes of a request then depends on earlier
// requests of its caller alone.
//
//	Add ──> filling ──full──> running ──> a goroutine for each lane
//
// While the entries of running are decided, filling takes the next ones.
type lanes struct {
	key     core.KeyFunc // which every policy counts by, or by more
	request request
	of      []*Replay

	filling, running []batch // of each lane
	n                int     // entries in filling
	deciding         sync.WaitGroup
}

// batch holds entries, with their texts.
type batch struct {
	entries []accesslog.Entry
	text    []byte
}

const (
	laneEntries = 1024    // in filling
	laneKeys    = 1 << 16 // MaxKeys of a lane, at least, so that chance does not fill one before others
)

// newLanes returns lanes, or nil if the policies or the options ask for a single replay.
func newLanes(o *Options, has accesslog.Fields) (*lanes, error) {
	bits, ok := o.callerBits(has)
	n := min(o.Lanes, o.MaxKeys/laneKeys)
	if !ok || n < 2 {
		return nil, nil
	}

	b, err := o.bindings()
	if err != nil {
		return nil, err
	}

	l := &lanes{filling: make([]batch, n), running: make([]batch, n)}
	if l.key, err = b.IPPrefix(bits); err != nil {
		return nil, err
	}

	// Each has its share of the memory.
	share := *o
	share.MaxKeys, share.Lanes = o.MaxKeys/n, 0
	for range n {
		r, err := NewReplay(share, has)
		if err != nil {
			return nil, err
		}
		l.of = append(l.of, r)
	}
	return l, nil
}

// callerBits returns how many bits of an IPv6 address all policies count by, if each counts by the
// address of the caller, and perhaps by more. An address of IPv4 always counts whole.
func (o *Options) callerBits(has accesslog.Fields) (bits int, ok bool) {
	bits = allBits
	for _, set := range []policy.Set{o.Policies, o.Against} {
		_, mine := o.mine(set)
		mine, _ = usable(mine, has, o.Users)
		for i := range mine {
			own := 0
			for part := range strings.SplitSeq(mine[i].Key, "+") {
				if part == "ip" {
					own = defaultBits
				} else if text, is := strings.CutPrefix(part, "ip/"); is {
					own, _ = strconv.Atoi(text)
				}
			}

			// A name of a host has no key by all bits, so all names have one.
			if own == 0 || own == allBits {
				return 0, false
			}
			bits = min(bits, own)
		}
	}
	return bits, bits < allBits
}

// add puts an entry into the lane of its caller.
func (l *lanes) add(e *accesslog.Entry, first int64) {
	l.request.entry = e
	key, _ := l.key(&l.request)

	// Neither the bits by which a distinct has its sample, nor those by which it has its places.
	b := &l.filling[hashOf(key)>>20%uint64(len(l.of))]
	b.add(e)
	if l.n++; l.n == laneEntries {
		l.decide(first)
	}
}

// decide begins to decide about the entries of filling, once those before them are decided.
func (l *lanes) decide(first int64) {
	// The memory of the entries before is free then.
	l.deciding.Wait()
	l.filling, l.running, l.n = l.running, l.filling, 0
	for i, r := range l.of {
		r.when.begin(first)
		l.deciding.Go(func() {
			b := &l.running[i]
			for j := range b.entries {
				r.Add(&b.entries[j])
			}
			b.entries, b.text = b.entries[:0], b.text[:0]
		})
	}
}

// end waits until all entries are decided, and returns the lanes as one replay.
func (l *lanes) end(first, last int64) *Replay {
	l.decide(first)
	l.deciding.Wait()

	// Callers are of one lane, so numbers of callers add up too.
	sum := &Replay{main: l.of[0].main.empty(), first: first, now: last}
	sum.when.begin(first)
	if l.of[0].against != nil {
		sum.against = l.of[0].against.empty()
	}
	for _, r := range l.of {
		sum.merge(r)
	}
	return sum
}

// add copies an entry. Its texts stay where they are when the batch needs more memory for others.
func (b *batch) add(e *accesslog.Entry) {
	b.entries = append(b.entries, e.CopyTo(&b.text))
}

// empty returns a side of the same policies that has decided nothing.
func (s *side) empty() *side {
	e := &side{leftOut: s.leftOut}
	for _, t := range s.order {
		e.order = append(e.order, &tally{policy: t.policy, rule: t.rule})
	}
	return e
}

// merge adds what another replay of the same policies, and of other callers, has counted.
func (r *Replay) merge(o *Replay) {
	r.requests += o.requests
	r.refused += o.refused
	r.waited += o.waited
	r.callers.merge(&o.callers)
	r.touched.merge(&o.touched)
	r.when.merge(&o.when)

	r.denied += o.denied
	r.allowed += o.allowed
	r.deniedCallers.merge(&o.deniedCallers)
	r.letInCallers.merge(&o.letInCallers)

	r.main.merge(o.main)
	if r.against != nil {
		r.against.merge(o.against)
	}
}

func (s *side) merge(o *side) {
	s.shared += o.sharedKeys()
	s.undecided += o.undecided
	s.top.merge(&o.top)
	for i, t := range o.order {
		s.order[i].merge(t)
	}
}

func (t *tally) merge(o *tally) {
	t.applied += o.applied
	t.over += o.over
	t.refused += o.refused
	t.waited += o.waited
	t.banned += o.banned
	t.denied += o.denied
	t.callers.merge(&o.callers)
	t.touched.merge(&o.touched)
	t.last = max(t.last, o.last)
	if t.first == 0 || o.first > 0 && o.first < t.first {
		t.first = o.first
	}
}

// merge adds the keys of another distinct.
func (d *distinct) merge(o *distinct) {
	// The sample of one that was larger is the smaller.
	if d.level < o.level {
		kept := slices.Clone(d.slots)
		*d = distinct{level: o.level}
		d.addAll(kept)
	}
	d.addAll(o.slots)
}

func (d *distinct) addAll(slots []uint64) {
	for _, hash := range slots {
		if hash != 0 {
			d.add(hash)
		}
	}
}

// merge adds the counts of another top, of other keys.
func (t *top) merge(o *top) {
	if t.counts == nil {
		t.counts = map[topKey]*int64{}
	}
	for k, n := range o.counts {
		count := *n
		t.counts[k] = &count
	}
}

// merge adds the counts of another timeline that begins at the same instant.
func (t *timeline) merge(o *timeline) {
	// Both get the buckets of the wider one.
	other := *o
	for t.width < other.width {
		t.widen()
	}
	for other.width < t.width {
		other.widen()
	}
	for i := range t.buckets {
		t.buckets[i] += other.buckets[i]
	}
	t.used = max(t.used, other.used)
}
