package service

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
)

// How long the rows of a level are kept, in minutes. Rows of a minute outlive the counts in
// Redis by a day, so that no count is added twice.
const (
	keepMinutes    = 2 * 24 * 60
	keepTenMinutes = 10 * 24 * 60
	keepHours      = 400 * 24 * 60 // days and ten days, too
)

// KeepTraffic is how long traffic is kept: thirteen months.
const KeepTraffic = keepHours * time.Minute

// levels are the levels of traffic, the coarsest first.
var levels = []int64{store.ByTenDays, store.ByDay, store.ByHour, store.ByTenMinutes, store.ByMinute}

// keptMinutes returns how long the rows of a level are kept.
func keptMinutes(level int64) int64 {
	switch level {
	case store.ByMinute:
		return keepMinutes
	case store.ByTenMinutes:
		return keepTenMinutes
	}
	return keepHours
}

// prunedMinutes returns the age at which the rows of a level are deleted. They outlive the time for
// which they are kept by the longest step that is made of them, so that the first step of a
// range that is widened to whole steps is whole, too.
func prunedMinutes(level int64) int64 {
	longest := level
	for _, step := range Steps {
		s := span{}.over(0, 1, int64(step/time.Minute))
		if s.level == level {
			longest = max(longest, s.step)
		}
	}
	return keptMinutes(level) + longest
}

const (
	maxPoints = 500  // in a chart whose step is not given
	maxRows   = 1500 // that a chart reads of one series
)

// Steps are the steps of charts.
var Steps = []time.Duration{time.Minute, 5 * time.Minute, 10 * time.Minute, 30 * time.Minute,
	time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour}

// span is a range of whole steps. Its numbers are minutes since the Unix epoch, or of time.
type span struct {
	from, to int64 // to is not included
	step     int64
	level    int64 // of the rows that a chart reads
	now      int64 // the current minute
}

// span returns the smallest range of whole steps that holds the one of a query at an instant. A
// range that is older than what is kept is cut.
func (t TrafficQuery) span(now time.Time) (span, error) {
	t = t.within(now)
	from, to, step := t.From, t.To, t.Step

	var f faults
	if !from.Before(to) {
		f.add("to", errors.New("it is not after from"))
	}
	if step != 0 && !slices.Contains(Steps, step) {
		f.add("step", errors.New("it is not 1, 5, 10 or 30 minutes, or 1, 3, 6, 12 or 24 hours"))
	}

	if err := f.err(); err != nil {
		return span{}, err
	}

	// A range in the future, or before what is kept, is cut to what there may be.
	s := span{now: minute(now)}
	end := s.now + 1
	first, last := max(minute(from), end-keepHours), min(minute(to.Add(time.Minute-1)), end)
	last = max(last, first+1)

	// The finest step is taken whose rows are kept, and whose points are not too many.
	for _, d := range Steps {
		if step != 0 && d != step {
			continue
		}
		s = s.over(first, last, int64(d/time.Minute))
		if s.readable() && (step != 0 || (s.to-s.from)/s.step <= maxPoints) {
			return s, nil
		}
	}
	return s, invalid("step", fmt.Sprintf("%s is too fine for the range; "+
		"rows of so small a span are kept for %d hours, and a chart has at most %d",
		step, keptMinutes(s.level)/60, maxRows))
}

// over returns the span that holds the minutes from first until last.
func (s span) over(first, last, step int64) span {
	s.step, s.from, s.to = step, floorTo(first, step), floorTo(last+step-1, step)
	for _, level := range levels {
		if step%level == 0 {
			s.level = level
			break
		}
	}
	return s
}

// readable reports whether the rows of the span's level are still kept, and few enough.
func (s span) readable() bool {
	return (s.to-s.from)/s.level <= maxRows && s.from+s.step > s.now-keptMinutes(s.level)
}

// emptyPoints returns a point for each step of the span.
func (s span) emptyPoints() []Point {
	points := make([]Point, (s.to-s.from)/s.step)
	for i := range points {
		points[i].At = atMinute(s.from + int64(i)*s.step)
	}
	return points
}

// piece is a part of a span that rows of one level make up.
type piece struct{ level, from, to int64 }

// pieces returns the parts of a span, with as few rows as possible. The end of a span that
// has begun last is moved into the future, where there are no counts yet.
func (s span) pieces() (list []piece) {
	to := s.to
	if to > s.now {
		to = floorTo(to+store.ByTenDays-1, store.ByTenDays)
	}

	for at := s.from; at < to; {
		// The coarsest level is taken that begins here and ends in the span.
		for _, level := range levels {
			if at%level != 0 || at+level > to {
				continue
			}

			if n := len(list); n > 0 && list[n-1].level == level {
				list[n-1].to += level
			} else {
				list = append(list, piece{level, at, at + level})
			}

			at += level
			break
		}
	}

	return list
}

func minute(t time.Time) int64 { return floorTo(t.Unix(), 60) / 60 }

func floorTo(n, by int64) int64 { return n - ((n%by)+by)%by }

// atMinute returns the start of a minute.
func atMinute(m int64) time.Time { return time.Unix(m*60, 0).UTC() }
