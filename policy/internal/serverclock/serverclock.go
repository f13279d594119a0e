// Package serverclock follows the clock of a server by its answers. A [Clock] is what is known of
// it.
package serverclock

import (
	"sync"
	"time"
)

// drift is how far two clocks may move apart in a second: 200 parts in a million, which
// is more than the clocks of computers do.
const drift = 5000

// Clock is what is known of a server's clock. The zero value knows nothing. It is safe for
// concurrent use. Instants of this process are from time.Now, so a step of its own clock
// changes nothing.
type Clock struct {
	mu sync.Mutex

	// Guarded by mu.
	known  bool
	local  time.Time     // an instant of this process
	server time.Time     // the server's clock at that instant
	error  time.Duration // server is at most so wrong
}

// Adjust takes the server's clock as it was between two instants of this process. Of two
// answers that agree the one that took less time is believed; if they do not agree, the
// server's clock was set, and the newer one is.
func (c *Clock) Adjust(sent, received, server time.Time) {
	half := received.Sub(sent) / 2
	middle := sent.Add(half)

	c.mu.Lock()
	defer c.mu.Unlock()

	// The server read its clock at some instant between the two: the middle is wrong by at most
	// half of the time between them.
	if c.known {
		wrong := c.errorAtLocked(middle)
		apart := c.atLocked(middle).Sub(server).Abs()
		if apart <= wrong+half && wrong <= half {
			return
		}
	}

	c.known, c.local, c.server, c.error = true, middle, server, half
}

// At returns the server's clock at an instant of this process, and false if nothing is
// known of it yet.
func (c *Clock) At(local time.Time) (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.atLocked(local), c.known
}

func (c *Clock) atLocked(local time.Time) time.Time { return c.server.Add(local.Sub(c.local)) }

func (c *Clock) errorAtLocked(local time.Time) time.Duration {
	return c.error + local.Sub(c.local).Abs()/drift
}
