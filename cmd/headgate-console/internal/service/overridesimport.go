// This file has the import and the export of overrides: many of them, of several policies, as a
// whole or not at all.

package service

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/policy"
)

const (
	// maxOverrideSteps is how many changes a plan lists, and how many bans that stay, and
	// maxOverrideFaults how many mistakes an error.
	maxOverrideSteps  = 100
	maxOverrideFaults = 100

	// maxOverrideWrites is how many overrides an import changes, while nothing else is written: all
	// of a policy, and as many in their place.
	maxOverrideWrites = 2 * policy.MaxOverridesBeside

	// maxNewBans is how many keys an import bans. Each has a row in the audit log, of which
	// maxImposed are looked through.
	maxNewBans = maxImposed
)

// OverridesImport is a set of overrides to write.
type OverridesImport struct {
	Set OverrideSet

	// Missing says what happens to overrides of the policies in Set that it does not have. Those
	// of other policies stay.
	Missing Missing

	// Apps leaves out the policies that list none of these applications. Nil leaves out none.
	Apps []string

	// Base is the Digest of the plan that was confirmed, or "".
	Base string

	// Compare has PlanOverrides answer an actor who may not change the policies.
	Compare bool
}

// OverridesPlan is what an import of overrides changes.
type OverridesPlan struct {
	Policies []OverrideCounts `json:"policies"` // by name
	Steps    []OverrideStep   `json:"steps"`    // the first hundred, by policy and key
	Kept     []BanKept        `json:"kept"`     // the first hundred, by policy
	Digest   string           `json:"base"`     // differs from that of a plan of other changes
}

// OverrideCounts are how many overrides of a policy an import sets, removes, and leaves as they
// are.
type OverrideCounts struct {
	Policy    string `json:"policy"`
	Set       int    `json:"set"`
	Removed   int    `json:"removed"`
	Unchanged int    `json:"unchanged"` // of the import
	Missing   int    `json:"missing"`   // that the import does not have, and that stay
	Ended     int    `json:"ended"`     // of the import, that have ended, and are as if it did not have them
	Kept      int    `json:"kept"`      // bans in force that the import would end or shorten, and that stay
}

// BanKept is a ban in force that an import would end or shorten, and that stays.
type BanKept struct {
	Policy string    `json:"policy"`
	Key    string    `json:"key"`
	Until  time.Time `json:"until"`
}

// OverrideStep is the change of one override. A text is "" if there is none.
type OverrideStep struct {
	Policy string `json:"policy"`
	Key    string `json:"key"`
	Before string `json:"before"`
	After  string `json:"after"`
}

// Changes returns how many overrides the plan changes.
func (o *OverridesPlan) Changes() (n int) {
	for _, c := range o.Policies {
		n += c.Set + c.Removed
	}
	return n
}

// PlanOverrides returns what [Service.ImportOverrides] would change, and changes nothing.
func (s *Service) PlanOverrides(ctx context.Context, a Actor, i OverridesImport) (OverridesPlan, error) {
	ctx, cancel := importTime(ctx)
	defer cancel()
	w, err := s.planOverrides(ctx, a, i)
	if err != nil {
		return OverridesPlan{}, err
	}
	return w.plan, nil
}

func (s *Service) planOverrides(ctx context.Context, a Actor, i OverridesImport) (*work, error) {
	return answer(ctx, s, a, "override.import", "policies", func(d *action) (*work, error) {
		return d.planOverrides(i)
	})
}

// ImportOverrides writes overrides in one transaction, all or none, and returns what it has
// changed. The actor has to own every application that the policies list. No ban that is in force
// ends or gets shorter, and new ones are as [Service.ImposeBan] has them, at most a thousand. The
// audit log has one row of each policy that it changes, and one of each ban. The error is ErrMoved
// if the plan of now is not that of Base, or an InvalidError of at most about a hundred mistakes.
func (s *Service) ImportOverrides(ctx context.Context, a Actor, i OverridesImport) (plan OverridesPlan, err error) {
	if i.Compare {
		return plan, invalid("compare", "it is for a plan")
	}
	if err := checkComment(a.comment); err != nil {
		return plan, err
	}
	ctx, cancel := importTime(ctx)
	defer cancel()

	// It is planned while others write.
	w, err := s.planOverrides(ctx, a, i)
	if err != nil {
		return plan, err
	}
	if w.plan.Changes() == 0 {
		return w.plan, i.confirms(w.plan)
	}
	return s.writeOverrides(ctx, a, w)
}

// writeOverrides carries out an import as it was planned, or as it is planned again if what it
// started from has changed.
func (s *Service) writeOverrides(ctx context.Context, a Actor, planned *work) (plan OverridesPlan, err error) {
	err = s.act(ctx, a, store.CounterOverrides, "override.import", "policies", func(d *action) error {
		w := planned
		from, err := d.overridesVersion()
		if err != nil {
			return err
		}
		if from != w.from || !reflect.DeepEqual(d.access, w.access) {
			if w, err = d.planOverrides(w.i); err != nil {
				return err
			}
		}

		plan, w.action = w.plan, d
		if err := w.i.confirms(plan); err != nil {
			return err
		}
		if plan.Changes() == 0 {
			return errUnchanged
		}
		return w.carryOut()
	})
	return plan, err
}

// overridesVersion changes with each change of a policy or of an override.
type overridesVersion struct{ policies, overrides int64 }

func (a *action) overridesVersion() (v overridesVersion, err error) {
	policies, err := a.Counter(store.CounterPolicies)
	if err != nil {
		return v, err
	}
	overrides, err := a.Counter(store.CounterOverrides)
	return overridesVersion{policies.Value, overrides.Value}, err
}

// confirms returns ErrMoved unless the plan is the one that was confirmed, if one was.
func (o *OverridesImport) confirms(plan OverridesPlan) error {
	if o.Base != "" && o.Base != plan.Digest {
		return ErrMoved
	}
	return nil
}

// work finds out what an import changes.
type work struct {
	*action
	i       OverridesImport
	from    overridesVersion // that the plan starts from
	plan    OverridesPlan
	rows    map[string][]store.Override // that change, by policy; those of removals first
	imposed map[string][]string         // the bans of rows, by policy, as the audit log has them
	bans    int                         // how many there are, of which imposed has maxNewBans
	faults  faults                      // the first
	wrong   int                         // how many there are
	hidden  *DeniedError                // the refusal of a policy that is hidden from the actor
	digest  io.Writer
}

// planOverrides returns nil with an error.
func (a *action) planOverrides(i OverridesImport) (*work, error) {
	hash := sha256.New()
	w := &work{action: a, i: i, rows: map[string][]store.Override{}, imposed: map[string][]string{}, digest: hash}
	if i.Missing != KeepMissing && i.Missing != RemoveMissing {
		return nil, invalid("missing", "it is not remove or nothing")
	}
	if len(i.Set) > policy.MaxPolicies {
		return nil, errManyPolicies()
	}

	// All names are looked up in the policies that all share, without a query of each.
	have, err := a.policies()
	if err != nil {
		return nil, err
	}
	if w.from, err = a.overridesVersion(); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(i.Set)) {
		p, exists := have.find(name)
		if exists && !a.access.CanSee(p.Apps) {
			errors.As(a.hide(), &w.hidden)
			exists = false
		}

		// What is hidden from the actor reads as what does not exist. The audit log knows better.
		if !exists {
			w.fault(Fault{Policy: textform.Clip(name), Message: "it does not exist, or you may not see it"})
			continue
		}
		if err := w.policy(&p); err != nil {
			return nil, err
		}
	}

	w.plan.Digest = hex.EncodeToString(hash.Sum(nil))
	if err := w.err(); err != nil {
		return nil, err
	}
	return w, nil
}

// err returns the mistakes of an import.
func (w *work) err() error {
	bound := func(what string, n, most int) {
		if n > most && !w.i.Compare {
			w.fault(Fault{Field: "overrides", Message: fmt.Sprintf("%s %d keys, more than %d at once", what, n, most)})
		}
	}
	bound("it changes", w.plan.Changes(), maxOverrideWrites)
	bound("it bans", w.bans, maxNewBans)

	// A file of 100,000 mistakes is not answered with all of them.
	if n := w.wrong - len(w.faults); n > 0 {
		w.faults = append(w.faults, Fault{Message: fmt.Sprintf("and %d more", n)})
	}
	if w.hidden != nil {
		return &InvalidError{w.faults, w.hidden}
	}
	return w.faults.err()
}

// policy plans the overrides of a policy that the actor sees.
func (w *work) policy(p *policy.Policy) error {
	listed := func(app string) bool { return slices.Contains(w.i.Apps, app) }
	if w.i.Apps != nil && !slices.ContainsFunc(p.Apps, listed) {
		return nil
	}
	if !w.i.Compare && !w.access.CanEdit(p.Apps) {
		return w.deny("it takes the owner of every application that the policy lists")
	}

	rows, err := w.Tx.Overrides(p.Name, "", "", policy.MaxOverridesBeside+1)
	if err != nil {
		return err
	}
	was := make(map[string]store.Override, len(rows))
	for _, row := range rows {
		was[row.Key] = row
	}
	w.compare(p, was)
	return nil
}

// compare adds the changes of a policy that has the overrides that were.
func (w *work) compare(p *policy.Policy, was map[string]store.Override) {
	counts := OverrideCounts{Policy: p.Name}
	var set, removed []store.Override
	wanted := w.i.Set[p.Name]

	read := map[policy.OverrideText]policy.Override{} // few are different
	for i, key := range slices.Sorted(maps.Keys(wanted)) {
		o, known := read[wanted[key]]
		if !known {
			var err error
			if o, err = policy.ParseOverride(string(wanted[key])); err != nil {
				w.keyFault(p, key, i, err)
				continue
			}
			read[wanted[key]] = o
		}
		if o.Ended(instant(w.now)) {
			counts.Ended++
			continue
		}
		if err := p.CheckOverride(key, o); err != nil {
			w.keyFault(p, key, i, err)
			continue
		}

		before, exists := was[key]
		delete(was, key)
		o, err := w.ban(p, &counts, key, before, o)
		if err != nil {
			w.keyFault(p, key, i, err)
			continue
		}
		if row := w.overrideRow(p.Name, key, o); exists && before.Text == row.Text {
			counts.Unchanged++
		} else {
			set = append(set, row)
			w.step(p, before, row)
		}
	}

	counts.Set, counts.Missing = len(set), len(was)
	if w.i.Missing == RemoveMissing {
		for _, key := range slices.Sorted(maps.Keys(was)) {
			// The removal leaves a ban that is in force.
			o, _ := w.ban(p, &counts, key, was[key], policy.Override{})
			if row := w.overrideRow(p.Name, key, o); row.Text != was[key].Text {
				removed = append(removed, row)
				w.step(p, was[key], row)
			}
		}
		counts.Removed, counts.Missing = len(removed), 0
	}

	// What is removed makes room for what is set.
	w.rows[p.Name] = append(removed, set...)
	w.plan.Policies = append(w.plan.Policies, counts)
}

// ban returns the override that the import has of a key, with the ban that the key has then. One
// that is in force stays if the import has none or a shorter one, since only a lift ends a ban.
// The error of another is that of a ban by itself.
func (w *work) ban(
	p *policy.Policy, counts *OverrideCounts, key string, before store.Override, o policy.Override,
) (policy.Override, error) {
	now := instant(w.now)
	was, _ := policy.ParseOverride(before.Text) // whose ban is in force whatever follows it
	if was.Bans(now) && !o.BannedUntil.After(was.BannedUntil) {
		if o.BannedUntil.Before(was.BannedUntil) {
			counts.Kept++
			if len(w.plan.Kept) < maxOverrideSteps {
				w.plan.Kept = append(w.plan.Kept, BanKept{p.Name, key, was.BannedUntil})
			}
		}
		o.BannedUntil = was.BannedUntil
		return o, nil
	}
	if !o.Bans(now) {
		return o, nil
	}

	span, err := CheckBanBeside(p, key, o.BannedUntil, now)
	if w.bans++; w.bans <= maxNewBans {
		w.imposed[p.Name] = append(w.imposed[p.Name], with(keyText(key, *p), "for", span.String()))
	}
	return o, err
}

// CheckBanBeside returns how long a key is banned that has a ban beside the policy until an instant
// after now, in whole seconds. The error is that of [CheckBan], also as for a policy that bans no
// keys by itself, since the ban is beside it.
func CheckBanBeside(p *policy.Policy, key string, until, now time.Time) (time.Duration, error) {
	span := max(until.Sub(now).Truncate(time.Second), time.Second)
	beside := *p
	beside.Ban = core.Ban{}
	err := CheckBan(beside, key, span)
	if err == nil {
		err = CheckBan(*p, key, span)
	}

	var bad *InvalidError
	if errors.As(err, &bad) {
		err = errors.New("the ban: " + bad.Faults[0].Message)
	}
	return span, err
}

// fault adds a mistake, and only counts one that is not listed.
func (w *work) fault(f Fault) {
	if w.wrong++; w.wrong <= maxOverrideFaults {
		w.faults = append(w.faults, f)
	}
}

// keyFault adds a mistake about a key. It does not repeat one that may be a secret.
func (w *work) keyFault(p *policy.Policy, key string, i int, err error) {
	w.fault(Fault{Policy: p.Name, Field: policy.OverrideField(p.Key, key, i), Message: err.Error()})
}

// step adds a change to the plan.
func (w *work) step(p *policy.Policy, before, after store.Override) {
	s := OverrideStep{p.Name, after.Key, before.Text, after.Text}
	fmt.Fprintf(w.digest, "%q %q %q %q\n", s.Policy, s.Key, s.Before, s.After)
	if len(w.plan.Steps) < maxOverrideSteps {
		w.plan.Steps = append(w.plan.Steps, s)
	}
}

// carryOut writes what the plan changes.
func (w *work) carryOut() error {
	for _, c := range w.plan.Policies {
		rows := w.rows[c.Policy]
		if len(rows) == 0 {
			continue
		}

		// Ended overrides make room for new ones, and what is too much then undoes all.
		if err := w.makeRoom(c.Policy, len(rows)); err != nil {
			return err
		}
		if err := w.putRevisions(rows); err != nil {
			return err
		}
		if err := w.fitsOverrides(c.Policy); err != nil {
			return err
		}

		// One row says how many, for 100,000 rows would hide all others. Bans are few.
		bans := w.imposed[c.Policy]
		for _, ban := range bans {
			if err := w.log("ban.impose", c.Policy, ban); err != nil {
				return err
			}
		}
		err := w.log("override.import", c.Policy, text(struct {
			Set     int `json:"set"`
			Removed int `json:"removed"`
			Bans    int `json:"bans,omitempty"`
		}{c.Set, c.Removed, len(bans)}))
		if err != nil {
			return err
		}
	}
	return nil
}

// log adds a row of a policy to the audit log.
func (w *work) log(verb, name, after string) error {
	entry := w.actor.auditRow(w.now, verb, policyObject(name))
	entry.Note, entry.After = w.actor.comment, after
	return w.AddAudit(entry)
}

// ExportOverrides writes the overrides of the policies that the actor sees, of an application or of
// all for "", as DecodeOverrides reads them. Policies without any are left out. Nothing is written
// before the audit log has a row. The file is not of one instant: a change that is made meanwhile
// may be in it or not.
func (s *Service) ExportOverrides(ctx context.Context, a Actor, app string, to io.Writer) error {
	var names []string
	err := s.act(ctx, a, store.CounterUsers, "override.export", "policies", func(d *action) error {
		if app != "" && d.access.Role(app) == NoRole {
			return d.hide()
		}
		list, err := d.selected(lists(app))
		if err != nil {
			return err
		}

		// A transaction that is tried again begins its list anew.
		have, err := d.OverriddenPolicies()
		names = nil
		for _, p := range list {
			if _, has := slices.BinarySearch(have, p.Name); has {
				names = append(names, p.Name)
			}
		}
		if err != nil {
			return err
		}
		return d.done("", text(map[string]any{"policies": len(names)}))
	})
	if err != nil {
		return err
	}

	// Each policy is read by transactions of its own, so that a slow reader holds none open.
	out := bufio.NewWriter(to)
	out.WriteString("{\"overrides\": {")
	for i, name := range names {
		if i > 0 {
			out.WriteString(",")
		}
		fmt.Fprintf(out, "\n  %s: {", text(name))
		if err := s.exportOverrides(ctx, a, name, out); err != nil {
			return err
		}
		out.WriteString("\n  }")
	}
	out.WriteString("\n}}\n")
	return out.Flush()
}

// exportOverrides writes the overrides of a policy, a line each. What cannot be read is left out.
func (s *Service) exportOverrides(ctx context.Context, a Actor, name string, out *bufio.Writer) error {
	separator := ""
	for after := ""; ; {
		read := func(d *action) ([]store.Override, error) {
			if _, err := d.policy(name); err != nil {
				return nil, err
			}
			return d.Tx.Overrides(name, "", after, exportPiece)
		}
		rows, err := answer(ctx, s, a, "override.export", policyObject(name), read)
		if err != nil || len(rows) == 0 {
			return err
		}

		after = rows[len(rows)-1].Key
		for _, row := range rows {
			o, err := policy.ParseOverride(row.Text)
			if err != nil {
				continue
			}
			if _, err := fmt.Fprintf(out, "%s\n    %s: %s", separator, text(row.Key), text(o)); err != nil {
				return err
			}
			separator = ","
		}
	}
}

// exportPiece is how many overrides an export reads at once.
const exportPiece = 1000
