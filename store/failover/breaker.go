package failover

import (
	"sync"
	"sync/atomic"

	"github.com/headgate/headgate/core"
)

// confirmations is how many probes in a row must succeed.
const confirmations = 4

// breaker decides whether the primary is asked. Its zero value is closed.
type breaker struct {
	// generation counts the changes: it is odd while the breaker is open. The result
	// of a call counts only in the generation in which the call was made.
	generation atomic.Uint64
	score      atomic.Int64 // of failures, see the package
	max        int64        // opens the breaker

	changing sync.Mutex // held during a change
	probe    core.Op    // guarded by changing
}

func isOpen(generation uint64) bool { return generation%2 == 1 }

// succeed counts a call that was answered in time.
func (b *breaker) succeed(generation uint64) {
	for b.generation.Load() == generation {
		n := b.score.Load()
		if n <= 0 || b.score.CompareAndSwap(n, n-1) {
			return
		}
	}
}

// fail counts a call that was not, and reports whether the breaker is to open.
func (b *breaker) fail(generation uint64) bool {
	return b.generation.Load() == generation && b.score.Add(1) >= b.max
}

// open bypasses the primary after a call with ops has failed with cause. Of
// several callers one does it.
func (s *Store) open(generation uint64, ops []core.Op, cause error) {
	b := &s.breaker
	if !b.changing.TryLock() {
		return
	}
	defer b.changing.Unlock()
	if b.generation.Load() != generation {
		return
	}
	b.probe = probeOf(ops)
	b.generation.Store(generation + 1)
	s.opened.Add(1)
	s.announce(Open, cause)
	s.background.arm()
}

// close has the primary decide again. For a while the next failure opens the
// breaker at once.
func (s *Store) close() {
	b := &s.breaker
	b.changing.Lock()
	defer b.changing.Unlock()
	b.score.Store(b.max - 1)
	b.generation.Add(1)
	s.announce(Closed, nil)
}
