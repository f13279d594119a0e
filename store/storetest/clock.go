package storetest

import (
	"sync/atomic"
	"time"
)

// Epoch is the instant at which the tests of this package start their clocks:
// midnight, so that windows aligned to the hour or the day start with it.
const Epoch int64 = 20_000 * 24 * 3600 * 1e6

// Clock is a clock that stands still until it is set. Its zero value stands at
// the Unix epoch. It is safe for concurrent use.
type Clock struct{ now atomic.Int64 }

// NewClock returns a clock that stands at [Epoch].
func NewClock() *Clock {
	c := new(Clock)
	c.Set(Epoch)
	return c
}

// Now returns the instant in microseconds since the Unix epoch.
func (c *Clock) Now() int64 { return c.now.Load() }

// Set moves the clock to the instant, in microseconds since the Unix epoch. It
// may precede the present instant.
func (c *Clock) Set(now int64) { c.now.Store(now) }

// Add moves the clock by d, which is in whole microseconds and may be negative.
func (c *Clock) Add(d time.Duration) { c.now.Add(int64(d / time.Microsecond)) }
