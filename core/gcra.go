package core

import (
	"fmt"
	"github.com/headgate/headgate/internal/textform"
	"math"
	"math/bits"
	"time"
)

// gcra is the generic cell rate algorithm (ITU-T I.371, annex A) as a virtual
// queue: a bucket of Burst units that gets one unit back every Period/Quota.
//
// State.Used units were taken since the instant Mark, when the queue was empty.
// The queue is empty again at Mark + Used·Period/Quota, which is the TAT, the
// theoretical arrival time, of the literature. The state is exact: it never
// holds a rounded fraction. Units beyond Burst are booked. State.Over is how
// many were booked when the state was written: if more are booked later, the
// clock has stepped back, and settle leaves a full bucket.
//
// Twin: lua/gcra.lua.
type gcra struct{}

// rate is Period/Quota in lowest terms.
type rate struct {
	every int64 // microseconds
	units int64 // that come back in that time
}

func (l *Limit) rate() rate {
	a, b := l.period(), l.Quota
	if a%b == 0 {
		return rate{a / b, 1}
	}
	for b != 0 {
		a, b = b, a%b
	}
	return rate{l.period() / a, l.Quota / a}
}

// span returns the microseconds, rounded up, until n units have come back.
func (r rate) span(n int64) int64 {
	hi, lo := bits.Mul64(uint64(n), uint64(r.every%r.units))
	part, rest := bits.Div64(hi, lo, uint64(r.units))
	if rest > 0 {
		part++
	}
	return n*(r.every/r.units) + int64(part)
}

// back returns the number of units that have come back after span microseconds.
func (r rate) back(span int64) int64 {
	hi, lo := bits.Mul64(uint64(span%r.every), uint64(r.units))
	n, _ := bits.Div64(hi, lo, uint64(r.every))
	return span/r.every*r.units + int64(n)
}

func (gcra) name() string     { return "gcra" }
func (gcra) letter() string   { return "g" }
func (gcra) options() options { return options{burst: true} }

func (gcra) check(l *Limit) error {
	if l.Capacity() >= exact || l.Quota >= exact {
		return fmt.Errorf("burst %d and quota %d are not both below 2^53", l.Capacity(), l.Quota)
	}
	r := l.rate()
	hi, lo := bits.Mul64(uint64(l.Capacity()), uint64(r.every))
	if longest := uint64(MaxPeriod / time.Microsecond); hi >= uint64(r.units) || quotient(hi, lo, r.units) > longest {
		return fmt.Errorf("an empty bucket of %d takes longer than %s to fill", l.Capacity(), textform.Duration(MaxPeriod))
	}
	// The units in use at once are those of the burst, those booked, and those
	// that have come back since settle last moved the mark.
	rounds := int64(MaxBooking/time.Microsecond)/r.every + 3
	if err := checkExact("units that can be booked", r.units, rounds); err != nil {
		return err
	}
	maxUsed := l.Capacity() + r.units*rounds
	return checkExact("units in use and the remainder of period/quota", maxUsed, max(1, r.every%r.units))
}

func quotient(hi, lo uint64, by int64) uint64 {
	q, _ := bits.Div64(hi, lo, uint64(by))
	return q
}

func (gcra) scriptArgs(l *Limit) (period, quota, extra int64) {
	r := l.rate()
	return r.every, r.units, l.Capacity()
}

func (gcra) settle(s *State, l *Limit, now int64) bool {
	old := s.Limit
	s.Limit = *l
	if s.Used == 0 {
		return false
	}
	r := old.rate()
	changed := s.Mark > now
	if changed {
		s.Mark, s.Used, s.Over = now, min(s.Used, old.Capacity()), 0
	}
	if now-s.Mark >= r.span(s.Used) {
		s.Used, s.Mark, s.Over = 0, 0, 0
		return changed
	}
	rounds := (now - s.Mark) / r.every
	s.Mark += rounds * r.every
	s.Used -= rounds * r.units
	n := r.back(now - s.Mark)
	if s.Used-n > old.Capacity()+s.Over {
		s.Used, s.Over, changed = n+old.Capacity(), 0, true
	}
	if old == *l || old.rate() == l.rate() && old.Capacity() == l.Capacity() {
		return changed
	}
	// The time since the last unit came back counts, but brings none at once.
	s.Used, s.Over = min(s.Used-n, l.Capacity()), 0
	s.Mark = max(s.Mark+r.span(n), now-l.rate().span(1)+1)
	return true
}

func (gcra) delay(s *State, l *Limit, now, n int64, _ string) int64 {
	missing := max(0, s.Used+n-l.Capacity())
	if s.Used == 0 {
		return l.rate().span(missing)
	}
	return max(0, s.Mark+l.rate().span(missing)-now)
}

func (gcra) take(s *State, l *Limit, now, n int64, _ string) {
	if s.Used == 0 {
		s.Mark = now
	}
	s.Used += n
	s.book(l, now)
}

// book sets Over to the number of units that are booked.
func (s *State) book(l *Limit, now int64) {
	s.Over = 0
	if s.Used > l.Capacity() {
		s.Over = max(0, s.Used-l.rate().back(now-s.Mark)-l.Capacity())
	}
}

// refund never gives back a unit that has come back already. The Take's units
// were the last of a queue that becomes empty ResetAfter after At. Until the
// first of them comes back, all of them leave the queue; later, only the units
// taken after them stay. If other Takes have booked behind the Take, nothing is given back,
// because their slots cannot move.
func (gcra) refund(s *State, l *Limit, now int64, op *Op) {
	defer s.book(l, now)
	if op.At == 0 || s.Used == 0 {
		s.Used = max(0, s.Used-op.Cost)
		return
	}
	r := l.rate()
	upto := min(s.Used, r.back(max(0, op.At+int64(op.ResetAfter/time.Microsecond)-s.Mark)))
	booked := s.Used-r.back(now-s.Mark) > l.Capacity()
	switch {
	case booked && upto < s.Used, s.Mark+r.span(upto) <= now:
	case s.Mark+r.span(max(0, upto-op.Cost)) >= now:
		s.Used -= min(op.Cost, upto)
	default:
		s.Used, s.Mark = s.Used-upto, now
	}
}

func (gcra) gauge(s *State, l *Limit, now int64) (remaining, reset int64) {
	if s.Used == 0 {
		return l.Capacity(), 0
	}
	r := l.rate()
	used := s.Used - r.back(now-s.Mark)
	return max(0, l.Capacity()-used), s.Mark + r.span(s.Used) - now
}

func (gcra) maxRecords(*Limit) int64 { return 0 }
func (gcra) leased() bool            { return false }
func (gcra) books() bool             { return true }
func (gcra) prefetchable() bool      { return true }

// stillUsed counts whole units. A unit that has come back in part would exceed
// the burst together with the units that the store admits.
func (gcra) stillUsed(l *Limit, _, span int64) int64 {
	if span <= 0 {
		return 0
	}
	period := uint64(l.period())
	hi, lo := bits.Mul64(uint64(span-1), uint64(l.Quota))
	if hi >= period {
		return math.MaxInt64
	}
	n, _ := bits.Div64(hi, lo, period)
	return int64(min(n, math.MaxInt64))
}

func (gcra) steady(l *Limit) Steady {
	period := l.period()
	if period%l.Quota != 0 {
		return Steady{}
	}
	return Steady{Every: period / l.Quota, Capacity: l.Capacity()}
}

func (gcra) part(l *Limit, n int64) Limit { return l.bucketPart(n) }

func (g gcra) foretell(l *Limit, r refusal, n int64, since time.Duration) (remaining int64, retry time.Duration, ok bool) {
	if s := g.steady(l); s.Every > 0 {
		remaining, retry = s.foretell(r, n, since)
		return remaining, retry, true
	}
	return r.single(n)
}
