package service

import (
	"context"
	"errors"
	"fmt"

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
