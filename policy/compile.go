// This file makes rules of policies.

package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
)

// Compiled holds the rules of the policies of one application, as [Compile] makes them. It does
// not change and is safe for concurrent use. There are two forms of the rules, which decide
// equally: [Compiled.Rules] are complete by themselves, and [Compiled.Selected] is faster for
// many policies.
type Compiled struct {
	policies Set            // in the order of the rules
	rules    []limiter.Rule // without conditions: their policies' Match is in the index alone
	index    *Index
}

// Compile makes rules of the policies that name the application, in the order
// of [Set.For]. It leaves out policies that are Off, and gives policies in Shadow
// the action limiter.Shadow. Each rule applies only to requests that meet the
// policy's Match.
//
// The error joins everything that is wrong with the bindings and with the
// policies of the application, each mistake of a policy as a [*FieldError]. A
// policy that needs a binding which is missing, such as "user" where
// Bindings.User is nil, is a mistake too, and so are more than 63 different
// methods; see [NewIndex]. The lists and maps of the policies must not change
// as long as the result is in use.
func Compile(app string, policies []Policy, bindings Bindings) (*Compiled, error) {
	mine := Set(policies).For(app)
	errs := []error{checkApp(app), bindings.Validate(), mine.Validate()}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}

	// From here the policies are valid, and what is missing is a binding of the program.
	c := &Compiled{policies: mine, rules: make([]limiter.Rule, len(mine))}
	for i := range mine {
		rule, err := mine[i].compile(&bindings)
		if err != nil {
			errs = append(errs, err)
		}
		c.rules[i] = rule
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}

	var err error
	if c.index, err = newIndexOf(mine, bindings.Claims); err != nil {
		return nil, err
	}
	return c, nil
}

// Rules returns the rules with their conditions, as limiter.Config.Rules takes them. Each examines
// every request. The caller may change the list.
func (c *Compiled) Rules() []limiter.Rule {
	rules := slices.Clone(c.rules)
	for i := range rules {
		if c.policies[i].Match.isAll() {
			continue
		}

		// Not the index of all, which would search among the others too. It has no mistake, as
		// that of all has none.
		own, _ := newIndexOf(c.policies[i:i+1], c.index.claims)
		rules[i].Key = keyfuncs.When(own.meets, rules[i].Key)
	}
	return rules
}

// Selected returns the rules without conditions, and the selection among them by an [Index], both
// as limiter.SetSelectedRules takes them. Without the selection each rule would apply to all
// requests, and where all do it is nil. The caller may change the list, but not its order.
func (c *Compiled) Selected() ([]limiter.Rule, limiter.Selection) {
	if !slices.ContainsFunc(c.policies, func(p Policy) bool { return !p.Match.isAll() }) {
		return slices.Clone(c.rules), nil
	}
	return slices.Clone(c.rules), c.index.Select
}

// compile makes a rule of a valid policy, without its Match.
func (p *Policy) compile(bindings *Bindings) (limiter.Rule, error) {
	parts, err := parseRecipe(p.Key)
	if err != nil {
		return limiter.Rule{}, &FieldError{p.Name, "key", err}
	}
	key, err := bindings.keyFunc(parts)
	if err != nil {
		return limiter.Rule{}, &FieldError{p.Name, "key", err}
	}
	if err := p.checkNetworks(parts, bindings); err != nil {
		return limiter.Rule{}, err
	}
	if err := checkBound(p, bindings); err != nil {
		return limiter.Rule{}, &FieldError{p.Name, "match.claims", err}
	}

	action, err := parseAction(p.OnLimit)
	if err != nil {
		return limiter.Rule{}, &FieldError{p.Name, "on_limit", err}
	}
	// A shadow policy passes requests, whatever it would do with them if it were in force.
	if p.Mode == Shadow {
		action = limiter.Shadow
	}

	failure, err := parseFailure(p.OnStoreError)
	if err != nil {
		return limiter.Rule{}, &FieldError{p.Name, "on_store_error", err}
	}

	override, err := p.override(bindings)
	if err != nil {
		return limiter.Rule{}, &FieldError{p.Name, "plan_by", err}
	}
	access, err := p.access(bindings)
	if err != nil {
		return limiter.Rule{}, &FieldError{p.Name, "access", err}
	}

	rule := limiter.Rule{Name: p.Name, Limit: p.Limit, Key: key, OnLimit: action, OnStoreError: failure,
		Ban: p.Ban, Override: override, Access: access, DenyStatus: p.Access.DenyStatus, RefundIf: refundIf(p),
		Enforce: p.Enforce, Warn: p.Warn}

	// What a request costs may need a binding too.
	if err := p.Cost.setCost(&rule, bindings); err != nil {
		return limiter.Rule{}, &FieldError{p.Name, "cost.header", err}
	}
	return rule, nil
}

// isAll reports whether the match has no condition.
func (m *Match) isAll() bool {
	return len(m.Methods) == 0 && m.Host == "" && m.Path == "" &&
		len(m.Except)+len(m.Headers)+len(m.Query)+len(m.Claims) == 0
}

// parseAction reads Policy.OnLimit.
func parseAction(s string) (limiter.Action, error) {
	switch s {
	case "", "reject":
		return limiter.Reject, nil
	case "degrade":
		return limiter.Degrade, nil
	}

	span, waits := strings.CutPrefix(s, "wait ")
	if !waits {
		return limiter.Action{}, fmt.Errorf(
			`%q is not "reject", "degrade" or "wait" and a duration, as in "wait 500ms"`, textform.Clip(s))
	}

	d, err := time.ParseDuration(span)
	if err != nil {
		return limiter.Action{}, fmt.Errorf("%q is not a duration such as 500ms or 2s", textform.Clip(span))
	}

	// No store books further ahead.
	if d <= 0 || d > core.MaxBooking {
		return limiter.Action{}, fmt.Errorf(
			"the longest wait %s is not above 0 and at most %s", textform.Clip(span), core.MaxBooking)
	}
	return limiter.Wait(d), nil
}

// parseFailure reads Policy.OnStoreError.
func parseFailure(s string) (limiter.FailureMode, error) {
	switch s {
	case "":
		return limiter.FailDefault, nil
	case "open":
		return limiter.FailOpen, nil
	case "closed":
		return limiter.FailClosed, nil
	case "local":
		return limiter.FailLocal, nil
	}
	return 0, fmt.Errorf(`%q is not "open", "closed" or "local"`, textform.Clip(s))
}
