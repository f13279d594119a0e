package limiter

import (
	"context"
	"errors"
	"github.com/headgate/headgate/core"
	"strings"
	"sync/atomic"
	"time"
)

// Grant is what the rules of a [Limiter] decided together. Its methods are
// safe for concurrent use and on a nil Grant.
type Grant struct {
	limiter *Limiter
	set     *ruleSet

	// calls, ops and out are parallel: one for each rule that applies.
	calls []call
	ops   []core.Op
	out   []core.Decision
	small struct {
		calls [1]call
		ops   [1]core.Op
		out   [1]core.Decision
	}

	allowed  bool
	degraded bool
	err      error         // nobody could decide
	stopped  error         // the wait ended before its time
	skipped  error         // some rules could not be asked
	waited   time.Duration // in all
	aged     time.Duration // since the store decided
	lease    string

	places   []int         // that the selection has named
	selected []*activeRule // at those places

	refunded, released atomic.Bool
}

// call is one rule's part of a grant.
type call struct {
	rule     *activeRule
	terms    *terms
	patience time.Duration // the longest wait for this rule
}

// RuleDecision is what one rule decided.
type RuleDecision struct {
	Rule     string
	Limit    core.Limit
	OnLimit  Overflow
	Decision core.Decision
}

// Allowed tells whether the units were taken, except those of Degrade and
// Shadow rules that were over their limits. When nobody could decide it is what
// OnStoreError of the rules says.
func (g *Grant) Allowed() bool { return g != nil && g.allowed }

// Degraded tells that the request passes although it is over the limit of a
// Degrade rule.
func (g *Grant) Degraded() bool { return g != nil && g.allowed && g.degraded }

// Waited is how long the request has waited for its turn.
func (g *Grant) Waited() time.Duration {
	if g == nil {
		return 0
	}
	return g.waited
}

// Decisions returns what every rule that applies decided, in the order of the
// rules. A booked slot that was waited for has no Wait left.
func (g *Grant) Decisions() []RuleDecision {
	if g == nil {
		return nil
	}
	list := make([]RuleDecision, len(g.calls))
	for i := range list {
		list[i] = g.ruleDecision(i)
	}
	return list
}

func (g *Grant) ruleDecision(i int) RuleDecision {
	r := g.calls[i].rule
	return RuleDecision{r.Name, g.ops[i].Limit, r.OnLimit, g.decision(i)}
}

// decision is out[i] after the wait.
func (g *Grant) decision(i int) core.Decision {
	d := g.out[i]
	if g.aged > 0 {
		d.At += int64(g.aged / time.Microsecond)
		d.ResetAfter = max(0, d.ResetAfter-g.aged)
	}
	return d
}

// violates tells whether rule i is why the request was refused.
func (g *Grant) violates(i int) bool {
	return !g.allowed && !g.ops[i].Soft && !g.out[i].Allowed
}

// Violated returns the names of the rules that refused the request.
func (g *Grant) Violated() []string {
	if g == nil {
		return nil
	}
	var names []string
	for i := range g.calls {
		if g.violates(i) {
			names = append(names, g.calls[i].rule.Name)
		}
	}
	return names
}

// RetryAfter is how long until the same request would be let in if nobody else
// came: 0 if it is allowed, [core.Never] if it costs more than a limit can hold.
func (g *Grant) RetryAfter() time.Duration {
	var longest time.Duration
	if g == nil {
		return 0
	}
	for i := range g.calls {
		if g.violates(i) {
			longest = max(longest, g.out[i].RetryAfter)
		}
	}
	return longest
}

func (g *Grant) outcome() Outcome {
	switch {
	case g.allowed:
		return Pass
	case g.err != nil:
		return Failed
	}
	return Refused
}

// mayRefund tells whether any rule in force may give units back.
func (g *Grant) mayRefund() bool { return g.set != nil && g.set.refunds }

// begin makes the grant ready for the rules in force.
func (g *Grant) begin(l *Limiter) {
	g.limiter, g.set = l, l.set.Load()
	switch n := len(g.set.rules); {
	case g.calls != nil:
	case n <= len(g.small.calls):
		g.calls, g.ops, g.out = g.small.calls[:0], g.small.ops[:0], g.small.out[:0]
	default:
		g.calls, g.ops, g.out = make([]call, 0, n), make([]core.Op, 0, n), make([]core.Decision, 0, n)
	}
}

// add puts one more op into the step.
func (g *Grant) add(verb core.Verb, r *activeRule, key string, cost int64) error {
	if cost < 0 {
		return r.fault(errors.New("the cost is negative"))
	}
	t, err := r.termsFor(key)
	if err != nil {
		return err
	}
	op := g.room(r, t)
	op.Verb, op.Key, op.Cost, op.MaxWait = verb, key, cost, 0
	if t.limit.Leased() && verb == core.Take {
		if g.lease == "" {
			g.lease = g.limiter.leases.next()
		}
		// Renewal may outlive the request, and with it the key.
		op.Lease, op.Key = g.lease, strings.Clone(key)
	}
	return nil
}

// room is for one more op. What an earlier request under the same terms has left
// there is as good as new.
func (g *Grant) room(r *activeRule, t *terms) *core.Op {
	n := len(g.calls)
	if n < cap(g.calls) && g.calls[:n+1][n].terms == t {
		g.calls, g.ops, g.out = g.calls[:n+1], g.ops[:n+1], g.out[:n+1]
		g.out[n] = core.Decision{}
		return &g.ops[n]
	}
	g.calls = append(g.calls, call{r, t, r.OnLimit.MaxWait()})
	g.ops = append(g.ops, t.take)
	g.out = append(g.out, core.Decision{})
	return &g.ops[n]
}

// addRequest asks every rule, or those that are selected, what the request
// means to it.
func (g *Grant) addRequest(r core.Request) (err error) {
	rules := g.set.rules
	if g.set.selection != nil {
		if rules, err = g.selectRules(r); err != nil {
			return g.unselected(err)
		}
	}
	for i := 0; ; i++ {
		if i, err = g.addRequestFrom(rules, i, r); err == nil {
			return nil
		}
		if err = g.excuse(r.Context(), rules[i].index, err); err != nil {
			return err
		}
	}
}

// addRequestFrom asks rule i and those after it, and returns the first that
// cannot tell.
func (g *Grant) addRequestFrom(rules []*activeRule, i int, r core.Request) (at int, err error) {
	at = i
	defer func() {
		if v := recover(); v != nil {
			err = rules[at].fault(panicked(v))
		}
	}()
	for ; at < len(rules); at++ {
		i := at
		key, ok := rules[i].Key(r)
		if !ok {
			continue
		}
		cost := int64(1)
		if rules[i].Cost != nil {
			cost = rules[i].Cost(r)
		}
		if err := g.add(core.Take, rules[i], key, cost); err != nil {
			return at, err
		}
	}
	return at, nil
}

// addKey makes every rule count key.
func (g *Grant) addKey(ctx context.Context, verb core.Verb, key string, cost int64) error {
	for _, r := range g.set.rules {
		err := g.addKeyTo(r, verb, key, cost)
		if err != nil && verb == core.Take {
			err = g.excuse(ctx, r.index, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (g *Grant) addKeyTo(r *activeRule, verb core.Verb, key string, cost int64) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = r.fault(panicked(v))
		}
	}()
	return g.add(verb, r, key, cost)
}

// ask has the store decide.
func (g *Grant) ask(ctx context.Context) error {
	if err := g.limiter.applyTo(ctx, g.set.store, g.ops, g.out); err != nil {
		if err = g.endure(ctx, err); err != nil {
			return err
		}
	}
	g.allowed, g.degraded = true, false
	for i := range g.ops {
		if g.out[i].Allowed {
			continue
		}
		if g.out[i].RetryAfter == core.Never {
			g.limiter.Warn(core.Finding{Code: CodeTooCostly, Rule: g.ops[i].Rule, Text: "a request cost more than its limit can ever hold, and can never be admitted"})
		}
		switch {
		case !g.ops[i].Soft:
			g.allowed = false
		case g.calls[i].rule.OnLimit == Degrade:
			g.degraded = true
		}
	}
	return nil
}

// conclude settles what err and the answer of the store mean, and tells.
func (g *Grant) conclude(ctx context.Context, err error) {
	if err != nil {
		g.err = err
		g.allowed, g.degraded = g.passes(ctx, err), false
		g.calls, g.ops, g.out = g.calls[:0], g.ops[:0], g.out[:0]
		g.limiter.report(ctx, err)
	}
	if g.limiter.observer != nil {
		g.limiter.observe(ctx, g)
	}
}
