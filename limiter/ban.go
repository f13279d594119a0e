// This file checks the bans of rules, and lists and lifts bans.

package limiter

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/textform"
)

// checkBan returns every mistake in the ban of the rule.
func (r *Rule) checkBan() []error {
	if r.Ban == (core.Ban{}) {
		return nil
	}

	var errs []error
	if err := r.Ban.Validate(); err != nil {
		errs = append(errs, ofBan(err))
	}

	// A request that passes or waits over the limit is no refusal that could be counted.
	if r.OnLimit == Degrade || r.OnLimit.kind == waits {
		err := fmt.Errorf("only a rule that refuses requests can ban, and OnLimit is %s", r.OnLimit)
		errs = append(errs, ofBan(err))
	}
	if err := r.checkBanned(&r.Limit); err != nil {
		errs = append(errs, err)
	}
	return errs
}

// ofBan names the field of a mistake.
func ofBan(err error) error { return fmt.Errorf("%s: %w", "Ban", err) }

// checkBanned refuses limits whose keys the rule cannot ban.
func (r *Rule) checkBanned(l *core.Limit) error {
	if r.Ban != (core.Ban{}) && l.Leased() {
		return ofBan(errors.New("a concurrency limit cannot ban, because leases have to be renewed"))
	}
	return nil
}

// maxBans is how many bans [Limiter.Bans] returns at most.
const maxBans = 10_000

// Bans returns the keys that the rules in force have banned, those whose bans last longest
// first, at most 10,000. Keys are as the key functions of the rules return them, so that
// secrets are digests; they hold whatever clients sent, and have to be escaped where they
// are shown. The list is a view of a moment, and may lack a key that was banned just before.
//
// The events.Report of the store has to list bans. For another store, and a rule that bans, the
// error says so, and wraps [errors.ErrUnsupported].
func (l *Limiter) Bans(ctx context.Context) (list []core.Banned, err error) {
	// A store that cannot list bans is no fault where no rule bans.
	var rules []string
	for _, r := range l.set.Load().rules {
		if r.terms.take.Ban != nil {
			rules = append(rules, r.Name)
		}
	}
	if rules == nil {
		return nil, nil
	}

	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("store: %w", panicked(v))
		}
	}()
	return l.fallbacks.report.Bans(ctx, rules, maxBans)
}

// Lift ends the ban of a key under a rule, and forgets its refusals and its earlier bans. The
// units that it has used stay used; [Limiter.Reset] gives them back too. A key without a
// ban is left as it is. The error names a rule that is not in force.
func (l *Limiter) Lift(ctx context.Context, rule, key string) error {
	res := newResult()
	res.prepare(&l.engine)
	// The other rules keep their bans, so the rule is asked alone.
	i := slices.IndexFunc(res.set.rules, func(r *activeRule) bool { return r.Name == rule })
	if i < 0 {
		return fmt.Errorf("headgate: there is no rule %q whose ban could be lifted", textform.Clip(rule))
	}

	if err := res.addKeyTo(ctx, res.set.rules[i], core.Lift, key, 0); err != nil {
		return err
	}
	if err := res.apply(ctx, core.Lift); err != nil {
		return err
	}

	l.notifyLifted(res.ops[:res.asked])
	return nil
}

// errBan is the error of calls that wait or book under a rule which bans.
var errBan = fmt.Errorf("%w: a rule with a Ban refuses what is over its limit: use Take", core.ErrOp)
