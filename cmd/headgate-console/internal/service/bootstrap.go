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
	users, err := s.userCount(ctx)
	if err != nil || users > 0 {
		return "", err
	}

	// Another program may be faster, so the transaction looks again.
	password, err = s.withPassword(ctx, func(_, hash string) error {
		return s.asConsole(ctx, "user.create", FirstUser, func(d *action) error {
			list, err := d.Users()
			if err != nil {
				return err
			}
			if len(list) > 0 {
				return errUnchanged
			}
			return d.newAdministrator(FirstUser, hash)
		})
	})
	if errors.Is(err, errUnchanged) {
		return "", nil
	}
	return password, err
}

func (s *Service) userCount(ctx context.Context) (n int, err error) {
	err = s.db.View(ctx, func(t *store.Tx) error {
		list, err := t.Users()
		n = len(list)
		return err
	})
	return n, err
}

// Recover makes a user an enabled administrator, creates the user if necessary,
// ends all sessions of the user and the second factor, and returns a password, which has to be
// changed at the next log-in. Failed log-ins before it do not count any more. It takes no actor,
// because an operator who can start the program on the database has full access anyway.
func (s *Service) Recover(ctx context.Context, name string) (password string, err error) {
	if err := CheckUser(name); err != nil {
		return "", invalid("name", err.Error())
	}
	return s.withPassword(ctx, func(_, hash string) error {
		return s.asConsole(ctx, "user.recover", name, func(d *action) error {
			// Every console on this database begins to count failed log-ins anew.
			if err := d.RaiseCounter(store.CounterAttempts, d.now); err != nil {
				return err
			}

			u, err := d.user(name)
			if errors.Is(err, ErrNotFound) {
				return d.newAdministrator(name, hash)
			}
			if err != nil {
				return err
			}

			u.Administrator, u.Disabled = true, false
			if err := d.UpdateUser(u); err != nil {
				return err
			}

			// The device of the second factor may be lost, or in the hands of another.
			if err := d.DeleteSecondFactor(name); err != nil {
				return err
			}

			return d.resetPassword(name, hash)
		})
	})
}

func (d *action) newAdministrator(name, hash string) error {
	u := store.User{
		Name: name, Password: hash, Administrator: true, MustChange: true,
		CreatedAt: d.now, PasswordAt: d.now,
	}
	if err := d.InsertUser(u); err != nil {
		return err
	}
	return d.done("", userText(u))
}

// asConsole runs f for the program itself.
func (s *Service) asConsole(ctx context.Context, verb, user string, f func(*action) error) error {
	return s.db.Update(ctx, func(t *store.Tx) error {
		d := &action{Tx: t, actor: itself(), now: s.now(), verb: verb, object: userObject(user)}
		if err := t.RaiseCounter(store.CounterUsers, d.now); err != nil {
			return err
		}
		return f(d)
	})
}
