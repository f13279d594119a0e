package memstore

import (
	"time"

	"github.com/headgate/headgate/core"
)

// gcra is a GCRA limit under which one unit comes back every so many whole
// microseconds, as under nearly all that people write down. Then the arithmetic
// of core comes down to one division, and none for a key that is in steady use.
// What is rare is left to core, and what is not is answered as core does: the
// tests send the same histories through both. The zero value is of all other
// limits.
type gcra struct{ every, most int64 }

func gcraOf(l *core.Limit) gcra {
	period := l.Period.Microseconds()
	if l.Algorithm != core.GCRA || period%l.Quota != 0 {
		return gcra{}
	}
	return gcra{period / l.Quota, l.Capacity()}
}

// plain tells whether the op is a Take that gcra can decide if its limit is
// one of those. Nothing that core.CheckOps looks for is wrong with it.
func plain(op *core.Op) bool {
	return op.Verb == core.Take && op.Limit.Algorithm == core.GCRA && op.Cost > 0 &&
		op.MaxWait == 0 && op.At == 0 && op.ResetAfter == 0
}

// take decides a Take of n units, at least one, of a key that has used some
// since mark. It returns both as they are to be kept if the Take is allowed. It
// is no good, and d not to be read, if the clock has stepped back or units are
// booked.
func (g gcra) take(used, mark, now, n int64, d *core.Decision) (newUsed, newMark int64, good bool) {
	since := now - mark
	if since >= g.every {
		turns := min(since/g.every, used)
		used, mark = used-turns, mark+turns*g.every
	}
	if since < 0 || used > g.most {
		return 0, 0, false
	}
	if used == 0 {
		mark = now
	}
	d.Allowed, d.Wait, d.RetryAfter, d.At = false, 0, 0, now
	switch missing := used + n - g.most; {
	case n > g.most:
		d.RetryAfter = core.Never
	case missing > 0:
		d.RetryAfter = micros(mark + missing*g.every - now)
	default:
		d.Allowed = true
		used += n
	}
	d.Remaining = g.most - used
	d.ResetAfter = micros(mark + used*g.every - now)
	return used, mark, true
}

// lapses is when a key that has used some since mark is as good as new, or now
// if it is already. It is no good where take is not.
func (g gcra) lapses(used, mark, now int64) (at int64, good bool) {
	if g.every == 0 || now < mark || (used-g.most)*g.every > now-mark {
		return 0, false
	}
	return max(now, mark+used*g.every), true
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
