package core

// Compact is the arithmetic of a limit under which a key is two numbers. Under GCRA, TokenBucket
// and FixedWindow they are State.Used and State.Mark, and there is no more. Under CalendarWindow
// State.Slot is in a list of bytes. Under SlidingLog and SlidingWindow the numbers sum up such a
// list, which stands for State.Log. Compact decides as
// [Decide] does, with few divisions, and leaves booked units, debts and a clock that has stepped
// back to Decide. The zero value stands for every other limit.
type Compact struct {
	form     form
	every    int64 // microseconds of a round, of a window, of a segment or of the period of a log
	units    int64 // that come back in a round, or segments in a period
	capacity int64 // Limit.Capacity
	most     int64 // of the units of a SlidingWindow, that Decide counts
}

// form is how units come back.
type form uint8

const (
	notCompact form = iota

	oneByOne // every round brings one unit
	atOnce   // every round brings its units at its end
	evenly   // every round brings its units spread over it, so that a unit takes no whole microseconds

	inWindow        // all come back at the end of the window, which the first Take begins
	inAlignedWindow // or which is aligned to the epoch

	inCalendar // all come back at the end of the window
	inLog      // each comes back a period after its Take
	inSegments // they come back by segments
	inLeases   // each comes back with its lease
)

// Valid reports whether c is the arithmetic of a limit.
func (c *Compact) Valid() bool { return c.form != notCompact }

// MaxUsed returns the largest number of used units that Take returns.
func (c *Compact) MaxUsed() int64 {
	if c.form == evenly {
		return c.capacity + c.units
	}
	return c.capacity
}

// Take decides a Take of n units, at least one, of a key with used units since
// mark. It returns the used and mark to keep if the Take is allowed. If ok is
// false, Decide has to decide, and d must not be read.
func (c *Compact) Take(used, mark, now, n int64, d *Decision) (newUsed, newMark int64, ok bool) {
	inUse := int64(0)
	if c.form == oneByOne {
		// Nearly all limits are of this form, so it has no call. Between two units that come back
		// nothing has changed, and the division is spared.
		since := now - mark
		if since >= c.every {
			back := min(since/c.every, used)
			used, mark = used-back, mark+back*c.every
		}
		if used == 0 {
			mark = now
		}
		inUse, ok = used, since >= 0
	} else {
		used, mark, inUse, ok = c.advance(used, mark, now)
	}

	// Units are owed or booked, or the clock was set back: the key is for Decide.
	if !ok || inUse > c.capacity {
		return 0, 0, false
	}

	*d = Decision{At: now}
	switch missing := inUse + n - c.capacity; {
	case n > c.capacity:
		d.RetryAfter = Never
	case missing > 0:
		d.RetryAfter = micros(c.end(used+n-c.capacity, mark) - now)
	default:
		d.Allowed, d.Taken = true, n
		used, inUse = used+n, inUse+n
	}

	// Both hold for a refusal too, which has charged nothing.
	d.Remaining = c.capacity - inUse
	if used > 0 {
		d.ResetAfter = micros(c.end(used, mark) - now)
	}
	return used, mark, true
}

// advance brings a key to now, and returns how many units are in use. ok is false if the clock was
// set back.
func (c *Compact) advance(used, mark, now int64) (newUsed, newMark, inUse int64, ok bool) {
	if c.form < inWindow {
		return c.refill(used, mark, now)
	}
	return c.roll(used, mark, now)
}

// refill moves mark on by whole rounds, and returns how many units are in use. ok is false if mark
// is ahead of now.
func (c *Compact) refill(used, mark, now int64) (newUsed, newMark, inUse int64, ok bool) {
	since := now - mark

	// Between two rounds nothing has changed, and the division is spared.
	if since >= c.every {
		n := since / c.every
		if c.form == oneByOne {
			n = min(n, used)
		} else {
			n = min(n, ceilDiv(used, c.units))
		}
		used, mark, since = max(0, used-n*c.units), mark+n*c.every, since-n*c.every
	}

	inUse = used
	if c.form == evenly && used > 0 {
		inUse -= since * c.units / c.every
	}
	if inUse <= 0 {
		return 0, now, 0, since >= 0
	}
	return used, mark, inUse, since >= 0
}

// roll begins a window if that of the key, which ends at mark, is over. ok is false if the window
// has not begun yet.
func (c *Compact) roll(used, mark, now int64) (newUsed, newMark, inUse int64, ok bool) {
	if used > 0 && now < mark {
		return used, mark, used, now >= mark-c.every
	}
	if c.form == inAlignedWindow {
		return 0, now - now%c.every + c.every, 0, true
	}
	return 0, now + c.every, 0, true
}

// end returns the instant at which n units, at least one, of those since mark have come back.
func (c *Compact) end(n, mark int64) int64 {
	if c.form == oneByOne {
		return mark + n*c.every
	}
	return c.endOfRound(n, mark)
}

// endOfRound is end where the units of a round or of a window come back together.
func (c *Compact) endOfRound(n, mark int64) int64 {
	switch c.form {
	case atOnce:
		return mark + ceilDiv(n, c.units)*c.every
	case evenly:
		return mark + ceilDiv(n*c.every, c.units)
	}
	return mark
}

// Untake turns the decision on an allowed Take of n units, which returned used and mark, into the
// decision on a Take that did not happen because its step was refused.
func (c *Compact) Untake(used, mark, n int64, d *Decision) {
	d.Taken = 0
	d.Remaining += n
	d.ResetAfter = 0
	if used > n {
		d.ResetAfter = micros(c.end(used-n, mark) - d.At)
	}
}

// Fresh returns the instant at which a key with used units since mark is fresh,
// or now if it is fresh already. ok is false if Take would leave the key to
// Decide.
func (c *Compact) Fresh(used, mark, now int64) (at int64, ok bool) {
	if c.form == notCompact {
		return 0, false
	}

	var inUse int64
	used, mark, inUse, ok = c.advance(used, mark, now)

	// Of more units than can be in use no end is known, and the product might not fit.
	if !ok || inUse > c.capacity {
		return 0, false
	}
	if used == 0 {
		return now, true
	}
	return c.end(used, mark), true
}

// Began returns an instant that the last Take of a key was not before, which has used units since
// mark. At an earlier one Decide would find that the clock has stepped back.
func (c *Compact) Began(used, mark int64) int64 {
	switch {
	case c.form >= inWindow:
		return mark - c.every
	case used > c.capacity:
		// Within a round some had come back when it was decided.
		return c.end(used-c.capacity, mark)
	}
	return mark
}
