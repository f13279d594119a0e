package core

import (
	"fmt"
	"slices"
)

// slidingLog keeps for every admitted unit the instant one Period later, at which it ends,
// and admits while fewer than Quota have not ended. So a unit counts for the Period under
// which it was taken, whatever that of the limit is by then. State.Limit is the limit with
// the longest Period among those under which the units were taken.
// Twin: lua/sliding_log.lua.
type slidingLog struct{}

func (*slidingLog) name() string     { return "sliding-log" }
func (*slidingLog) letter() string   { return "l" }
func (*slidingLog) options() options { return options{} }

func (*slidingLog) check(l *Limit) error {
	if l.Quota > maxLog {
		return fmt.Errorf("quota %d is above %d, the longest log; use a sliding-window", l.Quota, maxLog)
	}
	return nil
}

func (*slidingLog) scriptArgs(l *Limit) (period, quota, extra int64) { return l.period(), l.Quota, 0 }

func (*slidingLog) settle(s *State, l *Limit, now int64) bool {
	for s.Head < len(s.Log) && s.Log[s.Head].At <= now {
		s.Head++
	}
	if len(s.live()) == 0 {
		s.Limit = *l
		return false
	}
	return clampLog(s, now+s.Limit.period())
}

// clampLog moves entries that lie after latest, where only a clock that
// stepped back can have left them, to latest.
func clampLog(s *State, latest int64) bool {
	live := s.live()
	i := len(live)
	for i > 0 && live[i-1].At > latest {
		i--
	}
	if i == len(live) {
		return false
	}

	// A store may hold the same entries, so those that stay go to a new list.
	moved := live[i:]
	s.Log, s.Head = slices.Clone(live[:i]), 0

	var n int64
	for _, e := range moved {
		n += e.N
	}

	s.push(latest, n)
	return true
}

func (*slidingLog) delay(s *State, l *Limit, now, n, _ int64, _ string) int64 {
	excess := s.total() + n - l.Quota
	if excess <= 0 {
		return 0
	}
	for _, e := range s.live() {
		if excess -= e.N; excess <= 0 {
			return e.At - now
		}
	}
	panic("headgate: a cost above the capacity reached the log")
}

func (*slidingLog) take(s *State, l *Limit, now, n int64, _ string) {
	if len(s.live()) == 0 || s.Limit.period() < l.period() {
		s.Limit = *l
	}
	s.insert(now+l.period(), n)
}

func (*slidingLog) refund(s *State, l *Limit, _ int64, op *Op) {
	left := op.Cost
	for i := len(s.live()) - 1; i >= 0 && left > 0; i-- {
		if op.At == 0 || s.live()[i].At == op.At+l.period() {
			left -= s.pop(i, left)
		}
	}
	s.prune()
}

func (*slidingLog) gauge(s *State, l *Limit, now int64) (remaining, reset int64) {
	live := s.live()
	if len(live) == 0 {
		return l.Quota, 0
	}
	return max(0, l.Quota-s.total()), live[len(live)-1].At - now
}

func (*slidingLog) maxRecords(l *Limit) int64            { return l.Quota }
func (*slidingLog) leased() bool                         { return false }
func (*slidingLog) books() bool                          { return false }
func (*slidingLog) prefetchable() bool                   { return false }
func (*slidingLog) rolling() bool                        { return true }
func (*slidingLog) part(l *Limit, n int64) Limit         { return l.countPart(n) }
func (*slidingLog) stillUsed(*Limit, int64, int64) int64 { return 0 }

func (*slidingLog) compact(l *Limit) Compact {
	return Compact{form: inLog, every: l.period(), capacity: l.Quota}
}

func (*slidingLog) foretells(r refusal) bool { return r.single() }

func (*slidingLog) inUse(*State, *Limit, int64) int64  { return 0 }
func (*slidingLog) maxDebt(*Limit) int64               { return 0 }
func (*slidingLog) debit(*State, *Limit, int64, int64) {}
