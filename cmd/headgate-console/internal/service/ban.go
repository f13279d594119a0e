// This file has the bans of single keys: in the counts of a policy that bans, and beside any other.

package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
)

// KeyBan is a ban of a key beside a policy.
type KeyBan struct {
	Policy, Key string
	Until       time.Time
	By          string // who imposed it, or changed the key's override since
}

// maxBans is how many bans are listed.
const maxBans = 10_000

// longestBan is how long a ban beside a policy lasts at most.
const longestBan = maxGrantSpan

// CheckBan returns an error if a key cannot be banned under the policy for the time.
func CheckBan(p policy.Policy, key string, span time.Duration) error {
	longest, of := p.Ban.Max, ", which the policy bans for at most"
	if longest == 0 {
		longest, of = longestBan, ""
		if err := p.CheckOverriddenKey(key); err != nil {
			return invalid("key", err.Error())
		}
		if _, isPrefix := policy.OverriddenPrefix(key); isPrefix {
			return invalid("key", "it is spelled as a prefix, which stands for all keys that begin so")
		}
	}

	switch {
	case p.Mode != policy.Enforce:
		return invalid("ban", "the policy bans no keys while it is "+ModeWords(p.Mode))
	case span < time.Second || span > longest || span%time.Millisecond != 0:
		return invalid("for", fmt.Sprintf("it is not a time from 1s to %s%s", longest, of))
	}
	return nil
}

// ImposeBan bans a key of a policy for a time from now on. Under a policy that bans by itself it is
// [Service.ResetKey] for impose, and the store has the ban. Under any other the ban is beside the
// policy, and published like an override; it replaces one that it was under, and leaves the key's
// limit.
func (s *Service) ImposeBan(
	ctx context.Context, a Actor, name, key string, span time.Duration,
	impose func(context.Context, policy.Policy, string, time.Duration) error,
) error {
	if err := checkKey(key); err != nil {
		return err
	}

	inStore := false
	err := s.act(ctx, a, store.CounterOverrides, "ban.impose", policyObject(name), func(d *action) error {
		p, err := d.editable(name)
		if err != nil {
			return err
		}
		if inStore = p.Ban != (core.Ban{}); inStore {
			return errUnchanged
		}
		if err := errors.Join(checkComment(a.comment), CheckBan(p, key, span)); err != nil {
			return err
		}
		return d.banBeside(&p, key, instant(d.now).Add(span), with(keyText(key, p), "for", span.String()))
	})
	if err != nil || !inStore {
		return err
	}

	entry := func(p policy.Policy, key string) (string, error) {
		return with(keyText(key, p), "for", span.String()), CheckBan(p, key, span)
	}
	ban := func(ctx context.Context, p policy.Policy, key string) error { return impose(ctx, p, key, span) }
	return s.changeKey(ctx, a, "ban.impose", name, key, entry, ban)
}

// LiftBan ends the bans of a key of a policy: the one beside it, and by lift that of the store, as
// [Service.ResetKey] does. Under a policy that bans no keys lift is not called if there was one
// beside it.
func (s *Service) LiftBan(
	ctx context.Context, a Actor, name, key string, lift func(context.Context, policy.Policy, string) error,
) error {
	if err := checkLength(key); err != nil {
		return err
	}

	done := false
	err := s.act(ctx, a, store.CounterOverrides, "ban.lift", policyObject(name), func(d *action) error {
		done = false
		p, err := d.editable(name)
		if err != nil {
			return err
		}
		was, err := d.Override(name, key)
		if errors.Is(err, ErrNotFound) || err == nil && keptBan(was.Text, "", instant(d.now)) == "" {
			return errUnchanged
		}
		if err != nil {
			return err
		}
		done = p.Ban == (core.Ban{})
		return d.banBeside(&p, key, time.Time{}, keyText(key, p))
	})
	if err != nil || done {
		return err
	}
	return s.changeKey(ctx, a, "ban.lift", name, key, keyEntry, lift)
}

// banBeside sets the end of the ban that a key has beside a policy, or lifts it with the zero time,
// and writes the entry to the audit log. The limit that the key has beside the policy stays.
func (a *action) banBeside(p *policy.Policy, key string, until time.Time, entry string) error {
	was, err := a.Override(p.Name, key)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}

	// A limit that cannot be read, or that the policy cannot have, is in force nowhere.
	o, _ := policy.ParseOverride(was.Text)
	if !o.Limits(instant(a.now)) || p.CheckOverride(key, policy.Override{Limit: o.Limit}) != nil {
		o = policy.Override{}
	}
	o.BannedUntil = until.Truncate(time.Second)
	if until.After(o.BannedUntil) {
		o.BannedUntil = o.BannedUntil.Add(time.Second)
	}

	if err := a.makeRoom(p.Name, 1); err != nil {
		return err
	}
	if err := a.putRevisions([]store.Override{a.overrideRow(p.Name, key, o)}); err != nil {
		return err
	}
	row := a.actor.auditRow(a.now, a.verb, a.object)
	row.Note, row.After = a.actor.comment, entry
	if err := a.AddAudit(row); err != nil {
		return err
	}
	return a.fitsOverrides(p.Name)
}

// keptBan returns a text that replaces that of an override, with the ban that it has in force: only
// a lift ends a ban.
func keptBan(was, text string, now time.Time) string {
	before, _ := policy.ParseOverride(was) // whose ban is in force whatever follows it
	if !before.Bans(now) {
		return text
	}

	var o policy.Override
	if text != "" {
		var err error
		if o, err = policy.ParseOverride(text); err != nil || !o.BannedUntil.IsZero() {
			return text
		}
	}
	o.BannedUntil = before.BannedUntil
	return o.String()
}

// BansBeside returns the bans beside the policies of the names that the actor sees, those that last
// longest first, at most 10,000 of all policies.
func (s *Service) BansBeside(ctx context.Context, a Actor, names []string) (list []KeyBan, err error) {
	err = s.ask(ctx, a, "ban.list", "policies", func(d *action) error {
		now := instant(d.now)
		rows, err := d.BannedOverrides(now.UTC().Format("2006-01-02T15:04:05"), maxBans)
		if err != nil || len(rows) == 0 {
			return err
		}
		of, err := d.selected(func(p policy.Policy) bool { return slices.Contains(names, p.Name) })
		if err != nil {
			return err
		}
		sees := map[string]bool{}
		for _, p := range of {
			sees[p.Name] = true
		}

		list = nil
		for _, row := range rows {
			if o, _ := policy.ParseOverride(row.Text); o.Bans(now) && sees[row.Policy] {
				list = append(list, KeyBan{row.Policy, row.Key, o.BannedUntil, row.ChangedBy})
			}
		}
		return nil
	})
	return list, err
}
