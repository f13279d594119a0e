package prefetch

import "sync/atomic"

const (
	// horizon is for how long, in microseconds, units should last that are
	// taken ahead.
	horizon = 100_000

	// rest is how long, in microseconds, a key may be quiet and still be busy.
	rest = 4 * horizon

	// hot is how many Takes within a horizon make a key busy.
	hot = 8

	heatSlots = 4096
)

// heat counts the Takes of keys within a horizon. Keys that share a slot are
// busy together, which does no harm.
type heat struct{ slots [heatSlots]atomic.Uint64 }

// add counts a Take and tells whether its key is busy. Counts that get lost
// between two that come at once do no harm either.
func (t *heat) add(hash uint64, now int64) bool {
	slot := &t.slots[hash%heatSlots]
	turn := uint64(now/horizon) << 8
	old := slot.Load()
	switch n := old & 0xff; {
	case old&^0xff != turn:
		slot.Store(turn | 1)
		return false
	case n < hot:
		slot.Store(old + 1)
		return n+1 == hot
	}
	return true
}
