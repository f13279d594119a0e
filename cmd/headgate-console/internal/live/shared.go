package live

import (
	"context"
	"sync"
	"time"
)

// Options configure a [Shared]. Every and Read must be set.
type Options[K comparable, V any] struct {
	// Read reads the value of a key. before is the value that it has read last, or the zero
	// value. There is one call for a key at a time.
	Read func(ctx context.Context, key K, before V) (V, error)

	// Every is the shortest time from the beginning of one reading to that of the next, also
	// after a failure.
	Every time.Duration

	// Stale is the greatest age of a value that Get returns at once while a newer one is read;
	// 0 means that Get waits for the newer one.
	Stale time.Duration

	// Timeout bounds a reading.
	Timeout time.Duration
}

const (
	// idle is how long a value is kept after it was asked for last.
	idle = time.Minute

	// maxKept is the largest number of values that are kept. Beyond it the one that was asked
	// for longest ago is dropped.
	maxKept = 100
)

// Shared reads values for many callers: however many ask for a key, it is read by one of them at
// a time, and not more often than Options.Every says. It is safe for concurrent use. The caller
// must call Close.
type Shared[K comparable, V any] struct {
	o    Options[K, V]
	stop context.CancelFunc
	ctx  context.Context // of all readings

	mu      sync.Mutex
	entries map[K]*entry[V] // Guarded by mu, as what they point to is.
	reading sync.WaitGroup  // begins to count under mu, so that Close misses none
	closed  bool            // Guarded by mu.
}

// entry is what is known of a key:
//
//	new     -> reading  Get asks for the key
//	reading -> read     with a value, or with an error beside the value before
//	read    -> reading  Get asks for it, and Every has passed since the last reading began
//	read    -> dropped  no page has asked for a while, or others need the place
//
// All callers who need the reading that goes on wait for the same done.
type entry[V any] struct {
	value   V         // the last one that was read
	at      time.Time // when its reading began; zero if there is none
	err     error     // of the last reading
	tried   time.Time // when the last reading began
	askedAt time.Time
	done    chan struct{} // closed when the reading that goes on has ended; nil if none does
}

// NewShared returns a Shared.
func NewShared[K comparable, V any](o Options[K, V]) *Shared[K, V] {
	s := &Shared[K, V]{o: o, entries: map[K]*entry[V]{}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// Close ends all readings and waits for them. Get then fails.
func (s *Shared[K, V]) Close() {
	s.stop()
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.reading.Wait()
}

// Get returns the value of a key, or the error of the last attempt to read it. All callers get
// the same value, which they must not change. If ctx ends first, Get returns its error, and
// the reading goes on for the others.
func (s *Shared[K, V]) Get(ctx context.Context, key K) (V, error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		var none V
		return none, context.Canceled
	}

	now := time.Now()
	e := s.entryLocked(key, now)
	if e.done == nil && (e.tried.IsZero() || now.Sub(e.tried) >= s.o.Every) {
		s.startLocked(key, e, now)
	}

	// A value that is fresh, or not too stale, is returned while a newer one is being read; an
	// error never is.
	done := e.done
	if done == nil || e.err == nil && !e.at.IsZero() && now.Sub(e.at) < s.o.Stale {
		defer s.mu.Unlock()
		return e.value, e.err
	}

	// The caller waits without the lock. The reading is for all callers, so it does not end with
	// this one's context.
	s.mu.Unlock()

	select {
	case <-done:
	case <-ctx.Done():
		var none V
		return none, ctx.Err()
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	return e.value, e.err
}

// entryLocked returns the entry of a key, and drops those that are too old or too many.
func (s *Shared[K, V]) entryLocked(key K, now time.Time) *entry[V] {
	e := s.entries[key]
	if e == nil {
		s.tidyLocked(now)
		e = &entry[V]{}
		s.entries[key] = e
	}
	e.askedAt = now
	return e
}

// tidyLocked drops entries that no caller has asked for lately, and one more if there is no room.
func (s *Shared[K, V]) tidyLocked(now time.Time) {
	var oldest K
	var first *entry[V]
	for key, e := range s.entries {
		switch {
		case e.done != nil: // a reading that goes on writes to its entry
		case now.Sub(e.askedAt) > idle:
			delete(s.entries, key)
		case first == nil || e.askedAt.Before(first.askedAt):
			oldest, first = key, e
		}
	}

	if len(s.entries) >= maxKept && first != nil {
		delete(s.entries, oldest)
	}
}

// startLocked begins a reading.
func (s *Shared[K, V]) startLocked(key K, e *entry[V], now time.Time) {
	e.tried, e.done = now, make(chan struct{})

	before := e.value
	s.reading.Go(func() {
		ctx, cancel := context.WithTimeout(s.ctx, s.o.Timeout)
		defer cancel()

		value, err := s.o.Read(ctx, key, before)

		s.mu.Lock()
		defer s.mu.Unlock()
		// A failure keeps the value before: it is what the next reading starts from.
		if e.err = err; err == nil {
			e.value, e.at = value, now
		}

		close(e.done)
		e.done = nil
	})
}
