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
	// turn counts the changes: it is odd while the breaker is open. The result
	// of a call counts only in the turn in which the call was made.
	turn  atomic.Uint64
	score atomic.Int64 // of failures, see the package
	most  int64        // opens the breaker

	changing sync.Mutex // held during a change
	probe    core.Op    // guarded by changing
}

func isOpen(turn uint64) bool { return turn%2 == 1 }

// succeed counts a call that was answered in time.
func (b *breaker) succeed(turn uint64) {
	for b.turn.Load() == turn {
		n := b.score.Load()
		if n <= 0 || b.score.CompareAndSwap(n, n-1) {
			return
		}
	}
}

// fail counts a call that was not, and tells whether the breaker is to open.
func (b *breaker) fail(turn uint64) bool {
	return b.turn.Load() == turn && b.score.Add(1) >= b.most
}

// open bypasses the primary after a call with ops has failed with cause. Of
// several callers one does it.
func (s *Store) open(turn uint64, ops []core.Op, cause error) {
	b := &s.breaker
	if !b.changing.TryLock() {
		return
	}
	defer b.changing.Unlock()
	if b.turn.Load() != turn {
		return
	}
	b.probe = probeOf(ops)
	b.turn.Store(turn + 1)
	s.opened.Add(1)
	s.tell(Open, cause)
	s.chores.arm()
}

// close has the primary decide again. For a while the next failure opens the
// breaker at once.
func (s *Store) close() {
	b := &s.breaker
	b.changing.Lock()
	defer b.changing.Unlock()
	b.score.Store(b.most - 1)
	b.turn.Add(1)
	s.tell(Closed, nil)
}
