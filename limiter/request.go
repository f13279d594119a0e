package limiter

import (
	"fmt"

	"github.com/headgate/headgate/core"
)

// PeekRequest returns what [Limiter.TakeRequest] would decide about r, rule by
// rule, and changes nothing. A rule that is not about r is left out.
func (l *Limiter) PeekRequest(r core.Request) ([]RuleDecision, error) {
	res := &Result{}
	if err := res.applyRequest(l, core.Peek, r); err != nil {
		return nil, err
	}
	return res.Decisions(), nil
}

// TakeRequest counts r under every rule with the rule's own Key and Cost, as an
// adapter does. Otherwise it is like [Limiter.Take]: it neither waits nor answers
// the request. It counts every CORS preflight, and counts a request again that an
// adapter has counted. Each adapter's Request function makes r from the framework's
// request. A result that holds leases has to be released.
func (l *Limiter) TakeRequest(r core.Request) (*Result, error) {
	return l.takeRequest(r, &Result{})
}

// TakeRequestUnits is [Limiter.TakeRequest] for a request that costs so many units under
// every rule, whatever the Cost of the rule says. CostAtMost applies.
func (l *Limiter) TakeRequestUnits(r core.Request, cost int64) (*Result, error) {
	if err := checkCost(cost); err != nil {
		return &Result{}, err
	}
	return l.takeRequest(r, &Result{fixedCost: &cost})
}

func (l *Limiter) takeRequest(r core.Request, res *Result) (*Result, error) {
	if err := res.beginRequest(l, r); err != nil {
		return res, err
	}
	l.diagnoseOnce()
	ctx := r.Context()
	err := res.addRequest(core.Take, r)
	if err == nil {
		err = res.decide(ctx, false)
	}
	res.conclude(ctx, err)
	return res, res.takeError(err)
}

// ResetRequest makes the key of r fresh under every rule that is about r. The
// costs of the rules do not matter.
func (l *Limiter) ResetRequest(r core.Request) error {
	return (&Result{}).applyRequest(l, core.Reset, r)
}

// beginRequest makes the result ready for r. It returns an error if l cannot decide
// about requests, or r is nil.
func (res *Result) beginRequest(l *Limiter, r core.Request) error {
	switch {
	case l == nil:
		return errNoLimiter
	case r == nil:
		return fmt.Errorf("%w: the request is nil", core.ErrOp)
	}
	res.begin(l)
	return res.set.noKey
}

// applyRequest carries out a Peek or Reset of r.
func (res *Result) applyRequest(l *Limiter, verb core.Verb, r core.Request) error {
	if err := res.beginRequest(l, r); err != nil {
		return err
	}
	if err := res.addRequest(verb, r); err != nil {
		return err
	}
	err := res.apply(r.Context(), verb)
	if err == nil && verb == core.Reset {
		res.tellLifted()
	}
	return err
}
