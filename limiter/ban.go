// This file checks the bans of rules, lists and lifts bans, and grants and revokes credit.

package limiter

import (
	"context"
	"errors"
	"fmt"
	"time"

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

// Bans returns the keys that the rules in force have banned by their Ban, those whose bans last
// longest first, at most 10,000. Keys are as the key functions of the rules return them, so that
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
	r := res.set.named(rule)
	if r == nil {
		return fmt.Errorf("headgate: there is no rule %q whose ban could be lifted", textform.Clip(rule))
	}

	if err := res.addKeyTo(ctx, r, core.Lift, key, 0); err != nil {
		return err
	}
	if err := res.apply(ctx, core.Lift); err != nil {
		return err
	}

	l.notifyLifted(res.ops[:res.asked])
	return nil
}

// Grant gives a key n units under a rule, beside its limit, until an instant. A request first takes
// what the limit has, and what is missing from these units, in one step; a refund gives back to
// them first what came from them. Several grants add up, each keeps its own end, and the one that
// ends first is used first. They outlast a [Limiter.Reset], and a ban holds in spite of them.
// Calls that wait already are not woken.
//
// The error wraps [core.ErrOp], and nothing was granted, if the rule is not in force, n is not
// within 1 to 2^53 - 1, the limit of the key is one of leases, the end has come or is more than ten
// years ahead by the clock of the store, the key has [core.MaxCredits] grants with units left, or
// its units would be more than 2^53 - 1 together, used ones included. After another error the units
// may have been granted; they are not granted by a fallback.
func (l *Limiter) Grant(ctx context.Context, rule, key string, n int64, until time.Time) error {
	d, err := lend(ctx, l, core.Op{Verb: core.Grant, Rule: rule, Key: key, Cost: n, CreditUntil: instantOf(until)})
	if err != nil || d.Allowed {
		return err
	}

	end := instantOf(until)
	switch {
	case end <= d.At:
		err = fmt.Errorf("the end %s has come", until.UTC().Format(time.RFC3339))
	case end > d.At+maxGrant.Microseconds():
		err = fmt.Errorf("the end %s is more than ten years ahead", until.UTC().Format(time.RFC3339))
	case n > maxEncodedUnits-1-d.Credit:
		err = fmt.Errorf("%d units and the %d that are left are above 2^53 - 1", n, d.Credit)
	default:
		err = fmt.Errorf("the key has %d grants, or the store has no room for one", core.MaxCredits)
	}
	return fmt.Errorf("%w: rule %q: %w", core.ErrOp, textform.Clip(rule), err)
}

// Revoke takes all units of grants from a key under a rule, those in use as well: a refund does
// not bring them back, but may give as many to a grant that was made since. A key without grants is
// left as it is. The error wraps [core.ErrOp] if the rule is not in force. After another error the
// units may have been revoked.
func (l *Limiter) Revoke(ctx context.Context, rule, key string) error {
	_, err := lend(ctx, l, core.Op{Verb: core.Revoke, Rule: rule, Key: key})
	return err
}

// maxGrant is how far ahead a grant may end.
const maxGrant = 87660 * time.Hour

// instantOf returns the instant in microseconds, at least 0 and below 2^53.
func instantOf(t time.Time) int64 { return min(max(0, t.UnixMicro()), maxEncodedUnits-1) }

// lend carries out a Grant or a Revoke, of which like has the rule, the key, and what is granted.
func lend(ctx context.Context, l *Limiter, like core.Op) (d core.Decision, err error) {
	res := newResult()
	res.prepare(&l.engine)
	r := res.set.named(like.Rule)
	if r == nil {
		return d, fmt.Errorf("%w: there is no rule %q under which a key could have credit",
			core.ErrOp, textform.Clip(like.Rule))
	}
	if err := res.addKeyTo(ctx, r, like.Verb, like.Key, 0); err != nil {
		return d, err
	}
	res.ops[0].Cost, res.ops[0].CreditUntil = like.Cost, like.CreditUntil
	if err := res.apply(ctx, like.Verb); err != nil {
		return d, err
	}
	return res.out[0], nil
}

// errBan is the error of calls that wait or book under a rule which bans.
var errBan = fmt.Errorf("%w: a rule with a Ban refuses what is over its limit: use Take", core.ErrOp)
