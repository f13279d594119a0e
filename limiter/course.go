package limiter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/observe/events"
)

// Outcome is what the limiter does with a request.
type Outcome uint8

const (
	Pass      Outcome = iota // the handler answers
	Refused                  // over a limit: 429; or denied, see [Result.Denied]
	Failed                   // the store could not decide, and the limiter fails closed: 503
	QueueFull                // would have to wait, and as many wait as may: 503, or Config.QueueFullStatus
)

// String returns "pass", "refused", "failed" or "queue_full".
func (o Outcome) String() string {
	switch o {
	case Pass:
		return "pass"
	case Refused:
		return "refused"
	case Failed:
		return "failed"
	case QueueFull:
		return "queue_full"
	}
	return "unknown outcome"
}

// course is how one request went: its charges, whether it waited, and what became of it.
type course struct {
	charges

	waited time.Duration // in all

	verdict events.Verdict // once it is concluded
	outcome Outcome        // follows from the verdict
	status  int16          // of the answer that the limiter gives, or 0 if the handler answers

	pooled *pooled // of an Admission, or nil
}

// pooled is what the course of an Admission has besides. Its memory is used again.
type pooled struct {
	record *events.Request // memory for the next event, or nil
	outer  *course         // of the limiter around this one, or nil
}

// recycle makes the course that of no request.
func (c *course) recycle() {
	c.charges.recycle()
	c.waited = 0
	if c.pooled != nil {
		c.pooled.outer = nil
	}
	c.verdict, c.outcome, c.status = events.Allowed, Pass, 0
}

// setDecided makes the course that of a Take that was decided under a plain set.
func (c *course) setDecided(e *engine, set *ruleSet, key string, cost int64, out []core.Decision) {
	c.prepareUnder(e, set)
	c.addPlain(core.Take, key, cost)
	copy(c.out, out)
	c.sumUp(c.engine.findings)
	c.notified = true // a set with more to notify of is not decided so
}

// isDegraded is [Result.Degraded].
func (c *course) isDegraded() bool {
	return c.allowed && c.degraded || c.pooled != nil && c.pooled.outer != nil && c.pooled.outer.isDegraded()
}

// conclude decides what became of a request that the store has answered, or that ended with err,
// and reports it.
func (c *course) conclude(ctx context.Context, err error) {
	if err != nil {
		c.err = err
		c.allowed, c.degraded = c.failsOpen(ctx, err), false
	}
	c.verdict = c.judge(ctx)
	if !c.verdict.Passes() {
		c.outcome, c.status = c.answer()
	}

	// What the log says depends on the verdict, so it comes after it.
	if c.rare.read().skipped != nil {
		c.logSkipped(ctx)
	}
	if err != nil {
		c.engine.reportAs(ctx, err, c.undecidedBy())
	} else if c.isLocal() {
		c.engine.reportFallback(ctx)
	}

	c.notify(ctx)
	if err != nil {
		c.drop()
	}
}

// decideDirectly asks r for its keys and the store about them, and concludes, for a request under a
// direct set. It reports whether it has decided: after a panic of a Key function it has asked
// nothing.
func (c *course) decideDirectly(ctx context.Context, r core.Request) (decided bool) {
	asking := false
	defer func() {
		if decided { // a recover that finds nothing takes time
			return
		}
		if v := recover(); v != nil && asking {
			decided = true
			c.conclude(ctx, fmt.Errorf("store: %w", panicked(v)))
		}
	}()

	for _, rule := range c.set.rules {
		if key, ok := rule.Key(r); ok {
			c.nextOp(core.Take, rule, rule.terms, key, 1)
		}
	}
	// Mistakes of the set-up, such as one key for all callers, show in the first requests.
	if c.set.setup.On() {
		c.checkSetup(r)
	}

	asking = true
	err := c.askPrepared(ctx)
	decided = true
	if err == nil {
		c.sumUp(c.engine.findings)
	}
	if err != nil || c.over || c.rare.written != nil {
		c.conclude(ctx, err)
		return true
	}

	// One that passes has nothing to judge and nothing to report but a key near its limit.
	c.notified = true
	if c.set.warns {
		c.reportNear(c.engine.hooks, "")
	}
	return true
}

// askPrepared asks the store under a direct set, by its prepared step where all rules count the
// request under one key.
func (c *course) askPrepared(ctx context.Context) error {
	switch {
	case c.asked == 0:
		return nil
	case c.set.prepared == nil || c.asked < len(c.set.ops):
		return c.set.store.Apply(ctx, c.ops, c.out)
	}
	for i := 1; i < c.asked; i++ {
		if c.ops[i].Key != c.ops[0].Key || c.ops[i].Cost != c.ops[0].Cost {
			return c.set.store.Apply(ctx, c.ops, c.out)
		}
	}
	return c.set.prepared.Take(c.ops[0].Key, c.ops[0].Cost, c.out)
}

// isLocal reports whether the fallback decided where the store would have been asked.
func (c *course) isLocal() bool { return c.fallback && !c.set.strict }

// failsOpen reports whether the request goes on although err kept all rules from
// deciding. It returns false if the client has left, because clients could otherwise
// avoid being counted by hanging up, and if err is about a single rule, because then
// skipRule did not accept it.
func (c *course) failsOpen(ctx context.Context, err error) bool {
	if ctx.Err() != nil || ruleOf(err) != "" {
		return false
	}
	for i := range c.asked {
		if c.calls[i].rule.failsClosed(&c.engine.fallbacks) {
			return false
		}
	}
	return true
}

// judge decides what became of the request. It is asked once; all else reads the verdict.
func (c *course) judge(ctx context.Context) events.Verdict {
	if !c.allowed {
		return c.refusal(ctx)
	}
	if c.err != nil || c.asked < len(c.calls) {
		return events.FailedOpen
	}
	if !c.over && len(c.rare.read().outside) == 0 { // nearly all requests
		if c.waited > 0 {
			return events.Waited
		}
		return events.Allowed
	}

	shadow := false
	outside := c.rare.read().outside
	for i := range outside {
		if outside[i].err != nil {
			return events.FailedOpen
		}
		shadow = true
	}

	// A marked request is worth more to know about than one that a Shadow rule would refuse.
	if c.degraded {
		return events.Degraded
	}
	for i := 0; i < c.asked && !shadow; i++ {
		shadow = !c.out[i].Allowed
	}

	switch {
	case shadow:
		return events.ShadowRefused
	case c.waited > 0:
		return events.Waited
	}
	return events.Allowed
}

// refusal is judge for a request that does not pass. Of several rules that refuse it, the one
// whose verdict lasts longest, which is the greatest, decides.
func (c *course) refusal(ctx context.Context) events.Verdict {
	switch u := c.rare.read(); {
	case c.err != nil && ctx.Err() == context.Canceled:
		return events.Canceled
	case c.err != nil:
		return events.FailedClosed
	case c.isDenied():
		return events.Denied
	case u.stopped != nil && !errors.Is(u.stopped, ErrClosed):
		return events.Canceled
	case u.notQueued == ErrQueueFull:
		return events.QueueFull
	}

	// Several rules may refuse; a client that can never succeed should hear that first.
	v := events.Refused
	for i := range c.asked {
		if c.violates(i) {
			v = max(v, c.refusalBy(i))
		}
	}
	return v
}

// answer returns the outcome and the status of a request that does not pass.
func (c *course) answer() (Outcome, int16) {
	switch {
	case c.verdict == events.QueueFull:
		return QueueFull, c.engine.queueFullStatus
	case c.err != nil:
		return Failed, unavailableStatus
	case c.isDenied():
		return Refused, int16(cmp.Or(c.calls[0].rule.DenyStatus, forbidden))
	case c.fallback && c.awaitsStore():
		return Refused, unavailableStatus
	}
	return Refused, tooManyRequests
}

// refusalBy returns the verdict of a rule that refuses the request.
func (c *course) refusalBy(i int) events.Verdict {
	switch d := &c.out[i]; {
	case d.RetryAfter == core.Never && !c.ops[i].UpTo && !c.exceedsPart(i):
		return events.Impossible
	case d.Banned:
		return events.Banned
	}
	return events.Refused
}

// verdictOf returns the verdict of rule i, which follows from that on the request.
func (c *course) verdictOf(i int) events.Verdict {
	switch {
	case c.verdict == events.Allowed: // by every rule
		return events.Allowed
	case c.err != nil:
		return c.failureOf(i)
	case i >= c.asked:
		return events.FailedOpen
	case c.isDenied():
		return events.Denied
	}

	if c.out[i].Allowed {
		switch {
		case !c.verdict.Passes():
			return events.Overruled
		case c.calls[i].waited > 0:
			return events.Waited
		}
		return events.Allowed
	}

	// Below are the rules that are over their limits.
	switch action := c.calls[i].rule.OnLimit; {
	case action == Shadow:
		return events.ShadowRefused
	case action == Degrade:
		return events.Degraded
	case c.verdict == events.Canceled || c.verdict == events.QueueFull:
		return c.verdict
	}
	return c.refusalBy(i)
}

// failureOf is verdictOf where no rule was decided.
func (c *course) failureOf(i int) events.Verdict {
	switch {
	case ruleOf(c.err) != "": // another rule failed before the store was asked
		return events.Overruled
	case c.verdict == events.Canceled:
		return events.Canceled
	case c.calls[i].rule.failsClosed(&c.engine.fallbacks):
		return events.FailedClosed
	}
	return events.FailedOpen
}

// undecidedBy returns what decided about a request in place of rules that were not decided.
func (c *course) undecidedBy() events.Mode {
	if c.verdict.Passes() {
		return events.PassesUndecided
	}
	return events.FailsUndecided
}

// logSkipped logs why rules were not decided, with what became of the request.
func (c *course) logSkipped(ctx context.Context) {
	by, u := c.undecidedBy(), c.rare.read()
	for i := range u.outside {
		if err := u.outside[i].err; err != nil {
			c.engine.logFailure(ctx, err, by)
		}
	}

	// The error of the store is logged once, and not for each rule that it concerns.
	if u.unlogged == nil {
		return
	}

	if c.asked == len(c.calls) {
		by = events.FallbackDecides
	}
	c.engine.logFailure(ctx, u.unlogged, by)
}

// awaitsStore reports whether the request can be admitted, but not before the store is back.
func (c *course) awaitsStore() (awaits bool) {
	for i := range c.asked {
		if !c.violates(i) || c.out[i].RetryAfter != core.Never {
			continue
		}
		if c.alone || !c.exceedsPart(i) {
			return false
		}
		awaits = true
	}
	return awaits
}

// notify reports a request that was decided to the Observer and the hooks.
func (c *course) notify(ctx context.Context) {
	l := c.engine
	c.notified = true
	if l.observer != nil {
		c.observe(ctx)
	}
	if l.top > 0 {
		c.tally()
	}

	// Leases and bans are reported once the store has confirmed them.
	if c.lease != "" && c.err == nil {
		l.held.Add(c.leaseCount())
		if l.hooks.Lease != nil {
			c.notifyLeases(events.Lease{})
		}
	}

	if l.hooks.Ban != nil && c.err == nil {
		l.notifyBans(c.ops[:c.asked], c.out[:c.asked], c.alone)
	}
	if c.set != nil && c.set.warns && c.err == nil {
		c.reportNear(l.hooks, "")
	}
}

// observe tells the Observer, which is not nil, of the request, or only its counters if the request
// is plain. A pooled course keeps the memory of the event for its next request.
func (c *course) observe(ctx context.Context) {
	l := c.engine
	returned := false
	defer func() {
		if returned { // a recover that finds nothing takes time
			return
		}
		if v := recover(); v != nil {
			l.report(ctx, fmt.Errorf("the observer: %w", panicked(v)))
		}
	}()

	// Counters take a plain request without an event, which is most of the cost.
	if l.counter != nil {
		if p, ok := c.isPlain(); ok {
			c.count(ctx, p)
			returned = true
			return
		}
	}

	var e *events.Request
	if c.pooled != nil {
		e = c.pooled.record
	}
	if e == nil {
		e = l.records.Get().(*events.Request)
	}
	c.event(e)
	l.observer.Observe(ctx, e)
	returned = true

	for i := range e.Rules { // so that nothing of the client is kept
		e.Rules[i].Key, e.Rules[i].Err = "", nil
	}
	e.Err, e.Rules = nil, e.Rules[:0]

	// A pooled course has its own memory for the next event.
	if c.pooled != nil {
		c.pooled.record = e
	} else {
		l.records.Put(e)
	}
}

// isPlain reports whether the request is plain as events.Counter defines
// it and all of its rules have counters, and returns it as a counter gets it, but for the Rule.
// A request with skipped rules is not plain: those that failed are outside, and where the store
// did, the fallback decides under the others.
func (c *course) isPlain() (p events.Plain, ok bool) {
	v := c.verdict
	if v != events.Allowed && v != events.Refused || c.asked == 0 || len(c.rare.read().outside) > 0 || c.waited > 0 {
		return p, false
	}

	// One rule that is not plain makes the request an event, with all that happened.
	p.Verdict, p.Remaining = v, math.MaxInt64
	for i := range c.asked {
		op, d := &c.ops[i], &c.out[i]
		if c.calls[i].rule.counter == nil || op.Verb != core.Take || op.Cost != 1 || d.Wait != 0 || d.Fallback ||
			v == events.Allowed && d.Taken != 1 {

			return p, false
		}
		p.Remaining = min(p.Remaining, d.Remaining)
	}
	return p, true
}

// count passes a plain request to the counters of its rules, and to that of requests.
func (c *course) count(ctx context.Context, p events.Plain) {
	for i := range c.asked {
		rule, v := c.calls[i].rule, c.verdictOf(i)
		if v != events.Allowed && v == p.Verdict && p.Rule == "" {
			p.Rule = rule.Name
		}
		rule.counter.Count(ctx, v)
	}
	c.engine.counter.CountRequest(ctx, p)
}

// event fills in what became of the request, and of each rule.
func (c *course) event(e *events.Request) {
	// An observer that panicked has left what it was told.
	e.Verdict, e.Fallback, e.Waited, e.Err, e.Rules = c.verdict, false, c.waited, c.err, e.Rules[:0]
	if e.Err == nil {
		e.Err = c.rare.read().skipped
	}

	for i := range c.calls {
		if !c.decides(i) {
			continue
		}
		r := c.ruleEvent(e, i)
		switch {
		case c.err != nil && r.Verdict != events.Overruled:
			r.Decision, r.Err = core.Decision{}, c.err
		case c.err != nil:
			r.Decision = core.Decision{}
		case i >= c.asked:
			r.Decision, r.Err = core.Decision{}, c.rare.read().skipped
		default:
			c.addDecision(e, r, i)
		}
	}

	// A rule that failed before the store was asked has no call.
	if c.err != nil {
		c.addFailed(e)
	}
	outside := c.rare.read().outside
	for i := range outside {
		o := &outside[i]
		r := events.Rule{Name: o.rule.Name, Key: o.key, Limit: &o.rule.Limit, Verdict: events.FailedOpen, Err: o.err}
		if o.err == nil {
			r.Verdict, r.Decision = events.ShadowRefused, o.refusal
		}
		e.Rules = append(e.Rules, r)
	}
}

// ruleEvent appends the event of op i, which may be set aside. The decision of an earlier event
// in its place is still there.
func (c *course) ruleEvent(e *events.Request, i int) *events.Rule {
	n := len(e.Rules)
	if n < cap(e.Rules) {
		e.Rules = e.Rules[:n+1]
	} else {
		e.Rules = append(e.Rules, events.Rule{})
	}
	r, op, ruleCall := &e.Rules[n], &c.ops[i], &c.calls[i]
	r.Name, r.Key, r.Limit, r.Cost = ruleCall.rule.Name, op.Key, &ruleCall.terms.limit, op.Cost
	r.Charged, r.Waited = 0, ruleCall.waited
	r.Verdict = c.verdictOf(i)
	return r
}

// addDecision adds the decision on op i to the event of its rule.
func (c *course) addDecision(e *events.Request, r *events.Rule, i int) {
	copyDecision(&r.Decision, &c.out[i])
	if c.aged > 0 {
		r.Decision = c.decision(i)
	}
	if r.Decision.Fallback {
		e.Fallback = true
	}
	if e.Verdict.Passes() && r.Decision.Allowed {
		r.Charged = r.Decision.Taken
	}
}

// addFailed adds the rule that the error of the request is about, if there is one.
func (c *course) addFailed(e *events.Request) {
	var of *RuleError
	if errors.As(c.err, &of) && of.Index < len(c.set.rules) {
		r := c.set.rules[of.Index]
		e.Rules = append(e.Rules, events.Rule{Name: r.Name, Limit: &r.Limit, Verdict: e.Verdict, Err: c.err})
	}
}

// tally counts the request under each rule.
func (c *course) tally() {
	if c.err == nil && len(c.rare.read().outside) == 0 && c.asked == len(c.calls) {
		for i := range c.asked {
			c.calls[i].rule.tally.Count(c.verdictOf(i), c.ops[i].Key)
		}
		return
	}

	// Rules without a call count too, and the event lists them.
	var e events.Request
	c.event(&e)
	for i := range e.Rules {
		if r := c.set.named(e.Rules[i].Name); r != nil {
			r.tally.Count(e.Rules[i].Verdict, e.Rules[i].Key)
		}
	}
}
