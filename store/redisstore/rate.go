// This file knows which callers a queue cannot serve in time.

package redisstore

import (
	"fmt"
	"time"

	"github.com/headgate/headgate/core"
)

const (
	// unshed is how many full batches may wait before a caller is turned away.
	unshed = 1

	// minEnds is how many batches of a busy lane have to end before its rate is believed.
	minEnds = 4

	// rateStands is for how long a rate is believed after the last of them.
	rateStands = time.Second
)

// errShed is the error of a caller that was turned away.
var errShed = unsent(fmt.Errorf("redisstore: %w: the steps that wait take longer than a call may", core.ErrOverload))

// rate is how many operations a busy lane decides in a time: a moving average over the
// batches that end while others wait. The zero value is that of a lane whose rate is not
// known.
type rate struct {
	ops   float64   // of the batches that ended, the older ones counting less
	took  float64   // nanoseconds between their ends
	ends  int       // how many there were since the rate was not known
	last  time.Time // when the last ended
	going bool      // others waited then, so the time from the last end to the next counts
}

// record counts a batch of so many operations that ended now. waiting says whether others wait.
func (r *rate) record(ops int, waiting bool, now time.Time) {
	since := now.Sub(r.last)
	if since > rateStands {
		*r = rate{}
	}

	// A time in which nothing waited says nothing about what the lane can do.
	if r.going {
		r.ops += float64(ops) - r.ops/4
		r.took += float64(since) - r.took/4
		r.ends++
	}

	r.last, r.going = now, waiting
}

// within reports whether so many operations are decided within a time, as far as that is
// known.
func (r *rate) within(ops int, d time.Duration, now time.Time) bool {
	if r.ends < minEnds || r.ops <= 0 || now.Sub(r.last) > rateStands {
		return true
	}
	return float64(ops)*r.took <= r.ops*float64(d)
}
