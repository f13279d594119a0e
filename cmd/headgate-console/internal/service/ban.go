// This file has the bans of single keys: in the counts of a policy that bans, and beside any other.

package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
)

// KeyBan is a ban of a key under a policy, or beside it.
type KeyBan struct {
	Policy, Key string
	Until       time.Time

	// These are of who imposed it, as the audit log has them. ExplainBans sets them.
	By      string
	At      time.Time
	Comment string
}

// maxBans is how many bans are listed.
const maxBans = 10_000

// longestBan is how long a ban beside a policy lasts at most.
const longestBan = maxGrantSpan

// CheckBan returns an error if a key cannot be banned under the policy for the time.
func CheckBan(p policy.Policy, key string, span time.Duration) error {
	longest, of, err := p.Ban.Max, ", which the policy bans for at most", policy.CheckKey(&p, key)
	if longest == 0 {
		longest, of, err = longestBan, "", p.CheckOverriddenKey(key)
	}
	if err != nil {
		return invalid("key", err.Error())
	}

	// The store of a policy that bans by itself has keys alone. Beside a policy a text that ends in
	// * would stand for many of them.
	if p.Ban.Max == 0 {
		if _, isPrefix := policy.OverriddenPrefix(key); isPrefix {
			return invalid("key", "it is spelled as a prefix, which stands for all keys that begin so")
		}
	}

	switch {
	case p.Mode != policy.Enforce:
		return invalid("ban", "the policy bans no keys while it is "+ModeWords(p.Mode))
	case p.Enforce > 0 && !p.Enforce.Has(p.Name, key):
		return invalid("ban", fmt.Sprintf("the policy is in force for %s of its keys, and not for this one", p.Enforce))
	case span < time.Second || span > longest || span%time.Millisecond != 0:
		return invalid("for", fmt.Sprintf("it is not a time from 1s to %s%s", longest, of))
	}
	return nil
}

// ImposeBan bans a key of a policy for a time from now on. Under a policy that bans by itself it is
// [Service.ResetKey] for a ban, and the store has the ban. Under any other the ban is beside the
// policy, and published like an override; it replaces one that it was under, and leaves the key's
// limit.
func (s *Service) ImposeBan(ctx context.Context, a Actor, name, key string, span time.Duration) error {
	if err := checkKey(key); err != nil {
		return err
	}

	inStore := false
	entry := func(p policy.Policy, op *core.Op) (string, error) {
		if p.Ban == (core.Ban{}) { // it had one when it was asked first
			return "", invalid("ban", "the policy was changed meanwhile: try again")
		}
		ban := p.Ban
		ban.For, ban.Max = span, span
		op.Ban = &ban
		return with(keyText(key, p), "for", span.String()), CheckBan(p, key, span)
	}
	err := s.act(ctx, a, store.CounterOverrides, "ban.impose", policyObject(name), func(d *action) error {
		p, err := d.editable(name)
		if err != nil {
			return err
		}
		if inStore = s.fleet == nil || p.Ban != (core.Ban{}); inStore {
			return errUnchanged
		}
		if err := errors.Join(checkComment(a.comment), CheckBan(p, key, span)); err != nil {
			return err
		}
		return d.banBeside(&p, key, instant(d.now).Add(span), with(keyText(key, p), "for", span.String()))
	})
	if err == nil && inStore {
		_, err = s.changeKey(ctx, a, "ban.impose", name, core.Op{Verb: core.Impose, Key: key}, entry)
	}
	return err
}

// LiftBan ends the bans of a key of a policy: the one beside it, and as [Service.ResetKey] does,
// that of the store. Under a policy that bans no keys the store is not asked if there was one
// beside it.
func (s *Service) LiftBan(ctx context.Context, a Actor, name, key string) error {
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
	if err == nil && !done {
		_, err = s.changeKey(ctx, a, "ban.lift", name, core.Op{Verb: core.Lift, Key: key}, keyEntry)
	}
	return err
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
// longest first. At most 10,000 are read: of the policy if there is one name, and else of all
// policies.
func (s *Service) BansBeside(ctx context.Context, a Actor, names []string) ([]KeyBan, error) {
	of := ""
	if len(names) == 1 {
		of = names[0]
	}
	return s.bansBeside(ctx, a, names, func(d *action) ([]store.Override, error) {
		return d.BannedOverrides(of, instant(d.now).UTC().Format("2006-01-02T15:04:05"), maxBans)
	})
}

// BansOfKeys returns the bans that the keys have beside a policy that the actor sees.
func (s *Service) BansOfKeys(ctx context.Context, a Actor, name string, keys []string) ([]KeyBan, error) {
	return s.bansBeside(ctx, a, []string{name}, func(d *action) ([]store.Override, error) {
		return d.OverridesOf(name, keys)
	})
}

// bansBeside returns the bans in rows of the policies of the names that the actor sees.
func (s *Service) bansBeside(
	ctx context.Context, a Actor, names []string, read func(*action) ([]store.Override, error),
) ([]KeyBan, error) {
	return answer(ctx, s, a, "ban.list", "policies", func(d *action) (list []KeyBan, err error) {
		rows, err := read(d)
		if err != nil || len(rows) == 0 {
			return nil, err
		}

		// There may be 10,000 policies, and as many names.
		wanted := make(map[string]bool, len(names))
		for _, name := range names {
			wanted[name] = true
		}
		of, err := d.selected(func(p policy.Policy) bool { return wanted[p.Name] })
		if err != nil {
			return nil, err
		}
		sees := make(map[string]bool, len(of))
		for _, p := range of {
			sees[p.Name] = true
		}

		for _, row := range rows {
			if o, _ := policy.ParseOverride(row.Text); o.Bans(instant(d.now)) && sees[row.Policy] {
				list = append(list, KeyBan{Policy: row.Policy, Key: row.Key, Until: o.BannedUntil})
			}
		}
		return list, nil
	})
}

// maxImposed is how many of the bans of a policy that were imposed last are looked through.
const maxImposed = 1000

// clocksApart is by how much the end of a ban in Redis may differ from what the audit log has.
const clocksApart = 10 * time.Second

// ExplainBans says of bans who imposed them, when, and why. It says none of that if a policy began
// the ban by itself, if 1,000 were imposed under its policy since, or if the actor does not see the
// policy or did not see it then.
func (s *Service) ExplainBans(ctx context.Context, a Actor, bans []*KeyBan) error {
	if len(bans) == 0 {
		return nil
	}
	of := map[string][]*KeyBan{}
	for _, b := range bans {
		of[b.Policy] = append(of[b.Policy], b)
		b.By, b.At, b.Comment = "", time.Time{}, ""
	}

	return s.ask(ctx, a, "ban.list", "policies", func(d *action) error {
		seen, err := d.selected(func(p policy.Policy) bool { return len(of[p.Name]) > 0 })
		if err != nil {
			return err
		}
		for i := range seen {
			if err := d.explainBans(&seen[i], of[seen[i].Name]); err != nil {
				return err
			}
		}
		return nil
	})
}

// visibleSince returns the instant since which the actor sees the policy, or one before the instant
// first if the actor saw it then. Before it the policy was hidden. What was said under a policy of
// its name that was deleted is of the same keys.
func (a *action) visibleSince(name string, first time.Time) (since time.Time, err error) {
	rows, err := a.Revisions(name, 0, MaxPerPage)
	if err != nil {
		return since, err
	}

	since = instant(a.now)
	for _, row := range rows {
		// What was changed before does not matter.
		if since.Before(first) {
			break
		}
		r, err := a.revision(row)
		if errors.Is(err, ErrNotFound) {
			break
		}
		if err != nil {
			return since, err
		}
		since = r.At
	}
	return since, nil
}

// explainBans is ExplainBans for one policy.
func (a *action) explainBans(p *policy.Policy, bans []*KeyBan) error {
	if len(bans) == 0 {
		return nil
	}
	rows, err := a.FindAudit(AuditQuery{
		Action: "ban.impose", Object: policyObject(p.Name), Outcome: Done, Limit: maxImposed,
	})
	if err != nil || len(rows) == 0 {
		return err
	}
	since, err := a.visibleSince(p.Name, rows[len(rows)-1].At)
	if err != nil {
		return err
	}

	// The row that came last counts, of each key.
	imposed := make(map[string]Entry, len(rows))
	for _, row := range slices.Backward(rows) {
		if at := strings.LastIndex(row.After, banSpan); at >= 0 && !row.At.Before(since) {
			imposed[row.After[:at]+"}"] = row
		}
	}

	for _, b := range bans {
		row, found := imposed[keyText(b.Key, *p)]
		if found && row.At.Add(spanOf(row)).Sub(b.Until).Abs() <= clocksApart {
			b.By, b.At, b.Comment = row.Actor, row.At, row.Note
		}
	}
	return nil
}

// banSpan stands between the key and the time of a ban in the audit log.
const banSpan = `,"for":"`

// spanOf returns the time of a ban that the audit log has, or 0.
func spanOf(row Entry) time.Duration {
	_, text, _ := strings.Cut(row.After, banSpan)
	span, _ := time.ParseDuration(strings.TrimSuffix(text, `"}`))
	return span
}
