package limiter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"github.com/headgate/headgate/core"
	"time"
)

// FailureMode says what happens to a request when nobody can decide under a rule:
// the store failed, or a function of the rule panicked or returned what makes
// no sense.
type FailureMode uint8

const (
	// FailDefault is, in a [Rule], what Config.OnStoreError says; and there it
	// is FailLocal if the store has a fallback, and FailOpen if it has none.
	FailDefault FailureMode = iota

	// FailOpen lets the request pass, as far as this rule is concerned. The
	// fallback of the store, if any, is not asked.
	FailOpen

	// FailClosed answers with a 503, whatever other rules say. The fallback of
	// the store, if any, is not asked.
	FailClosed

	// FailLocal has the fallback of the store decide; the store must be a
	// [core.Standby]. If the fallback cannot decide either, Config.OnStoreError does,
	// and if it is FailLocal too, the request passes.
	FailLocal
)

// String returns "default", "open", "closed" or "local".
func (f FailureMode) String() string {
	switch f {
	case FailDefault:
		return "default"
	case FailOpen:
		return "open"
	case FailClosed:
		return "closed"
	case FailLocal:
		return "local"
	}
	return "unknown failure mode"
}

// fallbacks is what a limiter does when nobody can decide.
type fallbacks struct {
	store     core.Store // decides by its fallback if need be
	strict    core.Store // the same without the fallback
	fallback  core.Store // or nil
	otherwise FailureMode
	last      FailureMode // when the fallback cannot decide either
}

func newFallbacks(c *Config) fallbacks {
	f := fallbacks{store: c.Store, strict: c.Store, otherwise: c.OnStoreError, last: FailOpen}
	if s, ok := c.Store.(core.Standby); ok {
		f.strict, f.fallback = s.Strict(), s.Fallback()
	}
	if f.otherwise == FailClosed {
		f.last = FailClosed
	}
	if f.otherwise == FailDefault {
		f.otherwise = FailOpen
		if f.fallback != nil {
			f.otherwise = FailLocal
		}
	}
	return f
}

// check says what is wrong with a choice, or returns nil.
func (f *fallbacks) check(choice FailureMode) error {
	switch {
	case choice > FailLocal:
		return fmt.Errorf("OnStoreError: %d is not known", choice)
	case choice == FailLocal && f.fallback == nil:
		return errors.New("OnStoreError: the store has no fallback that could decide")
	}
	return nil
}

// resolve gives every rule its choice and finds out whom to ask first: rules
// that want no decision of the fallback have to see the store fail.
func (f *fallbacks) resolve(set *ruleSet) {
	set.store = f.store
	for _, r := range set.rules {
		if r.failureMode = cmp.Or(r.OnStoreError, f.otherwise); r.failureMode != FailLocal {
			set.store, set.strict = f.strict, f.fallback != nil
		}
	}
}

// failsClosed tells whether the rule turns a request away under which nobody could
// decide, not even the fallback. Shadow rules turn nobody away.
func (r *activeRule) failsClosed(f *fallbacks) bool {
	if r.OnLimit == Shadow {
		return false
	}
	return r.failureMode == FailClosed || r.failureMode == FailLocal && f.last == FailClosed
}

// fallbackDecide has the fallback decide for the rules that want it, after the store
// has failed with err. The rules that fail open take no further part. It
// returns an error if the request cannot go on.
func (res *Result) fallbackDecide(ctx context.Context, err error) error {
	f := &res.limiter.fallbacks
	if ctx.Err() != nil || !res.set.strict || errors.Is(err, core.ErrOp) {
		return err
	}
	for i := range res.calls {
		if r := res.calls[i].rule; r.failureMode == FailClosed && r.OnLimit != Shadow {
			return err
		}
	}
	local := 0
	for i := range res.calls {
		if res.calls[i].rule.failureMode == FailLocal {
			res.calls[local], res.ops[local], res.out[local] = res.calls[i], res.ops[i], res.out[i]
			local++
		}
	}
	res.calls, res.ops, res.out = res.calls[:local], res.ops[:local], res.out[:local]
	if again := res.limiter.applyTo(ctx, f.fallback, res.ops, res.out); again != nil {
		return errors.Join(err, again)
	}
	res.noteSkipped(ctx, err)
	return nil
}

// skipRule lets the request go on without rule i, whose own functions failed with
// err, unless the rule closes.
func (res *Result) skipRule(ctx context.Context, i int, err error) error {
	if res.set.rules[i].failsClosed(&res.limiter.fallbacks) {
		return err
	}
	res.noteSkipped(ctx, err)
	return nil
}

// noteSkipped notes that err kept some rules from being asked.
func (res *Result) noteSkipped(ctx context.Context, err error) {
	res.skipped = cmp.Or(res.skipped, err)
	res.limiter.report(ctx, err)
}

// failsOpen tells whether the request goes on although err kept all rules from
// deciding. The request of a client that has left does not: whoever hangs up in
// time would be served uncounted. That of a rule's own functions was not
// excused.
func (res *Result) failsOpen(ctx context.Context, err error) bool {
	if ctx.Err() != nil || ruleOf(err) != "" {
		return false
	}
	for i := range res.calls {
		if res.calls[i].rule.failsClosed(&res.limiter.fallbacks) {
			return false
		}
	}
	return true
}

// retryAfter is when it is worth trying again after err, if err knows.
func retryAfter(err error) time.Duration {
	var e interface{ RetryAfter() time.Duration }
	if errors.As(err, &e) {
		return e.RetryAfter()
	}
	return 0
}
