// This file has the overrides beside the policies: limits of single keys that are changed and
// published one at a time.

package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/policy"
)

// MaxOverrideChanges is the largest number of changes of [Service.ChangeOverrides].
const MaxOverrideChanges = 1000

// Override is the limit of a single key, or of all keys with a prefix, beside a policy.
type Override struct {
	Key string
	policy.Override
	ChangedAt time.Time
	ChangedBy string
	Ban       KeyBan // who banned the key, if it is banned

	// Reason says why the instances leave it out, or have its ban alone, or is "".
	Reason string
}

// OverridesQuery selects a page of the overrides of a policy, in the order of their keys.
type OverridesQuery struct {
	Prefix  string `json:"search,omitempty"`   // of the keys
	After   string `json:"after,omitempty"`    // the last key of the page before, or ""
	PerPage int    `json:"per_page,omitempty"` // has the meaning of Query.PerPage
}

// OverridesPage is a page of overrides.
type OverridesPage struct {
	Overrides []Override
	Total     int64 // that the query selects
	All       int64 // of the policy
	More      bool  // there are further pages
	MayEdit   bool  // the actor may change them
}

// Overrides returns a page of the overrides of a policy that the actor sees.
func (s *Service) Overrides(
	ctx context.Context, a Actor, name string, q OverridesQuery,
) (page OverridesPage, err error) {
	if err := errors.Join(checkPart("search", q.Prefix), checkPart("after", q.After)); err != nil {
		return page, err
	}

	err = s.ask(ctx, a, "override.list", policyObject(name), func(d *action) error {
		p, err := d.policy(name)
		if err != nil {
			return err
		}
		page = OverridesPage{MayEdit: d.access.CanEdit(p.Apps)}
		if page.All, err = d.CountOverrides(name, ""); err != nil || page.All == 0 {
			return err
		}
		if page.Total, err = d.CountOverrides(name, q.Prefix); err != nil {
			return err
		}

		// One row more than the page has shows whether there are further pages.
		limit := perPage(q.PerPage)
		rows, err := d.Tx.Overrides(name, q.Prefix, q.After, limit+1)
		page.More = len(rows) > limit
		for _, row := range rows[:min(len(rows), limit)] {
			page.Overrides = append(page.Overrides, overrideOf(&p, row))
		}
		if err != nil {
			return err
		}

		var bans []*KeyBan
		for i := range page.Overrides {
			if o := &page.Overrides[i]; o.Bans(instant(d.now)) {
				o.Ban = KeyBan{Policy: name, Key: o.Key, Until: o.BannedUntil}
				bans = append(bans, &o.Ban)
			}
		}
		return d.explainBans(&p, bans)
	})
	return page, err
}

// checkPart returns an error for what no key is or begins with.
func checkPart(field, text string) error {
	if len(text) > MaxKey || !utf8.ValidString(text) {
		return invalid(field, "it is too long, or not UTF-8")
	}
	return nil
}

// overrideOf returns an override beside a policy, which may have changed since.
func overrideOf(p *policy.Policy, row store.Override) Override {
	o := Override{Key: row.Key, ChangedAt: instant(row.ChangedAt), ChangedBy: row.ChangedBy}
	read, err := policy.ParseOverride(row.Text)
	o.Override = read
	usable, unfit := policy.UsableOverride(p, o.Key, read)
	if err == nil {
		err = unfit
	}
	if err != nil {
		o.Reason = err.Error()
		if !usable.BannedUntil.IsZero() {
			o.Reason += "; its ban stays in force"
		}
	}
	return o
}

// OverrideChange sets the override of a key, or removes it.
type OverrideChange struct {
	Key   string `json:"key"`
	Limit string `json:"limit,omitempty"` // as core.ParseLimit reads it; "" removes the override
	Until string `json:"until,omitempty"` // as policy.ParseUntil reads it; "" for no end
}

// SetOverride sets the override of a key beside a policy, or removes it if the limit is "". It
// reports whether anything differs; a removal of none does not. The actor has to own every
// application that the policy lists. The change is published by itself.
func (s *Service) SetOverride(ctx context.Context, a Actor, name string, c OverrideChange) (changed bool, err error) {
	n, err := s.changeOverrides(ctx, a, name, []OverrideChange{c}, func(int) string { return "" })
	return n > 0, err
}

// ChangeOverrides is [Service.SetOverride] for several keys at once, all of them or none. It
// returns how many differ. Fields of its errors begin as in "changes[0].".
func (s *Service) ChangeOverrides(ctx context.Context, a Actor, name string, list []OverrideChange) (int, error) {
	if len(list) > MaxOverrideChanges {
		return 0, invalid("changes", fmt.Sprintf("%d are more than %d", len(list), MaxOverrideChanges))
	}
	return s.changeOverrides(ctx, a, name, list, func(i int) string { return fmt.Sprintf("changes[%d].", i) })
}

// changeOverrides makes all changes or none, and returns how many of them changed something.
func (s *Service) changeOverrides(
	ctx context.Context, a Actor, name string, list []OverrideChange, field func(int) string,
) (changed int, err error) {
	err = s.act(ctx, a, store.CounterOverrides, "override.change", policyObject(name), func(d *action) error {
		changed = 0
		if err := checkComment(a.comment); err != nil {
			return err
		}
		p, err := d.editable(name)
		if err != nil {
			return err
		}

		rows := make([]store.Override, len(list))
		seen := make(map[string]bool, len(list))
		var f faults
		for i, c := range list {
			rows[i] = d.overrideRow(name, c.Key, readOverride(&p, c, d.now, field(i), &f))
			if seen[c.Key] {
				f.add(field(i)+"key", errors.New("another change is of the same key"))
			}
			seen[c.Key] = true
		}
		if err := f.err(); err != nil {
			return err
		}

		// A removal makes room for others, also where they are published one after the other.
		slices.SortStableFunc(rows, func(a, b store.Override) int { return min(len(a.Text), 1) - min(len(b.Text), 1) })
		if err := d.makeRoom(name, len(rows)); err != nil {
			return err
		}
		for _, row := range rows {
			differs, err := d.putOverride(&p, row)
			if err != nil {
				return err
			}
			if differs {
				changed++
			}
		}
		if changed == 0 {
			return errUnchanged
		}
		return d.fitsOverrides(name)
	})
	return changed, err
}

// readOverride returns what a change sets, or a zero override for a removal, and adds its mistakes
// to f. A new override has not ended at the instant now, in µs.
func readOverride(p *policy.Policy, c OverrideChange, now int64, field string, f *faults) policy.Override {
	if c.Limit == "" && c.Until == "" {
		if c.Key == "" {
			f.add(field+"key", errors.New("the key is empty"))
		}
		return policy.Override{}
	}

	o, err := policy.ParseOverride(c.Limit)
	switch {
	case err == nil && !o.BannedUntil.IsZero():
		err = errors.New("a ban is no limit: ban the key instead")
	case err == nil && !o.Until.IsZero():
		err = errors.New("the end has a field of its own")
	}
	f.add(field+"limit", err)
	limitWrong := err != nil

	o.Until, err = policy.ParseUntil(c.Until)
	if err == nil && !o.Until.IsZero() && !instant(now).Before(o.Until) {
		err = errors.New("it has passed already")
	}
	f.add(field+"until", err)

	// With the limit of the policy, only the key can be wrong.
	err = p.CheckOverride(c.Key, policy.Override{Limit: p.Limit})
	f.add(field+"key", err)
	if err == nil && !limitWrong {
		f.add(field+"limit", p.CheckOverride(c.Key, policy.Override{Limit: o.Limit}))
	}
	return o
}

// overrideRow returns the row that sets the override of a key, or removes it if it is zero.
func (a *action) overrideRow(name, key string, o policy.Override) store.Override {
	row := store.Override{Policy: name, Key: key, ChangedAt: a.now, ChangedBy: a.actor.user}
	if o != (policy.Override{}) {
		row.Text = o.String()
	}
	return row
}

// putOverride writes an override or removes it, and reports whether it differs.
func (a *action) putOverride(p *policy.Policy, row store.Override) (differs bool, err error) {
	was, err := a.Override(row.Policy, row.Key)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return false, err
	}
	if row.Text = keptBan(was.Text, row.Text, instant(a.now)); was.Text == row.Text {
		return false, nil
	}

	if err := a.putRevisions([]store.Override{row}); err != nil {
		return false, err
	}

	verb := "override.set"
	if row.Text == "" {
		verb = "override.remove"
	}
	entry := a.actor.auditRow(a.now, verb, a.object)
	entry.Note = a.actor.comment
	entry.Before, entry.After = overrideText(p, was, row.Key), overrideText(p, row, row.Key)
	return true, a.AddAudit(entry)
}

// overrideText returns the form of an override in the audit log, or "" if there is none.
func overrideText(p *policy.Policy, row store.Override, key string) string {
	if row.Text == "" {
		return ""
	}
	return with(keyText(key, *p), "limit", row.Text)
}

// number gives each row a revision of overrides, by which the publisher finds what it has not
// published, and which no others have. It is at least the time in milliseconds, so that a database
// which was restored from a backup gives none that it has given since.
func (a *action) number(rows []store.Override) error {
	c, err := a.Counter(store.CounterOverrides)
	if err != nil {
		return err
	}
	next := max(c.Value+1, a.now/1000)
	for i := range rows {
		rows[i].Revision = next + int64(i)
	}
	return a.AdvanceCounter(store.CounterOverrides, next+int64(len(rows))-1, a.now)
}

// fitsOverrides refuses more overrides of a policy than are published.
func (a *action) fitsOverrides(name string) error {
	n, err := a.CountOverrides(name, "")
	if err == nil && n > policy.MaxOverridesBeside {
		err = invalid("key", fmt.Sprintf("the policy %s would have %d overrides, more than %d",
			name, n, policy.MaxOverridesBeside))
	}
	return err
}

// makeRoom removes the overrides that have ended if n more would be too many with them.
func (a *action) makeRoom(name string, n int) error {
	count, err := a.CountOverrides(name, "")
	if err != nil || count+int64(n) <= policy.MaxOverridesBeside {
		return err
	}
	return a.sweepOverrides(name, instant(a.now))
}

// sweepOverrides removes the overrides of a policy that have ended by an instant. The audit log has
// one row of all of them.
func (a *action) sweepOverrides(name string, by time.Time) error {
	var removed int
	for after := ""; ; {
		rows, err := a.EndingOverrides(name, after, sweepPiece)
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			break
		}
		after = rows[len(rows)-1].Key

		// One that cannot be read stays, as no instance can have it in force.
		var ended []store.Override
		for _, row := range rows {
			if o, err := policy.ParseOverride(row.Text); err == nil && o.Ended(by) {
				ended = append(ended, a.overrideRow(name, row.Key, policy.Override{}))
			}
		}
		if err := a.putRevisions(ended); err != nil {
			return err
		}
		removed += len(ended)
	}
	if removed == 0 {
		return nil
	}

	entry := itself().auditRow(a.now, "overrides.sweep", policyObject(name))
	entry.Before = text(map[string]int{"ended": removed})
	return a.AddAudit(entry)
}

// sweepPiece is how many overrides are read at once.
const sweepPiece = 1000

// putRevisions writes overrides of one policy, and gives each a revision.
func (a *action) putRevisions(rows []store.Override) error {
	if len(rows) == 0 {
		return nil
	}
	if err := a.number(rows); err != nil {
		return err
	}
	return a.PutOverrides(rows...)
}

// dropOverrides has Redis remove the overrides of a policy that is deleted. They are kept for when
// it is restored.
func (a *action) dropOverrides(name string) error {
	had, err := a.DeleteOverrides(name)
	if err != nil || !had {
		return err
	}
	return a.putRevisions([]store.Override{a.overrideRow(name, "", policy.Override{})})
}

// restoreOverrides gives a policy that is restored the overrides that it had, and a new one of the
// same name none.
func (a *action) restoreOverrides(name string, isNew bool) error {
	if isNew {
		return a.DropDeletedOverrides(name)
	}
	list, err := a.DeletedOverrides(name)
	if err != nil || len(list) == 0 {
		return err
	}

	if err := a.number(list); err != nil {
		return err
	}
	if err := a.InsertOverrides(list); err != nil {
		return err
	}
	return a.DropDeletedOverrides(name)
}

const (
	// keepEnded is how long an override whose end has passed stays in the list.
	keepEnded = 24 * time.Hour

	// keepDeleted is how long the overrides of a deleted policy are kept for when it is restored.
	keepDeleted = 30 * 24 * time.Hour
)

// SweepOverrides removes the overrides that ended a day ago, and those of policies that were
// deleted a month ago. Nothing else removes them, so it is called from time to time.
func (o Outbox) SweepOverrides(ctx context.Context) error {
	names, err := view(ctx, o.s, (*store.Tx).OverriddenPolicies)
	if err != nil {
		return err
	}

	for _, name := range names {
		err := o.update(ctx, func(a *action) error {
			return a.sweepOverrides(name, instant(a.now).Add(-keepEnded))
		})
		if err != nil {
			return err
		}
	}
	return o.update(ctx, func(a *action) error {
		return a.PruneDeletedOverrides(a.now - keepDeleted.Microseconds())
	})
}

// update runs f for the program itself, alone among those who change overrides.
func (o Outbox) update(ctx context.Context, f func(*action) error) error {
	return o.locked(ctx, store.CounterPolicies, func(t *store.Tx) error {
		return f(&action{Tx: t, actor: itself(), now: o.s.now()})
	})
}

// OverrideTexts returns the texts of the overrides that a policy has of some keys, by key.
func (o Outbox) OverrideTexts(ctx context.Context, policy string, keys []string) (map[string]string, error) {
	rows, err := view(ctx, o.s, func(t *store.Tx) ([]store.Override, error) { return t.OverridesOf(policy, keys) })
	texts := make(map[string]string, len(rows))
	for _, row := range rows {
		texts[row.Key] = row.Text
	}
	return texts, err
}

// overridesPending reports whether changes of overrides are not published yet.
func overridesPending(t *store.Tx) (bool, error) {
	now, err := t.Counter(store.CounterOverrides)
	if err != nil {
		return false, err
	}
	published, err := t.Counter(store.CounterOverridesPublished)
	return published.Value < now.Value, err
}

// ChangedOverrides returns at most limit changes of overrides after a revision, and the revision of
// the last one. Unless there are more, it is that of the database.
func (o Outbox) ChangedOverrides(ctx context.Context, after int64, limit int) (
	changes []policy.OverrideChange, revision int64, more bool, err error,
) {
	err = o.s.db.View(ctx, func(t *store.Tx) error {
		c, err := t.Counter(store.CounterOverrides)
		if err != nil {
			return err
		}
		rows, err := t.ChangedOverrides(after, limit+1)
		if err != nil {
			return err
		}

		revision, changes = c.Value, make([]policy.OverrideChange, 0, limit)
		if more = len(rows) > limit; more {
			rows = rows[:limit]
			revision = rows[limit-1].Revision
		}
		for _, row := range rows {
			changes = append(changes, policy.OverrideChange{Policy: row.Policy, Key: row.Key, Text: row.Text})
		}
		return nil
	})
	return changes, revision, more, err
}

// OverridesPublished stores that the changes of overrides up to a revision were published.
func (o Outbox) OverridesPublished(ctx context.Context, revision int64) error {
	return o.s.db.Update(ctx, func(t *store.Tx) error {
		if err := t.AdvanceCounter(store.CounterOverridesPublished, revision, o.s.now()); err != nil {
			if errors.Is(err, store.ErrStale) {
				return nil
			}
			return err
		}
		return t.ForgetRemovals(revision)
	})
}
