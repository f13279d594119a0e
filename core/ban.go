package core

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Ban says when refusals of a key become a ban, and for how long. The zero value bans
// no key. Its text form is that of [ParseBan], such as "20/1m for 10m max 24h".
//
// A Take that its own limit refuses is a strike against its key, unless it is Soft, its
// cost never fits, or the key is banned. Strikes many of them, from the first on within
// Within, begin a ban, which lasts For. Each next ban lasts twice as long as the one before,
// at most Max. A key that is not banned again for Max after the end of a ban is as one that
// never was. While a key is banned, every Take and Peek of units under a Ban is refused.
//
// The refusals and bans of a key are kept whatever the Ban under which they came about: a
// changed one holds at once, and a shorter one shortens a ban that has begun.
type Ban struct {
	Strikes          int64
	Within, For, Max time.Duration
}

// OrNil returns the ban as [Op] has it: nil for the zero value.
func (b Ban) OrNil() *Ban {
	if b == (Ban{}) {
		return nil
	}
	return &b
}

// Banned is a key under a ban.
type Banned struct {
	Rule, Key string
	Until     int64 // the instant at which the ban ends, in microseconds since the Unix epoch
}

// Compare orders bans as [Reporter] lists them: those that last longest first, and those
// that end at one instant by rule and key.
func (b Banned) Compare(c Banned) int {
	return cmp.Or(cmp.Compare(c.Until, b.Until), cmp.Compare(b.Rule, c.Rule), cmp.Compare(b.Key, c.Key))
}

// maxStrikes bounds Ban.Strikes, so that a count of them fits into a state.
const maxStrikes = int64(1) << 31

// Validate returns an error that names every mistake in b, which is not zero.
func (b Ban) Validate() error {
	if b.isSound() {
		return nil
	}
	var errs []error
	if b.Strikes < 1 || b.Strikes > maxStrikes {
		errs = append(errs, fmt.Errorf("strikes %d is not within 1 to %d", b.Strikes, maxStrikes))
	}

	for _, err := range [...]error{spanFault("within", b.Within), spanFault("for", b.For), spanFault("max", b.Max)} {
		if err != nil {
			errs = append(errs, err)
		}
	}

	if b.For > b.Max {
		errs = append(errs, errors.New("for is above max"))
	}
	return errors.Join(errs...)
}

// isSound reports whether Validate finds no mistake. Stores ask for it at each step.
func (b *Ban) isSound() bool {
	return b.Strikes >= 1 && b.Strikes <= maxStrikes && isSpan(b.Within) && isSpan(b.For) && isSpan(b.Max) &&
		b.For <= b.Max
}

// isSpan reports whether spanFault finds nothing.
func isSpan(d time.Duration) bool {
	return d >= time.Millisecond && d <= MaxPeriod && d%time.Microsecond == 0
}

// spanFault returns an error if a span of a Ban is too short, too long or a fraction.
func spanFault(name string, d time.Duration) error {
	switch {
	case d < time.Millisecond || d > MaxPeriod:
		return fmt.Errorf("%s %s is not within 1ms to %s", name, d, MaxPeriod)
	case d%time.Microsecond != 0:
		return fmt.Errorf("%s %s is not a whole number of microseconds", name, d)
	}
	return nil
}

// conduct is what the state of a key keeps of its refusals under a [Ban]. It is zero for
// a key that was never refused under one, or long ago.
type conduct struct {
	// Strikes many refusals count until the instant Until. If there are none, Until is
	// the end of a ban.
	Strikes, Until int64

	// Span is how long the latest ban was to last, until the instant Forget.
	Span, Forget int64
}

// None reports whether the conduct is zero. There are no strikes without Until, and no Span
// without Forget.
func (c *conduct) None() bool { return c.Until == 0 && c.Forget == 0 }

// settle brings the conduct to now, under a Ban or, if b is nil, under none. It returns
// true only if it pulled back instants, because no other change has to be kept.
func (c *conduct) settle(b *Ban, now int64) (changed bool) {
	if b != nil {
		changed = c.pullBack(b, now)
	}

	// What has passed is forgotten.
	if now >= c.Until {
		c.Strikes, c.Until = 0, 0
	}
	if now >= c.Forget {
		c.Span, c.Forget = 0, 0
	}
	return changed
}

// pullBack brings back the instants that a stepped clock, or a Ban with longer spans, has
// left too far in the future. It reports whether there were any.
func (c *conduct) pullBack(b *Ban, now int64) (changed bool) {
	longest := b.Max.Microseconds()
	until, forget := now+min(c.Span, longest), now+longest
	if c.Strikes > 0 {
		until = now + b.Within.Microseconds()
	}

	// Forget is a whole Max after the end of the ban, and so follows the end that was just moved.
	if c.Until > until {
		c.Until, changed = until, true
	}
	if forget += c.delay(now); c.Forget > forget {
		c.Forget, changed = forget, true
	}
	return changed
}

// delay returns the span until the ban ends, 0 without one.
func (c *conduct) delay(now int64) int64 {
	if c.Strikes > 0 {
		return 0
	}
	return max(0, c.Until-now)
}

// strike counts a refusal of a key that is not banned, and begins a ban if it is the last
// that the Ban lets pass.
func (c *conduct) strike(b *Ban, now int64) {
	if c.Strikes == 0 {
		c.Until = now + b.Within.Microseconds()
	}
	if c.Strikes++; c.Strikes < b.Strikes {
		return
	}
	c.impose(b, max(b.For.Microseconds(), 2*c.Span), now)
}

// impose begins a ban of at most the span. A ban that ends later stays.
func (c *conduct) impose(b *Ban, span, now int64) {
	left, longest := c.delay(now), b.Max.Microseconds()
	c.Strikes, c.Span = 0, max(left, min(span, longest))
	c.Until = now + c.Span
	c.Forget = c.Until + longest
}

// reset returns the span until the conduct is as that of a key which was never refused.
func (c *conduct) reset(now int64) int64 { return max(0, c.Until-now, c.Forget-now) }

// ban returns the Ban that the operation heeds, or nil. A Soft Take heeds none, because
// its refusal turns no request away.
func (op *Op) ban() *Ban {
	if op.Verb == Take && op.Soft {
		return nil
	}
	return op.Ban
}

// banned returns the span for which the state's ban refuses units to the operation.
func (op *Op) banned(s *State, now int64) int64 {
	if op.ban() == nil {
		return 0
	}
	return s.Conduct.delay(now)
}

// strike counts the refusals of a step against its keys. A cost that never fits is a
// mistake and not counted, and neither is a refusal of a banned key.
func strike(ops []Op, states []*State, now int64, out []Decision) {
	for i := range ops {
		op, s := &ops[i], states[i]
		b := op.ban()
		if b == nil || op.Verb != Take || out[i].Allowed || out[i].RetryAfter == Never || s.Conduct.delay(now) > 0 {
			continue
		}
		s.Conduct.strike(b, now)
		s.ConductChanged = true
	}
}

// reportBan completes the decision on an operation with a Ban. Units that might have been
// booked are no sooner there than they would have been.
func (op *Op) reportBan(s *State, now int64, d *Decision) {
	left := op.banned(s, now)
	if left == 0 {
		return
	}
	d.Banned, d.Remaining = true, 0
	if op.Verb <= Peek && op.Cost > 0 {
		d.Allowed, d.RetryAfter = false, max(d.RetryAfter, d.Wait, micros(left))
	}
}

// contradicts reports whether b and c are different bans. No ban contradicts none.
func (b *Ban) contradicts(c *Ban) bool { return b != c && b != nil && c != nil && *b != *c }

// banFault returns what is wrong with the operation's Ban, or "".
func (op *Op) banFault() string {
	if op.Ban == nil {
		if op.Verb == Impose {
			return "a ban is missing"
		}
		return ""
	}

	if op.Limit.Leased() {
		return "a renewal of a lease must not be refused, so a leased limit has no ban"
	}

	// The text of an operation's fault is one line.
	if err := op.Ban.Validate(); err != nil {
		return "the ban is not valid: " + strings.ReplaceAll(err.Error(), "\n", ", ")
	}
	return ""
}
