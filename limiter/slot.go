// This file books slots, uses them and gives them back.

package limiter

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/waitline"
)

// newSlot returns the slot that the last answer has booked.
func (res *Result) newSlot(booked time.Time) *waitline.Slot {
	s := &waitline.Slot{Ops: slices.Clone(res.ops), Out: slices.Clone(res.out), Degraded: res.degraded,
		Booked: booked, Due: booked.Add(res.longestWait())}
	if res.lease != "" || res.local || res.aside > 0 {
		s.Owner = res
	}
	for i := range s.Ops {
		s.Ops[i].Key = strings.Clone(s.Ops[i].Key) // the line may keep it longer than the request lives
	}
	return s
}

// cancelSlot gives the units back. A slot of a single rule is kept if the store cannot take
// it back, because others have booked behind it: then the next request may use it.
func (l *Limiter) cancelSlot(ctx context.Context, s *waitline.Slot) {
	if owner, ok := s.Owner.(*Result); ok {
		owner.cancelBooking(ctx)
		return
	}

	var undo []core.Op
	for i := range s.Ops {
		if s.Out[i].Allowed && s.Ops[i].Cost > 0 {
			undo = append(undo, s.Ops[i].Refund(s.Out[i]))
		}
	}
	out := l.repay(ctx, undo)
	if len(s.Ops) != 1 || len(out) != 1 {
		return
	}
	now, then := &out[0], &s.Out[0]
	s.Kept = !now.Fallback && now.At+now.ResetAfter.Microseconds() > then.At+then.ResetAfter.Microseconds()
}

// use makes the result that of the slot, whose instant has come.
func (res *Result) use(s *waitline.Slot, now time.Time) {
	copy(res.out, s.Out)
	res.allowed, res.degraded, res.aged = true, s.Degraded, now.Sub(s.Booked)
	for i := range res.out {
		res.out[i].Wait = 0
	}
}

// cancelSlots gives back the surplus of the line for k.
func (l *Limiter) cancelSlots(ctx context.Context, k waitline.Key, surplus []*waitline.Slot) {
	for len(surplus) > 0 {
		for _, s := range surplus {
			l.cancelSlot(ctx, s)
		}
		surplus = l.queue.Canceled(k, surplus)
	}
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
