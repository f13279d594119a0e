package prefetch

import (
	"time"

	"github.com/headgate/headgate/core"
)

// hold is the units held of one key. The mutex of its shard guards it, and its methods need that.
//
//	            busy                  a step asks the store
//	no hold ------------> idle ----------------------------------> filling
//	   ^                   | ^                                      |
//	   |  not busy, no     | |   the call ends: the units that it   |
//	   |  unit held        | |   took ahead are held, or none       |
//	   +-------------------+ +--------------------------------------+
//
//	idle      Takes are handed out while enough units are held
//	filling   no unit is held: a Take goes to the store, and no other call takes ahead
//
// A Reset, a ban and Close drop a hold in either state. A call that fills it then ends in vain.
type hold struct {
	limit   core.Limit
	ban     *core.Ban
	units   int64 // held, less those that stillHeld has found to have come back
	size    int64 // how many to take next time
	filled  int64 // when units were last taken: the instant before the call
	fresh   int64 // when the key is fresh, or an earlier instant
	filling bool  // a call to take units is under way

	moving chan struct{} // closed when that call has ended, or nil if it moves no units
	rounds int64         // how many calls that move units have begun, plus how many have ended

	known bool          // the store has decided once
	last  core.Decision // by which units were last taken
	used  int64         // units in use at that decision
}

// stillHeld returns how many units are held at the instant now. The held units are the last of
// those that the store counts as used at the time of the call, so they come back last.
func (h *hold) stillHeld(now int64) int64 {
	if h.units > 0 {
		h.units = min(h.units, h.limit.StillUsed(h.used, h.fresh-now))
	}
	return h.units
}

// fits reports whether the units are held for ops such as this one, of the same key: under its
// limit, and as its Ban would let them be taken.
func (h *hold) fits(op *core.Op) bool {
	return h.limit.Equal(&op.Limit) && (h.ban == op.Ban || h.ban != nil && op.Ban != nil && *h.ban == *op.Ban)
}

// take hands out op.Cost units if that many are held under its limit, and
// reports whether it did.
func (h *hold) take(op *core.Op, now int64, d *core.Decision) bool {
	if !h.fits(op) || h.stillHeld(now) < op.Cost {
		return false
	}

	// All is as of the last call to the store, less the time since. The origin is that of the call
	// too, so that a Refund finds the units there.
	h.units -= op.Cost
	since := now - h.filled
	d.Allowed, d.Banned, d.Origin, d.Fallback = true, false, h.last.Origin, h.last.Fallback
	d.Taken, d.Wait, d.RetryAfter = op.Cost, 0, 0
	d.Credit, d.FromCredit, d.CreditUntil = 0, 0, 0
	d.Remaining = h.last.Remaining + h.units
	d.ResetAfter = h.last.ResetAfter - time.Duration(since)*time.Microsecond
	d.At = h.last.At + since

	return true
}

// refund returns the op that gives back n units of the count, the last ones
// that were taken.
func (h *hold) refund(id core.ID, n int64) core.Op {
	return core.Op{Rule: id.Rule, Key: id.Key, Limit: h.limit, Cost: n}.Refund(h.last)
}

// ahead returns how many units to take ahead at the instant now, at most
// ceiling: more than the last time if those were used up quickly, and never
// more than a quarter of the remaining units.
func (h *hold) ahead(now, ceiling int64) int64 {
	switch {
	case h.last.Credit > 0: // which others may need, and which does not come back
		return 0
	case !h.known:
		return 1
	case now-h.filled < horizon:
		h.size = min(ceiling, h.size*2)
	case now-h.filled > maxQuiet:
		h.size = max(1, h.size/2)
	}
	return min(h.size, h.last.Remaining/4)
}

// refill records that the store has granted n units to hold, with decision d, by a call that
// began at the instant sent.
func (h *hold) refill(n, sent int64, d *core.Decision) {
	h.known, h.last = true, *d
	h.used, h.units, h.filled = h.limit.Capacity()-d.Remaining, n, sent
	h.fresh = sent + d.ResetAfter.Microseconds()
}
