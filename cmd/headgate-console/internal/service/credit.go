package service

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
)

// MaxUnits is the largest number of units of a grant, and of all grants of a key together.
const MaxUnits = 1<<53 - 1

// maxGrantSpan is how far ahead a grant may end, as core has it.
const maxGrantSpan = 87660 * time.Hour

// CheckGrant returns an error that names every mistake in a grant of a key: the limit of the key is
// one of leases, the units cannot be counted, or the end has come at now or is too far ahead.
func CheckGrant(p policy.Policy, key string, units int64, until, now time.Time) error {
	var f faults
	if l := p.LimitOf(key, now); l.Leased() {
		f.add("policy", fmt.Errorf("%s ends its leases by itself, so its keys have no credit", l))
	}
	f.addUnits(units, MaxUnits)
	switch {
	case !until.After(now):
		f.add("until", errors.New("it has come already"))
	case until.After(now.Add(maxGrantSpan)):
		f.add("until", errors.New(tooFar))
	}
	f.addKey(p, key)
	return f.err()
}

const tooFar = "it is more than ten years ahead"

// CheckDebit returns an error that names every mistake in a debit of a key: its limit has no debt,
// or is not known here, or never holds so many units, even with its debt.
func CheckDebit(p policy.Policy, key string, units int64, now time.Time) error {
	var f faults
	l := p.LimitOf(key, now)
	_, own := p.OverrideOf(key, now)

	switch most := l.Capacity() + l.MaxDebt(); {
	case l.MaxDebt() == 0:
		f.add("policy", fmt.Errorf("%s has no debt, so nothing can be charged beyond it", l))
	case p.Plans != nil && !own:
		f.add("policy", errors.New("only the program knows which plan the key has, "+
			"and so how many units fit: headgate keys debit -plan charges it"))
	default:
		f.addUnits(units, most)
	}
	f.addKey(p, key)
	return f.err()
}

// addUnits adds the mistake in a number of units.
func (f *faults) addUnits(units, most int64) {
	if units < 1 || units > most {
		f.add("units", fmt.Errorf("it is not a whole number from 1 to %d", most))
	}
}

// addKey adds what is wrong with a key that no request is counted by under the policy.
func (f *faults) addKey(p policy.Policy, key string) {
	// What CheckOverriddenKey says of other texts is about where policies write keys down.
	_, isPrefix := policy.OverriddenPrefix(key)
	if p.Key == "global" || isPrefix || len(key) > 512 || !utf8.ValidString(key) {
		return
	}
	f.add("key", p.CheckOverriddenKey(key))
}

// GrantKey is [Service.ResetKey] for a grant, which gives a key units beside its limit, until an
// instant. The error is an InvalidError if such a grant cannot be, by CheckGrant and the clock of
// the console, or by the store and its own clock.
func (s *Service) GrantKey(
	ctx context.Context, a Actor, name, key string, units int64, until time.Time,
) error {
	if err := checkKey(key); err != nil {
		return err
	}
	until = until.Truncate(time.Microsecond)
	op := core.Op{Verb: core.Grant, Key: key, Cost: units, CreditUntil: until.UnixMicro()}
	_, err := s.changeKey(ctx, a, "key.grant", name, op, func(p policy.Policy, _ *core.Op) (string, error) {
		row := with(with(keyText(key, p), "units", units), "until", until.UTC())
		return row, CheckGrant(p, key, units, until, time.UnixMicro(s.now()))
	})
	return err
}

// refusedGrant returns why a store has refused a grant.
func refusedGrant(d core.Decision, op core.Op) error {
	now, until := time.UnixMicro(d.At), time.UnixMicro(op.CreditUntil)
	switch {
	case !until.After(now):
		return invalid("until", "it has come already: the clock of Redis says "+now.UTC().Format(time.RFC3339))
	case until.After(now.Add(maxGrantSpan)):
		return invalid("until", tooFar+" by the clock of Redis")
	case op.Cost > MaxUnits-d.Credit:
		return invalid("units", fmt.Sprintf("with the %d that are left they are above %d", d.Credit, int64(MaxUnits)))
	}
	return invalid("until", fmt.Sprintf("the key has %d grants with other ends, and can have no more: choose one of "+
		"their ends, or revoke them", core.MaxCredits))
}

// RevokeKey is [Service.ResetKey] for a revoke, which takes all units of grants from a key.
func (s *Service) RevokeKey(ctx context.Context, a Actor, name, key string) error {
	_, err := s.changeKey(ctx, a, "key.revoke", name, core.Op{Verb: core.Revoke, Key: key}, keyEntry)
	return err
}

// DebitKey is [Service.ResetKey] for a debit, which charges a key units that were used already, if
// need be beyond its limit. It returns how many were charged: fewer if the debt of the limit is
// full, which the audit log has in a second row. See CheckDebit for its InvalidErrors.
func (s *Service) DebitKey(
	ctx context.Context, a Actor, name, key string, units int64,
) (charged int64, err error) {
	if err := checkKey(key); err != nil {
		return 0, err
	}
	op := core.Op{Verb: core.Debit, Key: key, Cost: units}
	d, err := s.changeKey(ctx, a, "key.debit", name, op, func(p policy.Policy, _ *core.Op) (string, error) {
		return with(keyText(key, p), "units", units), CheckDebit(p, key, units, time.UnixMicro(s.now()))
	})
	if err == nil && d.Taken < units {
		s.auditRefusal(ctx, a, "key.debit", policyObject(name),
			fmt.Sprintf("%d of the %d units were charged: the debt of the key is full", d.Taken, units))
	}
	return d.Taken, err
}
