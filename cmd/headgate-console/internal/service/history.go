package service

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/policy"
)

// Revision is one change of a policy.
type Revision struct {
	Policy    string    `json:"policy"`
	Version   int64     `json:"version"` // the version that the change made
	At        time.Time `json:"at"`
	Actor     string    `json:"by"`
	Action    string    `json:"action"` // "create", "update", "delete", "rollback", "undo" or "import"
	RequestID string    `json:"request_id"`
	Note      string    `json:"note"`    // of the console, such as "to version 2"
	Comment   string    `json:"comment"` // of the actor, see [Actor.Saying]

	// Before is nil if the change created the policy, or if the policy was hidden
	// from the actor before. After is nil if the change deleted the policy. Both
	// have no version and no authors and times of changes.
	Before *policy.Policy `json:"before"`
	After  *policy.Policy `json:"after"`

	created bool // there was no policy before
}

// Changes returns the fields that differ between Before and After.
func (r Revision) Changes() []Change {
	return Diff(orNone(r.Before), orNone(r.After))
}

// orNone returns a policy, or the zero policy for none.
func orNone(p *policy.Policy) policy.Policy {
	if p == nil {
		return policy.Policy{}
	}
	return *p
}

// History returns at most pageSize revisions of a policy, the newest first, that
// are older than the version before, which is 0 for the newest. pageSize has the
// meaning of Query.PerPage. A deleted policy has a history too. Revisions in which
// the policy was hidden from the actor are left out.
func (s *Service) History(
	ctx context.Context, a Actor, name string, before int64, pageSize int,
) ([]Revision, error) {
	return readHistory(ctx, s, a, name, func(d *action) ([]Revision, error) {
		rows, err := d.Revisions(name, before, perPage(pageSize))
		if err != nil {
			return nil, err
		}
		return d.revisions(rows)
	})
}

// Revision returns the change that made a version of a policy, or ErrNotFound.
func (s *Service) Revision(ctx context.Context, a Actor, name string, version int64) (Revision, error) {
	return readHistory(ctx, s, a, name, func(d *action) (Revision, error) { return d.revisionAt(name, version) })
}

// readHistory returns what f reads of the history of a policy that the actor sees.
func readHistory[T any](
	ctx context.Context, s *Service, a Actor, name string, f func(*action) (T, error),
) (T, error) {
	return answer(ctx, s, a, "policy.history", policyObject(name), func(d *action) (v T, err error) {
		if err := d.seesHistory(name); err != nil {
			return v, err
		}
		return f(d)
	})
}

// seesHistory refuses an actor who does not see the policy as it is, or as it was
// when it was deleted.
func (a *action) seesHistory(name string) error {
	if !isPolicyName(name) {
		return ErrNotFound
	}
	last, err := a.Revisions(name, 0, 1)
	if err != nil {
		return err
	}
	if len(last) == 0 {
		return ErrNotFound
	}
	_, err = a.revision(last[0])
	return err
}

// revisionAt returns the change that made a version of a policy.
func (a *action) revisionAt(name string, version int64) (Revision, error) {
	row, err := a.Tx.Revision(name, version)
	if err != nil {
		return Revision{}, err
	}
	return a.revision(row)
}

// revisions reads rows for the actor. Those in which the policy was hidden from the actor are left
// out.
func (a *action) revisions(rows []store.Revision) (list []Revision, err error) {
	for _, row := range rows {
		r, err := a.revision(row)
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, nil
}

// revision reads a row for the actor. The error hides a policy that the actor may
// not see.
func (a *action) revision(row store.Revision) (Revision, error) {
	r := Revision{
		Policy: row.Policy, Version: row.Version, At: instant(row.At), Actor: row.Actor,
		Action: row.Action, RequestID: row.RequestID, Note: row.Note, Comment: row.Comment, created: row.Before == "",
	}

	var err error
	if r.Before, err = snapshot(row.Before); err != nil {
		return r, err
	}
	if r.After, err = snapshot(row.After); err != nil {
		return r, err
	}

	// The actor has to see the policy as the change left it, or else as it was before it was
	// deleted.
	current := r.After
	if current == nil {
		current = r.Before
	}
	if current == nil || !a.access.CanSee(current.Apps) {
		return Revision{}, a.hide()
	}

	// The content before may be hidden from an actor who sees the change.
	if r.Before != nil && !a.access.CanSee(r.Before.Apps) {
		r.Before = nil
	}
	return r, nil
}

func snapshot(body string) (*policy.Policy, error) {
	if body == "" {
		return nil, nil
	}
	p, err := contentOf(body)
	return &p, err
}

// Rollback saves the content of the version to as the newest version of a policy,
// and returns it. If base is not the current version, the error is a
// ConflictError. Rollback restores a deleted policy; its current version is that
// of the deletion. The actor needs the permissions for an update or a creation.
func (s *Service) Rollback(ctx context.Context, a Actor, name string, to, base int64) (policy.Policy, error) {
	return s.change(ctx, a, rolledBack, name, func(d *action) (policy.Policy, error) {
		if err := d.seesHistory(name); err != nil {
			return policy.Policy{}, err
		}

		r, err := d.revisionAt(name, to)
		if err != nil {
			return policy.Policy{}, err
		}
		if r.After == nil {
			return policy.Policy{}, invalid("version", "the policy was deleted in this version")
		}
		return d.bringBack(*r.After, base, rolledBack, fmt.Sprintf("to version %d", to))
	})
}

// bringBack saves a content that a policy has had over the version base. A deleted policy is
// created again, which takes the permissions of a creation.
func (a *action) bringBack(p policy.Policy, base int64, verb, note string) (policy.Policy, error) {
	if err := a.valid(p); err != nil {
		return p, err
	}
	p.Version = base
	if _, err := a.anyPolicy(p.Name); !errors.Is(err, ErrNotFound) {
		return a.update(p, verb, note)
	}

	last, err := a.LastVersion(p.Name)
	if err != nil {
		return p, err
	}
	if p.Version != last {
		return p, &ConflictError{Mine: p, Theirs: policy.Policy{Name: p.Name, Version: last}, Deleted: true}
	}
	return a.create(p, verb, note)
}
