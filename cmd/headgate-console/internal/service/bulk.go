// This file has the mode of several policies, which is changed as a whole or not at all.

package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/policy"
)

// MaxBulk is the largest number of policies whose mode is changed together: those of a page.
const MaxBulk = DefaultPerPage

// PolicyVersion names a policy, and the version that a change is based on.
type PolicyVersion struct {
	Name    string
	Version int64
}

// BulkPlan is what a change of the mode of several policies does.
type BulkPlan struct {
	Steps     []BulkStep
	Unchanged []string // policies that are so already

	At time.Time // when SwitchPolicies changed them; see [Service.UndoSwitch]

	// Refused is how many requests the policies that are not in force afterwards have refused in
	// the last 24 hours. SwitchPolicies does not count them.
	Refused int64
}

// BulkStep is the change of one policy.
type BulkStep struct{ Before, After policy.Policy }

// Unprotects reports whether the step takes the policy out of force.
func (b BulkStep) Unprotects() bool { return b.Before.Mode == policy.Enforce }

// ConflictsError means that policies have changed since the versions that a change of several is
// based on. Nothing was changed.
type ConflictsError struct{ Conflicts []*ConflictError }

// Error names the policies and their versions, one a line.
func (e *ConflictsError) Error() string {
	errs := make([]error, len(e.Conflicts))
	for i, c := range e.Conflicts {
		errs[i] = c
	}
	return errors.Join(errs...).Error()
}

// PlanSwitch returns what SwitchPolicies would do, and changes nothing. Its errors are the same.
func (s *Service) PlanSwitch(
	ctx context.Context, a Actor, list []PolicyVersion, mode policy.Mode,
) (plan BulkPlan, err error) {
	plan, err = answer(ctx, s, a, "policy.update", "policies", func(d *action) (BulkPlan, error) {
		return d.planSwitch(list, mode)
	})
	if err != nil {
		return BulkPlan{}, err
	}

	// Only what loses its protection is counted, since the number is a warning.
	var lose []policy.Policy
	for _, step := range plan.Steps {
		if step.Unprotects() {
			lose = append(lose, step.Before)
		}
	}

	seen, _, err := s.lastDay(ctx, a, lose)
	for _, hours := range seen {
		for _, h := range hours {
			plan.Refused += refusedOf(h.Counts)
		}
	}
	return plan, err
}

// SwitchPolicies changes the mode of at most MaxBulk policies, each once, in one transaction, all
// or none. Each one gets a revision and a row in the audit log. A refusal names the first policy
// that the actor may not change. The error is a ConflictsError if any of the policies has another
// version than the list says, unless it has the mode already: so a change may be repeated.
func (s *Service) SwitchPolicies(
	ctx context.Context, a Actor, list []PolicyVersion, mode policy.Mode,
) (plan BulkPlan, err error) {
	err = s.act(ctx, a, store.CounterPolicies, "policy.update", "policies", func(d *action) error {
		if plan, err = d.planSwitch(list, mode); err != nil {
			return err
		}
		if len(plan.Steps) == 0 {
			return errUnchanged
		}

		// The history of each policy says that it was not changed alone.
		note := ""
		if n := len(plan.Steps); n > 1 {
			note = fmt.Sprintf("one of %d policies that were changed together", n)
		}

		plan.At = instant(d.now)
		for i, step := range plan.Steps {
			if plan.Steps[i].After, err = d.overwrite(step.Before, step.After, updated, note); err != nil {
				return err
			}
		}

		// The extent is checked once, with all changes made.
		return d.fitsLimits()
	})
	return plan, err
}

// planSwitch returns what a change does, and checks the permissions for each policy.
func (a *action) planSwitch(list []PolicyVersion, mode policy.Mode) (plan BulkPlan, err error) {
	if err := checkNamed(list).err(); err != nil {
		return plan, err
	}

	object := a.object
	var conflicts []*ConflictError
	for _, v := range list {
		// A refusal names the policy that it is about.
		a.object = policyObject(v.Name)
		theirs, err := a.owned(v.Name, v.Version)
		var conflict *ConflictError
		if errors.As(err, &conflict) {
			conflicts = append(conflicts, conflict)
			continue
		}
		if err != nil {
			return BulkPlan{}, err
		}

		mine := theirs
		mine.Mode = mode
		switch {
		case theirs.Mode == mode:
			plan.Unchanged = append(plan.Unchanged, v.Name)
		case theirs.Version != v.Version:
			mine.Version = v.Version
			conflicts = append(conflicts, &ConflictError{Mine: mine, Theirs: theirs})
		default:
			plan.Steps = append(plan.Steps, BulkStep{theirs, mine})
		}
		if err := a.valid(mine); err != nil {
			return BulkPlan{}, err
		}
	}

	a.object = object
	if len(conflicts) > 0 {
		return BulkPlan{}, &ConflictsError{conflicts}
	}
	return plan, nil
}

// checkNamed returns the mistakes in which policies a change names: none, too many, or one twice.
func checkNamed(list []PolicyVersion) (f faults) {
	seen := map[string]bool{}
	for _, p := range list {
		if seen[p.Name] {
			f.add("policies", fmt.Errorf("%.100q is named twice", p.Name))
		}
		seen[p.Name] = true
	}

	switch n := len(list); {
	case n == 0:
		f.add("policies", errors.New("there are none: choose some"))
	case n > MaxBulk:
		f.add("policies", fmt.Errorf("%d are more than %d", n, MaxBulk))
	}
	return f
}

// SwitchedAt returns how many policies UndoSwitch would take back for the actor.
func (s *Service) SwitchedAt(ctx context.Context, a Actor, at time.Time) (int, error) {
	return answer(ctx, s, a, "policy.history", "policies", func(d *action) (int, error) {
		list, err := d.switchedAt(at)
		if slices.ContainsFunc(list, func(r Revision) bool { return !d.mayUndo(r) }) {
			return 0, err
		}
		return len(list), err
	})
}

// UndoSwitch takes back what the actor has changed with SwitchPolicies at an instant, all or
// nothing. The error is a ConflictsError if any of the policies was changed since, and names all of
// these, and ErrNotFound if the actor has changed nothing then.
func (s *Service) UndoSwitch(ctx context.Context, a Actor, at time.Time) error {
	return s.act(ctx, a, store.CounterPolicies, "policy."+undone, "policies", func(d *action) error {
		list, err := d.switchedAt(at)
		if err != nil {
			return err
		}
		if len(list) == 0 {
			return ErrNotFound
		}

		var conflicts []*ConflictError
		for _, r := range list {
			d.object = policyObject(r.Policy)
			_, err := d.undo(r.Policy, r.Version)

			// All conflicts are collected. Another error, such as a refusal, ends the action.
			var conflict *ConflictError
			if errors.As(err, &conflict) {
				conflicts = append(conflicts, conflict)
			} else if err != nil {
				return err
			}
		}
		if len(conflicts) > 0 {
			return &ConflictsError{conflicts}
		}
		return nil
	})
}

// switchedAt returns the updates that the actor has made at an instant, by policy. There are none
// if one of them is hidden or another's, or if they are too many.
func (a *action) switchedAt(at time.Time) (list []Revision, err error) {
	rows, err := a.RevisionsBetween("", at.UnixMicro(), at.UnixMicro()+1, MaxBulk+1)
	if err != nil || len(rows) > MaxBulk {
		return nil, err
	}

	slices.Reverse(rows) // by name
	list, err = a.revisions(rows)
	others := func(r Revision) bool { return r.Actor != a.actor.user || r.Action != updated }
	if err != nil || len(list) < len(rows) || slices.ContainsFunc(list, others) {
		return nil, err
	}
	return list, nil
}

// mayUndo reports whether the actor owns the applications that a revision is about.
func (a *action) mayUndo(r Revision) bool {
	return (r.Before == nil || a.access.CanEdit(r.Before.Apps)) && (r.After == nil || a.access.CanEdit(r.After.Apps))
}
