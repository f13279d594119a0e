package core

import (
	"math"
	"time"
)

// fixedWindow counts units until the window's end, which is State.Mark. A
// window starts with its first unit and is never extended, or is aligned to
// the epoch. State.Limit is the limit under which it started. Twin: lua/fixed_window.lua.
type fixedWindow struct{}

func (*fixedWindow) name() string     { return "fixed-window" }
func (*fixedWindow) letter() string   { return "f" }
func (*fixedWindow) options() options { return options{aligned: true, debt: true} }

func (*fixedWindow) check(l *Limit) error { return checkExact("twice the quota", l.Quota, 2) }

func (*fixedWindow) scriptArgs(l *Limit) (period, quota, extra int64) {
	if l.Aligned {
		extra = 1
	}
	return l.period(), l.Quota, extra
}

// settle leaves the end of the window where it is, whatever the period of l: the state
// keeps the limit under which the window began.
func (f *fixedWindow) settle(s *State, l *Limit, now int64) bool {
	if s.Used == 0 || s.Mark <= now {
		s.Limit, s.Used, s.Mark = *l, 0, 0
		return false
	}
	latest := f.end(&s.Limit, now)
	changed := s.Mark > latest
	s.Mark = min(s.Mark, latest)
	return changed
}

// end returns the end of a window that starts at now or, if aligned, contains
// now.
func (*fixedWindow) end(l *Limit, now int64) int64 {
	p := l.period()
	if l.Aligned {
		return now - now%p + p
	}
	return now + p
}

func (*fixedWindow) delay(s *State, l *Limit, now, n, _ int64, _ string) int64 {
	if s.Used+n <= l.Quota {
		return 0
	}
	return s.Mark - now
}

func (f *fixedWindow) take(s *State, l *Limit, now, n int64, _ string) {
	if s.Used == 0 {
		s.Limit, s.Mark = *l, f.end(l, now)
	}
	s.Used += n
}

func (*fixedWindow) inUse(s *State, _ *Limit, _ int64) int64 { return s.Used }
func (*fixedWindow) maxDebt(l *Limit) int64                  { return exact - 1 - 2*l.Quota }

func (f *fixedWindow) debit(s *State, l *Limit, now, n int64) { f.take(s, l, now, n, "") }

// refund gives units back to the window that they were taken from, never to a
// later one.
func (*fixedWindow) refund(s *State, _ *Limit, _ int64, op *Op) {
	if op.At == 0 || op.At+int64(op.ResetAfter/time.Microsecond) == s.Mark {
		s.Used = max(0, s.Used-op.Cost)
	}
}

func (*fixedWindow) gauge(s *State, l *Limit, now int64) (remaining, reset int64) {
	if s.Used == 0 {
		return l.Quota, 0
	}
	return max(0, l.Quota-s.Used), s.Mark - now
}

func (*fixedWindow) maxRecords(*Limit) int64      { return 0 }
func (*fixedWindow) leased() bool                 { return false }
func (*fixedWindow) books() bool                  { return false }
func (*fixedWindow) prefetchable() bool           { return true }
func (*fixedWindow) rolling() bool                { return false }
func (*fixedWindow) part(l *Limit, n int64) Limit { return l.countPart(n) }

func (*fixedWindow) compact(l *Limit) Compact {
	if l.Aligned {
		return Compact{form: inAlignedWindow, every: l.period(), capacity: l.Quota}
	}
	return Compact{form: inWindow, every: l.period(), capacity: l.Quota}
}

// stillUsed returns the largest number, because no unit comes back before the
// window's end.
func (*fixedWindow) stillUsed(_ *Limit, _, span int64) int64 {
	if span <= 0 {
		return 0
	}
	return math.MaxInt64
}

// foretells is true of every cost above the remaining units until the window ends.
func (*fixedWindow) foretells(r refusal) bool { return r.wanted > r.remaining }
