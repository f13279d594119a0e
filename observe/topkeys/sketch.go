// This file has the sketch.
//
// It is Space-Saving of Metwally, Agrawal and El Abbadi ("Efficient computation of
// frequent and top-k elements in data streams", ICDT 2005), in sets: a keyed hash assigns
// each key to a set of w = 16 counters. A key without a counter takes over the smallest of its
// set. The count that it finds there is the error of its own. So for each window, and for a set
// that has counted n keys in it:
//
//   - The count of a key is never too low. It is too high by at most its error, which is at
//     most n/w.
//   - A key that was counted more than n/w times has a counter, whatever else was counted.
//
// The sets get equal shares of the keys, so that n/w is about N/m for N keys counted and m
// counters in all, the bound of Space-Saving. In fact only what the heaviest keys of a set
// leave of n counts, because they hold counters of their own (Berinde, Indyk, Cormode and
// Strauss, "Space-optimal heavy hitters with strong error bounds", PODS 2009). The hash has a
// random seed, so no client can choose the set of a key.
//
// Within a set, 31 bits of the hash stand for the key. Two given keys of a set are taken for
// one with a probability of 2^-31.

package topkeys

import (
	"errors"
	"fmt"
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// MaxTop is the highest Options.Top.
	MaxTop = 1000

	// DefaultWindow and DefaultWindows stand for zero values in Options.
	DefaultWindow  = time.Minute
	DefaultWindows = 5

	maxWindow  = time.Hour
	maxWindows = 60

	// perKey is the minimum number of counters for each key of a summary.
	perKey = 4
)

// Options configures a [Sketch].
type Options struct {
	// Top is how many keys a summary has at most, from 1 to MaxTop. Each window has at
	// least four times as many counters.
	Top int

	// Window is the length of a window, from a second to an hour; 0 means DefaultWindow.
	Window time.Duration

	// Windows is how many windows a summary spans, with the current one, from 2 to 60; 0
	// means DefaultWindows.
	Windows int
}

func (o *Options) check() error {
	var errs []error
	if o.Top < 1 || o.Top > MaxTop {
		errs = append(errs, fmt.Errorf("topkeys: Options.Top: %d is not within 1 to %d", o.Top, MaxTop))
	}
	if o.Window != 0 && (o.Window < time.Second || o.Window > maxWindow) {
		errs = append(errs, fmt.Errorf("topkeys: Options.Window: %v is not within 1s to %v", o.Window, maxWindow))
	}
	if o.Windows != 0 && (o.Windows < 2 || o.Windows > maxWindows) {
		errs = append(errs, fmt.Errorf("topkeys: Options.Windows: %d is not within 2 to %d", o.Windows, maxWindows))
	}
	return errors.Join(errs...)
}

// Sketch counts keys. It is safe for concurrent use.
//
// It has no goroutine and need not be closed. A timer begins each window, at multiples of its
// length by this process's clock, so that sketches of one length have the same. It stops when no
// key was counted in any of the windows, and the next key starts it again.
//
// A set takes 1.7 kB for each window in which a key falls into it, and nothing else grows. With a
// Top of 100 there are 32 sets, so the 5 windows of a sketch take at most 270 kB, whatever the keys
// are. Their memory is used again, so that counting allocates none.
type Sketch struct {
	top     int           // the most keys of a summary
	length  time.Duration // of a window
	max     int           // the most windows, with the current one
	seed    maphash.Seed
	shift   uint8 // leaves the bits of a hash that name the set
	current atomic.Pointer[window]
	asleep  atomic.Bool // the timer does not run, because all windows are empty

	mu      sync.Mutex // guards what follows
	timer   *time.Timer
	windows []*window // the oldest first; the last is the current one
}

// New returns an empty sketch, or an error that names every mistake in the options.
func New(o Options) (*Sketch, error) {
	if err := o.check(); err != nil {
		return nil, err
	}

	s := &Sketch{top: o.Top, length: o.Window, max: o.Windows, seed: maphash.MakeSeed()}
	if s.length == 0 {
		s.length = DefaultWindow
	}
	if s.max == 0 {
		s.max = DefaultWindows
	}

	// As many sets as give each key of a summary perKey counters, rounded up to a power of two.
	s.shift = uint8(64 - bits.Len(uint((perKey*o.Top-1)/ways)))
	s.asleep.Store(true)
	s.pushWindowLocked() // no other goroutine has the sketch yet
	return s, nil
}

// Add counts a key. It keeps no reference to the key.
func (s *Sketch) Add(key string) {
	hash := maphash.String(s.seed, key)
	w, i, tag := s.current.Load(), hash>>s.shift, tagOf(hash)
	if set := w.sets[i].Load(); set != nil && set.count(tag) {
		return
	}
	s.wake()
	w.addKey(i, tag, key)
	// rotate looks at the counters after it has set asleep, so that it sees the key or the
	// key sees asleep.
	s.wake()
}

// tagOf returns the part of the hash that stands for the key within its set. It is not 0.
func tagOf(hash uint64) uint32 { return uint32(hash) | 1 }

// The timer runs while a sketch is awake:
//
//	          a key without a counter is added
//	asleep ------------------------------------> awake ---+ a window ends, and some window
//	   ^                                           |  ^   | has keys
//	   +-------------------------------------------+  +---+
//	          a window ends, and all are empty

// wake starts the timer if it does not run. Add calls it only for a key that has no counter,
// as none has while the timer does not run.
func (s *Sketch) wake() {
	if !s.asleep.Load() {
		return
	}

	// Under the lock it is asked again, because another Add may have started the timer.
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.asleep.Load() {
		return
	}

	s.asleep.Store(false)
	s.current.Load().startAt(time.Now())

	if s.timer == nil {
		s.timer = time.AfterFunc(s.untilEnd(), s.rotate)
	} else {
		s.timer.Reset(s.untilEnd())
	}
}

// untilEnd returns the time until the end of a window that begins now: until the clock is at a
// multiple of its length. A timer that comes a moment too early makes no window of that moment.
func (s *Sketch) untilEnd() time.Duration {
	d := s.length - time.Duration(time.Now().UnixNano()%int64(s.length))
	if d < s.length/256 {
		d += s.length
	}
	return d
}

// rotate ends the current window. If all are empty, that is the last, which is kept for the
// next key.
func (s *Sketch) rotate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asleep.Store(true)
	if s.isEmptyLocked() {
		s.windows = append([]*window(nil), s.current.Load())
		s.current.Load().before.Store(nil)
		return
	}
	s.asleep.Store(false)
	s.pushWindowLocked()
	s.timer.Reset(s.untilEnd())
}

// isEmptyLocked reports whether no window has a key.
func (s *Sketch) isEmptyLocked() bool {
	for _, w := range s.windows {
		if !w.isEmpty() {
			return false
		}
	}
	return true
}

// pushWindowLocked makes an empty window the current one. It uses the memory of the oldest again
// if there are as many as may be. A key that is being counted in that one at the moment, a whole
// span after it was the current one, then counts in the new window.
func (s *Sketch) pushWindowLocked() {
	var w *window
	if len(s.windows) == s.max {
		w = s.windows[0]
		copy(s.windows, s.windows[1:])
		s.windows = s.windows[:s.max-1]
		s.windows[0].before.Store(nil)
		w.clear()
	} else {
		w = &window{sets: make([]atomic.Pointer[set], 1<<(64-s.shift))}
	}

	// The window is complete before it is the current one, because Add takes no lock.
	w.startAt(time.Now())
	w.before.Store(s.current.Load())
	s.windows = append(s.windows, w)
	s.current.Store(w)
}
