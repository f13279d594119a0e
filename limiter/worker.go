// This file takes units for programs without HTTP.

package limiter

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/textform"
)

var (
	// ErrLimited means that the units do not fit within the limits in time.
	ErrLimited = errors.New("headgate: over the limit")

	// ErrDenied means that Rule.Access of a rule denies the key.
	ErrDenied = errors.New("headgate: denied")

	// ErrQueueFull means that as many requests wait as Config.MaxWaiters or
	// Config.MaxWaitersPerKey allows.
	ErrQueueFull = errors.New("headgate: too many requests wait already")

	// ErrUndecided means that the store did not decide under every rule. An error
	// that wraps it also wraps the cause.
	ErrUndecided = errors.New("headgate: not every rule was decided")
)

// undecided returns an error that wraps ErrUndecided and err, or nil if err is nil.
func undecided(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrUndecided, err)
}

// WaitError says why units were not taken.
type WaitError struct {
	// Err wraps one of [ErrLimited], [ErrDenied], [ErrQueueFull], [ErrClosed], the cause of the
	// context, or [ErrUndecided].
	Err error

	// RetryAfter is the time until the units would fit if no others were taken. It is
	// [core.Never] if they exceed a limit or the key is denied, and 0 if the time is not known.
	RetryAfter time.Duration

	// Rules are the names of the rules that refused the units.
	Rules []string
}

// Error says in one line why the units were not taken, under which rules, and when
// to try again.
func (e *WaitError) Error() string {
	text := e.Err.Error()
	if len(e.Rules) > 0 {
		text += " (" + strings.Join(e.Rules, ", ") + ")"
	}
	switch e.RetryAfter {
	case 0:
		return text
	case core.Never:
		if errors.Is(e.Err, ErrDenied) {
			return text
		}
		return text + "; the units never fit"
	}
	return text + "; retry after " + textform.Duration(e.RetryAfter)
}

// Unwrap returns Err.
func (e *WaitError) Unwrap() error { return e.Err }

// Wait takes n units of key under every rule, whatever its Key function says, and
// waits until they may be used. It returns nil if they were taken, and only then.
// It waits at most until the deadline of ctx and at most [core.MaxBooking], and
// does not begin to wait if the units would come later. Callers with one key are served in
// the order of arrival, and one whose ctx ends costs the others no unit. Degrade and Shadow
// rules count, and make no call wait.
//
// The error is a [*WaitError]. If it wraps [ErrUndecided], units may have been
// taken, also where the rules fail open; otherwise none were. Under a rule with a
// concurrency limit, whose units would have to be released, under one with a Ban, which
// refuses what is over its limit, and for a negative n, the error wraps [core.ErrOp]
// instead, and no units were taken.
func (l *Limiter) Wait(ctx context.Context, key string, n int64) error {
	if err := checkCost(n); err != nil {
		return err
	}
	if ctx.Err() != nil {
		err := context.Cause(ctx)
		res := &Result{limiter: l, stopped: err}
		res.tell(ctx)
		return &WaitError{Err: err}
	}
	l.diagnoseOnce()
	res := &Result{}
	res.begin(l)
	err := res.addKey(ctx, core.Take, key, n)
	if err == nil && res.lease != "" {
		return errLease
	}
	if err == nil && res.bans() {
		return errBan
	}
	res.beginWait(core.MaxBooking)
	if err == nil {
		err = res.decide(ctx, true)
	}
	res.conclude(ctx, err)
	return res.waitError(err)
}

// TakeUpTo takes as many units of key as fit under every rule, at most max, and
// returns how many. It decides in one atomic step, does not wait, and allocates
// nothing itself. 0 units without an error mean that nothing fits. Degrade and
// Shadow rules do not lower the number: they count the units if these fit.
//
// If the store did not decide under some rule, the error wraps [ErrUndecided]; n is
// then as OnStoreError of the rules says, as the Allowed of [Limiter.Take] is. Under
// a rule with a concurrency limit, and for a negative max, the error wraps
// [core.ErrOp], and no units were taken.
func (l *Limiter) TakeUpTo(ctx context.Context, key string, max int64) (n int64, err error) {
	if err := checkCost(max); err != nil {
		return 0, err
	}
	l.diagnoseOnce()
	a := l.newAdmission()
	n, err = a.result.takeUpTo(ctx, l, key, max)
	a.recycle(l)
	return n, err
}

func (res *Result) takeUpTo(ctx context.Context, l *Limiter, key string, max int64) (int64, error) {
	res.begin(l)
	err := res.addKey(ctx, core.Take, key, max)
	if err == nil && res.lease != "" {
		return 0, errLease
	}
	for i := range res.ops {
		res.ops[i].UpTo, res.ops[i].Cost = true, max // CostAtMost may have lowered one
	}
	if err == nil {
		err = res.decide(ctx, false)
	}
	res.conclude(ctx, err)
	if !res.allowed {
		return 0, res.takeError(err)
	}
	for i := range res.ops {
		if !res.ops[i].Soft {
			max = min(max, res.out[i].Taken)
		}
	}
	return max, res.takeError(err)
}

// errLease is the error of calls that return nothing by which a lease could be
// released.
var errLease = fmt.Errorf("%w: the units of a concurrency limit have to be released: use Take", core.ErrOp)

// beginWait lets the call wait at most max for every rule.
func (res *Result) beginWait(max time.Duration) {
	for i := range res.calls {
		res.calls[i].maxWait = max
	}
}

// waitError returns the error of a call that ended with err, or nil if all units
// were taken.
func (res *Result) waitError(err error) error {
	e := &WaitError{RetryAfter: res.RetryAfter(), Rules: res.Violated()}
	if res.awaitsStore() {
		e.RetryAfter = 0
	}
	switch {
	case err != nil:
		e.Err, e.RetryAfter = undecided(err), retryAfter(err)
	case res.stopped != nil: // some time after the decision
		e.Err, e.RetryAfter = res.stopped, 0
	case res.denied:
		e.Err = ErrDenied
	case !res.allowed && res.notQueued != nil:
		e.Err = res.notQueued
	case !res.allowed:
		e.Err = ErrLimited
	case res.skipped != nil:
		e.Err = undecided(res.skipped)
	default:
		return nil
	}
	if err == nil && res.skipped != nil && !errors.Is(e.Err, ErrUndecided) {
		e.Err = fmt.Errorf("%w, and %w", e.Err, undecided(res.skipped))
	}
	return e
}
