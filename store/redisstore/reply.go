package redisstore

import (
	"fmt"
	"time"

	"github.com/headgate/headgate/core"
)

// decisionInts is how many integers of a reply a decision has.
const decisionInts = 5

// decode reads the reply to ops: the instant, then for each operation allowed,
// remaining, wait, retry and reset; see lua/one.lua.
func decode(ops []core.Op, reply []int64, out []core.Decision) error {
	if len(reply) != 1+len(ops)*decisionInts {
		return fmt.Errorf("redisstore: a reply of %d integers to %d operations", len(reply), len(ops))
	}
	for i := range ops {
		r := reply[1+i*decisionInts:]
		if r[0] < 0 {
			return fmt.Errorf("redisstore: %w: rule %q", ErrUnreadable, ops[i].Rule)
		}
		out[i] = core.Decision{
			Allowed:    r[0] == 1,
			Remaining:  r[1],
			Wait:       micros(r[2]),
			RetryAfter: micros(r[3]),
			ResetAfter: micros(r[4]),
			At:         reply[0],
		}
	}
	return nil
}

// micros is n microseconds, or Never for a negative number.
func micros(n int64) time.Duration {
	if n < 0 || n > int64(core.Never/time.Microsecond) {
		return core.Never
	}
	return time.Duration(n) * time.Microsecond
}
