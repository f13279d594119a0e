package limiter

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/core"
)

// Reservation is a booked slot: units that were taken and may be used after a
// delay. It is made by [Limiter.Reserve], and its methods are safe for concurrent
// use.
type Reservation struct {
	result Result
	due    time.Time
}

// Reserve takes n units of key under every rule now, although they may only be
// used after the Delay of the reservation, which is at most [core.MaxBooking]. It
// does not wait, and the deadline of ctx bounds only the call of the store. The slot is behind
// those that are booked, and may be before callers who wait and have none. A caller that may
// leave before its slot uses [Limiter.Wait], which can hand the slot on.
// Degrade and Shadow rules count, and book nothing.
//
// The error wraps [core.ErrOp] for a negative n, under a rule with a concurrency
// limit, under a rule with a Ban, and under one that refuses requests and whose limit does
// not book (see [core.Limit.Books]). Other errors are a [*WaitError] that wraps [ErrLimited]
// or [ErrUndecided]. With an error the reservation is nil, and what was booked is
// given back, except that after ErrUndecided units may have been taken.
func (l *Limiter) Reserve(ctx context.Context, key string, n int64) (*Reservation, error) {
	if err := checkCost(n); err != nil {
		return nil, err
	}
	l.diagnoseOnce()
	r := &Reservation{}
	res := &r.result
	res.begin(l)
	err := res.addKey(ctx, core.Take, key, n)
	if err == nil {
		if err := res.beginBooking(); err != nil {
			return nil, err
		}
		err = res.ask(ctx)
	}
	res.conclude(ctx, err)
	if failed := res.waitError(err); failed != nil {
		if res.allowed {
			res.cancelBooking(ctx)
		}
		return nil, failed
	}
	r.due = time.Now().Add(res.longestWait())
	return r, nil
}

// beginBooking lets the ops book their slots. It returns an error if one cannot.
func (res *Result) beginBooking() error {
	if res.lease != "" {
		return errLease
	}
	if res.bans() {
		return errBan
	}
	for i := range res.ops {
		op := &res.ops[i]
		if op.Soft {
			continue
		}
		if !op.Limit.Books() {
			return fmt.Errorf("%w: rule %q: a %s limit books nothing", core.ErrOp, op.Rule, op.Limit.Algorithm)
		}
		op.MaxWait = core.MaxBooking
	}
	return nil
}

// longestWait returns the time until the slots under all rules are reached.
func (res *Result) longestWait() (longest time.Duration) {
	for i := range res.out {
		longest = max(longest, res.out[i].Wait)
	}
	return longest
}

// Delay returns how long to wait from now on before using the units. It is 0 if they
// may be used at once, and for a nil Reservation.
func (r *Reservation) Delay() time.Duration {
	if r == nil {
		return 0
	}
	return max(0, time.Until(r.due))
}

// Cancel gives the units back, so that others can take them; a second call does
// nothing. Units that the passage of time has given back already are not given
// back twice, and those of a slot behind which others have booked are kept,
// because the others' slots cannot move. After an error some units may or may not
// have been given back.
func (r *Reservation) Cancel(ctx context.Context) error {
	if r == nil {
		return nil
	}
	return r.result.Refund(ctx)
}
