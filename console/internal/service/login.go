package service

import (
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate/console/internal/auth"
	"github.com/headgate/headgate/console/internal/store"
)

// Session is the result of a log-in.
type Session struct {
	Token   string    // the secret for the cookie, which is not stored
	Expires time.Time // at the latest; an idle session ends earlier

	// MustChangePassword reports that the user may only call
	// [Service.ChangePassword] and [Service.Logout].
	MustChangePassword bool
}

// Login starts a session. The error is a LimitedError after too many failed
// attempts of the user or from the address, and ErrCredentials if the name or the
// password is wrong or the user is disabled. It takes as long for a name that does
// not exist.
func (s *Service) Login(ctx context.Context, name, password string, m Meta) (Session, error) {
	m = m.sanitized()
	try, retryAfter, ok := s.attempts.Begin(ctx, attemptName(name), m.Address)
	if !ok {
		s.noteLogin(ctx, name, m, viaSession, tooMany)
		return Session{}, &LimitedError{RetryAfter: retryAfter}
	}
	session, err := s.login(ctx, name, password, m)
	if errors.Is(err, ErrCredentials) {
		try.Failed()
		s.noteLogin(ctx, name, m, viaSession, "the name or the password is wrong, or the user is disabled")
		return Session{}, err
	}
	if refundErr := try.Succeeded(ctx); refundErr != nil {
		s.logger.WarnContext(ctx, "the cost of an attempt to log in could not be refunded", "error", refundErr)
	}
	return session, err
}

// attemptName returns the name that attempts are counted by. All invalid names share
// one.
func attemptName(name string) string {
	if CheckUser(name) != nil {
		return ""
	}
	return name
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
		if current.Disabled || current.Password != u.Password { // since it was checked
			return ErrCredentials
		}
		if session, err = s.open(t, current, m, now); err != nil {
			return err
		}
		row := a.auditRow(now, "session.login", userObject(u.Name))
		row.Outcome = string(Done)
		return t.AddAudit(row)
	})
	return session, err
}

// checkedUser returns the user if the password is right. It hashes the password in
// any case. The transaction that follows checks whether the user is disabled.
func (s *Service) checkedUser(ctx context.Context, name, password string) (store.User, error) {
	var u store.User
	err := s.db.View(ctx, func(t *store.Tx) (err error) {
		u, err = findUser(t, name)
		return err
	})
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return u, err
	}
	matches, err := s.passwords.Matches(ctx, u.Password, password)
	if err != nil {
		return u, err
	}
	if !matches {
		return u, ErrCredentials
	}
	return u, nil
}

// open starts a session and deletes sessions that have ended.
func (s *Service) open(t *store.Tx, u store.User, m Meta, now int64) (Session, error) {
	settings, err := settingsOf(t)
	if err != nil {
		return Session{}, err
	}
	if err := t.DeleteEndedSessions(now, now-settings.SessionIdle.Microseconds()); err != nil {
		return Session{}, err
	}
	token := auth.NewSecret()
	row := store.Session{
		Hash: auth.Digest(token), User: u.Name, CreatedAt: now, SeenAt: now,
		ExpiresAt: now + settings.SessionLife.Microseconds(), Address: m.Address, Agent: m.Agent,
	}
	session := Session{Token: token, Expires: instant(row.ExpiresAt), MustChangePassword: u.MustChange}
	return session, t.InsertSession(row)
}

// tooMany is the reason of a refusal without a check of the password.
const tooMany = "too many attempts"

// noteLogin writes a failed attempt to the audit log. The limits of attempts bound
// the rows of checked passwords of existing users. It writes a bounded number of
// all other attempts each hour, without the typed name, which may be a password.
func (s *Service) noteLogin(ctx context.Context, name string, m Meta, via, reason string) {
	object := userObject("?")
	err := s.db.View(ctx, func(t *store.Tx) error {
		u, err := findUser(t, name)
		if err == nil {
			object = userObject(u.Name)
		}
		return err
	})
	unbounded := err != nil || reason == tooMany || via == viaProxy
	if unbounded && !s.attempts.WorthNoting(ctx) {
		return
	}
	s.noteRefusal(ctx, Actor{via: via, meta: m}, "session.login", object, reason)
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
		row := a.auditRow(s.now(), "session.logout", userObject(a.user))
		row.Outcome = string(Done)
		return t.AddAudit(row)
	})
}

// ChangePassword sets the actor's own password, ends all of the actor's sessions
// including this one, and starts a new one. The error is ErrCredentials if old is
// not the current password, which counts as a failed attempt to log in, and an
// InvalidError if the new password is not acceptable.
func (s *Service) ChangePassword(ctx context.Context, a Actor, old, password string) (Session, error) {
	if a.session == "" {
		return Session{}, ErrNotLoggedIn
	}
	if err := s.checkNewPassword(a.user, old, password); err != nil {
		return Session{}, err
	}
	try, retryAfter, ok := s.attempts.Begin(ctx, a.user, a.meta.Address)
	if !ok {
		return Session{}, &LimitedError{RetryAfter: retryAfter}
	}
	session, err := s.changePassword(ctx, a, old, password)
	if errors.Is(err, ErrCredentials) {
		try.Failed()
		s.noteRefusal(ctx, a, "user.change-password", userObject(a.user), "the old password is wrong")
		return Session{}, err
	}
	if refundErr := try.Succeeded(ctx); refundErr != nil {
		s.logger.WarnContext(ctx, "the cost of an attempt to log in could not be refunded", "error", refundErr)
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

func (s *Service) changePassword(ctx context.Context, a Actor, old, password string) (session Session, err error) {
	u, err := s.checkedUser(ctx, a.user, old)
	if err != nil {
		return Session{}, err
	}
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
		if current.Disabled || current.Password != u.Password { // since it was checked
			return ErrCredentials
		}
		before := userText(current)
		current.Password, current.MustChange, current.PasswordAt = hash, false, d.now
		if err := d.UpdateUser(current); err != nil {
			return err
		}
		if _, err := d.DeleteSessionsOf(a.user); err != nil {
			return err
		}
		if session, err = s.open(t, current, a.meta, d.now); err != nil {
			return err
		}
		return d.done(before, userText(current))
	})
	return session, err
}
