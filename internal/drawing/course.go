// Package drawing draws the requests that a limit admits over time from a client that never stops
// asking. [SVG] draws those of a limit, and [Sparkline] counts over time.
package drawing

import (
	"fmt"
	"math/bits"
	"strings"
	"time"

	"github.com/headgate/headgate/core"
)

// point is the number of units that have been admitted, or are held, from an instant
// on.
type point struct {
	at    time.Duration
	units int64
}

// periods is how many Periods a drawing shows, from the first request on.
const periods = 3

// intoWindow is the part of an aligned window that has passed at the first request: a quarter, as
// callers begin at any time.
const intoWindow = 4

// maxPoints is the largest number of points that a drawing needs.
const maxPoints = 720

// course is the units over time: admitted in total, or held at once.
type course struct {
	span   time.Duration
	points []point
	max    int64
}

// simulate simulates a client that always asks for more, with the arithmetic that
// stores use. The error is the mistake in the limit.
func simulate(l core.Limit) (course, error) {
	if err := l.Validate(); err != nil {
		return course{}, err
	}

	if l.NeedsWindows() {
		l = even(l)
	}

	// The course of leases, and of a limit whose units come back one by one, is known without a
	// simulation.
	c := course{span: periods * l.Period}
	if l.Leased() {
		return c.leases(l), nil
	}
	if l.Books() {
		return c.smooth(l), nil
	}
	return c.simulate(l), nil
}

// even returns a limit whose windows are all as long as those of a calendar are at least.
func even(l core.Limit) core.Limit {
	days := map[string]time.Duration{"day": 1, "week": 7, "month": 28, "year": 365}
	unit, _, _ := strings.Cut(l.Calendar, " ")
	windows := core.MustParseLimit("1/1d fixed-window aligned")
	windows.Quota, windows.Debt, windows.Period = l.Quota, l.Debt, days[unit]*24*time.Hour
	return windows
}

// simulate takes all units as soon as they are available.
func (c course) simulate(l core.Limit) course {
	// An aligned window begins at a multiple of its Period.
	const epoch = int64(400*24*time.Hour/time.Microsecond) * 16
	start := epoch - epoch%l.Period.Microseconds()
	if l.Aligned {
		start += l.Period.Microseconds() / intoWindow
	}

	// The state is kept here instead of in a store, so that a drawing needs no clock.
	var state core.State
	op := [1]core.Op{{Limit: l}}
	states := [1]*core.State{&state}
	var out [1]core.Decision
	decide := func(at time.Duration, cost int64) core.Decision {
		op[0].Cost = cost
		core.Decide(op[:], states[:], start+at.Microseconds(), out[:])
		return out[0]
	}

	// The client takes all that remains, and then asks again at the instant that the answer names.
	c.points = append(c.points, point{0, 0})
	last := c.span
	if !l.Books() {
		last-- // a window that begins with the end of the drawing is not shown
	}
	for at := time.Duration(0); at <= last; {
		if n := decide(at, 0).Remaining; n > 0 {
			decide(at, n)
			c.add(at, n)
		}
		at += decide(at, 1).RetryAfter
	}

	c.points = append(c.points, point{c.span, c.max})
	return c
}

// smooth draws a burst, and then a unit each Period/Quota, as far as a drawing can
// show single units.
func (c course) smooth(l core.Limit) course {
	c.points = append(c.points, point{0, 0})
	c.add(0, l.Capacity())

	// Where there are more units than points, a point stands for several of them.
	all := scale(int64(c.span), l.Quota, int64(l.Period))
	for n, i := min(all, maxPoints), int64(1); i <= n; i++ {
		units := scale(all, i, n)
		after := time.Duration(scale(units, int64(l.Period), l.Quota))
		c.add(after, l.Capacity()+units-c.max)
	}

	c.points = append(c.points, point{c.span, c.max})
	return c
}

// scale returns a·b/c, rounded down. The result must fit an int64.
func scale(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	n, _ := bits.Div64(hi, lo, uint64(c))
	return int64(n)
}

// add adds units that are admitted at an instant. Units of one instant share a point.
func (c *course) add(at time.Duration, units int64) {
	c.max += units
	if last := &c.points[len(c.points)-1]; last.at == at {
		last.units = c.max
		return
	}
	c.points = append(c.points, point{at, c.max})
}

// leases draws requests that each hold a lease for half a Period.
func (c course) leases(l core.Limit) course {
	c.max = l.Quota
	half := l.Period / 2
	for at := time.Duration(0); at < c.span; at += 2 * half {
		c.points = append(c.points, point{at, l.Quota}, point{min(at+half, c.span), 0})
	}
	return c
}

// inWords describes the drawing, for people who cannot see it.
func (c *course) inWords(l core.Limit) string {
	if l.Leased() {
		return fmt.Sprintf("At most %d at the same time, however fast they come.", l.Quota)
	}
	return fmt.Sprintf("A caller that never stops asking gets %d at once and %d in %s.",
		l.Capacity(), c.max, c.span)
}
