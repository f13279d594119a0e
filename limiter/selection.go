package limiter

import (
	"errors"
	"fmt"
	"github.com/headgate/headgate/core"
)

// Selection tells which of many rules a request may be about, so that not each
// has to be asked: it appends their places in the list of rules to into, each
// once, in ascending order, and returns the extended slice. The other rules are
// not about the request. It is called for every request, from many goroutines,
// and must not keep into. After a panic, or with a place at which there is no rule,
// the request is turned away if any of all rules would do that under its
// OnStoreError, and passes otherwise.
type Selection func(r core.Request, into []int) []int

// SetSelectedRules is [Limiter.SetRules] with a selection among the rules for
// every request that comes after. A nil selection asks every rule.
func (l *Limiter) SetSelectedRules(rules []Rule, s Selection) error {
	set, err := newRuleSet(rules, &l.fallbacks)
	if err != nil {
		return err
	}
	set.selection = s
	l.enforce(set)
	return nil
}

// selectionFailed is err as an error of the first rule that closes for it, if any.
func (res *Result) selectionFailed(err error) error {
	for _, r := range res.set.rules {
		if r.failsClosed(&res.limiter.fallbacks) {
			return r.ruleError(err)
		}
	}
	return err
}

var errSelection = errors.New("headgate: the selection names a rule that there is not, or one twice")

// selectRules returns the rules that the selection names.
func (res *Result) selectRules(r core.Request) (rules []*activeRule, err error) {
	defer func() {
		if v := recover(); v != nil {
			rules, err = nil, fmt.Errorf("selection: %w", panicked(v))
		}
	}()
	res.indices = res.set.selection(r, res.indices[:0])
	res.selected = res.selected[:0]
	last := -1
	for _, i := range res.indices {
		if i <= last || i >= len(res.set.rules) {
			return nil, errSelection
		}
		res.selected, last = append(res.selected, res.set.rules[i]), i
	}
	return res.selected, nil
}
