package topkeys

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// ways is the number of counters of a set.
const ways = 16

// window has the counts of one window.
type window struct {
	start  atomic.Int64 // in Unix milliseconds
	before atomic.Pointer[window]
	sets   []atomic.Pointer[set] // nil until a key falls into them
}

// startAt sets the beginning of the window.
func (w *window) startAt(now time.Time) { w.start.Store(now.UnixMilli()) }

// set is some counters, and the keys that hold them.
type set struct {
	// counters are a tag in the upper half and a count in the lower, or 0. A key that has a
	// counter is counted without the lock. Only with it a counter gets another tag.
	counters [ways]atomic.Uint64

	mu      sync.Mutex
	holders [ways]holder // of the counters
}

// holder is a key that holds a counter.
type holder struct {
	over  uint32 // what the counter held before
	size  uint8  // of text
	since int64  // in Unix milliseconds
	text  [maxText]byte
}

// count counts the key of the tag, if it has a counter.
func (s *set) count(tag uint32) bool {
	for i := range s.counters {
		for {
			v := s.counters[i].Load()
			if uint32(v>>32) != tag {
				break
			}
			if uint32(v) == math.MaxUint32 || s.counters[i].CompareAndSwap(v, v+1) {
				return true
			}
		}
	}
	return false
}

// find returns the number of the counter of the tag, or else a number of the smallest one
// and its value.
func (s *set) find(tag uint32) (i int, v uint64, found bool) {
	smallest := uint32(math.MaxUint32)
	for j := range s.counters {
		u := s.counters[j].Load()
		if uint32(u>>32) == tag {
			return j, u, true
		}
		if n := uint32(u); n < smallest {
			i, v, smallest = j, u, n
		}
	}
	return i, v, false
}

// addKey counts a key that had no counter in set i a moment ago.
func (w *window) addKey(i uint64, tag uint32, key string) {
	s := w.sets[i].Load()
	for s == nil {
		w.sets[i].CompareAndSwap(nil, new(set))
		s = w.sets[i].Load()
	}

	// Before the lock is taken, because since takes the lock of another set.
	since := w.start.Load()
	if before := w.before.Load(); before != nil {
		since = before.since(i, tag, since)
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	for {
		j, v, found := s.find(tag)
		n := uint32(v)
		if n == math.MaxUint32 {
			return // it is, or all are, as high as they can be
		}

		// Keys with a counter are counted without the lock, so the value may have changed.
		if !s.counters[j].CompareAndSwap(v, uint64(tag)<<32|uint64(n+1)) {
			continue
		}

		if !found {
			h := &s.holders[j]
			h.over, h.since = n, since
			h.size = uint8(copyText(&h.text, key))
		}
		return
	}
}

// since returns since when the key has had a counter, if it has one, and otherwise now.
func (w *window) since(i uint64, tag uint32, now int64) int64 {
	s := w.sets[i].Load()
	if s == nil {
		return now
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if j, _, found := s.find(tag); found {
		return s.holders[j].since
	}
	return now
}

// isEmpty reports whether no key was counted.
func (w *window) isEmpty() bool {
	for i := range w.sets {
		s := w.sets[i].Load()
		if s == nil {
			continue
		}
		for j := range s.counters {
			if s.counters[j].Load() != 0 {
				return false
			}
		}
	}
	return true
}

// clear forgets all keys.
func (w *window) clear() {
	for i := range w.sets {
		s := w.sets[i].Load()
		if s == nil {
			continue
		}
		s.mu.Lock()
		for j := range s.counters {
			s.counters[j].Store(0)
		}
		s.mu.Unlock()
	}
}
