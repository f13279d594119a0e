// This file has the bans of rules, and lists and lifts them.

package limiter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/textform"
)

// Ban says how many refusals of a key begin a ban, and for how long the rule then turns
// the key away. Its zero value bans no key.
//
// Each next ban of a key lasts twice as long as the one before, at most Max. A key that is
// not banned again for Max after the end of a ban is as one that never was. A refusal
// during a ban adds nothing to it. The store keeps bans with the counts of the rule, so
// all instances know of a ban, and a restart ends none that Redis holds.
type Ban struct {
	// After is a fixed window that is not aligned, such as "20/1m fixed-window": the 20th
	// refusal within a minute begins a ban. Its quota is at most 1<<31. Only refusals by
	// the rule itself count, and a request that costs more than the limit can ever hold is
	// none of them.
	After core.Limit

	// For is how long the first ban lasts, and Max how long any lasts at most. Both are
	// from 1 ms to [core.MaxPeriod], in whole microseconds.
	For, Max time.Duration
}

// op returns the ban as a store knows it, or nil for none.
func (b Ban) op() *core.Ban {
	if b == (Ban{}) {
		return nil
	}
	return &core.Ban{Strikes: b.After.Quota, Within: b.After.Period, For: b.For, Max: b.Max}
}

// check returns every mistake in the ban of a rule.
func (b Ban) check(r *Rule) []error {
	known := b.op()
	if known == nil {
		return nil
	}
	var errs []error
	if err := b.checkAfter(); err != nil {
		errs = append(errs, err)
		known.Strikes, known.Within = 1, time.Second // the other fields remain to be checked
	}
	if err := known.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("Ban: %w", err))
	}
	if r.OnLimit == Degrade || r.OnLimit.kind == waits {
		errs = append(errs, fmt.Errorf("Ban: only a rule that refuses requests can ban, and OnLimit is %s", r.OnLimit))
	}
	if err := b.checkLimit(&r.Limit); err != nil {
		errs = append(errs, err)
	}
	return errs
}

func (b *Ban) checkAfter() error {
	const example = `such as "20/1m fixed-window"`
	switch a := &b.After; {
	case *a == (core.Limit{}):
		return errors.New("Ban: After is missing: it says how many refusals begin a ban, " + example)
	case a.Algorithm != core.FixedWindow || a.Aligned || a.Debt != 0:
		return fmt.Errorf("Ban: After is %q, and has to be a fixed window, not aligned and without a debt, %s", a, example)
	}
	if err := b.After.Validate(); err != nil {
		return fmt.Errorf("Ban: After: %w", err)
	}
	return nil
}

// checkLimit refuses limits whose keys cannot be banned.
func (b *Ban) checkLimit(l *core.Limit) error {
	if *b != (Ban{}) && l.Leased() {
		return errors.New("Ban: a concurrency limit cannot ban, because leases have to be renewed")
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
// The store has to be a [core.BanLister]. For another the error says so, and wraps
// [errors.ErrUnsupported].
func (l *Limiter) Bans(ctx context.Context) (list []core.Banned, err error) {
	s, ok := l.store.(core.BanLister)
	if !ok {
		return nil, fmt.Errorf("headgate: a %T cannot list bans: %w", l.store, errors.ErrUnsupported)
	}
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
	return s.Bans(ctx, rules, maxBans)
}

// Lift ends the ban of a key under a rule, and forgets its refusals and its earlier bans. The
// units that it has used stay used; [Limiter.Reset] gives them back too. A key without a
// ban is left as it is. The error names a rule that is not in force.
func (l *Limiter) Lift(ctx context.Context, rule, key string) error {
	res := &Result{}
	res.begin(&l.engine)
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
	l.tellLifted(res.ops[:res.asked])
	return nil
}

// errBan is the error of calls that wait or book under a rule which bans.
var errBan = fmt.Errorf("%w: a rule with a Ban refuses what is over its limit: use Take", core.ErrOp)
