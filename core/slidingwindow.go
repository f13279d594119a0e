package core

import (
	"fmt"

	"github.com/headgate/headgate/internal/textform"
)

// slidingWindow cuts the Period into segments that are aligned to the epoch
// and counts units by segment. The oldest segment counts by its overlap with
// (now−Period, now], rounded up. Log entries are (segment number, units).
//
// It admits at most Quota plus what one segment held in any span of a Period:
// only the oldest segment is estimated, and by no more than all it holds.
//
// Twin: lua/sliding_window.lua.
type slidingWindow struct{}

func (slidingWindow) name() string     { return "sliding-window" }
func (slidingWindow) letter() string   { return "w" }
func (slidingWindow) options() options { return options{segments: true, debt: true} }

func (slidingWindow) check(l *Limit) error {
	if n := l.segments(); l.period()%n != 0 {
		return fmt.Errorf("%d segments do not divide %s into whole microseconds", n, textform.Duration(l.Period))
	}
	if err := checkExact("quota and microseconds of a segment", l.Quota, l.width()); err != nil {
		return fmt.Errorf("%w; use more segments", err)
	}
	return nil
}

func (slidingWindow) scriptArgs(l *Limit) (period, quota, extra int64) {
	return l.period(), l.Quota, l.segments()
}

func (l *Limit) segments() int64 {
	if l.Segments > 0 {
		return int64(l.Segments)
	}
	return DefaultSegments
}

// width is the length of a segment in microseconds.
func (l *Limit) width() int64 { return l.period() / l.segments() }

func (w slidingWindow) settle(s *State, l *Limit, now int64) bool {
	changed := false
	if len(s.live()) > 0 {
		changed = clampLog(s, now/s.Limit.width())
		w.rescale(s, l, now)
	}
	s.Limit = *l
	segment := now / l.width()
	for s.Head < len(s.Log) && s.Log[s.Head].At < segment-l.segments() {
		s.Head++
	}
	return changed
}

// rescale moves the units of segments of another width to the segment in which
// theirs ended, or to that of now if theirs has not ended.
func (slidingWindow) rescale(s *State, l *Limit, now int64) {
	if s.Limit.width() == l.width() {
		return
	}
	old, width := s.live(), s.Limit.width()
	s.Log, s.Head = nil, 0
	for _, e := range old {
		s.push(min((e.At+1)*width-1, now)/l.width(), e.N)
	}
}

// scale is what a segment counts by: its width in microseconds, and the most units that
// Lua can multiply by that.
type scale struct{ width, most int64 }

func (l *Limit) scale() scale {
	width := l.width()
	return scale{width, (exact - 1) / width}
}

// overlap returns how many microseconds of segment i lie in (now−Period, now],
// or a whole width for a segment that has not ended.
func (c scale) overlap(l *Limit, i, now int64) int64 {
	return min(c.width, (i+1)*c.width+l.period()-now)
}

// weight returns the units counted for a segment of n units with that overlap.
func (c scale) weight(n, overlap int64) int64 { return ceilDiv(min(n, c.most)*overlap, c.width) }

func (slidingWindow) estimate(s *State, l *Limit, now int64) int64 {
	var n int64
	c := l.scale()
	for _, e := range s.live() {
		n += c.weight(e.N, c.overlap(l, e.At, now))
	}
	return n
}

func (w slidingWindow) delay(s *State, l *Limit, now, n, _ int64, _ string) int64 {
	over := w.estimate(s, l, now) + n - l.Quota
	if over <= 0 {
		return 0
	}
	c := l.scale()
	for _, e := range s.live() {
		weight := c.weight(e.N, c.overlap(l, e.At, now))
		if over <= weight {
			// The largest overlap at which this segment weighs at most the rest
			// of the quota.
			overlap := (weight - over) * c.width / min(e.N, c.most)
			return (e.At+1)*c.width + l.period() - overlap - now
		}
		over -= weight
	}
	panic("headgate: a cost above the capacity reached the window")
}

func (slidingWindow) take(s *State, l *Limit, now, n int64, _ string) {
	s.push(now/l.width(), n)
}

func (w slidingWindow) inUse(s *State, l *Limit, now int64) int64 {
	return w.estimate(s, l, now)
}

func (slidingWindow) maxDebt(l *Limit) int64 { return (exact-1)/l.width() - l.Quota }

func (w slidingWindow) debit(s *State, l *Limit, now, n int64) { w.take(s, l, now, n, "") }

func (slidingWindow) refund(s *State, l *Limit, _ int64, op *Op) {
	left := op.Cost
	for i := len(s.live()) - 1; i >= 0 && left > 0; i-- {
		if op.At == 0 || s.live()[i].At == op.At/l.width() {
			left -= s.pop(i, left)
		}
	}
	s.prune()
}

func (w slidingWindow) gauge(s *State, l *Limit, now int64) (remaining, reset int64) {
	live := s.live()
	if len(live) == 0 {
		return l.Quota, 0
	}
	last := live[len(live)-1].At
	return max(0, l.Quota-w.estimate(s, l, now)), (last+1)*l.width() + l.period() - now
}

func (slidingWindow) maxRecords(l *Limit) int64            { return l.segments() + 1 }
func (slidingWindow) leased() bool                         { return false }
func (slidingWindow) books() bool                          { return false }
func (slidingWindow) prefetchable() bool                   { return false }
func (slidingWindow) steady(*Limit) Steady                 { return Steady{} }
func (slidingWindow) part(l *Limit, n int64) Limit         { return l.countPart(n) }
func (slidingWindow) stillUsed(*Limit, int64, int64) int64 { return 0 }

func (slidingWindow) foretells(r refusal) bool { return r.single() }
