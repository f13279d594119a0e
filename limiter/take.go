package limiter

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/observe/events"
)

// Take counts cost units of key under every rule, whatever its Key function
// says, and does not wait. A refusal is a result that is not Allowed, and no error.
// If the store did not decide under some rule, the error wraps [ErrUndecided], also
// where the rules fail open; see [Result.Undecided]. Allowed then follows from
// OnStoreError of the rules. The result is never nil, and has to be released if it
// holds leases. It refers to key, whose text must stay as it is while the result is used: clone
// what a framework uses again after the request, as Fiber does with its strings.
func (l *Limiter) Take(ctx context.Context, key string, cost int64) (*Result, error) {
	return l.take(ctx, key, cost, 0)
}

// TakeWithin is [Limiter.Take], but waits at most max, which is above 0 and at most
// [core.MaxBooking], until every rule that is not Degrade or Shadow admits. If that
// would take longer behind those who wait, or longer than until the deadline of ctx, it
// refuses at once. Callers with one key are served in the order of arrival. Leases may be
// released at any time, so it waits for them for as long as it may. If ctx ends while it
// waits, or the limiter is closed, the result is a refusal, no units were taken, and the
// error is the cause of ctx or [ErrClosed]. Under a rule with a Ban the error wraps
// [core.ErrOp], and nothing was taken: such a rule refuses what is over its limit.
func (l *Limiter) TakeWithin(ctx context.Context, key string, cost int64, max time.Duration) (*Result, error) {
	if max <= 0 || max > core.MaxBooking {
		return &Result{}, fmt.Errorf("%w: the wait %s is not above 0 and at most %s",
			core.ErrOp, max, textform.Duration(core.MaxBooking))
	}
	return l.take(ctx, key, cost, max)
}

func (l *Limiter) take(ctx context.Context, key string, cost int64, maxWait time.Duration) (*Result, error) {
	if err := checkCost(cost); err != nil {
		return &Result{}, err
	}
	l.diagnoseOnce()
	if maxWait == 0 {
		if set := l.set.Load(); set.prepared != nil {
			asked := set.asking()
			if l.askInMemory(set, key, cost, &asked) {
				return newBrief(&l.engine, set, key, cost, &asked), nil
			}
		}
	}

	res := newResult()
	res.prepare(&l.engine)
	err := res.addKey(ctx, core.Take, key, cost)
	if err == nil && maxWait > 0 && res.bans() {
		return &Result{}, errBan
	}

	res.allowWait(maxWait)
	if err == nil {
		err = res.decide(ctx, maxWait > 0)
	}
	res.conclude(ctx, err)
	return res, res.takeError(err)
}

func checkCost(cost int64) error {
	if cost < 0 {
		return negativeCost(cost)
	}
	return nil
}

// negativeCost is apart so that checkCost is small enough to need no call.
func negativeCost(cost int64) error {
	return fmt.Errorf("%w: the cost %d is negative", core.ErrOp, cost)
}

// takeError returns the error of a Take that ended with err, which may be nil.
func (r *Result) takeError(err error) error {
	u := r.rare.read()
	switch {
	case err != nil:
		return undecided(err)
	case u.stopped == nil:
		return undecided(u.skipped)
	case u.skipped == nil:
		return u.stopped
	}
	return fmt.Errorf("%w, and %w", u.stopped, undecided(u.skipped))
}

// Allow is [Limiter.Take] for a caller that needs no [Result], and allocates nothing
// itself. It returns the decision of the most exhausted rule that is not Shadow, which
// is also the rule of the X-RateLimit headers. But Allowed, Banned and RetryAfter are
// those of all rules together. If no rule applies, only Allowed is set. The error is that of Take.
// Under a rule with a concurrency limit, whose units would have to be released, the
// error wraps [core.ErrOp], and nothing was taken.
func (l *Limiter) Allow(ctx context.Context, key string, cost int64) (d core.Decision, err error) {
	if err := checkCost(cost); err != nil {
		return core.Decision{}, err
	}
	l.diagnoseOnce()
	if set := l.set.Load(); set.prepared != nil {
		asked := set.asking()
		if l.askInMemory(set, key, cost, &asked) {
			asked.together(&d)
			return d, nil
		}
	}

	a := l.newAdmission()
	err = a.result.allow(ctx, &l.engine, key, cost, &d)
	a.recycle(l)
	return d, err
}

// askInMemory has the store decide where its answer is all that there is to do; see plainInMemory.
// It reports whether it has, and otherwise nothing has changed.
func (e *engine) askInMemory(set *ruleSet, key string, cost int64, asked *decided) bool {
	if e.takePrepared(set, key, cost, asked.out) != nil {
		return false
	}
	asked.sumUp(e.findings)
	if set.warns {
		asked.reportNear(e.hooks, key)
	}
	return true
}

func (r *Result) allow(ctx context.Context, e *engine, key string, cost int64, d *core.Decision) error {
	r.prepare(e)
	err := r.addKey(ctx, core.Take, key, cost)
	if err == nil && r.lease != "" {
		return errLease
	}

	if err == nil {
		err = r.decide(ctx, false)
	}
	r.conclude(ctx, err)

	r.together(d)
	if err != nil || r.rare.written != nil {
		return r.takeError(err)
	}
	return nil
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
	n, err = a.result.takeUpTo(ctx, &l.engine, key, max)
	a.recycle(l)
	return n, err
}

func (r *Result) takeUpTo(ctx context.Context, e *engine, key string, max int64) (int64, error) {
	r.prepare(e)
	err := r.addKey(ctx, core.Take, key, max)
	if err == nil && r.lease != "" {
		return 0, errLease
	}
	for i := range r.asked {
		r.ops[i].UpTo, r.ops[i].Cost = true, max // CostAtMost may have lowered one
	}

	if err == nil {
		err = r.decide(ctx, false)
	}
	r.conclude(ctx, err)

	// Under several rules the store has taken what fits under each; the least of them counts.
	if !r.allowed {
		return 0, r.takeError(err)
	}
	for i := range r.asked {
		if !r.ops[i].Soft {
			max = min(max, r.out[i].Taken)
		}
	}
	return max, r.takeError(err)
}

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

	// A call that is over before it begins is reported as one that waited and left.
	if ctx.Err() != nil {
		err := context.Cause(ctx)
		res := newResult()
		res.engine, res.rare.write().stopped = &l.engine, err
		res.conclude(ctx, nil)
		return &WaitError{Err: err}
	}

	l.diagnoseOnce()
	res := newResult()
	res.prepare(&l.engine)
	err := res.addKey(ctx, core.Take, key, n)
	if err == nil && res.lease != "" {
		return errLease
	}
	if err == nil && res.bans() {
		return errBan
	}

	res.allowWait(core.MaxBooking)
	if err == nil {
		err = res.decide(ctx, true)
	}
	res.conclude(ctx, err)
	return res.waitError(err)
}

// waitError returns the error of a call that ended with err, or nil if all units
// were taken.
func (r *Result) waitError(err error) error {
	e, u := &WaitError{RetryAfter: r.RetryAfter(), Rules: r.Violated()}, r.rare.read()
	if r.awaitsStore() {
		e.RetryAfter = 0
	}

	// The order is that of what a caller can do about it: an error of the store, its own end, a
	// refusal, and only then rules that were not decided.
	switch {
	case err != nil:
		e.Err, e.RetryAfter = undecided(err), retryAfter(err)
	case u.stopped != nil: // some time after the decision
		e.Err, e.RetryAfter = u.stopped, 0
	case r.isDenied():
		e.Err = ErrDenied
	case !r.allowed && u.notQueued != nil:
		e.Err = u.notQueued
	case !r.allowed:
		e.Err = ErrLimited
	case u.skipped != nil:
		e.Err = undecided(u.skipped)
	default:
		return nil
	}

	if err == nil && u.skipped != nil && !errors.Is(e.Err, ErrUndecided) {
		e.Err = fmt.Errorf("%w, and %w", e.Err, undecided(u.skipped))
	}
	return e
}

// Peek returns what [Limiter.Take] of one unit would decide, rule by rule, and
// changes nothing.
func (l *Limiter) Peek(ctx context.Context, key string) ([]RuleDecision, error) {
	res, err := applyKey(ctx, l, core.Peek, key)
	if err != nil {
		return nil, err
	}
	return res.Decisions(), nil
}

// Reset makes key fresh under every rule, also where it is banned. Refunds of what was taken
// before give nothing back, so none gives back what is taken after it.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	_, err := applyKey(ctx, l, core.Reset, key)
	return err
}

// Debit charges n units of key that were used already, in one step and if need be beyond the
// limits, under every rule whose limit has a debt; see [core.Limit.MaxDebt]. It returns the
// decisions of these rules. Taken is how many units a rule has charged: fewer than n where its
// debt is full. Rules without a debt are left out, and so are those whose Access exempts or denies
// the key. Later calls are refused, or wait, until the debt is paid.
//
// For a negative n, and if no rule in force has a debt, the error wraps [core.ErrOp] and nothing
// was charged. After another error the units may have been charged.
func (l *Limiter) Debit(ctx context.Context, key string, n int64) ([]RuleDecision, error) {
	if err := checkCost(n); err != nil {
		return nil, err
	}
	res := newResult()
	res.prepare(&l.engine)
	if !slices.ContainsFunc(res.set.rules, (*activeRule).mayOwe) {
		return nil, errNoDebt
	}

	for _, r := range res.set.rules {
		if err := res.addKeyTo(ctx, r, core.Debit, key, n); err != nil {
			return nil, err
		}
	}

	// What was used has been used: Rule.CostAtMost is for estimates.
	for i := range res.asked {
		res.ops[i].Cost, res.ops[i].Soft = n, false
	}
	if err := res.apply(ctx, core.Debit); err != nil {
		return nil, err
	}
	l.notifyUnits(res.ops[:res.asked], res.out[:res.asked], 0)
	return res.Decisions(), nil
}

var errNoDebt = fmt.Errorf("%w: no rule in force has a limit with a debt", core.ErrOp)

func applyKey(ctx context.Context, l *Limiter, verb core.Verb, key string) (*Result, error) {
	res := newResult()
	res.prepare(&l.engine)
	if err := res.addKey(ctx, verb, key, 1); err != nil {
		return nil, err
	}
	err := res.apply(ctx, verb)
	if err == nil && verb == core.Reset {
		l.notifyLifted(res.ops[:res.asked])
	}
	return res, err
}

// TakeRequest counts r under every rule with the rule's own Key and Cost, as an
// adapter does. Otherwise it is like [Limiter.Take]: it neither waits nor answers
// the request. It counts every CORS preflight, and counts a request again that an
// adapter has counted. Each adapter's Request function makes r from the framework's
// request. A result that holds leases has to be released.
func (l *Limiter) TakeRequest(r core.Request) (*Result, error) {
	return l.takeRequest(r, newResult())
}

// TakeRequestUnits is [Limiter.TakeRequest] for a request that costs so many units under
// every rule, whatever the Cost of the rule says. CostAtMost applies.
func (l *Limiter) TakeRequestUnits(r core.Request, cost int64) (*Result, error) {
	if err := checkCost(cost); err != nil {
		return &Result{}, err
	}
	res := newResult()
	u := res.rare.write()
	u.fixed, u.fixedCost = true, cost
	return l.takeRequest(r, res)
}

func (l *Limiter) takeRequest(r core.Request, res *Result) (*Result, error) {
	if err := res.prepareFor(l.shared(), r); err != nil {
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

// PeekRequest returns what [Limiter.TakeRequest] would decide about r, rule by
// rule, and changes nothing. A rule that is not about r is left out.
func (l *Limiter) PeekRequest(r core.Request) ([]RuleDecision, error) {
	res := newResult()
	if err := res.applyRequest(l.shared(), core.Peek, r); err != nil {
		return nil, err
	}
	return res.Decisions(), nil
}

// ResetRequest makes the key of r fresh under every rule that is about r. The
// costs of the rules do not matter.
func (l *Limiter) ResetRequest(r core.Request) error {
	return newResult().applyRequest(l.shared(), core.Reset, r)
}

// shared returns what the requests of l share, or nil for a nil Limiter.
func (l *Limiter) shared() *engine {
	if l == nil {
		return nil
	}
	return &l.engine
}

// Reservation is a booked slot: units that were taken and may be used after a
// delay. It is made by [Limiter.Reserve], and its methods are safe for concurrent
// use.
type Reservation struct {
	result Result
	course course
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
	r.result.course = &r.course
	res := &r.result
	res.prepare(&l.engine)
	err := res.addKey(ctx, core.Take, key, n)
	if err == nil {
		if err := res.allowBooking(); err != nil {
			return nil, err
		}
		err = res.ask(ctx)
	}

	res.conclude(ctx, err)

	// Rules that were asked may have booked although another was not decided.
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

// Restore returns the result that [Result.MarshalBinary] has encoded, in this process or
// in another one with the same store, or an error if data is not such an encoding. The
// rules in force may have changed since: the result keeps the limits under which it was
// taken. Its Decisions have only what was encoded of them: Allowed, Fallback, Taken, At and
// ResetAfter.
//
// A restored result does not know what was done with the original, or with another that was
// restored from the same data: a Refund or Settle of each is carried out. A program that
// hands an encoding to others sees to it that one of these happens once, and checks that
// data is its own, for instance by a message authentication code: a forged encoding gives
// anyone units back.
//
// Units that the fallback of another limiter's store has granted are known to that store
// alone. Restore leaves them out, so that they are neither refunded nor settled; such a
// result is [Result.Undecided]. A lease is kept, as Renew takes it at the store that is asked then.
func (l *Limiter) Restore(data []byte) (*Result, error) {
	if l == nil {
		return nil, errNoLimiter
	}
	r := encoded{rest: data}
	if version := r.byte(); version != encodingVersion && r.err == nil {
		return nil, fmt.Errorf("%w: the version %d of an encoded result is not known", core.ErrOp, version)
	}

	flags := r.byte()
	res := newResult()
	res.allowed, res.degraded = flags&flagAllowed != 0, flags&flagDegraded != 0
	if flags&flagUndecided != 0 {
		res.rare.write().skipped = errElsewhere
	}

	own := r.text() == l.id
	res.lease = r.text()
	res.prepare(&l.engine)
	res.notified = true // the limiter that took it has reported it
	// The first error ends the reading, so a forged count costs nothing.
	for n := r.uvarint(); n > 0 && r.err == nil; n-- {
		r.addDecided(res, own)
	}

	if r.err == nil && len(r.rest) > 0 {
		r.err = errors.New("more bytes follow")
	}
	if r.err != nil {
		return nil, fmt.Errorf("%w: an encoded result is damaged: %w", core.ErrOp, r.err)
	}
	return res, nil
}

// Admit decides about a request, and waits if rules say so. The caller must call
// Done on the result exactly once, when the request has been answered. CORS
// preflights count as other requests do, except under Config.SkipPreflights. A nil
// Limiter fails closed, and so does a Limiter whose [Limiter.CheckRequests] returns an
// error.
func (l *Limiter) Admit(r core.Request) *Admission {
	if l == nil {
		return admitNone()
	}

	a := l.newAdmission()
	res := &a.result
	res.prepare(&l.engine)
	res.admitted = true

	// A browser sends a preflight before the request that is to be counted.
	if l.skipPreflights && isPreflight(r) {
		res.allowed = true
		res.conclude(r.Context(), nil)
		return a
	}

	l.diagnoseOnce()
	a.ctx = r.Context()

	if res.set.direct {
		if res.decideDirectly(a.ctx, r) {
			return a
		}
		res.drop() // what follows asks again, and knows what a failure means
	}

	// A rule without a Key function cannot decide, and the request fails as if the store could not.
	err := res.set.noKey
	if err == nil {
		err = res.addRequest(core.Take, r)
	} else {
		l.warnNoKey(err)
	}
	// Mistakes of the set-up, such as one key for all callers, show in the first requests.
	if err == nil && res.set.setup.On() {
		res.checkSetup(r)
	}
	if err == nil {
		err = res.decide(a.ctx, res.set.mayWait)
	}

	res.conclude(a.ctx, err)
	if res.HoldsLeases() {
		a.renewal.start(a.ctx, res.course)
	}
	return a
}

func (l *Limiter) newAdmission() *Admission {
	a, ok := l.admissions.Get().(*Admission)
	if !ok {
		a = emptyAdmission()
	}
	a.limiter = l
	return a
}

// admitNone returns the admission of a request that no limiter can decide about.
func admitNone() *Admission {
	a := emptyAdmission()
	a.result.err = errNoLimiter
	a.result.verdict, a.result.outcome, a.result.status = events.FailedClosed, Failed, unavailableStatus
	return a
}

// AdmitParts decides about the parts of one request in one step: either every part is
// admitted, or none costs anything. A count that several parts of the same verb lead to is
// charged once, with the highest cost, and under the limit of the first of them. AdmitParts does
// not wait, so a Wait rule refuses what is over its limit, and it carries out no RefundIf.
// Otherwise it is like Admit: the caller must call Done. [Admission.PartDecisions] returns the
// decisions about one part.
//
// A Debit or a Refund corrects an earlier charge, so it is carried out whether or not the other
// parts are admitted. It is no decision: the Observer does not hear of it, and Hooks.Units does.
// But where [Rule.Access] denies a part, or Override bans its key, nothing is carried out.
//
// Where a Peek refuses the request, what its other parts were charged is given back in a
// second step.
func (l *Limiter) AdmitParts(ctx context.Context, parts []Part) *Admission {
	if l == nil {
		return admitNone()
	}
	a := l.newAdmission()
	res := &a.result
	res.prepare(&l.engine)
	res.admitted, res.inParts = true, true

	l.diagnoseOnce()
	a.ctx = ctx

	err := res.set.noKey
	if err != nil {
		l.warnNoKey(err)
	}

	for i := 0; err == nil && i < len(parts) && !res.alone; i++ {
		err = a.addPart(&parts[i])
	}
	// A part that only looks is asked whether a debt exceeds the limit, by a limit one unit wider.
	if err == nil {
		res.widenChecks()
		err = res.decide(ctx, false)
		res.narrowChecks()
	}

	res.refundRefused(ctx, err)
	res.conclude(ctx, err)
	if err == nil {
		res.notifyCorrections()
	}
	return a
}

// CheckRequests returns an error if l cannot decide about requests: l is nil, or a
// rule in force has no Key function. An adapter calls it at set-up and logs the
// error.
func (l *Limiter) CheckRequests() error {
	if l == nil {
		return errNoLimiter
	}
	return l.set.Load().noKey
}

// Counted reports whether l has decided about the request before, so that it
// passes without being counted again. h is the header of its answer, in which
// [Admission.LeaveMark] has left a mark.
//
// A middleware in between that gives the answer another header map, such as a copy or the
// empty one of [net/http.TimeoutHandler], hides the mark. For a nil Limiter Counted returns
// false.
func (l *Limiter) Counted(h map[string][]string) bool { return l.CountedBy(&Mark{markIn(h)}) }

// CountedBy is [Limiter.Counted] for an adapter that keeps the mark of a request in
// another place than a header map.
func (l *Limiter) CountedBy(m *Mark) bool {
	if l == nil || m == nil || !m.has(l.id) {
		return false
	}
	l.WarnTwice()
	return true
}

// TakeCosts is [Limiter.TakeWithin] with a cost for each rule, by its name. A rule that is not
// named costs 1. With a max of 0 it does not wait, as [Limiter.Take]. The error wraps
// [core.ErrOp], and nothing was taken, for a negative cost and for a name that no rule in force
// has.
func (l *Limiter) TakeCosts(ctx context.Context, key string, costs map[string]int64, max time.Duration) (
	*Result, error) {
	if max < 0 || max > core.MaxBooking {
		return &Result{}, fmt.Errorf("%w: the wait %s is not from 0 to %s",
			core.ErrOp, max, textform.Duration(core.MaxBooking))
	}
	l.diagnoseOnce()

	res := newResult()
	res.prepare(&l.engine)
	if err := res.checkCosts(costs); err != nil {
		return &Result{}, err
	}
	err := res.addKey(ctx, core.Take, key, 1)
	if err == nil && max > 0 && res.bans() {
		return &Result{}, errBan
	}

	// A cost above the capacity is lowered where the rule says so, as in every step.
	for i := range res.asked {
		rule := res.calls[i].rule
		if cost, named := costs[rule.Name]; named && !res.alone {
			if rule.CostAtMost {
				cost = min(cost, res.ops[i].Limit.Capacity())
			}
			res.ops[i].Cost = cost
		}
	}

	res.allowWait(max)
	if err == nil {
		err = res.decide(ctx, max > 0)
	}
	res.conclude(ctx, err)
	return res, res.takeError(err)
}

// checkCosts returns an error that names each cost that cannot be taken.
func (r *Result) checkCosts(costs map[string]int64) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(costs)) {
		known := slices.ContainsFunc(r.set.rules, func(rule *activeRule) bool { return rule.Name == name })
		switch {
		case !known:
			errs = append(errs, fmt.Errorf("%w: no rule in force is called %q", core.ErrOp, name))
		case costs[name] < 0:
			errs = append(errs, fmt.Errorf("%w: rule %q: the cost %d is negative", core.ErrOp, name, costs[name]))
		}
	}
	return errors.Join(errs...)
}

// handle is one key of a limiter.
type handle struct {
	limiter *Limiter
	key     string
}

// For returns a handle of key, which goes where a program expects the methods of
// golang.org/x/time/rate.Limiter that take units. It is safe for concurrent use, and For itself
// counts nothing.
//
//   - Wait(ctx) and WaitN(ctx, n) wait until 1 or n units may be used, as [Limiter.Wait] does.
//   - Allow() and AllowN(t, n) take 1 or n units if that is within the limits, and report whether
//     it is. The store has its own clock, so t does not matter. If it cannot decide, OnStoreError
//     of the rules says.
func (l *Limiter) For(key string) *handle { return &handle{l, key} }

// Wait is [Limiter.Wait] for a unit.
func (h *handle) Wait(ctx context.Context) error { return h.WaitN(ctx, 1) }

// WaitN is [Limiter.Wait] for n units.
func (h *handle) WaitN(ctx context.Context, n int) error { return h.limiter.Wait(ctx, h.key, int64(n)) }

// Allow is [Limiter.Allow] for a unit.
func (h *handle) Allow() bool { return h.AllowN(time.Time{}, 1) }

// AllowN is [Limiter.Allow] for n units, whatever the instant.
func (h *handle) AllowN(_ time.Time, n int) bool {
	d, _ := h.limiter.Allow(context.Background(), h.key, int64(n))
	return d.Allowed
}
