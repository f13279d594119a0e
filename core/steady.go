package core

// Steady is the arithmetic of a GCRA limit under which a unit comes back every
// whole number of microseconds, as under nearly all limits in use. It needs one
// division, and none for a key that is used more often than a unit comes back.
// It decides as [Decide] does, and leaves booked units and a clock that has
// stepped back to Decide.
//
// used and mark are State.Used and State.Mark. The zero value stands for every
// other limit.
type Steady struct {
	Every    int64 // microseconds from one unit that comes back to the next; 0 under every other limit
	Capacity int64 // Limit.Capacity
}

// Take decides a Take of n units, at least one, of a key with used units since
// mark. It returns the used and mark to keep if the Take is allowed. If ok is
// false, Decide has to decide, and d must not be read.
func (s Steady) Take(used, mark, now, n int64, d *Decision) (newUsed, newMark int64, ok bool) {
	// Between two units that come back nothing has changed, and the division is spared.
	since := now - mark
	if since >= s.Every {
		back := min(since/s.Every, used)
		used, mark = used-back, mark+back*s.Every
	}

	// The clock was set back, or units are booked or owed: the key is for Decide.
	if since < 0 || used > s.Capacity {
		return 0, 0, false
	}

	if used == 0 {
		mark = now
	}

	*d = Decision{At: now}
	switch missing := used + n - s.Capacity; {
	case n > s.Capacity:
		d.RetryAfter = Never
	case missing > 0:
		d.RetryAfter = micros(mark + missing*s.Every - now)
	default:
		d.Allowed, d.Taken = true, n
		used += n
	}

	// Both hold for a refusal too, which has charged nothing.
	d.Remaining = s.Capacity - used
	d.ResetAfter = micros(mark + used*s.Every - now)
	return used, mark, true
}

// Untake turns the decision on an allowed Take of n units into the decision on
// a Take that did not happen because its step was refused.
func (s Steady) Untake(d *Decision, n int64) {
	d.Taken = 0
	d.Remaining += n
	d.ResetAfter -= micros(n * s.Every)
}

// Fresh returns the instant at which a key with used units since mark is fresh,
// or now if it is fresh already. ok is false if Take would leave the key to
// Decide.
func (s Steady) Fresh(used, mark, now int64) (at int64, ok bool) {
	if s.Every == 0 || now < mark || (used-s.Capacity)*s.Every > now-mark {
		return 0, false
	}
	return max(now, mark+used*s.Every), true
}
