package service

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate/headgate/policy"
)

// Undo takes back the change that made a version of a policy: it saves what was before as the
// newest version and returns it, restores a policy that the change deleted, and deletes one that
// the change created or restored, in which case it returns the zero Policy. If the version is not
// the current one, the error is a ConflictError, so Undo never takes back a change of another. A
// pause that the change ended goes on until its end, as one of the actor. The actor needs the
// permissions for the change.
func (s *Service) Undo(ctx context.Context, a Actor, name string, version int64) (policy.Policy, error) {
	return s.change(ctx, a, undone, name, func(d *action) (policy.Policy, error) { return d.undo(name, version) })
}

// undo takes back the change that made a version of a policy.
func (a *action) undo(name string, version int64) (policy.Policy, error) {
	if err := a.seesHistory(name); err != nil {
		return policy.Policy{}, err
	}

	r, err := a.revisionAt(name, version)
	switch {
	case err != nil:
		return policy.Policy{}, err
	// Without a content before, the change created or restored the policy.
	case r.created:
		return policy.Policy{}, a.remove(r.Policy, r.Version, undone)
	// What was hidden before the change is not shown by taking it back.
	case r.Before == nil:
		return policy.Policy{}, a.hide()
	}

	// A pause that the change ended goes on until its end.
	note := fmt.Sprintf("of version %d", r.Version)
	pause, err := a.endedPause(r)
	if errors.Is(err, ErrNotFound) {
		return a.bringBack(*r.Before, r.Version, undone, note)
	}
	if err != nil {
		return policy.Policy{}, err
	}
	p, err := a.bringBack(*r.Before, r.Version, undone, note+", "+pauseNote(pause))
	if err != nil {
		return p, err
	}
	return p, a.AddPause(pause)
}

// Compare returns the fields that differ between two versions of a policy. A version that deleted
// the policy is empty, and so is version 0. The error is ErrNotFound if there is no such version,
// or if the policy was hidden from the actor in it.
func (s *Service) Compare(ctx context.Context, a Actor, name string, from, to int64) ([]Change, error) {
	return readHistory(ctx, s, a, name, func(d *action) ([]Change, error) {
		before, err := d.contentIn(name, from)
		if err != nil {
			return nil, err
		}
		after, err := d.contentIn(name, to)
		return Diff(before, after), err
	})
}

// contentIn returns a policy as it was in a version, or the zero Policy if there was none.
func (a *action) contentIn(name string, version int64) (policy.Policy, error) {
	if version == 0 {
		return policy.Policy{}, nil
	}
	r, err := a.revisionAt(name, version)
	return orNone(r.After), err
}
