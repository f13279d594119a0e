package limiter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/observe/findings"
)

// prepareFor makes the step ready for r. It returns an error if there
// is no limiter, if it cannot decide about requests, or if r is nil.
func (s *step) prepareFor(e *engine, r core.Request) error {
	switch {
	case e == nil:
		return errNoLimiter
	case r == nil:
		return fmt.Errorf("%w: the request is nil", core.ErrOp)
	}
	s.prepare(e)
	return s.set.noKey
}

// addRequest adds an op for the request under every rule that applies to it, among
// all rules or those that are selected.
func (s *step) addRequest(verb core.Verb, r core.Request) (err error) {
	rules := s.set.rules
	if s.set.selection != nil {
		if rules, err = s.selectRules(r); err != nil {
			return s.selectionFailed(err)
		}
	}

	// A rule whose own functions fail is skipped if it fails open, and the rest goes on.
	for i := 0; ; i++ {
		var failed *activeRule
		if i, failed, err = s.addRequestFrom(verb, rules, i, r); err == nil {
			return nil
		}
		if verb != core.Take {
			return err
		}
		if err = s.skipRule(r.Context(), failed, err); err != nil {
			return err
		}
	}
}

// addRequestFrom adds the ops of rule i and those after it. With an error it returns
// the index of the rule that failed, and the rule as it is for the key.
func (s *step) addRequestFrom(verb core.Verb, rules []*activeRule, i int, r core.Request) (
	at int, rule *activeRule, err error) {

	at = i
	defer ofRule(&rule, &err)

	// at and rule are of the function too, so that a panic is known to be of that rule.
	for ; at < len(rules); at++ {
		rule = rules[at]
		key, ok := rule.Key(r)
		if !ok {
			continue
		}
		if rule.keyed && s.rare.written == nil { // nearly all rules
			s.nextOp(verb, rule, rule.terms, key, 1)
			continue
		}

		if verb != core.Reset {
			rule = rule.forKey(key)
		}
		if rule.Access != nil {
			switch listed, err := s.applyAccess(verb, rule, r, key); {
			case err != nil || s.alone:
				return at, rule, err
			case listed:
				continue
			}
		}

		cost := s.costOf(verb, rule, r)
		t := rule.terms
		if rule.Override != nil {
			if t, err = s.overridden(r.Context(), verb, rule, key); err != nil || s.alone {
				return at, rule, err
			}
			if t == nil {
				continue
			}
		}

		if err := s.add(verb, rule, t, key, cost); err != nil {
			return at, rule, err
		}
	}
	return at, nil, nil
}

// ofRule makes a panic an error of the rule. It is to be deferred.
func ofRule(rule **activeRule, err *error) {
	if v := recover(); v != nil {
		*err = (*rule).ruleError(panicked(v))
	}
}

// costOf returns what a request costs under a rule: 1 unless it has a cost of its own or the rule
// has a Cost or a Charge. A Reset is for every key, and asks neither.
func (s *step) costOf(verb core.Verb, rule *activeRule, r core.Request) int64 {
	switch u := s.rare.read(); {
	case u.fixed:
		return u.fixedCost
	case !rule.priced || verb == core.Reset:
		return 1
	case rule.Cost != nil:
		return rule.Cost(r)
	}
	return charge(s, rule, r)
}

// charge returns what a request is charged under a rule with a Charge.
func charge(s *step, rule *activeRule, r core.Request) int64 {
	units, f, err := rule.Charge(r)
	if err != nil {
		costUnread(s.engine, rule, err)
	}
	if f != nil {
		u := s.rare.write()
		u.used = append(u.used, used{s.engine, rule, f})
	}
	return units
}

// costUnread records that a request or its answer did not say what it costs.
func costUnread(e *engine, rule *activeRule, err error) {
	if e.findings.Has(findings.CostUnread) {
		return // the text is made once
	}
	e.findings.Add(core.Finding{Code: findings.CostUnread, Rule: rule.Name,
		Text: fmt.Sprintf("what a request costs could not be read, so the estimate is charged: %v", err)})
}

// units asks the function. After a panic the charge stays.
func (u used) units(ctx context.Context, seen Seen) (units int64, err error) {
	defer func() {
		if v := recover(); v != nil {
			units, err = seen.Charged, nil
			u.engine.report(ctx, u.rule.ruleError(panicked(v)))
		}
	}()
	units, err = u.f(seen)
	if err == nil && units < 0 {
		err = fmt.Errorf("%d units cannot be used", units)
	}
	return units, err
}

// addKey makes every rule count key.
func (s *step) addKey(ctx context.Context, verb core.Verb, key string, cost int64) error {
	// Plain rules have no functions that could fail, and nothing to ask about the key.
	if s.set.plain {
		s.addPlain(verb, key, cost)
		return nil
	}

	for _, r := range s.set.rules {
		if verb != core.Reset {
			r = r.forKey(key)
		}
		err := s.addKeyTo(ctx, r, verb, key, cost)
		if s.alone {
			return nil
		}

		// Only a Take is worth going on with: a Peek or a Reset of some rules would mislead.
		if err != nil && verb == core.Take {
			err = s.skipRule(ctx, r, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *step) addKeyTo(ctx context.Context, r *activeRule, verb core.Verb, key string, cost int64) (err error) {
	defer ofRule(&r, &err)

	if r.Access != nil {
		if listed, err := s.applyAccess(verb, r, nil, key); err != nil || listed {
			return err
		}
	}

	t := r.terms
	if r.Override != nil {
		if t, err = s.overridden(ctx, verb, r, key); err != nil || t == nil {
			return err
		}
	}
	if verb == core.Debit && t.limit.MaxDebt() == 0 {
		return nil
	}
	return s.add(verb, r, t, key, cost)
}

// skipRule lets the request go on without a rule, whose own functions failed with
// err, unless the rule fails closed, or the client has left: a function that heeds the
// context fails then, and clients could avoid being counted by hanging up.
func (s *step) skipRule(ctx context.Context, rule *activeRule, err error) error {
	if ctx.Err() != nil || rule.failsClosed(&s.engine.fallbacks) {
		return err
	}
	s.recordSkipped(ctx, err)
	u := s.rare.write()
	u.outside = append(u.outside, outside{rule: rule, err: err})
	u.ownFault = u.skipped
	return nil
}

var errSelection = errors.New("headgate: the selection names a rule that does not exist, or a rule twice")

// selectRules returns the rules that the selection names.
func (s *step) selectRules(r core.Request) (rules []*activeRule, err error) {
	defer func() {
		if v := recover(); v != nil {
			rules, err = nil, fmt.Errorf("selection: %w", panicked(v))
		}
	}()

	u := s.rare.write()
	u.indices = s.set.selection(r, u.indices[:0])
	u.selected = u.selected[:0]

	// The order is checked, as a rule that is named twice would be charged twice.
	last := -1
	for _, i := range u.indices {
		if i <= last || i >= len(s.set.rules) {
			return nil, errSelection
		}
		u.selected, last = append(u.selected, s.set.rules[i]), i
	}
	return u.selected, nil
}

// selectionFailed returns err as an error of the first rule that fails closed, if any.
func (s *step) selectionFailed(err error) error {
	for _, r := range s.set.rules {
		if r.failsClosed(&s.engine.fallbacks) {
			return r.ruleError(err)
		}
	}
	return err
}

// denial is the decision about a caller whom a rule denies: to come again does not help.
var denial = core.Decision{RetryAfter: core.Never}

// applyAccess applies the lists of the rule, which has some, to the caller, and reports
// whether the rule does not limit the request. If the rule denies it, nothing else
// decides. r may be nil. A Reset, a Lift, a Grant and a Revoke are for every key, and a Debit is
// for those that the rule limits.
func (s *step) applyAccess(verb core.Verb, rule *activeRule, r core.Request, key string) (listed bool, err error) {
	if verb == core.Reset || verb >= core.Lift {
		return false, nil
	}
	verdict, err := rule.Access.Of(r, key)
	if err != nil {
		return false, rule.ruleError(fmt.Errorf("the verdict of Access: %w", err))
	}
	if verb == core.Debit {
		return verdict != keyfuncs.Limited, nil
	}
	return s.applyVerdict(verdict, verb, rule, key), nil
}

// applyVerdict carries out the verdict of the lists of the rule, and reports whether the
// rule does not limit the request.
func (s *step) applyVerdict(verdict keyfuncs.Verdict, verb core.Verb, rule *activeRule, key string) (listed bool) {
	if verdict == keyfuncs.Denied {
		s.refuse(verb, rule, key, denial)
	}
	return verdict != keyfuncs.Limited
}

// refuse makes the step a refusal by the rule alone. A Shadow rule only reports it.
func (s *step) refuse(verb core.Verb, rule *activeRule, key string, refusal core.Decision) {
	if rule.OnLimit == Shadow {
		u := s.rare.write()
		u.outside = append(u.outside, outside{rule, key, nil, refusal})
		return
	}
	s.drop()
	s.nextOp(verb, rule, rule.terms, key, 0)
	s.out[0], s.alone, s.lease = refusal, true, ""
}

// overridden returns the terms that Override, which is not nil, gives the key, or nil if it bans
// the key, so that the rule does not count it. A ban is for what takes units, and for a Peek: the
// other verbs go on under the limit of the key.
func (s *step) overridden(ctx context.Context, verb core.Verb, rule *activeRule, key string) (*terms, error) {
	limit, ok, err := rule.Override(ctx, key)
	if err != nil {
		until, banned := bannedBy(err)
		if !banned {
			return nil, rule.ruleError(fmt.Errorf("the limit from Override: %w", err))
		}

		now := time.Now().UnixMicro()
		if now < until && (verb == core.Take || verb == core.Peek) {
			left := time.Duration(until-now) * time.Microsecond
			s.refuse(verb, rule, key, core.Decision{Banned: true, RetryAfter: left, ResetAfter: left, At: now})
			return nil, nil
		}
	}

	if !ok {
		return rule.terms, nil
	}
	return rule.termsOf(limit, "the limit from Override")
}

// applyRequest carries out a Peek or Reset of r.
func (s *step) applyRequest(e *engine, verb core.Verb, r core.Request) error {
	if err := s.prepareFor(e, r); err != nil {
		return err
	}
	if err := s.addRequest(verb, r); err != nil {
		return err
	}
	err := s.apply(r.Context(), verb)
	if err == nil && verb == core.Reset {
		e.notifyLifted(s.ops[:s.asked])
	}
	return err
}

// checkSetup examines the request and the keys under which it is counted for mistakes of the
// set-up, until enough requests were examined.
func (s *step) checkSetup(r core.Request) {
	e, ok := s.set.setup.Request(r)
	if !ok {
		return
	}
	for i := range s.asked {
		e.Key(s.calls[i].rule.keys, s.ops[i].Key)
	}
}
