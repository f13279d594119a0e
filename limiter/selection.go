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
	set, err := newRuleSet(rules, &l.failing)
	if err != nil {
		return err
	}
	set.selection = s
	l.enforce(set)
	return nil
}

// unselected is err as an error of the first rule that closes for it, if any.
func (g *Grant) unselected(err error) error {
	for _, r := range g.set.rules {
		if r.closes(&g.limiter.failing) {
			return r.fault(err)
		}
	}
	return err
}

var errSelection = errors.New("headgate: the selection names a rule that there is not, or one twice")

// selectRules returns the rules that the selection names.
func (g *Grant) selectRules(r core.Request) (rules []*activeRule, err error) {
	defer func() {
		if v := recover(); v != nil {
			rules, err = nil, fmt.Errorf("selection: %w", panicked(v))
		}
	}()
	g.places = g.set.selection(r, g.places[:0])
	g.selected = g.selected[:0]
	last := -1
	for _, i := range g.places {
		if i <= last || i >= len(g.set.rules) {
			return nil, errSelection
		}
		g.selected, last = append(g.selected, g.set.rules[i]), i
	}
	return g.selected, nil
}
