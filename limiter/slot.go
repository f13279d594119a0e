// This file has slots: units that the store has booked and that are used later.

package limiter

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/core"
)

// slot is what one step has booked under all rules of a request.
type slot struct {
	ops      []core.Op
	out      []core.Decision
	degraded bool
	booked   time.Time // when the store answered
	due      time.Time // when the units may be used
	owner    *Result   // of a slot that fits no other request, or nil
	kept     bool      // given back in vain: others have booked behind it
}

// newSlot returns the slot that the last answer has booked.
func (res *Result) newSlot(booked time.Time) *slot {
	s := &slot{ops: slices.Clone(res.ops), out: slices.Clone(res.out), degraded: res.degraded, booked: booked,
		due: booked.Add(res.longestWait())}
	if res.lease != "" || res.local || res.aside > 0 {
		s.owner = res
	}
	for i := range s.ops {
		s.ops[i].Key = strings.Clone(s.ops[i].Key) // the line may keep it longer than the request lives
	}
	return s
}

// fits reports whether the slot is one for a request with these ops.
func (s *slot) fits(ops []core.Op) bool {
	if s.owner != nil || len(ops) != len(s.ops) {
		return false
	}
	for i := range ops {
		a, b := &ops[i], &s.ops[i]
		same := a.Rule == b.Rule && a.Key == b.Key && a.Cost == b.Cost && a.Soft == b.Soft && a.Limit.Equal(&b.Limit)
		if !same || a.Lease != "" {
			return false
		}
	}
	return true
}

// cancel gives the units back. A slot of a single rule is kept if the store cannot take
// it back, because others have booked behind it: then the next request may use it.
func (s *slot) cancel(ctx context.Context, l *Limiter) {
	if s.owner != nil {
		s.owner.cancelBooking(ctx)
		return
	}
	var undo []core.Op
	for i := range s.ops {
		if s.out[i].Allowed && s.ops[i].Cost > 0 {
			undo = append(undo, s.ops[i].Refund(s.out[i]))
		}
	}
	out := l.repay(ctx, undo)
	if len(s.ops) != 1 || len(out) != 1 {
		return
	}
	now, then := &out[0], &s.out[0]
	s.kept = !now.Fallback && now.At+now.ResetAfter.Microseconds() > then.At+then.ResetAfter.Microseconds()
}

// use makes the result that of the slot, whose instant has come.
func (res *Result) use(s *slot, now time.Time) {
	copy(res.out, s.out)
	res.allowed, res.degraded, res.aged = true, s.degraded, now.Sub(s.booked)
	for i := range res.out {
		res.out[i].Wait = 0
	}
}

// cancelSlots gives back the surplus of the line for k.
func (l *Limiter) cancelSlots(ctx context.Context, k waitKey, surplus []*slot) {
	for len(surplus) > 0 {
		for _, s := range surplus {
			s.cancel(ctx, l)
		}
		surplus = l.queue.canceled(k, surplus)
	}
}

// canceled ends a cancelation, and has the next request of the line ask. It returns what is
// to be given back then.
func (q *waitQueue) canceled(k waitKey, slots []*slot) (surplus []*slot) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.lines.of[k]
	n.canceling--
	n.free = true
	for _, s := range slots {
		if s.kept && int(q.lines.count.Load()) <= q.max {
			n.spare = append(n.spare, s)
			own := waitKey{k.rule, strings.Clone(k.key)}
			time.AfterFunc(time.Until(s.due), func() { q.dropSpare(own) })
		}
	}
	surplus = n.settle()
	q.lines.closeEmpty(k)
	return surplus
}

// dropSpare forgets the kept slots whose instant has come.
func (q *waitQueue) dropSpare(k waitKey) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.lines.of[k]
	if n == nil {
		return
	}
	now := time.Now()
	n.spare = slices.DeleteFunc(n.spare, func(s *slot) bool { return s.kept && !s.due.After(now) })
	q.lines.closeEmpty(k)
}

// cancelBooking turns a result whose booked slot will not be used into a refusal.
func (res *Result) cancelBooking(ctx context.Context) {
	tidy, cancel := cleanupContext(ctx)
	defer cancel()
	res.limiter.report(ctx, res.Refund(tidy))
	res.refuseBooking()
}

// refuseBooking makes the result one that was refused where it had booked.
func (res *Result) refuseBooking() {
	res.allowed = false
	for i := range res.out {
		if d := &res.out[i]; d.Wait > 0 {
			d.Allowed, d.RetryAfter, d.Wait = false, d.Wait, 0
		}
	}
}

// renewAfterWait renews leases that may have expired during a wait.
func (res *Result) renewAfterWait(ctx context.Context) error {
	if !res.HoldsLeases() {
		return nil
	}
	res.noteAsking()
	held, err := res.Renew(ctx)
	if err != nil || held {
		return err
	}
	res.cancelBooking(ctx)
	for i := range res.ops {
		if d := &res.out[i]; res.ops[i].Lease != "" {
			d.Allowed, d.RetryAfter = false, res.ops[i].Limit.Period
		}
	}
	return nil
}
