package limiter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"github.com/headgate/headgate/core"
	"time"
)

// Failure says what happens to a request when nobody can decide under a rule:
// the store failed, or a function of the rule panicked or returned what makes
// no sense.
type Failure uint8

const (
	// FailDefault is, in a [Rule], what Config.OnStoreError says; and there it
	// is FailLocal if the store has a fallback, and FailOpen if it has none.
	FailDefault Failure = iota

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
func (f Failure) String() string {
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
	return "unknown failure"
}

// failing is what a limiter does when nobody can decide.
type failing struct {
	store     core.Store // decides by its fallback if need be
	strict    core.Store // the same without the fallback
	fallback  core.Store // or nil
	otherwise Failure
	last      Failure // when the fallback cannot decide either
}

func newFailing(c *Config) failing {
	f := failing{store: c.Store, strict: c.Store, otherwise: c.OnStoreError, last: FailOpen}
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

// fault says what is wrong with a choice, or returns nil.
func (f *failing) fault(choice Failure) error {
	switch {
	case choice > FailLocal:
		return fmt.Errorf("OnStoreError: %d is not known", choice)
	case choice == FailLocal && f.fallback == nil:
		return errors.New("OnStoreError: the store has no fallback that could decide")
	}
	return nil
}

// settle gives every rule its choice and finds out whom to ask first: rules
// that want no decision of the fallback have to see the store fail.
func (f *failing) settle(set *ruleSet) {
	set.store = f.store
	for _, r := range set.rules {
		if r.failure = cmp.Or(r.OnStoreError, f.otherwise); r.failure != FailLocal {
			set.store, set.strict = f.strict, f.fallback != nil
		}
	}
}

// closes tells whether the rule turns a request away under which nobody could
// decide, not even the fallback. Shadow rules turn nobody away.
func (r *activeRule) closes(f *failing) bool {
	if r.OnLimit == Shadow {
		return false
	}
	return r.failure == FailClosed || r.failure == FailLocal && f.last == FailClosed
}

// endure has the fallback decide for the rules that want it, after the store
// has failed with err. The rules that fail open take no further part. It
// returns an error if the request cannot go on.
func (g *Grant) endure(ctx context.Context, err error) error {
	f := &g.limiter.failing
	if ctx.Err() != nil || !g.set.strict || errors.Is(err, core.ErrOp) {
		return err
	}
	for i := range g.calls {
		if r := g.calls[i].rule; r.failure == FailClosed && r.OnLimit != Shadow {
			return err
		}
	}
	local := 0
	for i := range g.calls {
		if g.calls[i].rule.failure == FailLocal {
			g.calls[local], g.ops[local], g.out[local] = g.calls[i], g.ops[i], g.out[i]
			local++
		}
	}
	g.calls, g.ops, g.out = g.calls[:local], g.ops[:local], g.out[:local]
	if again := g.limiter.applyTo(ctx, f.fallback, g.ops, g.out); again != nil {
		return errors.Join(err, again)
	}
	g.skip(ctx, err)
	return nil
}

// excuse lets the request go on without rule i, whose own functions failed with
// err, unless the rule closes.
func (g *Grant) excuse(ctx context.Context, i int, err error) error {
	if g.set.rules[i].closes(&g.limiter.failing) {
		return err
	}
	g.skip(ctx, err)
	return nil
}

// skip notes that err kept some rules from being asked.
func (g *Grant) skip(ctx context.Context, err error) {
	g.skipped = cmp.Or(g.skipped, err)
	g.limiter.report(ctx, err)
}

// passes tells whether the request goes on although err kept all rules from
// deciding. The request of a client that has left does not: whoever hangs up in
// time would be served uncounted. That of a rule's own functions was not
// excused.
func (g *Grant) passes(ctx context.Context, err error) bool {
	if ctx.Err() != nil || ruleOf(err) != "" {
		return false
	}
	for i := range g.calls {
		if g.calls[i].rule.closes(&g.limiter.failing) {
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
