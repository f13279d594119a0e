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
// Units that were taken under segments of another length or number count as they would
// have under these. The next Take moves them to State.Others.
//
// Twin: lua/sliding_window.lua.
type slidingWindow struct{}

func (*slidingWindow) name() string     { return "sliding-window" }
func (*slidingWindow) letter() string   { return "w" }
func (*slidingWindow) options() options { return options{segments: true, debt: true} }

func (*slidingWindow) check(l *Limit) error {
	if n := l.segments(); l.period()%n != 0 {
		return fmt.Errorf("%d segments do not divide %s into whole microseconds", n, textform.Duration(l.Period))
	}
	if err := checkExact("quota and microseconds of a segment", l.Quota, l.width()); err != nil {
		return fmt.Errorf("%w; use more segments", err)
	}
	return nil
}

func (*slidingWindow) scriptArgs(l *Limit) (period, quota, extra int64) {
	return l.period(), l.Quota, l.segments()
}

// segments returns how many segments make a period.
func (l *Limit) segments() int64 {
	if l.Segments > 0 {
		return int64(l.Segments)
	}
	return defaultSegments
}

// width is the length of a segment in microseconds.
func (l *Limit) width() int64 { return l.period() / l.segments() }

// sameSegments reports whether the limits have segments of one length, and as many.
func (l *Limit) sameSegments(m *Limit) bool {
	return l.Period == m.Period && l.segments() == m.segments()
}

func (*slidingWindow) settle(s *State, l *Limit, now int64) bool {
	changed := false
	if len(s.live()) > 0 {
		segment := now / s.Limit.width()
		changed = clampLog(s, segment)
		for s.Head < len(s.Log) && s.Log[s.Head].At < segment-s.Limit.segments() {
			s.Head++
		}
	}

	if len(s.Others) > 0 && s.settleOthers(now) {
		changed = true
	}

	// The state keeps the limit under which the log was written while its segments differ.
	if len(s.live()) == 0 && len(s.Others) == 0 || s.Limit.sameSegments(l) {
		s.Limit = *l
	}
	return changed
}

// settleOthers forgets the segments that no longer count, and moves those that lie after now,
// where only a clock that stepped back can have left them, to that of now.
func (s *State) settleOthers(now int64) (changed bool) {
	// A list that only loses segments need not be written, so a store may keep the old one. It is
	// copied before it changes, and not at all if nothing does.
	settled := true
	for _, g := range s.Others {
		changed = changed || g.At > now/g.Width
		settled = settled && g.end() > now
	}
	if settled && !changed {
		return false
	}

	before := s.Others
	s.Others = make([]segment, 0, len(before))

	// Segments that end up at one place become one.
	for _, g := range before {
		g.At = min(g.At, now/g.Width)
		if i := len(s.Others) - 1; i >= 0 && s.Others[i].sameAs(&g) {
			s.Others[i].N += g.N
		} else if g.end() > now {
			s.Others = append(s.Others, g)
		}
	}
	return changed
}

// sameAs reports whether the segments are one.
func (s *segment) sameAs(other *segment) bool {
	return s.At == other.At && s.Width == other.Width && s.Count == other.Count
}

// end returns the instant from which the segment no longer counts.
func (s *segment) end() int64 { return (s.At + 1 + s.Count) * s.Width }

// weight returns the units counted for the segment.
func (s *segment) weight(now int64) int64 {
	c := scale{s.Width, (exact - 1) / s.Width}
	return c.weight(s.N, max(0, min(c.width, s.end()-now)))
}

// scale is what a segment counts by: its width in microseconds, and the most units that
// Lua can multiply by that.
type scale struct{ width, most int64 }

// scale returns what the segments under the limit count by.
func (l *Limit) scale() scale {
	width := l.width()
	return scale{width, (exact - 1) / width}
}

// overlap returns how many microseconds of segment i lie in (now−Period, now],
// or a whole width for a segment that has not ended. It is 0 for one that ended before.
func (s scale) overlap(l *Limit, i, now int64) int64 {
	return max(0, min(s.width, (i+1)*s.width+l.period()-now))
}

// weight returns the units counted for a segment of n units with that overlap.
func (s scale) weight(n, overlap int64) int64 { return ceilDiv(min(n, s.most)*overlap, s.width) }

// estimate returns the units that count at the instant.
func (*slidingWindow) estimate(s *State, now int64) int64 {
	var n int64
	c := s.Limit.scale()
	for _, e := range s.live() {
		n += c.weight(e.N, c.overlap(&s.Limit, e.At, now))
	}
	for i := range s.Others {
		n += s.Others[i].weight(now)
	}
	return n
}

func (w *slidingWindow) delay(s *State, l *Limit, now, n, _ int64, _ string) int64 {
	over := w.estimate(s, now) + n - l.Quota
	if over <= 0 {
		return 0
	}

	// Segments of several widths overlap, so that no order in which they end helps.
	if len(s.Others) > 0 {
		return w.search(s, now, l.Quota-n) - now
	}

	c := s.Limit.scale()
	for _, e := range s.live() {
		weight := c.weight(e.N, c.overlap(&s.Limit, e.At, now))
		if over <= weight {
			// The largest overlap at which this segment weighs at most the rest
			// of the quota.
			overlap := (weight - over) * c.width / min(e.N, c.most)
			return (e.At+1)*c.width + s.Limit.period() - overlap - now
		}
		over -= weight
	}
	panic("headgate: a cost above the capacity reached the window")
}

// search returns the first instant at which at most n units count, by bisection.
func (w *slidingWindow) search(s *State, now, n int64) int64 {
	early, late := now, w.last(s)
	for early+1 < late {
		if middle := early + (late-early)/2; w.estimate(s, middle) > n {
			early = middle
		} else {
			late = middle
		}
	}
	return late
}

// last returns the instant from which nothing counts any longer.
func (*slidingWindow) last(s *State) (last int64) {
	if live := s.live(); len(live) > 0 {
		last = (live[len(live)-1].At+1)*s.Limit.width() + s.Limit.period()
	}
	for i := range s.Others {
		last = max(last, s.Others[i].end())
	}
	return last
}

func (*slidingWindow) take(s *State, l *Limit, now, n int64, _ string) {
	if !s.Limit.sameSegments(l) {
		s.regroup(l)
	}
	s.Limit = *l
	s.push(now/l.width(), n)
}

// regroup moves the units of the log to Others, and those of Others that were taken under
// segments as those of l to the log.
func (s *State) regroup(l *Limit) {
	width, count := s.Limit.width(), s.Limit.segments()
	kept := make([]segment, 0, len(s.live())+len(s.Others))
	for _, e := range s.live() {
		kept = append(kept, segment{e.At, e.N, width, count})
	}

	before := s.Others
	s.Log, s.Head = nil, 0

	// These count by the segments of l again, and a later Take may add to them.
	for _, g := range before {
		if g.Width == l.width() && g.Count == l.segments() {
			s.insert(g.At, g.N)
		} else {
			kept = append(kept, g)
		}
	}
	s.Others = kept
}

func (w *slidingWindow) inUse(s *State, _ *Limit, now int64) int64 { return w.estimate(s, now) }

func (*slidingWindow) maxDebt(l *Limit) int64 { return (exact-1)/l.width() - l.Quota }

func (w *slidingWindow) debit(s *State, l *Limit, now, n int64) { w.take(s, l, now, n, "") }

// refund gives back units that were taken under segments as those of l, and if the Take is
// known, in its segment.
func (*slidingWindow) refund(s *State, l *Limit, _ int64, op *Op) {
	left, segment := op.Cost, op.At/l.width()

	// From the latest segment backwards: the units of a Take that is not known are the latest.
	if s.Limit.sameSegments(l) {
		for i := len(s.live()) - 1; i >= 0 && left > 0; i-- {
			if op.At == 0 || s.live()[i].At == segment {
				left -= s.pop(i, left)
			}
		}
		s.prune()
		return
	}

	// The state has segments of another limit by now, and those of l lie among the others.
	kept := s.Others[:0]
	for _, g := range s.Others {
		if g.Width == l.width() && g.Count == l.segments() && (op.At == 0 || g.At == segment) {
			back := min(left, g.N)
			g.N, left = g.N-back, left-back
		}
		if g.N > 0 {
			kept = append(kept, g)
		}
	}
	s.Others = kept
}

func (w *slidingWindow) gauge(s *State, l *Limit, now int64) (remaining, reset int64) {
	last := w.last(s)
	if last == 0 {
		return l.Quota, 0
	}
	return max(0, l.Quota-w.estimate(s, now)), last - now
}

func (*slidingWindow) maxRecords(l *Limit) int64            { return l.segments() + 1 }
func (*slidingWindow) leased() bool                         { return false }
func (*slidingWindow) books() bool                          { return false }
func (*slidingWindow) prefetchable() bool                   { return false }
func (*slidingWindow) rolling() bool                        { return true }
func (*slidingWindow) part(l *Limit, n int64) Limit         { return l.countPart(n) }
func (*slidingWindow) stillUsed(*Limit, int64, int64) int64 { return 0 }

func (*slidingWindow) compact(l *Limit) Compact {
	scale := l.scale()
	return Compact{form: inSegments, every: scale.width, units: l.segments(), capacity: l.Quota, most: scale.most}
}

func (*slidingWindow) foretells(r refusal) bool { return r.single() }
