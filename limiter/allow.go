package limiter

import (
	"context"
	"fmt"
	"github.com/headgate/headgate/core"
)

// Allow is [Limiter.Take] for who needs no [Result], and allocates nothing of its own.
// Of several rules it returns what the one decided that X-RateLimit headers would
// speak of: the most exhausted one that is not Shadow. But Allowed and RetryAfter
// are those of the result, so of all rules. Where no rule applies, Allowed is all
// that it tells. Nobody could release leases, so a rule with a concurrency limit
// is an error that wraps [core.ErrOp], under which nothing was taken.
func (l *Limiter) Allow(ctx context.Context, key string, cost int64) (core.Decision, error) {
	if err := checkCost(cost); err != nil {
		return core.Decision{}, err
	}
	l.diagnoseOnce()
	a := l.newAdmission()
	d, err := a.result.allow(ctx, l, key, cost)
	a.recycle(l)
	return d, err
}

func (res *Result) allow(ctx context.Context, l *Limiter, key string, cost int64) (core.Decision, error) {
	res.begin(l)
	err := res.addKey(ctx, core.Take, key, cost)
	if err == nil && res.lease != "" {
		return core.Decision{}, fmt.Errorf("%w: a concurrency limit needs Take, whose grant is to be released", core.ErrOp)
	}
	if err == nil {
		err = res.decide(ctx, false)
	}
	res.conclude(ctx, err)
	if err == nil {
		err = res.skipped
	}
	var d core.Decision
	if i := res.scarcest(); i >= 0 {
		d = res.out[i]
	}
	d.Allowed, d.RetryAfter = res.allowed, res.RetryAfter()
	return d, err
}

// scarcest returns the most exhausted rule that clients may see, or -1.
func (res *Result) scarcest() int {
	first := -1
	for i := range res.calls {
		if res.calls[i].rule.OnLimit != Shadow && (first < 0 || res.scarcer(i, first)) {
			first = i
		}
	}
	return first
}
