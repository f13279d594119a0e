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

// Undo takes back the change that made a version of a policy: it saves what was before as the
// newest version and returns it, restores a policy that the change deleted, and deletes one that
// the change created or restored, in which case it returns the zero Policy. If the version is not
// the current one, the error is a ConflictError, so Undo never takes back a change of another. The
// actor needs the permissions for the change.
func (s *Service) Undo(ctx context.Context, a Actor, name string, version int64) (saved policy.Policy, err error) {
	err = s.change(ctx, a, undone, name, func(d *action) error {
		saved, err = d.undo(name, version)
		return err
	})
	return saved, err
}

// UndoPolicies is [Service.Undo] for the changes that made versions of several policies, all or
// none, and returns the versions that are the newest then. The error is a ConflictsError if any of
// them is not the current one, and names all of these. A refusal names the first policy that the
// actor may not change.
func (s *Service) UndoPolicies(
	ctx context.Context, a Actor, list []PolicyVersion,
) (now []PolicyVersion, at time.Time, err error) {
	if err := checkNamed(list).err(); err != nil {
		return nil, at, err
	}

	err = s.act(ctx, a, store.CounterPolicies, "policy."+undone, "policies", func(d *action) error {
		now, at = nil, instant(d.now)
		var conflicts []*ConflictError
		for _, p := range list {
			d.object = policyObject(p.Name)
			_, err := d.undo(p.Name, p.Version)

			// All conflicts are collected. Another error, such as a refusal, ends the action.
			var conflict *ConflictError
			switch {
			case errors.As(err, &conflict):
				conflicts = append(conflicts, conflict)
			case errors.Is(err, errUnchanged):
				now = append(now, p)
			case err != nil:
				return err
			default:
				now = append(now, PolicyVersion{p.Name, p.Version + 1})
			}
		}

		if len(conflicts) > 0 {
			return &ConflictsError{conflicts}
		}
		return nil
	})
	return now, at, err
}

// ChangedAt returns the versions of the policies that the actor has changed together at an instant,
// for UndoPolicies. There are none if the actor may not take all of them back, or if they are more
// than MaxBulk.
func (s *Service) ChangedAt(ctx context.Context, a Actor, at time.Time) (list []PolicyVersion, err error) {
	err = s.ask(ctx, a, "policy.history", "policies", func(d *action) error {
		list = nil
		// One row more than may be taken back shows that there are too many.
		rows, err := d.RevisionsBetween("", at.UnixMicro(), at.UnixMicro()+1, MaxBulk+1)
		if err != nil {
			return err
		}

		slices.Reverse(rows) // by name
		for _, row := range rows {
			r, err := d.revision(row)

			// One change that is hidden, another's or not to be taken back leaves none.
			hidden := errors.Is(err, ErrNotFound)
			if hidden || err == nil && (row.Actor != a.user || len(rows) > MaxBulk || !d.mayUndo(r)) {
				list = nil
				return nil
			}
			if err != nil {
				return err
			}

			list = append(list, PolicyVersion{r.Policy, r.Version})
		}
		return nil
	})
	return list, err
}

// mayUndo reports whether the actor owns the applications that a revision is about.
func (a *action) mayUndo(r Revision) bool {
	return (r.Before == nil || a.access.CanEdit(r.Before.Apps)) && (r.After == nil || a.access.CanEdit(r.After.Apps))
}

// undo takes back the change that made a version of a policy.
func (a *action) undo(name string, version int64) (policy.Policy, error) {
	if err := a.seesHistory(name); err != nil {
		return policy.Policy{}, err
	}

	row, err := a.Tx.Revision(name, version)
	if err != nil {
		return policy.Policy{}, err
	}

	r, err := a.revision(row)
	if err != nil {
		return policy.Policy{}, err
	}

	// Without a content before, the change created or restored the policy.
	if row.Before == "" {
		return policy.Policy{}, a.remove(r.Policy, r.Version, undone)
	}

	// What was hidden before the change is not shown by taking it back.
	if r.Before == nil {
		return policy.Policy{}, a.hide()
	}

	p, note := *r.Before, fmt.Sprintf("of version %d", r.Version)
	if err := a.valid(p); err != nil {
		return p, err
	}

	p.Version = r.Version
	// The change may have deleted the policy.
	if _, err := a.anyPolicy(r.Policy); errors.Is(err, store.ErrNotFound) {
		return a.revive(p, undone, note)
	}
	return a.update(p, undone, note)
}

// Compare returns the fields that differ between two versions of a policy. A version that deleted
// the policy is empty, and so is version 0. The error is ErrNotFound if there is no such version,
// or if the policy was hidden from the actor in it.
func (s *Service) Compare(ctx context.Context, a Actor, name string, from, to int64) (list []Change, err error) {
	err = s.ask(ctx, a, "policy.history", policyObject(name), func(d *action) error {
		if err := d.seesHistory(name); err != nil {
			return err
		}

		before, err := d.contentIn(name, from)
		if err != nil {
			return err
		}

		after, err := d.contentIn(name, to)
		list = Diff(before, after)
		return err
	})
	return list, err
}

// contentIn returns a policy as it was in a version, or the zero Policy if there was none.
func (a *action) contentIn(name string, version int64) (policy.Policy, error) {
	if version == 0 {
		return policy.Policy{}, nil
	}
	row, err := a.Tx.Revision(name, version)
	if err != nil {
		return policy.Policy{}, err
	}
	r, err := a.revision(row)
	if err != nil || r.After == nil {
		return policy.Policy{}, err
	}
	return *r.After, nil
}
