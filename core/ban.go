package core

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Ban says when refusals of a key become a ban, and for how long. The zero value bans
// no key.
//
// A refusal within the limits of a ban is a strike. Strikes many of them, from the first
// on within Within, begin a ban, which lasts For. Each next ban lasts twice as long as the one
// before, at most Max. A key that is not banned again for Max after the end of a ban is
// as one that never was.
type Ban struct {
	Strikes          int64
	Within, For, Max time.Duration
}

// Banned is a key under a ban.
type Banned struct {
	Rule, Key string
	Until     int64 // the instant at which the ban ends, in microseconds since the Unix epoch
}

// BanLister is a [Store] that can list the keys that are banned.
type BanLister interface {
	Store

	// Bans returns the bans of the rules that have not ended, those that last longest
	// first, at most so many. It is a moment's view: keys are banned and lifted meanwhile.
	Bans(ctx context.Context, rules []string, most int) ([]Banned, error)
}

// maxStrikes bounds Ban.Strikes, so that a count of them fits into a state.
const maxStrikes = 1 << 31

// Validate returns an error that names every mistake in b, which is not zero.
func (b Ban) Validate() error {
	var errs []error
	if b.Strikes < 1 || b.Strikes > maxStrikes {
		errs = append(errs, fmt.Errorf("strikes %d is not within 1 to %d", b.Strikes, maxStrikes))
	}
	for _, span := range []struct {
		name string
		d    time.Duration
	}{{"within", b.Within}, {"for", b.For}, {"max", b.Max}} {
		switch {
		case span.d < time.Millisecond || span.d > MaxPeriod:
			errs = append(errs, fmt.Errorf("%s %s is not within 1ms to %s", span.name, span.d, MaxPeriod))
		case span.d%time.Microsecond != 0:
			errs = append(errs, fmt.Errorf("%s %s is not a whole number of microseconds", span.name, span.d))
		}
	}
	if b.For > b.Max {
		errs = append(errs, errors.New("for is above max"))
	}
	return errors.Join(errs...)
}

// Conduct is what the state of a key keeps of its refusals. It is zero for a key that was
// never refused under a Ban, or long ago.
type Conduct struct {
	Strikes, End int64 // refusals, which count until the instant End
	Until, Level int64 // the end of the latest ban, and how many came before the next
}

// settle brings the conduct to now. It returns true only if it pulled back instants that
// a stepped clock has left in the future, because no other change has to be kept.
func (c *Conduct) settle(b *Ban, now int64) (changed bool) {
	if end := now + b.Within.Microseconds(); c.End > end {
		c.End, changed = end, true
	}
	if until := now + b.Max.Microseconds(); c.Until > until {
		c.Until, changed = until, true
	}
	if now >= c.End {
		c.Strikes, c.End = 0, 0
	}
	if now >= c.Until+b.Max.Microseconds() {
		c.Until, c.Level = 0, 0
	}
	return changed
}

// delay returns the span until the ban ends, 0 without one.
func (c *Conduct) delay(now int64) int64 { return max(0, c.Until-now) }

// strike counts a refusal of a key that is not banned, and begins a ban if it is the last
// that the Ban lets pass.
func (c *Conduct) strike(b *Ban, now int64) {
	if c.Strikes == 0 {
		c.End = now + b.Within.Microseconds()
	}
	if c.Strikes++; c.Strikes < b.Strikes {
		return
	}
	span, longest := b.For.Microseconds(), b.Max.Microseconds()
	for level := int64(0); level < c.Level && span < longest; level++ {
		span = min(2*span, longest)
	}
	if span < longest || c.Level == 0 { // a level more would not be longer
		c.Level++
	}
	*c = Conduct{Until: now + span, Level: c.Level}
}

// reset returns the span until the conduct is as that of a key which was never refused.
func (c *Conduct) reset(b *Ban, now int64) int64 {
	span := max(0, c.End-now)
	if c.Level > 0 {
		span = max(span, c.Until+b.Max.Microseconds()-now)
	}
	return span
}
