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

// MaxBulk is the largest number of policies of one Bulk.
const MaxBulk = MaxPerPage

// Bulk is a change of several policies as a whole or not at all.
type Bulk struct {
	Policies []PolicyVersion // each once, at most MaxBulk

	Mode      *policy.Mode // nil keeps the mode of each
	AddApp    string       // an application to add to each that does not list it, or ""
	RemoveApp string       // an application to take from each that lists it, or ""
}

// PolicyVersion names a policy, and the version that a change is based on.
type PolicyVersion struct {
	Name    string
	Version int64
}

// BulkPlan is what a Bulk changes.
type BulkPlan struct {
	Steps     []BulkStep
	Unchanged []string // policies that are so already

	At time.Time // when ChangePolicies changed them; see [Service.ChangedAt]

	// Refused is how many requests the policies that the change takes protection from have
	// refused in the last 24 hours. ChangePolicies does not count them.
	Refused int64
}

// BulkStep is the change of one policy.
type BulkStep struct{ Before, After policy.Policy }

// Unprotects reports whether the step lets requests pass that were refused before: it takes the
// policy out of force, or an application from it.
func (b BulkStep) Unprotects() bool {
	if b.Before.Mode != policy.Enforce {
		return false
	}

	gone := func(app string) bool { return !slices.Contains(b.After.Apps, app) }
	return b.After.Mode != policy.Enforce || slices.ContainsFunc(b.Before.Apps, gone)
}

// ConflictsError means that policies have changed since the versions that a Bulk is based on.
// Nothing was changed.
type ConflictsError struct{ Conflicts []*ConflictError }

// Error names the policies and their versions, one a line.
func (e *ConflictsError) Error() string {
	errs := make([]error, len(e.Conflicts))
	for i, c := range e.Conflicts {
		errs[i] = c
	}
	return errors.Join(errs...).Error()
}

// PlanBulk returns what a change of several policies would do, and changes nothing. Its errors
// are the same as those of [Service.ChangePolicies].
func (s *Service) PlanBulk(ctx context.Context, a Actor, b Bulk) (plan BulkPlan, err error) {
	if err := b.check(); err != nil {
		return BulkPlan{}, err
	}

	err = s.ask(ctx, a, "policy.update", "policies", func(d *action) error {
		plan, err = d.planBulk(b)
		return err
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

// ChangePolicies changes several policies in one transaction, all or none, and returns what it
// changed. Each one gets a revision and a row in the audit log. The actor has to own every
// application that each policy listed before and that it lists now; a refusal names the first
// policy that they may not change. The error is a ConflictsError if any of the policies has
// another version than the one that b names, unless nothing is to be changed in it: so a change
// may be repeated. An InvalidError lists the mistakes of all policies.
func (s *Service) ChangePolicies(ctx context.Context, a Actor, b Bulk) (plan BulkPlan, err error) {
	if err := b.check(); err != nil {
		return BulkPlan{}, err
	}

	err = s.act(ctx, a, store.CounterPolicies, "policy.update", "policies", func(d *action) error {
		if plan, err = d.planBulk(b); err != nil {
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
			// Refusals and the rows of the audit log name the policy, and not the set.
			d.object = policyObject(step.Before.Name)
			if plan.Steps[i].After, err = d.overwrite(step.Before, step.After, updated, note); err != nil {
				return err
			}
		}

		// The extent is checked once, with all changes made.
		return d.fitsLimits()
	})
	return plan, err
}

func (b *Bulk) check() error {
	f := checkNamed(b.Policies)
	if b.Mode == nil && b.AddApp == "" && b.RemoveApp == "" {
		f.add("", errors.New("there is nothing to change"))
	}

	for _, c := range []struct{ field, app string }{{"add_app", b.AddApp}, {"remove_app", b.RemoveApp}} {
		if c.app != "" {
			f.add(c.field, policy.CheckApp(c.app))
		}
	}

	if b.AddApp != "" && b.AddApp == b.RemoveApp {
		f.add("remove_app", errors.New("it is the one to add"))
	}
	return f.err()
}

// checkNamed returns the mistakes in which policies a change names: none, too many, or one twice.
// Their versions are compared in the transaction.
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

// planBulk returns what a change does, and checks the permissions for each policy.
func (a *action) planBulk(b Bulk) (plan BulkPlan, err error) {
	// A refusal names the policy that it is about. Afterwards the action is about the set again.
	object := a.object
	defer func() {
		if err == nil {
			a.object = object
		}
	}()

	var conflicts []*ConflictError
	var f faults
	for _, v := range b.Policies {
		a.object = policyObject(v.Name)
		step, err := a.bulkStep(b, v)
		var conflict *ConflictError
		var invalid *InvalidError
		// Conflicts and mistakes of all policies are collected. Another error, such as a refusal,
		// ends the plan.
		switch {
		case errors.As(err, &conflict):
			conflicts = append(conflicts, conflict)
		case errors.As(err, &invalid):
			for _, fault := range invalid.Faults {
				fault.Policy = v.Name
				f = append(f, fault)
			}
		case errors.Is(err, errUnchanged):
			plan.Unchanged = append(plan.Unchanged, v.Name)
		case err != nil:
			return BulkPlan{}, err
		default:
			plan.Steps = append(plan.Steps, step)
		}
	}

	// Mistakes may be due to a change of others, so the conflicts are shown first.
	if len(conflicts) > 0 {
		return BulkPlan{}, &ConflictsError{conflicts}
	}
	return plan, f.err()
}

// bulkStep returns the change of one policy, or errUnchanged.
func (a *action) bulkStep(b Bulk, v PolicyVersion) (step BulkStep, err error) {
	theirs, err := a.owned(v.Name, v.Version)
	if err != nil {
		return step, err
	}

	mine := b.apply(theirs)
	if len(mine.Apps) == 0 {
		return step, invalid("apps", fmt.Sprintf("%q is its only application", b.RemoveApp))
	}

	if err := a.mayList(mine.Apps); err != nil {
		return step, err
	}

	// What is like this already is no conflict in any version, so that a change may be repeated.
	if len(Diff(theirs, mine)) == 0 {
		return step, errUnchanged
	}

	if v.Version != theirs.Version {
		mine.Version = v.Version
		return step, &ConflictError{Mine: mine, Theirs: theirs}
	}

	return BulkStep{theirs, mine}, a.valid(mine)
}

// apply returns a policy as the change makes it.
func (b *Bulk) apply(p policy.Policy) policy.Policy {
	if b.Mode != nil {
		p.Mode = *b.Mode
	}

	p.Apps = slices.Clone(p.Apps)
	if b.AddApp != "" && !slices.Contains(p.Apps, b.AddApp) {
		p.Apps = append(p.Apps, b.AddApp)
	}
	if b.RemoveApp != "" {
		p.Apps = slices.DeleteFunc(p.Apps, func(app string) bool { return app == b.RemoveApp })
	}
	return p
}
