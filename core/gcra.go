package core

import (
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/headgate/headgate/internal/textform"
)

// gcra is the generic cell rate algorithm (ITU-T I.371, annex A) as a virtual
// queue: a bucket of Burst units that gets one unit back every Period/Quota.
//
// State.Used units were taken since the instant Mark, when the queue was empty. Takes move Mark on
// by whole rounds, and peeks and refusals leave it. The queue is empty again at Mark +
// Used·Period/Quota, which is the TAT, the theoretical arrival time, of the literature. The state
// is exact: it never holds a rounded fraction. Units beyond Burst are booked by Takes or in debt
// by Debits. State.Over is how many they were when the state was written: if they are more later,
// the clock has stepped back, and settle leaves a full bucket. State.Slot is the instant that the
// latest booking waits for. A debt moves no slot, as it follows them in the queue.
//
// A state keeps the limit under which it was written until the next Take. Under
// another limit its units come back at the faster of both rates (see pace), so a
// lowered limit locks no caller out for longer than the old one took to refill, a
// raised one helps from the next units on, and no change gives units back for time
// that has not passed.
//
// Twin: lua/gcra.lua.
type gcra struct{}

// rate is Period/Quota in lowest terms.
type rate struct {
	every int64 // microseconds
	units int64 // that come back in that time
}

// rate returns the rate at which units come back under the limit.
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

func (*gcra) name() string     { return "gcra" }
func (*gcra) letter() string   { return "g" }
func (*gcra) options() options { return options{burst: true, debt: true} }

func (*gcra) check(l *Limit) error {
	if l.Capacity() >= exact || l.Quota >= exact {
		return fmt.Errorf("burst %d and quota %d are not both below 2^53", l.Capacity(), l.Quota)
	}
	r := l.rate()
	hi, lo := bits.Mul64(uint64(l.Capacity()), uint64(r.every))
	longest := uint64(MaxPeriod / time.Microsecond)
	if hi >= uint64(r.units) || quotient(hi, lo, r.units) > longest {
		return fmt.Errorf("an empty bucket of %d takes longer than %s to fill",
			l.Capacity(), textform.Duration(MaxPeriod))
	}
	if err := checkExact("units that can be booked", r.units, r.maxRounds()); err != nil {
		return err
	}
	return checkExact("units in use and the remainder of period/quota", r.maxUsed(l), max(1, r.every%r.units))
}

// maxRounds is the maximum number of rounds of r.units in a state beyond the burst: those
// that are booked, and those that have come back since a Take last moved the mark.
func (r rate) maxRounds() int64 { return int64(MaxBooking/time.Microsecond)/r.every + 3 }

// maxUsed is the maximum number of units in use at once that were taken under l, whose
// rate is r.
func (r rate) maxUsed(l *Limit) int64 { return l.Capacity() + r.units*r.maxRounds() }

// quotient returns hi·2^64 + lo divided by by, which has to be above hi.
func quotient(hi, lo uint64, by int64) uint64 {
	q, _ := bits.Div64(hi, lo, uint64(by))
	return q
}

func (*gcra) scriptArgs(l *Limit) (period, quota, extra int64) {
	r := l.rate()
	return r.every, r.units, l.Capacity()
}

func (*gcra) settle(s *State, l *Limit, now int64) bool {
	if s.Used == 0 {
		s.Limit = *l
		return false
	}

	r := s.Limit.rate()

	// The clock was set back before Mark. At most a full bucket stays in use, so that no caller
	// waits for an instant that may be far ahead.
	changed := s.Mark > now
	if changed {
		s.Mark, s.Used, s.Over, s.Slot = now, min(s.Used, s.Limit.Capacity()), 0, 0
	}

	since := now - s.Mark
	if since >= r.span(s.Used) {
		s.Limit, s.Used, s.Mark, s.Over, s.Slot = *l, 0, 0, 0, 0
		return changed
	}

	// The clock was set back, but not before Mark: more units are in use than when the state
	// was written.
	if n := r.back(since); s.Used-n > s.Limit.Capacity()+s.Over {
		s.Used, s.Over, s.Slot, changed = n+s.Limit.Capacity(), 0, 0, true
	}
	return changed
}

// pace is how fast the units of a state come back: at the rate first until first.every
// has passed since Mark, and at the rate rest after that.
type pace struct{ first, rest rate }

// pace returns how fast the units in use come back under l: at the faster of the rates
// of l and of s.Limit. Until first.every after Mark, s.Limit decides alone. The last
// Take came before that instant, so no unit comes back at the rate of l for time that
// passed before it was taken.
func (s *State) pace(l *Limit) pace {
	first := s.Limit.rate()
	if s.Limit.sameRate(l) {
		return pace{first, first}
	}
	rest := l.rate()
	if first.faster(rest) {
		rest = first
	}
	return pace{first, rest}
}

// sameRate reports whether the limits have the same numbers, and so the same rate. Nearly
// all limits of a key have, and rate takes a division.
func (l *Limit) sameRate(m *Limit) bool { return l.Quota == m.Quota && l.Period == m.Period }

// span returns the microseconds from Mark until n units have come back.
func (p pace) span(n int64) int64 {
	if n <= p.first.units {
		return p.first.span(n)
	}
	return p.first.every + p.rest.span(n-p.first.units)
}

// back returns how many of n units have come back span microseconds after Mark.
func (p pace) back(span, n int64) int64 {
	span = min(span, p.span(n)) // so that no int64 overflows
	return min(n, p.first.back(min(span, p.first.every))+p.rest.back(max(0, span-p.first.every)))
}

// faster reports whether r brings units back faster than q. Lua computes the same
// quotients.
func (r rate) faster(q rate) bool {
	return float64(r.every)/float64(r.units) < float64(q.every)/float64(q.units)
}

// delay computes the slot of a booking from the state after convert, as take will leave
// it: before that, units of another limit may come back at another rate. If the slot is
// later than ahead, nothing is booked, and the delay is above ahead.
func (*gcra) delay(s *State, l *Limit, now, n, ahead int64, _ string) int64 {
	missing := s.Used + n - l.Capacity()
	if missing <= 0 {
		return 0
	}
	if s.Used == 0 {
		return l.rate().span(missing)
	}

	wait := max(0, s.Mark+s.pace(l).span(missing)-now)
	if wait == 0 || ahead == 0 || s.Limit.rate() == l.rate() {
		return wait
	}

	booked, r := *s, l.rate()
	booked.convert(l, now)
	if over := booked.Used + n - l.Capacity(); over <= r.back(now+ahead-booked.Mark) {
		return booked.Mark + r.span(over) - now
	}
	return max(wait, ahead+1)
}

// convert puts the state under l. Units in use stay in use.
func (s *State) convert(l *Limit, now int64) {
	if s.Used == 0 || s.Limit.sameRate(l) || s.Limit.rate() == l.rate() {
		s.Limit = *l
		if s.Used != 0 {
			s.advance(now)
		}
		return
	}

	// Under the old rate until the first unit after Mark, and under the faster one from then on.
	p := s.pace(l)
	n := p.back(now-s.Mark, s.Used)
	if n == s.Used {
		s.Limit, s.Used, s.Mark = *l, 0, 0
		return
	}
	// The time since the last unit came back counts, but brings none at once.
	s.Mark = max(s.Mark+p.span(n), now-l.rate().span(1)+1)
	s.Limit, s.Used = *l, s.Used-n
}

func (*gcra) take(s *State, l *Limit, now, n int64, _ string) {
	s.convert(l, now)
	if s.Used == 0 {
		s.Mark = now
	}
	s.Used += n
	if s.Used > s.Limit.Capacity() || s.Over != 0 || s.Slot != 0 {
		s.book(now)
	}
}

// debit charges units as take does, and books none of them.
func (g *gcra) debit(s *State, l *Limit, now, n int64) {
	slot := s.Slot
	g.take(s, l, now, n, "")
	s.Slot = min(s.Slot, slot)
}

// last returns the instant at which no unit beyond the capacity is in use any longer.
func (s *State) last() int64 { return s.Mark + s.Limit.rate().span(s.Used-s.Limit.Capacity()) }

// book sets Over to the number of units in use beyond the capacity, of which the latest is
// a booking.
func (s *State) book(now int64) {
	s.limitSlot(now)
	if s.Over > 0 {
		s.Slot = s.last()
	}
}

// limitSlot sets Over, and moves Slot to no later than the end of the queue.
func (s *State) limitSlot(now int64) {
	s.Over = 0
	if capacity := s.Limit.Capacity(); s.Used > capacity {
		s.Over = max(0, s.Used-s.Limit.rate().back(now-s.Mark)-capacity)
	}
	if s.Over == 0 {
		s.Slot = 0
	} else {
		s.Slot = min(s.Slot, s.last())
	}
}

func (*gcra) inUse(s *State, l *Limit, now int64) int64 {
	return s.Used - s.pace(l).back(now-s.Mark, s.Used)
}

// maxDebt returns how many units come back within MaxPeriod, less the capacity, and no more
// than Lua can count beside those that are booked.
func (*gcra) maxDebt(l *Limit) int64 {
	r := l.rate()
	return min(r.rounds(int64(MaxPeriod/time.Microsecond)/r.every)-l.Capacity(),
		(exact-1)/max(1, r.every%r.units)-r.maxUsed(l))
}

// rounds returns the units that come back in n rounds, or the largest number that Lua
// can count if they are more.
func (r rate) rounds(n int64) int64 {
	if hi, lo := bits.Mul64(uint64(n), uint64(r.units)); hi == 0 && lo < exact {
		return int64(lo)
	}
	return exact - 1
}

// maxInUse is at least the number of units in use at once: those that come back within
// MaxPeriod, and those that are booked.
func (r rate) maxInUse() int64 {
	return r.rounds(int64(MaxPeriod/time.Microsecond)/r.every + r.maxRounds())
}

// refund gives back the cost of a Take less the units that came back since the Take. It
// counts all of these as the Take's own, because a state does not keep the order of
// Takes, and units taken earlier may have been refunded. This gives back no unit of
// others: without the Take, at least that many fewer units would be in use.
//
// Two kinds of Takes are known to have lost nothing. One is a booking that is the last of
// the queue and whose slot comes now or later. The other is a Take after Mark where units come
// back one by one: a unit taken earlier was in use at least until the state changed last,
// and no Take has come since. That does not hold once units were booked behind the Take.
// While the slot of one of these has not come, nothing is given back, because it cannot move.
func (*gcra) refund(s *State, _ *Limit, now int64, op *Op) {
	defer s.limitSlot(now)
	if op.At == 0 || s.Used == 0 {
		s.Used = max(0, s.Used-op.Cost)
		return
	}

	r, lost := s.Limit.rate(), max(0, now-op.At)
	cost := min(op.Cost, r.maxInUse())
	end := s.Mark + r.span(s.Used)
	upto := op.At + int64(op.ResetAfter/time.Microsecond)

	switch behind := s.Slot != 0 && upto < end; {
	case behind && s.Slot > now:
		cost = 0
	case s.Slot >= now && upto == end, r.units == 1 && op.At > s.Mark && !behind:
		lost = 0
	}

	if lost == 0 {
		s.Used = max(0, s.Used-cost)
		return
	}
	// A fraction of a microsecond counts as lost.
	s.Mark -= max(0, r.span(cost)-min(1, r.units-1)-lost)
	s.advance(now)
}

// advance moves Mark towards now, by a whole number of rounds.
func (s *State) advance(now int64) {
	r := s.Limit.rate()
	rounds := (now - s.Mark) / r.every
	s.Mark += rounds * r.every
	s.Used = max(0, s.Used-rounds*r.units)
}

func (*gcra) gauge(s *State, l *Limit, now int64) (remaining, reset int64) {
	if s.Used == 0 {
		return l.Capacity(), 0
	}

	// A quicker way to the result of pace. settle has left units in use at the rate of s.Limit, so
	// fewer than Used have come back, and the reset is ahead. At a faster rate all may be back.
	if s.Limit.sameRate(l) {
		r := l.rate()
		used := s.Used - r.back(now-s.Mark)
		return max(0, l.Capacity()-used), s.Mark + r.span(s.Used) - now
	}

	p := s.pace(l)
	used := s.Used - p.back(now-s.Mark, s.Used)
	return max(0, l.Capacity()-used), max(0, s.Mark+p.span(s.Used)-now)
}

func (*gcra) maxRecords(*Limit) int64 { return 0 }
func (*gcra) leased() bool            { return false }
func (*gcra) books() bool             { return true }
func (*gcra) prefetchable() bool      { return true }
func (*gcra) rolling() bool           { return false }

// stillUsed counts whole units. A unit that has come back in part would exceed
// the burst together with the units that the store admits.
func (*gcra) stillUsed(l *Limit, _, span int64) int64 {
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

func (*gcra) compact(l *Limit) Compact {
	r := l.rate()
	if r.units == 1 {
		return Compact{form: oneByOne, every: r.every, units: 1, capacity: l.Capacity()}
	}

	// The products of a span and a number of units have to fit.
	if hi, lo := bits.Mul64(uint64(r.every), uint64(l.Capacity()+2*r.units)); hi > 0 || lo > math.MaxInt64 {
		return Compact{}
	}
	return Compact{form: evenly, every: r.every, units: r.units, capacity: l.Capacity()}
}

func (*gcra) part(l *Limit, n int64) Limit { return l.bucketPart(n) }

// foretells does not know when each of several missing units comes back: those that were
// taken under another limit do at another rate.
func (*gcra) foretells(r refusal) bool { return r.single() }
