package core

import (
	"fmt"
	"math/bits"

	"github.com/headgate/headgate/internal/textform"
)

// tokenBucket holds Burst tokens; every Period, Quota tokens are added at once.
// State.Used is the number of missing tokens, and Mark is the instant of the
// last refill. Refills happen lazily, and the rest of a Period is never lost.
// A state keeps the limit under which it was written until the next Take, as that of
// gcra does. Twin: lua/token_bucket.lua.
type tokenBucket struct{}

func (*tokenBucket) name() string     { return "token-bucket" }
func (*tokenBucket) letter() string   { return "t" }
func (*tokenBucket) options() options { return options{burst: true, debt: true} }

func (*tokenBucket) check(l *Limit) error {
	if l.Capacity() >= exact-l.Quota {
		return fmt.Errorf("the sum of burst %d and quota %d is not below 2^53", l.Capacity(), l.Quota)
	}
	return checkRefill(l, ceilDiv(l.Capacity(), l.Quota))
}

// checkRefill returns an error if a bucket takes longer than MaxPeriod to fill.
func checkRefill(l *Limit, periods int64) error {
	if periods > int64(MaxPeriod/l.Period) {
		return fmt.Errorf("an empty bucket of %d takes %d periods of %s to fill, longer than %s",
			l.Capacity(), periods, textform.Duration(l.Period), textform.Duration(MaxPeriod))
	}
	return nil
}

func (*tokenBucket) scriptArgs(l *Limit) (period, quota, extra int64) {
	return l.period(), l.Quota, l.Capacity()
}

func (*tokenBucket) settle(s *State, l *Limit, now int64) bool {
	if s.Used == 0 {
		s.Limit = *l
		return false
	}
	changed := s.Mark > now
	s.Mark = min(s.Mark, now)
	if (now-s.Mark)/s.Limit.period() >= ceilDiv(s.Used, s.Limit.Quota) {
		s.Limit, s.Used, s.Mark = *l, 0, 0
	}
	return changed
}

// refills is how tokens come back: first.units when first.every has passed since Mark,
// and from then on rest.units whenever rest.every has passed. The rates are not in
// lowest terms.
type refills struct{ first, rest rate }

// refills returns how the missing tokens come back under l: at the faster of the rates of
// s.Limit and of l. The last tokens were taken less than first.every after Mark, so none
// comes back at the rate of l for time that passed before it was taken.
func (s *State) refills(l *Limit) refills {
	first, rest := rate{s.Limit.period(), s.Limit.Quota}, rate{l.period(), l.Quota}
	if !rest.faster(first) {
		rest = first
	}
	return refills{first, rest}
}

// span returns the microseconds from Mark until n tokens, at least one, are back. The
// refills of a faster limit may be larger and come later, so those of the state count too.
func (r refills) span(n int64) int64 {
	return min(ceilDiv(n, r.first.units)*r.first.every,
		r.first.every+ceilDiv(max(0, n-r.first.units), r.rest.units)*r.rest.every)
}

// back returns how many of n tokens are back span microseconds after Mark, and the span
// from Mark until the last of them came.
func (r refills) back(span, n int64) (back, last int64) {
	own := min(span/r.first.every, ceilDiv(n, r.first.units))
	first := min(1, own)
	more := min(max(0, span-r.first.every)/r.rest.every, ceilDiv(max(0, n-r.first.units), r.rest.units))
	return min(n, max(own*r.first.units, first*r.first.units+more*r.rest.units)),
		max(own*r.first.every, first*r.first.every+more*r.rest.every)
}

func (*tokenBucket) delay(s *State, l *Limit, now, n, _ int64, _ string) int64 {
	missing := s.Used + n - l.Capacity()
	if missing <= 0 {
		return 0
	}
	return max(0, s.Mark+s.refills(l).span(missing)-now)
}

// convertBucket puts the state under l. Missing tokens stay missing.
func (s *State) convertBucket(l *Limit, now int64) {
	if s.Used == 0 {
		s.Limit = *l
		return
	}
	back, last := s.refills(l).back(now-s.Mark, s.Used)
	// The time since the last refill counts, but under another limit brings no refill at
	// once.
	s.Mark = max(s.Mark+last, now-l.period()+1)
	s.Limit, s.Used = *l, s.Used-back
}

func (*tokenBucket) take(s *State, l *Limit, now, n int64, _ string) {
	s.convertBucket(l, now)
	if s.Used == 0 {
		s.Mark = now
	}
	s.Used += n
}

func (*tokenBucket) inUse(s *State, l *Limit, now int64) int64 {
	if s.Used == 0 {
		return 0
	}
	back, _ := s.refills(l).back(now-s.Mark, s.Used)
	return s.Used - back
}

func (*tokenBucket) maxDebt(l *Limit) int64 {
	periods := int64(MaxPeriod / l.Period)
	if hi, lo := bits.Mul64(uint64(periods), uint64(l.Quota)); hi == 0 && lo < exact-uint64(l.Quota) {
		return int64(lo) - l.Capacity()
	}
	return exact - 1 - l.Quota - l.Capacity()
}

func (t *tokenBucket) debit(s *State, l *Limit, now, n int64) { t.take(s, l, now, n, "") }

// refund gives back the cost of a Take less the tokens of all refills since the Take; see
// gcra.refund. A Take after Mark has lost nothing: no refill came between the Take and
// the last change of the state, and no Take has come since.
func (*tokenBucket) refund(s *State, _ *Limit, now int64, op *Op) {
	if s.Used == 0 {
		return
	}
	l := &s.Limit
	refills := (now - s.Mark) / l.period()
	cost := min(op.Cost, exact-l.Quota)
	if before := s.Mark - op.At; op.At != 0 && before > 0 {
		lost := min(ceilDiv(cost, l.Quota), ceilDiv(before, l.period())+refills)
		cost = max(0, cost-lost*l.Quota)
	}
	s.Used -= min(cost, s.Used-refills*l.Quota)
}

func (*tokenBucket) gauge(s *State, l *Limit, now int64) (remaining, reset int64) {
	if s.Used == 0 {
		return l.Capacity(), 0
	}
	r := s.refills(l)
	back, _ := r.back(now-s.Mark, s.Used)
	return max(0, l.Capacity()-s.Used+back), max(0, s.Mark+r.span(s.Used)-now)
}

// ceilDiv returns a/b rounded up, for a ≥ 0 and b > 0.
func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

func (*tokenBucket) maxRecords(*Limit) int64      { return 0 }
func (*tokenBucket) leased() bool                 { return false }
func (*tokenBucket) books() bool                  { return false }
func (*tokenBucket) prefetchable() bool           { return true }
func (*tokenBucket) rolling() bool                { return false }
func (*tokenBucket) part(l *Limit, n int64) Limit { return l.bucketPart(n) }

func (*tokenBucket) compact(l *Limit) Compact {
	return Compact{form: atOnce, every: l.period(), units: l.Quota, capacity: l.Capacity()}
}

// stillUsed subtracts a quota for each refill that has come.
func (*tokenBucket) stillUsed(l *Limit, used, span int64) int64 {
	if span <= 0 {
		return 0
	}
	return max(0, used-(ceilDiv(used, l.Quota)-ceilDiv(span, l.period()))*l.Quota)
}

func (*tokenBucket) foretells(r refusal) bool { return r.single() }
