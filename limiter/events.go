package limiter

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/observe/events"
)

// tell tells of a request that was decided.
func (c *course) tell(ctx context.Context) {
	l := c.limiter
	c.concluded = true
	if l.observer != nil {
		l.observe(ctx, c)
	}
	if l.top > 0 {
		c.tally()
	}
	if c.lease != "" && c.err == nil {
		l.held.Add(c.leaseCount())
		if l.hooks.Lease != nil {
			c.tellLeases(events.Lease{})
		}
	}
	if l.hooks.Ban != nil && c.err == nil {
		l.tellBans(c.ops[:c.asked], c.out[:c.asked])
	}
}

// tally counts the request under each rule.
func (c *course) tally() {
	if c.err == nil && len(c.outside) == 0 && c.asked == len(c.calls) {
		for i := range c.asked {
			c.calls[i].rule.tally.note(c.verdictOf(i), c.ops[i].Key)
		}
		return
	}
	var e events.Request
	c.event(&e)
	for i := range e.Rules {
		if r := c.set.named(e.Rules[i].Name); r != nil {
			r.tally.note(e.Rules[i].Verdict, e.Rules[i].Key)
		}
	}
}

// plain reports whether the request is plain as events.Counter defines
// it and all of its rules have counters, and returns it as a counter gets it, but for the Rule.
// A request with skipped rules is not plain: those that failed are outside, and where the store
// did, the fallback decides under the others.
func (c *course) plain() (p events.Plain, ok bool) {
	v := c.verdict
	if v != events.Allowed && v != events.Refused || c.asked == 0 || len(c.outside) > 0 || c.waited > 0 {
		return p, false
	}
	p.Verdict, p.Remaining = v, math.MaxInt64
	for i := range c.asked {
		op, d := &c.ops[i], &c.out[i]
		if c.calls[i].rule.counter == nil || op.Verb != core.Take || op.Cost != 1 || d.Wait != 0 || d.Fallback || v == events.Allowed && d.Taken != 1 {
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
	c.limiter.counter.CountRequest(ctx, p)
}

// observe passes the result to the Observer, which is not nil, or to its counters if the request
// is plain. A result that is used again keeps the memory of the event.
func (l *Limiter) observe(ctx context.Context, c *course) {
	returned := false
	defer func() {
		if returned { // a recover that finds nothing takes time
			return
		}
		if v := recover(); v != nil {
			l.report(ctx, fmt.Errorf("the observer: %w", panicked(v)))
		}
	}()

	if l.counter != nil {
		if p, ok := c.plain(); ok {
			c.count(ctx, p)
			returned = true
			return
		}
	}

	e := c.record
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

	switch {
	case c.record != nil:
	case c.pooled:
		c.record = e
	default:
		l.records.Put(e)
	}
}

// event fills in what became of the request, and of each rule.
func (c *course) event(e *events.Request) {
	e.Verdict, e.Fallback, e.Waited, e.Err = c.verdict, false, c.waited, c.err
	if e.Err == nil {
		e.Err = c.skipped
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
			r.Decision, r.Err = core.Decision{}, c.skipped
		default:
			c.addDecision(e, r, i)
		}
	}

	if c.err != nil {
		c.addFailed(e)
	}
	for i := range c.outside {
		o := &c.outside[i]
		r := events.Rule{Name: o.rule.Name, Key: o.key, Limit: &o.rule.Limit, Verdict: events.FailedOpen, Err: o.err}
		if o.err == nil {
			r.Verdict, r.Decision = events.ShadowRefused, denial
		}
		e.Rules = append(e.Rules, r)
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

// copyDecision copies each field by itself. A copy of the whole takes three times as long right
// after the store has written the fields, as the processor cannot forward several small writes
// to one wide read.
func copyDecision(to, from *core.Decision) {
	to.Allowed, to.Banned, to.Fallback, to.Origin = from.Allowed, from.Banned, from.Fallback, from.Origin
	to.Taken, to.Remaining, to.Wait, to.RetryAfter = from.Taken, from.Remaining, from.Wait, from.RetryAfter
	to.ResetAfter, to.At = from.ResetAfter, from.At
}

// tellBans tells of the bans that the request has met and that were not told yet.
func (l *Limiter) tellBans(ops []core.Op, out []core.Decision) {
	for i := range ops {
		op, d := &ops[i], &out[i]
		if d.Banned && op.Ban != nil && l.bans.begins(bannedKey{op.Rule, op.Key}, d.At, d.At+d.RetryAfter.Microseconds()) {
			l.hooks.Ban(events.Ban{Rule: op.Rule, Key: op.Key, For: d.RetryAfter})
		}
	}
}

// tellLifted tells of the bans that ops have lifted.
func (l *Limiter) tellLifted(ops []core.Op) {
	if l.hooks.Ban == nil {
		return
	}
	for i := range ops {
		op := &ops[i]
		if op.Ban != nil && l.bans.ends(bannedKey{op.Rule, op.Key}) {
			l.hooks.Ban(events.Ban{Rule: op.Rule, Key: op.Key, Lifted: true})
		}
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
	r, op, asked := &e.Rules[n], &c.ops[i], &c.calls[i]
	r.Name, r.Key, r.Limit, r.Cost, r.Charged, r.Waited = asked.rule.Name, op.Key, &asked.terms.limit, op.Cost, 0, asked.waited
	r.Verdict = c.verdictOf(i)
	return r
}
