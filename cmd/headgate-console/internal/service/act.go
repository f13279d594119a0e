package service

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
)

// action is one action of an actor in one transaction.
type action struct {
	*store.Tx
	actor  Actor
	access Access
	now    int64 // µs
	verb   string
	object string

	// These are set for an action that may use again the policies that others read. It reads
	// them itself without them.
	ctx  context.Context // of the one call
	sets *memo[struct{}, policySet]
}

// errUnchanged rolls back a transaction that has nothing to change. Methods return
// nil instead of it.
var errUnchanged = errors.New("unchanged")

// refusalTime bounds the write of a refusal. The end of the request does not stop it.
const refusalTime = 5 * time.Second

// ask runs f in a read transaction.
func (s *Service) ask(ctx context.Context, a Actor, verb, object string, f func(*action) error) error {
	err := s.db.View(ctx, func(t *store.Tx) error {
		return s.action(ctx, t, a, verb, object).run(f)
	})
	return s.ended(ctx, a, err)
}

func (s *Service) action(ctx context.Context, t *store.Tx, a Actor, verb, object string) *action {
	return &action{Tx: t, actor: a, now: s.now(), verb: verb, object: object, ctx: ctx, sets: s.sets}
}

// act runs f in a write transaction. The transaction raises the counter lock, so that
// actions with the same counter run one after the other. f writes the rows of the
// audit log.
func (s *Service) act(ctx context.Context, a Actor, lock, verb, object string, f func(*action) error) error {
	return s.actWith(ctx, a, []string{lock}, verb, object, f)
}

// answer is ask for what f reads.
func answer[T any](
	ctx context.Context, s *Service, a Actor, verb, object string, f func(*action) (T, error),
) (v T, err error) {
	err = s.ask(ctx, a, verb, object, func(d *action) (err error) {
		v, err = f(d)
		return err
	})
	return v, err
}

// view returns what f reads for the program itself.
func view[T any](ctx context.Context, s *Service, f func(*store.Tx) (T, error)) (v T, err error) {
	err = s.db.View(ctx, func(t *store.Tx) (err error) {
		v, err = f(t)
		return err
	})
	return v, err
}

// manage is act for what takes an administrator.
func (s *Service) manage(ctx context.Context, a Actor, verb, object string, f func(*action) error) error {
	return s.act(ctx, a, store.CounterUsers, verb, object, func(d *action) error {
		if err := d.manage(); err != nil {
			return err
		}
		return f(d)
	})
}

// actWith is act with several counters. All of them are raised before f reads anything, so that
// f sees what earlier actions with any of them have written.
func (s *Service) actWith(
	ctx context.Context, a Actor, locks []string, verb, object string, f func(*action) error,
) error {
	err := s.db.Update(ctx, func(t *store.Tx) error {
		d := s.action(ctx, t, a, verb, object)
		for _, lock := range locks {
			// An override has a revision of its own, and its policy is not deleted meanwhile.
			err := error(nil)
			if lock == store.CounterOverrides {
				err = d.LockCounter(store.CounterPolicies)
			} else {
				err = d.RaiseCounter(lock, d.now)
			}
			if err != nil {
				return err
			}
		}

		return d.run(f)
	})

	// After the commit and not in it, because the transaction may run again.
	published := func(lock string) bool {
		return lock == store.CounterPolicies || lock == store.CounterOverrides
	}
	if err == nil && slices.ContainsFunc(locks, published) {
		s.changed()
	}

	return s.ended(ctx, a, err)
}

// RaiseCounter raises a counter. What the action reads of policies after it raised their counter is
// not yet committed, so it is kept from others.
func (a *action) RaiseCounter(name string, at int64) error {
	if name == store.CounterPolicies {
		a.sets = nil
	}
	return a.Tx.RaiseCounter(name, at)
}

// ownFactor begins the actions of a user with the user's own second factor.
const ownFactor = "second-factor."

// run looks up the actor's permissions and calls f.
func (a *action) run(f func(*action) error) error {
	var err error
	if a.access, err = accessOf(a.Tx, a.actor); err != nil {
		return err
	}
	if a.access.MustChangePassword {
		return ErrPasswordChange
	}
	if a.access.MustSetUpSecondFactor && !strings.HasPrefix(a.verb, ownFactor) {
		return ErrSecondFactor
	}
	if a.access.Backups && a.verb != backUpVerb {
		return a.deny("the token is for backups alone")
	}
	return f(a)
}

// ended returns the error of an action to the caller, and nil for errUnchanged. It
// writes a refusal to the audit log.
func (s *Service) ended(ctx context.Context, a Actor, err error) error {
	var denied *DeniedError
	var invalid *InvalidError

	if errors.Is(err, errUnchanged) {
		return nil
	}
	if !errors.As(err, &denied) && errors.As(err, &invalid) {
		denied = invalid.refusal
	}
	if denied != nil {
		s.auditRefusal(ctx, a, denied.Action, denied.Object, denied.Reason)
	}
	return err
}

// auditRefusal writes a refusal to the audit log in a separate transaction.
func (s *Service) auditRefusal(ctx context.Context, a Actor, verb, object, reason string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refusalTime)
	defer cancel()
	row := a.auditRow(s.now(), verb, object)
	row.Outcome, row.Note = Refused, reason
	if err := s.db.Update(ctx, func(t *store.Tx) error { return t.AddAudit(row) }); err != nil {
		s.logger.ErrorContext(ctx, "a refusal could not be written to the audit log",
			"actor", a.user, "action", verb, "object", object, "error", err)
	}
}

// Refuse writes a refusal to the audit log and returns the DeniedError. It is for
// pages that lead only to forbidden actions. An actor without any permissions gets
// another error.
func (s *Service) Refuse(ctx context.Context, a Actor, verb, object, reason string) error {
	return s.ask(ctx, a, verb, object, func(d *action) error { return d.deny(reason) })
}

// deny refuses the action.
func (a *action) deny(reason string) error {
	return &DeniedError{Action: a.verb, Object: a.object, Reason: reason}
}

// hide refuses the action as if its object did not exist.
func (a *action) hide() error {
	return &DeniedError{Action: a.verb, Object: a.object, Reason: "the object is hidden from the actor", hidden: true}
}

// probe returns the refusal of a name that a hidden policy has.
func (a *action) probe() *DeniedError {
	return &DeniedError{
		Action: a.verb, Object: a.object,
		Reason: "the name is that of a policy that is hidden from the actor",
	}
}

// manage refuses the action unless the actor is an administrator.
func (a *action) manage() error {
	if !a.access.CanManage() {
		return a.deny("it takes an administrator")
	}
	return nil
}

// person refuses tokens, for actions that require a log-in.
func (a *action) person() error {
	if a.access.Token {
		return a.deny("a token may not do this")
	}
	return nil
}

// done writes the row of the audit log.
func (a *action) done(before, after string) error { return a.noted(before, after, "") }

// noted is done with a note.
func (a *action) noted(before, after, note string) error {
	row := a.actor.auditRow(a.now, a.verb, a.object)
	row.Before, row.After, row.Note = before, after, note
	return a.AddAudit(row)
}
