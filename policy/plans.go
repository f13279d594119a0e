// This file has the tables of plans.

package policy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/textform"
)

// MaxPlans is the maximum number of plans of a policy.
const MaxPlans = 64

// PlanFunc returns the name of the caller's plan, and "" for a caller without one, whom the
// Limit of the policy applies to. key is what the policy counts the caller by, and ctx is
// the context of the request, in which an authentication before the limiter may have put
// the user or the claims of a token. An error, and a plan that the policy does not have,
// are answered as its OnStoreError says, and nothing is charged.
//
// It is called for every request, from many goroutines. Let it look up what is in memory.
type PlanFunc func(ctx context.Context, key string) (plan string, err error)

// checkPlans reports what is wrong with the table of plans, and with the choice among them.
// mistake ignores a nil error.
func (p *Policy) checkPlans(mistake func(field string, err error)) {
	switch {
	case p.Plans != nil && len(p.Plans) == 0:
		mistake("plans", errors.New("the table is empty"))
	case len(p.Plans) > MaxPlans:
		mistake("plans", fmt.Errorf("%d plans are more than %d", len(p.Plans), MaxPlans))
	default:
		for _, name := range p.planNames() {
			mistake("plans."+textform.Clip(name), p.checkPlan(name))
		}
	}

	// The table and the choice need each other.
	switch {
	case p.Plans == nil && p.PlanBy != "":
		mistake("plan_by", errors.New("there are no plans to choose from"))
	case p.Plans != nil && p.PlanBy == "":
		mistake("plan_by", errors.New(
			"it is empty; it has to name the function in Bindings.Plans that knows the plan of a caller"))
	case p.Plans != nil:
		mistake("plan_by", checkName(p.PlanBy))
	}
}

func (p *Policy) checkPlan(name string) error {
	l := p.Plans[name]
	if err := errors.Join(checkName(name), l.Validate()); err != nil {
		return err
	}
	return p.checkBeside(&l)
}

// checkBeside refuses a valid limit under which a caller would not keep what was used under
// the limit of the policy.
func (p *Policy) checkBeside(l *core.Limit) error {
	switch {
	case p.Limit.Validate() != nil:
		return nil
	case l.Algorithm != p.Limit.Algorithm:
		return fmt.Errorf("its algorithm is %s, and that of the limit %s: "+
			"only under one algorithm does an upgrade keep what was used",
			l.Algorithm, p.Limit.Algorithm)
	case l.Leased() && l.Period != p.Limit.Period:
		return fmt.Errorf("its ttl is %s, and that of the limit %s: all have to have one",
			textform.Duration(l.Period), textform.Duration(p.Limit.Period))
	}
	return nil
}

// planNames returns the names of the plans in alphabetic order.
func (p *Policy) planNames() []string { return slices.Sorted(maps.Keys(p.Plans)) }

// override returns the function that finds the limit of a caller, or nil for a policy without
// plans and limits of single keys.
func (p *Policy) override(b *Bindings) (limitFunc, error) {
	var beside *table
	if b.beside != nil {
		beside = b.beside(p.Name)
	}
	if p.Plans == nil {
		return withOverrides(p, beside, nil), nil
	}

	planOf := b.Plans[p.PlanBy]
	if planOf == nil {
		return nil, fmt.Errorf("%q cannot be used here: %s", p.PlanBy, b.knownPlans())
	}

	plans := maps.Clone(p.Plans)
	return withOverrides(p, beside, func(ctx context.Context, key string) (core.Limit, bool, error) {
		plan, err := planOf(ctx, key)
		if err != nil || plan == "" {
			return core.Limit{}, false, err
		}
		limit, ok := plans[plan]
		if !ok {
			return core.Limit{}, false, fmt.Errorf("the plan %q is not defined", textform.Clip(plan))
		}
		return limit, true, nil
	}), nil
}

// knownPlans says which functions the program has, for a mistake.
func (b *Bindings) knownPlans() string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(b.Plans)) {
		names = append(names, strconv.Quote(textform.Clip(name)))
	}
	if names == nil {
		return "the program does not set Bindings.Plans"
	}
	return "Bindings.Plans of the program has only " + strings.Join(names, ", ")
}
