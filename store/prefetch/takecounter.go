package prefetch

import "sync/atomic"

const (
	// horizon is how long, in microseconds, units that are taken ahead should
	// last.
	horizon = 100_000

	// maxQuiet is how long, in microseconds, a key may be quiet and still be busy.
	maxQuiet = 4 * horizon

	// busyTakes is how many Takes within a horizon make a key busy.
	busyTakes = 8

	counterSlots = 4096
)

// takeCounter counts the Takes of keys within a horizon. Keys that share a slot
// are busy together, which does no harm.
type takeCounter struct{ slots [counterSlots]atomic.Uint64 }

// add counts a Take and reports whether its key is busy. Concurrent calls may
// lose counts, which does no harm either.
func (t *takeCounter) add(hash uint64, now int64) bool {
	slot := &t.slots[hash%counterSlots]
	window := uint64(now/horizon) << 8
	old := slot.Load()
	switch n := old & 0xff; {
	case old&^0xff != window:
		slot.Store(window | 1)
		return false
	case n < busyTakes:
		slot.Store(old + 1)
		return n+1 == busyTakes
	}
	return true
}
