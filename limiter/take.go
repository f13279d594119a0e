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

// takeError returns the error of a Take that ended with err, which may be nil.
func (res *Result) takeError(err error) error {
	switch {
	case err != nil:
		return undecided(err)
	case res.stopped == nil:
		return undecided(res.skipped)
	case res.skipped == nil:
		return res.stopped
	}
	return fmt.Errorf("%w, and %w", res.stopped, undecided(res.skipped))
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

func (res *Result) allow(ctx context.Context, l *Limiter, key string, cost int64) (core.Decision, error) {
	res.begin(l)
	err := res.addKey(ctx, core.Take, key, cost)
	if err == nil && res.lease != "" {
		return core.Decision{}, errLease
	}
	if err == nil {
		err = res.decide(ctx, false)
	}
	res.conclude(ctx, err)
	var d core.Decision
	if i := res.scarcest(); i >= 0 {
		d = res.out[i]
	}
	d.Allowed, d.Banned, d.RetryAfter = res.allowed, res.Banned(), res.RetryAfter()
	if err != nil || res.stopped != nil || res.skipped != nil {
		return d, res.takeError(err)
	}
	return d, nil
}

func (res *Result) takeUpTo(ctx context.Context, l *Limiter, key string, max int64) (int64, error) {
	res.begin(l)
	err := res.addKey(ctx, core.Take, key, max)
	if err == nil && res.lease != "" {
		return 0, errLease
	}
	for i := range res.asked {
		res.ops[i].UpTo, res.ops[i].Cost = true, max // CostAtMost may have lowered one
	}
	if err == nil {
		err = res.decide(ctx, false)
	}
	res.conclude(ctx, err)
	if !res.allowed {
		return 0, res.takeError(err)
	}
	for i := range res.asked {
		if !res.ops[i].Soft {
			max = min(max, res.out[i].Taken)
		}
	}
	return max, res.takeError(err)
}

// PeekRequest returns what [Limiter.TakeRequest] would decide about r, rule by
// rule, and changes nothing. A rule that is not about r is left out.
func (l *Limiter) PeekRequest(r core.Request) ([]RuleDecision, error) {
	res := &Result{}
	if err := res.applyRequest(l, core.Peek, r); err != nil {
		return nil, err
	}
	return res.Decisions(), nil
}

// TakeRequest counts r under every rule with the rule's own Key and Cost, as an
// adapter does. Otherwise it is like [Limiter.Take]: it neither waits nor answers
// the request. It counts every CORS preflight, and counts a request again that an
// adapter has counted. Each adapter's Request function makes r from the framework's
// request. A result that holds leases has to be released.
func (l *Limiter) TakeRequest(r core.Request) (*Result, error) {
	return l.takeRequest(r, &Result{})
}

// TakeRequestUnits is [Limiter.TakeRequest] for a request that costs so many units under
// every rule, whatever the Cost of the rule says. CostAtMost applies.
func (l *Limiter) TakeRequestUnits(r core.Request, cost int64) (*Result, error) {
	if err := checkCost(cost); err != nil {
		return &Result{}, err
	}
	res := &Result{}
	res.fixedCost = &cost
	return l.takeRequest(r, res)
}

func (l *Limiter) takeRequest(r core.Request, res *Result) (*Result, error) {
	if err := res.beginRequest(l, r); err != nil {
		return res, err
	}
	l.diagnoseOnce()
	ctx := r.Context()
	err := res.addRequest(core.Take, r)
	if err == nil {
		err = res.decide(ctx, false)
	}
	res.conclude(ctx, err)
	return res, res.takeError(err)
}

// ResetRequest makes the key of r fresh under every rule that is about r. The
// costs of the rules do not matter.
func (l *Limiter) ResetRequest(r core.Request) error {
	return (&Result{}).applyRequest(l, core.Reset, r)
}

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
		res := &Result{}
		res.limiter, res.stopped = l, err
		res.conclude(ctx, nil)
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

// errLease is the error of calls that return nothing by which a lease could be
// released.
var errLease = fmt.Errorf("%w: the units of a concurrency limit have to be released: use Take", core.ErrOp)
