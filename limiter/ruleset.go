package limiter

import (
	"errors"
	"fmt"
	"github.com/headgate/headgate/core"
	"maps"
	"strings"
	"sync/atomic"
)

// ruleSet is a checked list of rules with what can be known beforehand.
type ruleSet struct {
	rules   []*activeRule
	store   core.Store // whom to ask first
	strict  bool       // store is without its fallback
	patient bool       // some rule waits
	refunds bool       // some rule gives units back
	shown   int        // how many rules clients may see
	policy  string     // the RateLimit-Policy of all of them under their own limits
	setup   setupCheck

	selection Selection // nil asks every rule
}

// activeRule is a rule in use.
type activeRule struct {
	Rule
	index       int
	failureMode FailureMode // never FailDefault
	terms       *terms
	keys        keyCheck

	// others are the terms of limits that Override has returned, replaced as a
	// whole when one is added.
	others atomic.Pointer[map[core.Limit]*terms]
}

// maxOthers bounds the remembered limits of one rule's Override.
const maxOthers = 64

// newRuleSet checks and compiles rules. Its error joins a [*RuleError] for
// every mistake.
func newRuleSet(rules []Rule, f *fallbacks) (*ruleSet, error) {
	var errs []error
	set := &ruleSet{rules: make([]*activeRule, len(rules))}
	first := map[string]int{}
	var policy []string
	for i, r := range rules {
		for _, err := range r.faults(f) {
			errs = append(errs, &RuleError{r.Name, i, err})
		}
		if j, taken := first[r.Name]; taken {
			errs = append(errs, &RuleError{r.Name, i, fmt.Errorf("rule %d has the same name", j)})
		} else {
			first[r.Name] = i
		}
		t := newTerms(&r, r.Limit)
		set.rules[i] = &activeRule{Rule: r, index: i, terms: t}
		set.patient = set.patient || r.OnLimit.MaxWait() > 0
		set.refunds = set.refunds || r.RefundIf != nil
		if r.OnLimit != Shadow {
			policy = append(policy, t.policy)
		}
	}
	set.shown, set.policy = len(policy), strings.Join(policy, ", ")
	f.resolve(set)
	return set, errors.Join(errs...)
}

// ruleError is an error that names the rule.
func (r *activeRule) ruleError(err error) error { return &RuleError{r.Name, r.index, err} }

// termsFor returns what applies to the key.
func (r *activeRule) termsFor(key string) (*terms, error) {
	if r.Override == nil {
		return r.terms, nil
	}
	return r.overridden(key)
}

func (r *activeRule) overridden(key string) (*terms, error) {
	limit, ok := r.Override(key)
	if !ok || limit == r.Limit {
		return r.terms, nil
	}
	known := r.others.Load()
	if known != nil {
		if t := (*known)[limit]; t != nil {
			return t, nil
		}
	}
	if err := limit.Validate(); err != nil {
		return nil, r.ruleError(fmt.Errorf("the limit from Override: %w", err))
	}
	t := newTerms(&r.Rule, limit)
	r.remember(known, t)
	return t, nil
}

// remember adds t to the known limits, unless they are many or another
// goroutine was faster.
func (r *activeRule) remember(known *map[core.Limit]*terms, t *terms) {
	next := map[core.Limit]*terms{}
	if known != nil {
		if len(*known) >= maxOthers {
			return
		}
		next = maps.Clone(*known)
	}
	next[t.limit] = t
	r.others.CompareAndSwap(known, &next)
}
