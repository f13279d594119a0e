package service

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/auth"
	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
)

// User is a person who may log in. Users are never deleted, so that a name in the
// audit log always means the same person. They are disabled instead.
type User struct {
	Name               string
	Administrator      bool
	Disabled           bool
	MustChangePassword bool
	CreatedAt          time.Time
	CreatedBy          string
	PasswordAt         time.Time       // the time of the last change of the password
	SecondFactor       bool            // one is in force
	Roles              map[string]Role // by application
}

func userObject(name string) string { return "user:" + name }

func userOf(r store.User, roles []store.Role) User {
	u := User{
		Name: r.Name, Administrator: r.Administrator, Disabled: r.Disabled, MustChangePassword: r.MustChange,
		CreatedAt: instant(r.CreatedAt), CreatedBy: r.CreatedBy, PasswordAt: instant(r.PasswordAt),
		Roles: map[string]Role{},
	}
	for _, role := range roles {
		u.Roles[role.App] = Role(role.Role)
	}
	return u
}

// Users returns all users by name. It requires an administrator.
func (s *Service) Users(ctx context.Context, a Actor) ([]User, error) {
	return answer(ctx, s, a, "user.list", "users", func(d *action) ([]User, error) {
		if err := d.manage(); err != nil {
			return nil, err
		}

		rows, err := d.Users()
		if err != nil {
			return nil, err
		}

		roles, err := d.Roles()
		if err != nil {
			return nil, err
		}

		byUser := map[string][]store.Role{}
		for _, r := range roles {
			byUser[r.User] = append(byUser[r.User], r)
		}

		factors, err := d.UsersWithSecondFactor()
		list := make([]User, len(rows))
		for i, r := range rows {
			list[i] = userOf(r, byUser[r.Name])
			_, list[i].SecondFactor = slices.BinarySearch(factors, r.Name)
		}
		return list, err
	})
}

// User returns a user. It requires an administrator or the same user.
func (s *Service) User(ctx context.Context, a Actor, name string) (User, error) {
	return answer(ctx, s, a, "user.read", userObject(name), func(d *action) (u User, err error) {
		if name != a.user || d.access.Token {
			if err := d.manage(); err != nil {
				return u, err
			}
		}

		row, err := d.user(name)
		if err != nil {
			return u, err
		}

		roles, err := d.RolesOf(name)
		if err != nil {
			return u, err
		}

		u = userOf(row, roles)
		_, u.SecondFactor, err = confirmedFactor(d.Tx, name)
		return u, err
	})
}

// CreateUser adds a user without roles, and returns a password, which the user has
// to change at the first log-in. It requires an administrator.
func (s *Service) CreateUser(ctx context.Context, a Actor, name string) (password string, err error) {
	return s.withPassword(ctx, func(hash string) error {
		return s.manage(ctx, a, "user.create", userObject(name), func(d *action) error {
			if err := CheckUser(name); err != nil {
				return invalid("name", err.Error())
			}

			u := store.User{
				Name: name, Password: hash, MustChange: true,
				CreatedAt: d.now, CreatedBy: a.user, PasswordAt: d.now,
			}
			err := d.InsertUser(u)
			if errors.Is(err, store.ErrExists) {
				return invalid("name", "there is a user of that name")
			}
			if err != nil {
				return err
			}

			return d.done("", userText(u))
		})
	})
}

// ResetPassword gives a user a new password, which the user has to change at the
// next log-in, and ends all sessions and tokens of the user, which another person may have made.
// The next person whom a provider gives the
// name of the user becomes the user. It requires an administrator.
func (s *Service) ResetPassword(ctx context.Context, a Actor, name string) (password string, err error) {
	return s.withPassword(ctx, func(hash string) error {
		reset := func(d *action) error { return d.resetPassword(name, hash) }
		return s.manage(ctx, a, "user.reset-password", userObject(name), reset)
	})
}

// withPassword generates a password and calls f, which stores its hash.
func (s *Service) withPassword(ctx context.Context, f func(hash string) error) (string, error) {
	password := auth.NewSecret()
	hash, err := s.passwords.Hash(ctx, password)
	if err != nil {
		return "", err
	}
	if err := f(hash); err != nil {
		return "", err
	}
	return password, nil
}

func (a *action) resetPassword(name, hash string) error {
	u, err := a.user(name)
	if err != nil {
		return err
	}

	before := userText(u)
	u.Password, u.MustChange, u.PasswordAt = hash, true, a.now
	if err := a.UpdateUser(u); err != nil {
		return err
	}

	// The next person whom a provider gives the name becomes the user.
	if err := a.DeleteIdentityOf(name); err != nil {
		return err
	}
	if err := a.signOut(name); err != nil {
		return err
	}
	if _, err := a.endTokens(name); err != nil {
		return err
	}

	return a.done(before, userText(u))
}

// signOut ends all sessions and pending log-ins of a user, and forgets the browsers of the
// user.
func (a *action) signOut(name string) error {
	if _, err := a.DeleteSessionsOf(name); err != nil {
		return err
	}
	if err := a.DeletePendingLoginsOf(name); err != nil {
		return err
	}
	return a.DeleteOtherDevices(name, "")
}

// DisableUser ends all sessions of a user, and refuses the user and the user's
// tokens until EnableUser. It requires an administrator. The last administrator
// cannot be disabled.
func (s *Service) DisableUser(ctx context.Context, a Actor, name string) error {
	return s.changeUser(ctx, a, "user.disable", name, func(u *store.User) { u.Disabled = true })
}

// EnableUser lets a disabled user log in again. It requires an administrator.
func (s *Service) EnableUser(ctx context.Context, a Actor, name string) error {
	return s.changeUser(ctx, a, "user.enable", name, func(u *store.User) { u.Disabled = false })
}

// Promote makes a user an administrator. It requires an administrator.
func (s *Service) Promote(ctx context.Context, a Actor, name string) error {
	return s.changeUser(ctx, a, "user.promote", name, func(u *store.User) { u.Administrator = true })
}

// Demote makes an administrator a user with the roles that were assigned before.
// It requires an administrator. The last administrator cannot be demoted.
func (s *Service) Demote(ctx context.Context, a Actor, name string) error {
	return s.changeUser(ctx, a, "user.demote", name, func(u *store.User) { u.Administrator = false })
}

func (s *Service) changeUser(ctx context.Context, a Actor, verb, name string, change func(*store.User)) error {
	return s.manage(ctx, a, verb, userObject(name), func(d *action) error {
		u, err := d.user(name)
		if err != nil {
			return err
		}

		was := u
		if change(&u); u == was {
			return errUnchanged
		}

		if err := d.UpdateUser(u); err != nil {
			return err
		}

		// They are counted after the change, so that the last administrator cannot go.
		n, err := d.Administrators()
		if err != nil {
			return err
		}
		if n == 0 {
			return invalid("name", "this is the last administrator: make another user one first")
		}

		if u.Disabled {
			if err := d.signOut(name); err != nil {
				return err
			}
		}

		return d.done(userText(was), userText(u))
	})
}

// SetRole gives a user a role in an application; NoRole removes it. It requires an
// administrator.
func (s *Service) SetRole(ctx context.Context, a Actor, user, app string, role Role) error {
	return s.manage(ctx, a, "user.role", userObject(user), func(d *action) error {
		if role != NoRole && role != Viewer && role != Owner {
			return invalid("role", "it is not viewer, owner or nothing")
		}

		if _, err := d.user(user); err != nil {
			return err
		}
		if _, err := d.app(app); errors.Is(err, ErrNotFound) {
			return invalid("app", "there is no application of that name")
		} else if err != nil {
			return err
		}

		roles, err := d.RolesOf(user)
		if err != nil {
			return err
		}

		was := userOf(store.User{Name: user}, roles).Roles[app]
		if was == role {
			return errUnchanged
		}

		if err := d.Tx.SetRole(store.Role{User: user, App: app, Role: string(role)}); err != nil {
			return err
		}

		return d.done(roleText(app, was), roleText(app, role))
	})
}

// user returns a user. It does not look up invalid names.
func (a *action) user(name string) (store.User, error) { return findUser(a.Tx, name) }

func findUser(t *store.Tx, name string) (store.User, error) {
	if CheckUser(name) != nil {
		return store.User{}, ErrNotFound
	}
	return t.User(name)
}

// userText returns the form of a user in the audit log, without the hash of the
// password.
func userText(u store.User) string {
	return text(struct {
		Name          string    `json:"name"`
		Administrator bool      `json:"administrator"`
		Disabled      bool      `json:"disabled"`
		MustChange    bool      `json:"must_change_password"`
		PasswordAt    time.Time `json:"password_at"`
	}{u.Name, u.Administrator, u.Disabled, u.MustChange, instant(u.PasswordAt)})
}

func roleText(app string, role Role) string {
	if role == NoRole {
		return ""
	}
	return text(map[string]string{"app": app, "role": string(role)})
}
