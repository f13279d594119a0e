package reserve

import (
	"math"
	"math/bits"
	"time"

	"github.com/headgate/headgate/core"
)

// name identifies what a store counts.
type name struct {
	rule, key string
	algorithm core.Algorithm
}

func nameOf(op *core.Op) name { return name{op.Rule, op.Key, op.Limit.Algorithm} }

// hold is what is held of one key. The mutex of its shard guards it.
type hold struct {
	limit         core.Limit
	period, quota int64 // how fast units come back, see core.Limit.Numbers
	units         int64 // held, as far as they have not come back
	size          int64 // how many to take next time
	filled        int64 // when units were last taken, before the call
	full          int64 // when the key is as good as new, not after it is
	filling       bool  // a call to take units is on its way

	moving chan struct{} // closed when that call is back, or nil if it moves no units
	turns  int64         // how many such calls have begun, and how many were back

	// What the store said when units were last taken.
	known         bool
	at, remaining int64
	reset         time.Duration
}

// left is how many units are held at the instant now. The units held are the
// last of those that the store counts as used at the time of the call, so they
// come back last.
func (h *hold) left(now int64) int64 {
	if h.units > 0 {
		h.units = min(h.units, h.stillUsed(h.full-now))
	}
	return h.units
}

// stillUsed is how many units are certainly used, span before the key is as good
// as new.
func (h *hold) stillUsed(span int64) int64 {
	if span <= 0 {
		return 0
	}
	switch h.limit.Algorithm {
	case core.GCRA:
		// A unit that has come back in part has come back: in whole units, what
		// is held and what the store admits would be more than the burst.
		hi, lo := bits.Mul64(uint64(span-1), uint64(h.quota))
		if hi >= uint64(h.period) {
			return math.MaxInt64
		}
		n, _ := bits.Div64(hi, lo, uint64(h.period))
		return int64(min(n, math.MaxInt64))
	case core.TokenBucket:
		// Each refill brings a quota, and so many have come since.
		used := h.limit.Capacity() - h.remaining
		return max(0, used-(refills(used, h.quota)-refills(span, h.period))*h.quota)
	}
	return math.MaxInt64
}

// refills is n/by, rounded up.
func refills(n, by int64) int64 { return (n + by - 1) / by }

// take hands out n units, if that many are held under the limit.
func (h *hold) take(op *core.Op, now int64, d *core.Decision) bool {
	if h.limit != op.Limit || h.left(now) < op.Cost {
		return false
	}
	h.units -= op.Cost
	since := now - h.filled
	*d = core.Decision{
		Allowed:    true,
		Remaining:  h.remaining + h.units,
		ResetAfter: h.reset - time.Duration(since)*time.Microsecond,
		At:         h.at + since,
	}
	return true
}

// refund gives back n units of op's key, the last of those that were taken.
func (h *hold) refund(op *core.Op, n int64) core.Op {
	return core.Op{Verb: core.Refund, Rule: op.Rule, Key: op.Key, Limit: h.limit, Cost: n, At: h.at, ResetAfter: h.reset}
}

// ahead is how many units to take ahead at the instant now, at most the number
// given: more than the last time if those were used up quickly, and never more
// than a quarter of what remains.
func (h *hold) ahead(now, most int64) int64 {
	switch {
	case !h.known:
		return 1
	case now-h.filled < horizon:
		h.size = min(most, h.size*2)
	case now-h.filled > rest:
		h.size = max(1, h.size/2)
	}
	return min(h.size, h.remaining/4)
}

// refill notes that the store has granted n units to be held, with decision d,
// by a call that began at the instant sent.
func (h *hold) refill(n, sent int64, d *core.Decision) {
	if !h.known {
		h.known = true
		h.period, h.quota, _ = h.limit.Numbers()
	}
	h.units, h.filled = n, sent
	h.at, h.remaining, h.reset = d.At, d.Remaining, d.ResetAfter
	h.full = sent + h.reset.Microseconds()
}
