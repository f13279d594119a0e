package service

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate/headgate/cmd/headgate-console/internal/auth"
	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
)

// The second step of a log-in: after the right password of a user who has a second factor.

// LoginCode ends a log-in that waits for a code, given by [Session.Pending]. The code is one
// of the user's device or a recovery code, and either is accepted once. The error is
// ErrNotLoggedIn if the log-in is unknown, has ended or took too long, ErrCredentials if
// the code is wrong or was used before, and a LimitedError after too many failed attempts.
func (s *Service) LoginCode(ctx context.Context, pending, code string, m Meta) (Session, error) {
	m = m.sanitized()
	hash := auth.Digest(pending)

	waits, err := view(ctx, s, func(t *store.Tx) (store.PendingLogin, error) { return s.pendingLogin(t, hash) })
	if err != nil {
		return Session{}, asNotLoggedIn(err)
	}
	user := waits.User

	session, slowed, err := tried(ctx, s, user, m, auth.IsCode(code), func() (Session, error) {
		return s.loginCode(ctx, hash, code, m)
	})
	s.auditLimited(ctx, "session.code", user, m, err)
	if errors.Is(err, ErrCredentials) {
		reason := "the code is wrong"
		if errors.Is(err, errCodeUsed) {
			reason = "the code was used before"
		}
		s.auditLogin(ctx, "session.code", user, m, viaSession, reason, slowed)
		return Session{}, ErrCredentials
	}

	return session, asNotLoggedIn(err)
}

// errCodeUsed is an ErrCredentials.
var errCodeUsed = fmt.Errorf("%w: the code was used before", ErrCredentials)

// pendingLogin returns a log-in that waits for its code, or ErrNotFound.
func (s *Service) pendingLogin(t *store.Tx, hash string) (store.PendingLogin, error) {
	p, err := t.PendingLogin(hash)
	if err == nil && s.now() >= p.ExpiresAt {
		err = ErrNotFound
	}
	return p, err
}

// pend makes a log-in wait for its code, and deletes those that have ended.
func (s *Service) pend(t *store.Tx, u store.User, now int64) (Session, error) {
	if err := t.DeleteEndedPendingLogins(now); err != nil {
		return Session{}, err
	}
	secret := auth.NewSecret()
	p := store.PendingLogin{
		Hash: auth.Digest(secret), User: u.Name, PasswordAt: u.PasswordAt,
		ExpiresAt: now + PendingLife.Microseconds(),
	}
	return Session{Pending: secret, Expires: instant(p.ExpiresAt)}, t.InsertPendingLogin(p)
}

func (s *Service) loginCode(ctx context.Context, hash, code string, m Meta) (session Session, err error) {
	err = s.db.Update(ctx, func(t *store.Tx) error {
		p, err := s.pendingLogin(t, hash)
		if err != nil {
			return err
		}

		now := s.now()
		u, err := t.User(p.User)
		if err != nil {
			return err
		}

		f, on, err := confirmedFactor(t, p.User)
		if err != nil {
			return err
		}

		// The right password was given for the user as it was then.
		if u.Disabled || u.PasswordAt != p.PasswordAt || !on {
			return ErrNotLoggedIn
		}

		note, err := useCode(t, f, code, now)
		if err != nil {
			return err
		}

		// Of two requests with one code the second one finds no log-in that waits.
		if err := t.DeletePendingLogin(hash); err != nil {
			return err
		}

		a := Actor{user: u.Name, via: viaSession, meta: m}
		if session, err = s.open(t, u, a, now); err != nil {
			return err
		}

		session.Recovered = note != withCode
		return addNote(t, a, now, "session.login", note)
	})
	return session, err
}

// withCode is the note of a log-in with a code of the user's device.
const withCode = "with a code"

// useCode uses a code or a recovery code up, and returns what the audit log says of it. The
// error is ErrCredentials if it is wrong. Of two transactions with one code one gets it.
func useCode(t *store.Tx, f store.SecondFactor, code string, now int64) (note string, err error) {
	// A recovery code is known by its form.
	if !auth.IsCode(code) {
		err := t.UseRecoveryCode(f.User, auth.RecoveryDigest(code))
		if errors.Is(err, store.ErrNotFound) {
			return "", ErrCredentials
		}
		if err != nil {
			return "", err
		}

		remaining, err := t.RecoveryCodes(f.User)
		return fmt.Sprintf("with a recovery code; %d are left", remaining), err
	}

	step, right := auth.CodeStep(f.Secret, code, now, f.LastStep)
	switch {
	case right:
	case auth.CodeUsed(f.Secret, code, now, f.LastStep):
		return "", errCodeUsed
	default:
		return "", ErrCredentials
	}

	// Another transaction may have used the same code since the second factor was read.
	err = t.UseStep(f, step)
	if errors.Is(err, store.ErrStale) {
		return "", errCodeUsed
	}

	return withCode, err
}
