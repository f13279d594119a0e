package core

import (
	"fmt"
	"github.com/headgate/headgate/internal/textform"
	"time"
)

// tokenBucket holds Burst tokens; every Period, Quota tokens are added at once.
// State.Used is the number of missing tokens, and Mark is the instant of the
// last refill. Refills happen lazily, and the rest of a Period is never lost.
// Twin: lua/token_bucket.lua.
type tokenBucket struct{}

func (tokenBucket) name() string     { return "token-bucket" }
func (tokenBucket) letter() string   { return "t" }
func (tokenBucket) options() options { return options{burst: true} }

func (tokenBucket) check(l *Limit) error {
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

func (tokenBucket) scriptArgs(l *Limit) (period, quota, extra int64) {
	return l.period(), l.Quota, l.Capacity()
}

func (tokenBucket) settle(s *State, l *Limit, now int64) bool {
	old := s.Limit
	s.Limit = *l
	if s.Used == 0 {
		return false
	}
	changed := s.Mark > now
	s.Mark = min(s.Mark, now)
	refills := (now - s.Mark) / old.period()
	if refills >= ceilDiv(s.Used, old.Quota) {
		s.Used, s.Mark = 0, 0
		return changed
	}
	s.Used -= refills * old.Quota
	s.Mark += refills * old.period()
	if old.Quota != l.Quota || old.Period != l.Period {
		// The time since the last refill counts, but brings no refill at once.
		s.Mark = max(s.Mark, now-l.period()+1)
		changed = true
	}
	if s.Used > l.Capacity() {
		s.Used = l.Capacity()
		changed = true
	}
	return changed
}

func (tokenBucket) delay(s *State, l *Limit, now, n int64, _ string) int64 {
	missing := s.Used + n - l.Capacity()
	if missing <= 0 {
		return 0
	}
	return s.Mark + ceilDiv(missing, l.Quota)*l.period() - now
}

func (tokenBucket) take(s *State, _ *Limit, now, n int64, _ string) {
	if s.Used == 0 {
		s.Mark = now
	}
	s.Used += n
}

// refund gives back no token that a refill has given back already. The number of
// the Take's tokens that are still missing has two lower bounds: the cost less
// Quota for each refill since the Take; and, as the Take left the bucket to be
// full at the ahead-th refill from now, one more than ahead-1 refills bring.
func (tokenBucket) refund(s *State, l *Limit, _ int64, op *Op) {
	if s.Used == 0 {
		return
	}
	n := min(op.Cost, s.Used)
	if op.At != 0 {
		full := op.At + int64(op.ResetAfter/time.Microsecond)
		cost := min(op.Cost, exact)
		enough := ceilDiv(cost, l.Quota) + 1
		since := min(enough, max(0, -floorDiv(op.At-s.Mark, l.period())))
		ahead := min(enough, max(0, floorDiv(full-s.Mark, l.period())))
		n = min(n, max(cost-since*l.Quota, (ahead-1)*l.Quota+1, 0))
	}
	s.Used = max(0, s.Used-n)
}

func (tokenBucket) gauge(s *State, l *Limit, now int64) (remaining, reset int64) {
	if s.Used == 0 {
		return l.Capacity(), 0
	}
	return l.Capacity() - s.Used, s.Mark + ceilDiv(s.Used, l.Quota)*l.period() - now
}

// ceilDiv returns a/b rounded up, for a ≥ 0 and b > 0.
func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

// floorDiv returns a/b rounded down, for b > 0.
func floorDiv(a, b int64) int64 {
	q := a / b
	if q*b > a {
		q--
	}
	return q
}

func (tokenBucket) maxRecords(*Limit) int64      { return 0 }
func (tokenBucket) leased() bool                 { return false }
func (tokenBucket) books() bool                  { return false }
func (tokenBucket) prefetchable() bool           { return true }
func (tokenBucket) steady(*Limit) Steady         { return Steady{} }
func (tokenBucket) part(l *Limit, n int64) Limit { return l.bucketPart(n) }

// stillUsed subtracts a quota for each refill that has come.
func (tokenBucket) stillUsed(l *Limit, used, span int64) int64 {
	if span <= 0 {
		return 0
	}
	return max(0, used-(ceilDiv(used, l.Quota)-ceilDiv(span, l.period()))*l.Quota)
}

func (tokenBucket) foretell(_ *Limit, r refusal, n int64, _ time.Duration) (remaining int64, retry time.Duration, ok bool) {
	return r.single(n)
}
