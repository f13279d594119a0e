package limiter

import (
	"context"
	"errors"
	"github.com/headgate/headgate/core"
	"strings"
	"sync/atomic"
	"time"
)

// Result is what the rules of a [Limiter] decided together. Its methods are
// safe for concurrent use and on a nil Result.
type Result struct {
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

	indices  []int         // that the selection has named
	selected []*activeRule // at those places

	refunded, released atomic.Bool
}

// call is one rule's part of a result.
type call struct {
	rule     *activeRule
	terms    *terms
	patience time.Duration // the longest wait for this rule
}

// RuleDecision is what one rule decided.
type RuleDecision struct {
	Rule     string
	Limit    core.Limit
	OnLimit  Action
	Decision core.Decision
}

// Allowed tells whether the units were taken, except those of Degrade and
// Shadow rules that were over their limits. When nobody could decide it is what
// OnStoreError of the rules says.
func (res *Result) Allowed() bool { return res != nil && res.allowed }

// Degraded tells that the request passes although it is over the limit of a
// Degrade rule.
func (res *Result) Degraded() bool { return res != nil && res.allowed && res.degraded }

// Waited is how long the request has waited for its turn.
func (res *Result) Waited() time.Duration {
	if res == nil {
		return 0
	}
	return res.waited
}

// Decisions returns what every rule that applies decided, in the order of the
// rules. A booked slot that was waited for has no Wait left.
func (res *Result) Decisions() []RuleDecision {
	if res == nil {
		return nil
	}
	list := make([]RuleDecision, len(res.calls))
	for i := range list {
		list[i] = res.ruleDecision(i)
	}
	return list
}

func (res *Result) ruleDecision(i int) RuleDecision {
	r := res.calls[i].rule
	return RuleDecision{r.Name, res.ops[i].Limit, r.OnLimit, res.decision(i)}
}

// decision is out[i] after the wait.
func (res *Result) decision(i int) core.Decision {
	d := res.out[i]
	if res.aged > 0 {
		d.At += int64(res.aged / time.Microsecond)
		d.ResetAfter = max(0, d.ResetAfter-res.aged)
	}
	return d
}

// violates tells whether rule i is why the request was refused.
func (res *Result) violates(i int) bool {
	return !res.allowed && !res.ops[i].Soft && !res.out[i].Allowed
}

// Violated returns the names of the rules that refused the request.
func (res *Result) Violated() []string {
	if res == nil {
		return nil
	}
	var names []string
	for i := range res.calls {
		if res.violates(i) {
			names = append(names, res.calls[i].rule.Name)
		}
	}
	return names
}

// RetryAfter is how long until the same request would be let in if nobody else
// came: 0 if it is allowed, [core.Never] if it costs more than a limit can hold.
func (res *Result) RetryAfter() time.Duration {
	var longest time.Duration
	if res == nil {
		return 0
	}
	for i := range res.calls {
		if res.violates(i) {
			longest = max(longest, res.out[i].RetryAfter)
		}
	}
	return longest
}

func (res *Result) outcome() Outcome {
	switch {
	case res.allowed:
		return Pass
	case res.err != nil:
		return Failed
	}
	return Refused
}

// mayRefund tells whether any rule in force may give units back.
func (res *Result) mayRefund() bool { return res.set != nil && res.set.refunds }

// begin makes the result ready for the rules in force.
func (res *Result) begin(l *Limiter) {
	res.limiter, res.set = l, l.set.Load()
	switch n := len(res.set.rules); {
	case res.calls != nil:
	case n <= len(res.small.calls):
		res.calls, res.ops, res.out = res.small.calls[:0], res.small.ops[:0], res.small.out[:0]
	default:
		res.calls, res.ops, res.out = make([]call, 0, n), make([]core.Op, 0, n), make([]core.Decision, 0, n)
	}
}

// add puts one more op into the step.
func (res *Result) add(verb core.Verb, r *activeRule, key string, cost int64) error {
	if cost < 0 {
		return r.ruleError(errors.New("the cost is negative"))
	}
	t, err := r.termsFor(key)
	if err != nil {
		return err
	}
	op := res.room(r, t)
	op.Verb, op.Key, op.Cost, op.MaxWait = verb, key, cost, 0
	if t.limit.Leased() && verb == core.Take {
		if res.lease == "" {
			res.lease = res.limiter.leases.next()
		}
		// Renewal may outlive the request, and with it the key.
		op.Lease, op.Key = res.lease, strings.Clone(key)
	}
	return nil
}

// room is for one more op. What an earlier request under the same terms has left
// there is as good as new.
func (res *Result) room(r *activeRule, t *terms) *core.Op {
	n := len(res.calls)
	if n < cap(res.calls) && res.calls[:n+1][n].terms == t {
		res.calls, res.ops, res.out = res.calls[:n+1], res.ops[:n+1], res.out[:n+1]
		res.out[n] = core.Decision{}
		return &res.ops[n]
	}
	res.calls = append(res.calls, call{r, t, r.OnLimit.MaxWait()})
	res.ops = append(res.ops, t.take)
	res.out = append(res.out, core.Decision{})
	return &res.ops[n]
}

// addRequest asks every rule, or those that are selected, what the request
// means to it.
func (res *Result) addRequest(r core.Request) (err error) {
	rules := res.set.rules
	if res.set.selection != nil {
		if rules, err = res.selectRules(r); err != nil {
			return res.selectionFailed(err)
		}
	}
	for i := 0; ; i++ {
		if i, err = res.addRequestFrom(rules, i, r); err == nil {
			return nil
		}
		if err = res.skipRule(r.Context(), rules[i].index, err); err != nil {
			return err
		}
	}
}

// addRequestFrom asks rule i and those after it, and returns the first that
// cannot tell.
func (res *Result) addRequestFrom(rules []*activeRule, i int, r core.Request) (at int, err error) {
	at = i
	defer func() {
		if v := recover(); v != nil {
			err = rules[at].ruleError(panicked(v))
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
		if err := res.add(core.Take, rules[i], key, cost); err != nil {
			return at, err
		}
	}
	return at, nil
}

// addKey makes every rule count key.
func (res *Result) addKey(ctx context.Context, verb core.Verb, key string, cost int64) error {
	for _, r := range res.set.rules {
		err := res.addKeyTo(r, verb, key, cost)
		if err != nil && verb == core.Take {
			err = res.skipRule(ctx, r.index, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (res *Result) addKeyTo(r *activeRule, verb core.Verb, key string, cost int64) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = r.ruleError(panicked(v))
		}
	}()
	return res.add(verb, r, key, cost)
}

// ask has the store decide.
func (res *Result) ask(ctx context.Context) error {
	if err := res.limiter.applyTo(ctx, res.set.store, res.ops, res.out); err != nil {
		if err = res.fallbackDecide(ctx, err); err != nil {
			return err
		}
	}
	res.allowed, res.degraded = true, false
	for i := range res.ops {
		if res.out[i].Allowed {
			continue
		}
		if res.out[i].RetryAfter == core.Never {
			res.limiter.Warn(core.Finding{Code: CodeTooCostly, Rule: res.ops[i].Rule, Text: "a request cost more than its limit can ever hold, and can never be admitted"})
		}
		switch {
		case !res.ops[i].Soft:
			res.allowed = false
		case res.calls[i].rule.OnLimit == Degrade:
			res.degraded = true
		}
	}
	return nil
}

// conclude settles what err and the answer of the store mean, and tells.
func (res *Result) conclude(ctx context.Context, err error) {
	if err != nil {
		res.err = err
		res.allowed, res.degraded = res.failsOpen(ctx, err), false
		res.calls, res.ops, res.out = res.calls[:0], res.ops[:0], res.out[:0]
		res.limiter.report(ctx, err)
	}
	if res.limiter.observer != nil {
		res.limiter.observe(ctx, res)
	}
}
