package service

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/auth"
	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
)

// Session is the result of a log-in.
type Session struct {
	Token   string    // the secret for the cookie, which is not stored
	Expires time.Time // at the latest; an idle session ends earlier

	// Device is the secret of a new device, for a cookie that outlives the session, or "".
	Device string

	// MustChangePassword reports that the user may only call
	// [Service.ChangePassword] and [Service.Logout].
	MustChangePassword bool

	// Pending, if it is not "", is the secret of a log-in that waits for a code of the user's
	// second factor until Expires, for [Service.LoginCode]. There is no session yet.
	Pending string

	// Recovered reports that a recovery code was used.
	Recovered bool
}

// Login starts a session, or a log-in that waits for a code if the user has a second factor.
// The error is a LimitedError after too many failed
// attempts of the user or from the address, and ErrCredentials if the name or the
// password is wrong or the user is disabled. It takes as long for a name that does
// not exist.
func (s *Service) Login(ctx context.Context, name, password string, m Meta) (Session, error) {
	m = m.sanitized()

	session, slowed, err := tried(ctx, s, name, m, false, func() (Session, error) {
		return s.login(ctx, name, password, m)
	})
	if errors.Is(err, ErrCredentials) {
		reason := "the name or the password is wrong, or the user is disabled"
		s.auditLogin(ctx, "session.login", name, m, viaSession, reason, slowed)
	}
	s.auditLimited(ctx, "session.login", name, m, err)
	return session, err
}

// tried returns what f returns in an attempt of a user, with code after the right password. The
// attempt counts before f looks at anything, so that guesses in parallel count too. Unless the
// error is ErrCredentials, what the attempt has cost is given back.
func tried[T any](
	ctx context.Context, s *Service, user string, m Meta, code bool, f func() (T, error),
) (v T, slowed bool, err error) {
	try, err := s.attempt(ctx, user, m, code)
	if err != nil {
		return v, false, err
	}

	result, err := f()
	if errors.Is(err, ErrCredentials) {
		try.Failed()
		return v, try.Slowed, err
	}
	if failed := try.Succeeded(ctx); failed != nil {
		s.logger.WarnContext(ctx, "the cost of an attempt to log in could not be refunded", "error", failed)
	}
	return result, false, err
}

// attempt begins an attempt to log in. The error is a LimitedError if there were too many
// failures. A new password, and Recover, begin new counts. All invalid names share one. With
// code the attempt is one with a code after the right password.
func (s *Service) attempt(ctx context.Context, name string, m Meta, code bool) (auth.Try, error) {
	of, err := view(ctx, s, func(t *store.Tx) (auth.Attempt, error) {
		epoch, err := t.Counter(store.CounterAttempts)
		of := auth.Attempt{Address: m.Address, Code: code, Epoch: epoch.Value}
		if err != nil {
			return of, err
		}

		u, err := findUser(t, name)
		if errors.Is(err, ErrNotFound) {
			// A user who does not exist is counted like one who does, so that no answer shows the
			// difference.
			if CheckUser(name) == nil {
				of.User = name
			}
			return of, nil
		}
		if err != nil {
			return of, err
		}

		// A new password has another time, and so begins a new count.
		of.User = fmt.Sprint(u.Name, " ", u.PasswordAt)
		of.Device, err = knownDevice(t, u.Name, m)
		return of, err
	})
	if err != nil {
		return auth.Try{}, err
	}

	try, retryAfter, ok := s.attempts.Admit(ctx, of)
	if !ok {
		return auth.Try{}, &LimitedError{RetryAfter: retryAfter}
	}
	return try, nil
}

func (s *Service) login(ctx context.Context, name, password string, m Meta) (Session, error) {
	u, err := s.checkedUser(ctx, name, password)
	if err != nil {
		return Session{}, err
	}

	var session Session
	a := Actor{user: u.Name, via: viaSession, meta: m}
	err = s.db.Update(ctx, func(t *store.Tx) error {
		now := s.now()
		current, err := t.User(u.Name)
		if err != nil {
			return err
		}

		// The password was checked outside of this transaction.
		if current.Disabled || current.Password != u.Password {
			return ErrCredentials
		}

		_, waits, err := confirmedFactor(t, u.Name)
		if err != nil {
			return err
		}

		verb := "session.login"
		if waits {
			verb = "session.password"
			session, err = s.pend(t, current, now)
		} else {
			session, err = s.open(t, current, a, now)
		}
		if err != nil {
			return err
		}

		return addNote(t, a, now, verb, "")
	})
	return session, err
}

// addNote writes what a user has done with the own log-in to the audit log.
func addNote(t *store.Tx, a Actor, now int64, verb, note string) error {
	row := a.auditRow(now, verb, userObject(a.user))
	row.Note = note
	return t.AddAudit(row)
}

// checkedUser returns the user if the password is right. It hashes the password in
// any case. The transaction that follows checks whether the user is disabled.
func (s *Service) checkedUser(ctx context.Context, name, password string) (store.User, error) {
	u, err := view(ctx, s, func(t *store.Tx) (store.User, error) { return findUser(t, name) })
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return u, err
	}

	// Also without such a user, so that the time of an answer does not show who exists.
	matches, err := s.passwords.Matches(ctx, u.Password, password)
	if err != nil {
		return u, err
	}

	if !matches {
		return u, ErrCredentials
	}
	return u, nil
}

// open starts a session of an actor, and deletes sessions that have ended and the one before in
// the same browser.
func (s *Service) open(t *store.Tx, u store.User, a Actor, now int64) (Session, error) {
	m := a.meta
	settings, err := settingsOf(t)
	if err != nil {
		return Session{}, err
	}
	if err := t.DeleteEndedSessions(now, now-settings.SessionIdle.Microseconds()); err != nil {
		return Session{}, err
	}
	if err := s.endBefore(t, m, now); err != nil {
		return Session{}, err
	}

	token := auth.NewSecret()
	row := store.Session{
		Hash: auth.Digest(token), User: u.Name, CreatedAt: now, SeenAt: now,
		ExpiresAt: now + settings.SessionLife.Microseconds(),
		Address:   m.Address, Agent: m.Agent, Provider: a.via == viaOIDC,
	}

	session := Session{Token: token, Expires: instant(row.ExpiresAt), MustChangePassword: u.MustChange}
	if session.Device, err = rememberDevice(t, u.Name, m, now); err != nil {
		return Session{}, err
	}

	return session, t.InsertSession(row)
}

// tooMany is the reason of a refusal without a check of the password.
const tooMany = "too many attempts"

// auditLogin writes a failed attempt to the audit log. It writes a bounded number of
// attempts each hour that may be a flood, and of attempts with names that do not exist. A
// row never has the typed name, which may be a password.
func (s *Service) auditLogin(ctx context.Context, verb, name string, m Meta, via, reason string, flood bool) {
	u, err := view(ctx, s, func(t *store.Tx) (store.User, error) { return findUser(t, name) })
	object := userObject("?")
	if err == nil {
		object = userObject(u.Name)
	}

	// A user whose password was guessed wrongly is written in any case, apart from a flood.
	unbounded := err != nil || flood
	if unbounded && !s.attempts.WorthNoting(ctx) {
		return
	}

	s.auditRefusal(ctx, Actor{via: via, meta: m}, verb, object, reason)
}

// auditLimited writes an attempt to the audit log if err is its LimitedError.
func (s *Service) auditLimited(ctx context.Context, verb, name string, m Meta, err error) {
	var limited *LimitedError
	if errors.As(err, &limited) {
		s.auditLogin(ctx, verb, name, m, viaSession, tooMany, true)
	}
}

// Logout ends the session of the actor. It does nothing if the session has ended.
func (s *Service) Logout(ctx context.Context, a Actor) error {
	return s.db.Update(ctx, func(t *store.Tx) error {
		err := t.DeleteSession(a.user, a.session)
		if errors.Is(err, store.ErrNotFound) {
			return nil // it has ended already
		}
		if err != nil {
			return err
		}
		return addNote(t, a, s.now(), "session.logout", "")
	})
}

// ChangePassword sets the actor's own password, ends all of the actor's sessions
// including this one, and starts a new one. A person at a provider is no longer the actor, and
// becomes it again as at first. The actor's tokens go on. The error is ErrCredentials if old is not
// the current password, which counts as a failed attempt to log in, and an InvalidError if the new
// password is not acceptable.
func (s *Service) ChangePassword(ctx context.Context, a Actor, old, password string) (Session, error) {
	return s.tryChange(ctx, a, old, password, false)
}

// ChangePasswordAndEndTokens is ChangePassword, and ends the actor's tokens too, in case that
// another person has known the password and made some.
func (s *Service) ChangePasswordAndEndTokens(ctx context.Context, a Actor, old, password string) (Session, error) {
	return s.tryChange(ctx, a, old, password, true)
}

func (s *Service) tryChange(ctx context.Context, a Actor, old, password string, endTokens bool) (Session, error) {
	if a.session == "" {
		return Session{}, ErrNotLoggedIn
	}
	if err := s.checkNewPassword(a.user, old, password); err != nil {
		return Session{}, err
	}

	// A wrong old password is a failed attempt to log in.
	session, _, err := tried(ctx, s, a.user, a.meta, false, func() (Session, error) {
		return s.changePassword(ctx, a, old, password, endTokens)
	})
	if errors.Is(err, ErrCredentials) {
		s.auditRefusal(ctx, a, "user.change-password", userObject(a.user), "the old password is wrong")
	}
	return session, err
}

func (s *Service) checkNewPassword(user, old, password string) error {
	if err := auth.CheckPassword(user, password); err != nil {
		return invalid("password", err.Error())
	}
	if old == password {
		return invalid("password", "it is the old one")
	}
	return nil
}

// changePassword checks the old password and stores the new one. It ends all sessions, and begins
// one.
func (s *Service) changePassword(
	ctx context.Context, a Actor, old, password string, endTokens bool,
) (session Session, err error) {
	u, err := s.checkedUser(ctx, a.user, old)
	if err != nil {
		return Session{}, err
	}

	// To hash takes long, so that it is done before the transaction.
	hash, err := s.passwords.Hash(ctx, password)
	if err != nil {
		return Session{}, err
	}

	err = s.db.Update(ctx, func(t *store.Tx) error {
		d := &action{Tx: t, actor: a, now: s.now(), verb: "user.change-password", object: userObject(a.user)}
		current, err := d.user(a.user)
		if err != nil {
			return err
		}

		// The password was checked outside of this transaction.
		if current.Disabled || current.Password != u.Password {
			return ErrCredentials
		}

		before := userText(current)
		current.Password, current.MustChange, current.PasswordAt = hash, false, d.now
		if err := d.UpdateUser(current); err != nil {
			return err
		}

		// Another person may have known the old password, so that every session ends, and this one
		// begins anew. Nor does a person at a provider stay the user who was made so with it.
		if err := d.signOut(a.user); err != nil {
			return err
		}
		if err := d.DeleteIdentityOf(a.user); err != nil {
			return err
		}
		if endTokens {
			if _, err := d.endTokens(a.user); err != nil {
				return err
			}
		}
		if session, err = s.open(t, current, a, d.now); err != nil {
			return err
		}

		return d.done(before, userText(current))
	})
	return session, err
}
