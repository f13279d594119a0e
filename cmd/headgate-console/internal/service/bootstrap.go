package service

import (
	"context"
	"errors"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
)

// FirstUser is the name of the administrator that [Service.Bootstrap] creates.
const FirstUser = "admin"

// Bootstrap creates an administrator if there are no users, and returns the
// password, which has to be changed at the first log-in. If there are users, it
// returns "". If several programs call it at the same time, only one gets a
// password.
func (s *Service) Bootstrap(ctx context.Context) (password string, err error) {
	// Mostly there are users, and no password has to be made.
	users, err := view(ctx, s, (*store.Tx).Users)
	if err != nil || len(users) > 0 {
		return "", err
	}

	// Another program may be faster, so the transaction looks again.
	password, err = s.withPassword(ctx, func(hash string) error {
		return s.asConsole(ctx, "user.create", FirstUser, func(a *action) error {
			list, err := a.Users()
			if err != nil {
				return err
			}
			if len(list) > 0 {
				return errUnchanged
			}
			return a.newAdministrator(FirstUser, hash)
		})
	})
	if errors.Is(err, errUnchanged) {
		return "", nil
	}
	return password, err
}

// Recover makes a user an enabled administrator, creates the user if necessary, ends all sessions
// and tokens of the user and the second factor, and returns a password, which has to be changed at
// the next log-in. Failed log-ins before it do not count any more. It takes no actor,
// because an operator who can start the program on the database has full access anyway.
func (s *Service) Recover(ctx context.Context, name string) (password string, err error) {
	if err := CheckUser(name); err != nil {
		return "", invalid("name", err.Error())
	}
	return s.withPassword(ctx, func(hash string) error {
		return s.asConsole(ctx, "user.recover", name, func(a *action) error {
			// Every console on this database begins to count failed log-ins anew.
			if err := a.RaiseCounter(store.CounterAttempts, a.now); err != nil {
				return err
			}

			u, err := a.user(name)
			if errors.Is(err, ErrNotFound) {
				return a.newAdministrator(name, hash)
			}
			if err != nil {
				return err
			}

			u.Administrator, u.Disabled = true, false
			if err := a.UpdateUser(u); err != nil {
				return err
			}

			// The device of the second factor may be lost, or in the hands of another.
			if err := a.DeleteSecondFactor(name); err != nil {
				return err
			}

			return a.resetPassword(name, hash)
		})
	})
}

func (a *action) newAdministrator(name, hash string) error {
	u := store.User{
		Name: name, Password: hash, Administrator: true, MustChange: true,
		CreatedAt: a.now, PasswordAt: a.now,
	}
	if err := a.InsertUser(u); err != nil {
		return err
	}
	return a.done("", userText(u))
}

// asConsole runs f for the program itself.
func (s *Service) asConsole(ctx context.Context, verb, user string, f func(*action) error) error {
	return s.db.Update(ctx, func(t *store.Tx) error {
		a := &action{Tx: t, actor: itself(), now: s.now(), verb: verb, object: userObject(user)}
		if err := t.RaiseCounter(store.CounterUsers, a.now); err != nil {
			return err
		}
		return f(a)
	})
}
