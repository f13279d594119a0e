package service

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/policy"
)

// These name the changes of a policy in revisions and, with "policy." before them,
// in the audit log.
const (
	created    = "create"
	updated    = "update"
	deleted    = "delete"
	rolledBack = "rollback"
	imported   = "import"
	undone     = "undo"
)

func policyObject(name string) string { return "policy:" + name }

// Policy returns a policy that the actor sees, or ErrNotFound.
func (s *Service) Policy(ctx context.Context, a Actor, name string) (policy.Policy, error) {
	return readPolicy(ctx, s, a, name, func(_ *action, p policy.Policy) (policy.Policy, error) { return p, nil })
}

// readPolicy returns what f reads of a policy that the actor sees.
func readPolicy[T any](
	ctx context.Context, s *Service, a Actor, name string, f func(*action, policy.Policy) (T, error),
) (T, error) {
	return answer(ctx, s, a, "policy.read", policyObject(name), func(d *action) (v T, err error) {
		p, err := d.policy(name)
		if err != nil {
			return v, err
		}
		return f(d, p)
	})
}

// PolicyToEdit returns a policy that the actor may change, for a page that is
// shown before the change. The verb is "policy.update" or "policy.delete".
func (s *Service) PolicyToEdit(ctx context.Context, a Actor, verb, name string) (policy.Policy, error) {
	edit := func(d *action) (policy.Policy, error) { return d.editable(name) }
	return answer(ctx, s, a, verb, policyObject(name), edit)
}

// maxNames is the largest number of names that FreeName tries.
const maxNames = 20

// FreeName returns a name for a new policy: the given one, or, if a policy that the actor sees
// has it, that with "-2", "-3" and so on after it. A policy that is hidden from the actor may
// have the name.
func (s *Service) FreeName(ctx context.Context, a Actor, name string) (string, error) {
	return answer(ctx, s, a, "policy.list", "policies", func(d *action) (string, error) {
		free := name
		for n := 2; n <= maxNames; n++ {
			p, err := d.anyPolicy(free)
			if errors.Is(err, ErrNotFound) || err == nil && !d.access.CanSee(p.Apps) {
				return free, nil
			}
			if err != nil {
				return "", err
			}

			// The number has its place also after the longest name.
			end := fmt.Sprintf("-%d", n)
			free = name[:min(len(name), policy.MaxName-len(end))] + end
		}
		return free, nil
	})
}

// CreatePolicy adds a policy and returns it as stored. The actor has to own every
// application that it lists. The version, authors and times in p are ignored. If a
// policy that the actor sees has the same name, the error is a ConflictError.
func (s *Service) CreatePolicy(ctx context.Context, a Actor, p policy.Policy) (policy.Policy, error) {
	p = content(p)
	return s.change(ctx, a, created, p.Name, func(d *action) (policy.Policy, error) {
		if err := d.valid(p); err != nil {
			return p, err
		}
		return d.create(p, created, "")
	})
}

// UpdatePolicy writes a policy over the version that p.Version names, and returns
// it as stored. The actor has to own every application that it listed before and
// that it lists now. If p.Version is not the current version, the error is a
// ConflictError. If nothing differs, UpdatePolicy changes nothing and returns the
// current policy.
func (s *Service) UpdatePolicy(ctx context.Context, a Actor, p policy.Policy) (policy.Policy, error) {
	return s.change(ctx, a, updated, p.Name, func(d *action) (policy.Policy, error) {
		if err := d.valid(p); err != nil {
			return p, err
		}
		return d.update(p, updated, "")
	})
}

// DeletePolicy deletes a policy. The actor has to own every application that it
// lists. If version is not the current one, the error is a ConflictError. The
// history stays, and [Service.Rollback] restores the policy.
func (s *Service) DeletePolicy(ctx context.Context, a Actor, name string, version int64) error {
	_, err := s.change(ctx, a, deleted, name, func(d *action) (policy.Policy, error) {
		return policy.Policy{}, d.remove(name, version, deleted)
	})
	return err
}

// change runs f as an action that changes a policy, and returns it as stored.
func (s *Service) change(
	ctx context.Context, a Actor, verb, name string, f func(*action) (policy.Policy, error),
) (saved policy.Policy, err error) {
	err = s.act(ctx, a, store.CounterPolicies, "policy."+verb, policyObject(name), func(d *action) (err error) {
		saved, err = f(d)
		return err
	})
	return saved, err
}

// valid returns the mistakes of a policy by itself.
func (a *action) valid(p policy.Policy) error {
	if list := FaultsOf(p.Validate()); len(list) > 0 {
		for i := range list {
			list[i].Policy = ""
		}
		return &InvalidError{Faults: list}
	}
	return nil
}

// policy returns a policy that the actor sees.
func (a *action) policy(name string) (policy.Policy, error) {
	p, err := a.anyPolicy(name)
	if err == nil && !a.access.CanSee(p.Apps) {
		return policy.Policy{}, a.hide()
	}
	return p, err
}

// anyPolicy returns a policy without a check of permissions. It does not look up
// invalid names.
func (a *action) anyPolicy(name string) (policy.Policy, error) {
	if !isPolicyName(name) {
		return policy.Policy{}, ErrNotFound
	}
	row, err := a.Tx.Policy(name)
	if err != nil {
		return policy.Policy{}, err
	}
	return policyOf(row)
}

func isPolicyName(s string) bool {
	p := policy.Policy{Name: s}
	return !slices.ContainsFunc(FaultsOf(p.Validate()), func(f Fault) bool { return f.Field == "name" })
}

// create adds a valid policy.
func (a *action) create(p policy.Policy, verb, note string) (policy.Policy, error) {
	if err := a.mayList(p.Apps); err != nil {
		return p, err
	}

	theirs, err := a.anyPolicy(p.Name)
	if err == nil {
		return p, a.taken(p, theirs)
	}
	if !errors.Is(err, ErrNotFound) {
		return p, err
	}

	if p, err = a.insert(p, verb, note); err != nil {
		return p, err
	}

	// The extent is that with the policy in it. If it is too large, nothing is changed.
	return p, a.fitsLimits()
}

// insert stores p, which does not exist, as the next version of its name. An import of a name
// that never was keeps its version.
func (a *action) insert(p policy.Policy, verb, note string) (policy.Policy, error) {
	last, err := a.LastVersion(p.Name)
	if err != nil {
		return p, err
	}

	if last > 0 || verb != imported || p.Version <= 0 {
		p.Version = last + 1
	}

	p.CreatedAt, p.CreatedBy = instant(a.now), a.actor.user
	p.UpdatedAt, p.UpdatedBy = p.CreatedAt, p.CreatedBy

	row, err := rowOf(p)
	if err != nil {
		return p, err
	}
	if err := a.InsertPolicy(row); err != nil {
		return p, err
	}

	// A name in the list of deleted policies may be taken again.
	if err := a.DropDeleted(p.Name); err != nil {
		return p, err
	}
	if err := a.restoreOverrides(p.Name, verb == created || verb == imported); err != nil {
		return p, err
	}

	return p, a.record(p.Name, p.Version, "", row.Body, verb, note)
}

// taken returns the error of creating mine while theirs has its name.
func (a *action) taken(mine, theirs policy.Policy) error {
	if !a.access.CanSee(theirs.Apps) {
		return &InvalidError{[]Fault{{Field: "name", Message: nameTaken}}, a.probe()}
	}
	return &ConflictError{Mine: mine, Theirs: theirs}
}

// update writes a valid policy over the version that it names.
func (a *action) update(p policy.Policy, verb, note string) (policy.Policy, error) {
	theirs, err := a.owned(p.Name, p.Version)
	if err != nil {
		return p, withMine(err, p)
	}
	if err := a.mayList(p.Apps); err != nil {
		return p, err
	}

	// The permissions come before the version, because a conflict shows the policy as it is.
	if p.Version != theirs.Version {
		return p, &ConflictError{Mine: p, Theirs: theirs}
	}
	if len(Diff(theirs, p)) == 0 {
		return theirs, errUnchanged
	}

	if p, err = a.overwrite(theirs, p, verb, note); err != nil {
		return p, err
	}

	return p, a.fitsLimits()
}

// overwrite stores p as the version after theirs.
func (a *action) overwrite(theirs, p policy.Policy, verb, note string) (policy.Policy, error) {
	before, err := rowOf(theirs)
	if err != nil {
		return p, err
	}

	p.Version = theirs.Version + 1
	p.CreatedAt, p.CreatedBy = theirs.CreatedAt, theirs.CreatedBy
	p.UpdatedAt, p.UpdatedBy = instant(a.now), a.actor.user
	row, err := rowOf(p)
	if err != nil {
		return p, err
	}

	if err := a.Tx.UpdatePolicy(row, theirs.Version); err != nil {
		return p, err
	}
	if p.Mode != theirs.Mode {
		if err := a.endPause(p.Name, p.Version); err != nil {
			return p, err
		}
	}

	return p, a.record(p.Name, p.Version, before.Body, row.Body, verb, note)
}

// remove deletes a version of a policy.
func (a *action) remove(name string, version int64, verb string) error {
	theirs, err := a.owned(name, version)
	if err != nil {
		return err
	}
	if version != theirs.Version {
		return &ConflictError{Mine: policy.Policy{Name: name, Version: version}, Theirs: theirs}
	}
	return a.erase(theirs, verb, "")
}

// erase deletes the current version of a policy.
func (a *action) erase(p policy.Policy, verb, note string) error {
	before, err := rowOf(p)
	if err != nil {
		return err
	}
	if err := a.Tx.DeletePolicy(p.Name, p.Version); err != nil {
		return err
	}
	if err := a.AddDeleted(store.DeletedPolicy{Policy: p.Name, Version: p.Version + 1, At: a.now}); err != nil {
		return err
	}
	if err := a.dropOverrides(p.Name); err != nil {
		return err
	}
	if err := a.endPause(p.Name, p.Version+1); err != nil {
		return err
	}
	return a.record(p.Name, p.Version+1, before.Body, "", verb, note)
}

// owned returns a policy that the actor may write, for a change of the version
// base. If the policy was deleted since, the error is a ConflictError for an actor
// who could see it.
func (a *action) owned(name string, base int64) (policy.Policy, error) {
	p, err := a.editable(name)
	if errors.Is(err, store.ErrNotFound) && isPolicyName(name) {
		return p, a.goneSince(name, base, err)
	}
	return p, err
}

// editable returns a policy that the actor may write.
func (a *action) editable(name string) (policy.Policy, error) {
	p, err := a.policy(name)
	if err == nil && !a.access.CanEdit(p.Apps) {
		err = a.deny("it takes the owner of every application that the policy lists")
	}
	return p, err
}

// goneSince returns the error for a policy that does not exist: a ConflictError if
// it was deleted after the version base, or else missing.
func (a *action) goneSince(name string, base int64, missing error) error {
	last, err := a.LastVersion(name)
	if err != nil || base <= 0 || base >= last {
		return errors.Join(err, missing)
	}
	r, err := a.Tx.Revision(name, last)
	if err != nil || r.After != "" {
		return errors.Join(err, missing)
	}

	// Only an actor who could see the policy learns that it was deleted.
	was, err := contentOf(r.Before)
	if err != nil || !a.access.CanSee(was.Apps) {
		return errors.Join(err, missing)
	}

	gone := policy.Policy{Name: name, Version: last}
	return &ConflictError{Mine: policy.Policy{Name: name, Version: base}, Theirs: gone, Deleted: true}
}

// withMine adds the policy to be saved to a conflict.
func withMine(err error, p policy.Policy) error {
	var conflict *ConflictError
	if errors.As(err, &conflict) {
		conflict.Mine = p
	}
	return err
}

// mayList refuses applications that the actor does not own. Its error names the
// applications that do not exist.
func (a *action) mayList(apps []string) error {
	if !a.access.CanEdit(apps) {
		return a.deny("it takes the owner of every application that the policy is to list")
	}

	var f faults
	for _, app := range apps {
		_, err := a.App(app)
		if errors.Is(err, ErrNotFound) {
			f.add("apps", fmt.Errorf("%q does not exist", app))
			continue
		}
		if err != nil {
			return err
		}
	}

	return f.err()
}

// fitsLimits refuses a set that is too large to be published.
func (a *action) fitsLimits() error {
	n, bytes, err := a.Extent()
	if err != nil {
		return err
	}
	return extentFaults(n, bytes).err()
}

func extentFaults(n, bytes int64) (f faults) {
	if n > policy.MaxPolicies {
		f.add("", fmt.Errorf("there would be %d policies, more than %d", n, policy.MaxPolicies))
	}
	if bytes > policy.MaxBytes {
		f.add("", fmt.Errorf("all policies together would have %d bytes, more than %d", bytes, policy.MaxBytes))
	}
	return f
}

// record writes a revision and its row in the audit log.
func (a *action) record(name string, version int64, before, after, verb, note string) error {
	if err := checkComment(a.actor.comment); err != nil {
		return err
	}

	err := a.AddRevision(store.Revision{
		Policy: name, Version: version, At: a.now, Actor: a.actor.user, Action: verb,
		Before: before, After: after, RequestID: a.actor.meta.RequestID, Note: note, Comment: a.actor.comment,
	})
	if err != nil {
		return err
	}

	// The revision is for all who see the policy, and the row for administrators.
	row := a.actor.auditRow(a.now, "policy."+verb, policyObject(name))
	row.Before, row.After, row.Note = before, after, joined(note, a.actor.comment)
	return a.AddAudit(row)
}

// joined returns the note of the console and the comment of the actor as one text.
func joined(note, comment string) string {
	if note == "" || comment == "" {
		return note + comment
	}
	return note + ": " + comment
}
