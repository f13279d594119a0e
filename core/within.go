package core

import (
	"math"
	"math/bits"
	"time"
)

// endless is more than any number of Takes, and a quarter of what would overflow.
const endless = math.MaxInt64 / 4

// MostWithin returns how many Takes of a cost are admitted of a key at most in a span, whatever was
// used before. The end of the span is not included. A step above 0 says that the span begins and
// ends at multiples of it since the Unix epoch. The number is at most a quarter of the largest, and
// says nothing if the limit is leased. Refunds, debits and credit are not thought of.
func (l Limit) MostWithin(cost int64, span, step time.Duration) int64 {
	last := max(0, span.Microseconds()-1) // the latest instant of it
	return algorithms[l.Algorithm].mostWithin(&l, cost, last, step.Microseconds())
}

// LeastBefore returns how many Takes of a cost were admitted of a key at least in a span and until
// a Take of the cost is refused that comes when it has ended. With a step above 0 the span begins
// and ends at multiples of it, and the refusal comes within a step. It is 0 if the limit is leased.
// Refunds, debits, bans and credit are not thought of.
func (l Limit) LeastBefore(cost int64, span, step time.Duration) int64 {
	return algorithms[l.Algorithm].leastBefore(&l, cost, span.Microseconds(), step.Microseconds())
}

// back returns how many units of a quota in each period come back in a span, rounded down.
func (l *Limit) back(span int64) int64 {
	hi, lo := bits.Mul64(uint64(max(0, span)), uint64(l.Quota))
	if hi >= uint64(l.period()) {
		return endless
	}
	n, _ := bits.Div64(hi, lo, uint64(l.period()))
	return int64(min(n, endless))
}

// times returns a product, which is at most endless.
func times(a, b int64) int64 {
	if hi, lo := bits.Mul64(uint64(a), uint64(b)); hi == 0 && lo < endless {
		return int64(lo)
	}
	return endless
}

// full returns as many Takes as the quota has if a span is as long as that needs, and else 0.
func (l *Limit) full(cost, span, needed int64) int64 {
	if span < needed {
		return 0
	}
	return l.Quota / cost
}

// touched returns how many windows by the clock of a length may have a part in a span.
func touched(width, last, step int64) int64 {
	switch {
	case step == 0 || width%step != 0 && step%width != 0:
		return last/width + 2 // the end of one, the whole ones, and the beginning of one
	case width <= step:
		return last/width + 1
	}
	each := width / step
	return (last/step+each-1)/each + 1
}

// The burst, and what comes back one by one.
func (*gcra) mostWithin(l *Limit, cost, last, _ int64) int64 {
	return (l.Capacity() + l.back(last)) / cost
}

// The bucket was full meanwhile and all of it was taken, or what came back was.
func (*gcra) leastBefore(l *Limit, cost, span, _ int64) int64 {
	return min(l.Capacity(), l.back(span)) / cost
}

// A refill at the beginning of the span, and one each period.
func (*tokenBucket) mostWithin(l *Limit, cost, last, _ int64) int64 {
	return (l.Capacity() + times(l.Quota, last/l.period()+1)) / cost
}

func (*tokenBucket) leastBefore(l *Limit, cost, span, _ int64) int64 {
	return min(l.Capacity(), times(l.Quota, span/l.period())) / cost
}

func (*fixedWindow) mostWithin(l *Limit, cost, last, step int64) int64 {
	if !l.Aligned {
		step = 0
	}
	return times(l.Quota/cost, touched(l.period(), last, step))
}

// An aligned window began in the step of the refusal, or in one before it.
func (*fixedWindow) leastBefore(l *Limit, cost, span, step int64) int64 {
	needed := l.period()
	if l.Aligned && step > 0 && (needed%step == 0 || step%needed == 0) {
		needed -= step
	}
	return l.full(cost, span, needed)
}

func (*slidingLog) mostWithin(l *Limit, cost, last, _ int64) int64 {
	return times(l.Quota/cost, last/l.period()+1)
}

func (*slidingLog) leastBefore(l *Limit, cost, span, _ int64) int64 {
	return l.full(cost, span, l.period())
}

// As many segments in a row as make a period have at most the quota.
func (*slidingWindow) mostWithin(l *Limit, cost, last, step int64) int64 {
	return times(l.Quota/cost, ceilDiv(touched(l.width(), last, step), l.segments()))
}

// The oldest segment counts too, unless the step of the refusal begins with a segment.
func (*slidingWindow) leastBefore(l *Limit, cost, span, step int64) int64 {
	needed := l.period() + l.width()
	if step > 0 && (l.width()%step == 0 || step%l.width() == 0) {
		needed -= min(step, l.width())
	}
	return l.full(cost, span, needed)
}

// shortestDay is the shortest window of a calendar, when clocks are put forward.
const shortestDay = int64(23 * time.Hour / time.Microsecond)

func (*calendarWindow) mostWithin(l *Limit, cost, last, _ int64) int64 {
	return times(l.Quota/cost, touched(shortestDay, last, 0))
}

func (*calendarWindow) leastBefore(*Limit, int64, int64, int64) int64 { return 0 }

func (*concurrency) mostWithin(*Limit, int64, int64, int64) int64  { return endless }
func (*concurrency) leastBefore(*Limit, int64, int64, int64) int64 { return 0 }
