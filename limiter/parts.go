package limiter

import (
	"errors"
	"fmt"
	"slices"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
)

// Part describes a request, or some of its properties, to [Limiter.AdmitParts]. Envoy
// describes a request by several lists of properties, each of which is a part.
type Part struct {
	// Request is what the rules see. If it does not know all properties of a request, it
	// has a method Lacked() bool, which reports whether a property was asked for since
	// the last call of Lacked that is not known. A rule whose functions ask for one does
	// not apply to the part.
	Request core.Request

	// Verb is what the rules that apply do with Cost units: core.Take, core.Debit, core.Refund,
	// or core.Peek. A Peek of 0 units is refused where a debt has put more units in use than
	// the limit has. A Debit under a limit without debt is a mistake of the rule. A Refund
	// gives back the latest units.
	Verb core.Verb

	// Cost is the number of units, instead of Rule.Cost of the rules.
	Cost int64

	// Rate, unless nil, has the Quota and Period that replace those of the limits of the
	// rules that apply, and then there is no Burst. Its other fields are ignored. A Quota of
	// 0 denies the part, as [Rule.Access] does. Limits of the calendar and of leases cannot
	// be replaced: that is a mistake of the rule.
	Rate *core.Limit
}

// partial is a request of which some properties are not known.
type partial interface{ Lacked() bool }

// callRange is where the calls of a part are.
type callRange struct{ from, to int } // in Admission.partCalls

// PartDecisions appends to into what the rules that apply to part i decided, in the order
// of the rules. It appends nothing where no rule applies or none was decided, and nothing where
// [Admission.DeniedPart] names a part.
func (a *Admission) PartDecisions(i int, into []RuleDecision) []RuleDecision {
	res := &a.result
	if res.alone || i < 0 || i >= len(a.parts) {
		return into
	}
	for _, id := range a.partCalls[a.parts[i].from:a.parts[i].to] {
		at := slices.IndexFunc(res.calls[:res.asked], func(c call) bool { return c.id == int32(id) })
		if at >= 0 { // not so where the store could not decide
			into = append(into, res.ruleDecision(at))
		}
	}
	return into
}

// DeniedPart returns the index of the part that Rule.Access or its Rate denies, or for which
// Rule.Override bans the key, or -1. That is the only decision about the request.
func (a *Admission) DeniedPart() int {
	if !a.result.alone {
		return -1
	}
	return len(a.parts) - 1
}

// addPart adds the ops of the rules that apply to the part.
func (a *Admission) addPart(p *Part) error {
	if p.Verb > core.Debit || p.Verb == core.Reset {
		return fmt.Errorf("%w: a part cannot %s", core.ErrOp, p.Verb)
	}
	if err := checkCost(p.Cost); err != nil {
		return err
	}

	res := &a.result
	from := len(a.partCalls)
	rules, err := res.set.rules, error(nil)
	if res.set.selection != nil {
		if rules, err = res.selectRules(p.Request); err != nil {
			return res.selectionFailed(err)
		}
	}

	// A part may lack what a rule asks for; such a rule is not about the part.
	known, _ := p.Request.(partial)
	for _, rule := range rules {
		applied, id, err := res.addRuleOfPart(rule, p, known)
		if err != nil {
			if err = res.skipRule(a.ctx, applied, err); err != nil {
				return err
			}
			continue
		}

		if id > 0 {
			a.partCalls = append(a.partCalls, id)
		}
		if res.alone {
			break
		}
	}

	a.parts = append(a.parts, callRange{from, len(a.partCalls)})
	return nil
}

var errRate = errors.New("a limit of this kind cannot be replaced by a rate")

// rated returns the terms of the limit of the rule with another quota and period.
func (a *activeRule) rated(rate *core.Limit) (*terms, error) {
	l := a.Limit
	if l.Leased() || l.NeedsWindows() {
		return nil, a.ruleError(errRate)
	}
	l.Quota, l.Period, l.Burst, l.Debt = rate.Quota, rate.Period, 0, 0
	return a.termsOf(l, "the rate of a part")
}

// addRuleOfPart adds the op of the rule, if it applies to the part, and returns the id of its
// call, or 0. With an error it returns the rule as it is for the key.
func (s *step) addRuleOfPart(rule *activeRule, p *Part, known partial) (r *activeRule, id int, err error) {
	r = rule
	defer func() {
		if v := recover(); v != nil {
			err = r.ruleError(panicked(v))
		}
	}()

	// Lacked reports what was asked for since it was called last, so the first call forgets.
	if known != nil {
		known.Lacked()
	}
	key, ok := r.Key(p.Request)
	if !ok || known != nil && known.Lacked() {
		return r, 0, nil
	}

	r = r.forKey(key)
	if r.Access != nil {
		if listed, err := s.applyAccessToPart(r, p, known, key); err != nil || listed {
			return r, 0, err
		}
	}

	t, err := s.termsOfPart(r, p, key)
	if t == nil || err != nil {
		return r, 0, err
	}
	id, err = s.addOp(r, t, key, p)
	return r, id, err
}

// termsOfPart returns the terms of the rule for the part, or nil if the rule refuses the part
// without a count.
func (s *step) termsOfPart(r *activeRule, p *Part, key string) (t *terms, err error) {
	if p.Rate != nil && p.Rate.Quota == 0 {
		s.applyVerdict(keyfuncs.Denied, core.Take, r, key)
		return nil, nil
	}

	// A Rate is in place of the key's own limit, and not of its ban.
	t = r.terms
	if r.Override != nil {
		t, err = s.overridden(p.Request.Context(), p.Verb, r, key)
	}
	if p.Rate != nil && t != nil && err == nil {
		t, err = r.rated(p.Rate)
	}

	if t != nil && err == nil && p.Verb == core.Debit && t.limit.MaxDebt() == 0 {
		err = r.ruleError(fmt.Errorf("a %s limit has no debt, so units cannot be charged after their use",
			t.limit.Algorithm))
	}
	return t, err
}

// applyAccessToPart applies the lists of the rule, and reports whether the rule does not
// limit the part.
func (s *step) applyAccessToPart(r *activeRule, p *Part, known partial, key string) (listed bool, err error) {
	verdict, err := r.Access.Of(p.Request, key)
	if known != nil && known.Lacked() {
		return true, nil
	}
	if err != nil {
		return false, r.ruleError(fmt.Errorf("the verdict of Access: %w", err))
	}
	return s.applyVerdict(verdict, core.Take, r, key), nil
}

// addOp adds an op, or raises the cost of the one of the same count and verb.
func (s *step) addOp(r *activeRule, t *terms, key string, p *Part) (id int, err error) {
	cost := p.Cost
	if r.CostAtMost {
		cost = min(cost, t.limit.Capacity())
	}

	// A count is charged once in a step, with the highest cost of the parts that lead to it.
	for i := range s.asked {
		op := &s.ops[i]
		if s.calls[i].rule != r || op.Key != key || op.Limit.Algorithm != t.limit.Algorithm {
			continue
		}
		t = s.calls[i].terms // a count has one limit in a step
		if op.Verb == p.Verb || p.Verb == core.Peek && p.Cost == 0 {
			op.Cost = max(op.Cost, cost)
			return int(s.calls[i].id), nil
		}

		// A Peek of no units asks nothing that the charge does not answer.
		if op.Verb == core.Peek && op.Cost == 0 {
			op.Verb, op.Cost = p.Verb, cost
			return int(s.calls[i].id), nil
		}
	}

	if err := s.add(core.Take, r, t, key, cost); err != nil {
		return 0, err
	}
	last := len(s.calls) - 1
	s.ops[last].Verb = p.Verb
	s.calls[last].id, s.calls[last].check = int32(last+1), false
	return last + 1, nil
}

// widenChecks turns each Peek of 0 units into one of 1 unit under a limit that holds one
// more. It is allowed if and only if no more units are in use than the limit has, whereas
// a Peek of 0 units always is.
func (s *step) widenChecks() {
	for i := range s.asked {
		op := &s.ops[i]
		if op.Verb != core.Peek || op.Cost != 0 || op.Limit.MaxDebt() == 0 || s.sharesCount(i) {
			continue
		}
		if wide := op.Limit.Wider(); wide.Validate() == nil {
			op.Limit, op.Cost, s.calls[i].check = wide, 1, true
		}
	}
}

// sharesCount reports whether another op of the step is about the count of op i.
func (s *step) sharesCount(i int) bool {
	for j := range s.asked {
		if j != i && s.calls[j].rule == s.calls[i].rule && s.ops[j].Key == s.ops[i].Key {
			return true
		}
	}
	return false
}

// narrowChecks undoes widenChecks, also in the decisions and in ops that are set aside.
func (s *step) narrowChecks() {
	for i := range s.calls {
		if !s.calls[i].check {
			continue
		}
		s.calls[i].check = false
		s.ops[i].Limit, s.ops[i].Cost = s.calls[i].terms.limit, 0
		s.out[i].Remaining = max(0, s.out[i].Remaining-1)
	}
}
