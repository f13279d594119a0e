package service

import (
	"context"
	"errors"
	"strconv"

	"github.com/headgate/headgate/cmd/headgate-console/internal/auth"
	"github.com/headgate/headgate/cmd/headgate-console/internal/oidc"
	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
)

// LoginByProvider starts a session of the user whom a provider of OpenID Connect has
// authenticated. The user has to exist; an administrator gives the roles. At the first log-in
// the person at the provider becomes the user for ever, so that another person with the same
// name is refused later, and a one-time password of the user ends. A user who has chosen a
// password has to be the actor own at the first log-in, by a session that began with it, because
// people may choose the name that some providers give. own may be the zero value. The provider is
// responsible for a second factor: the user's own is not asked for. The error is ErrNotLoggedIn if
// the user does not exist, is disabled, or is another person, and ErrOwnPassword, which matches it,
// if the user has a password and is not own.
func (s *Service) LoginByProvider(ctx context.Context, who oidc.Identity, own Actor, m Meta) (Session, error) {
	m = m.sanitized()
	session, err := s.loginByProvider(ctx, who, own, m)
	if err = asNotLoggedIn(err); errors.Is(err, ErrNotLoggedIn) {
		reason := "the provider names a user who does not exist, is disabled, or is another person"
		if errors.Is(err, ErrOwnPassword) {
			reason = "the provider names a user who has a password, and is not signed in with it"
		}
		s.auditLogin(ctx, "session.login", who.User, m, viaOIDC, reason, true)
	}
	return session, err
}

// RefuseProvider writes to the audit log that a log-in at the provider has failed. It writes a
// bounded number of them an hour.
func (s *Service) RefuseProvider(ctx context.Context, reason error, m Meta) {
	s.auditLogin(ctx, "session.login", "", m.sanitized(), viaOIDC, reason.Error(), true)
}

func (s *Service) loginByProvider(
	ctx context.Context, who oidc.Identity, own Actor, m Meta,
) (session Session, err error) {
	if who.Issuer == "" || who.Subject == "" {
		return Session{}, ErrNotLoggedIn
	}

	err = s.db.Update(ctx, func(t *store.Tx) error {
		now := s.now()
		if err := t.RaiseCounter(store.CounterUsers, now); err != nil {
			return err
		}

		u, note, err := person(t, who, own, now)
		if err != nil {
			return err
		}
		if u.Disabled {
			return ErrNotLoggedIn
		}

		// The one-time password ends, since the provider lets the user in: from now on no password
		// is right.
		if u.MustChange {
			u.Password, u.MustChange, u.PasswordAt = "", false, now
			if err := t.UpdateUser(u); err != nil {
				return err
			}
		}

		a := Actor{user: u.Name, via: viaOIDC, meta: m}
		if session, err = s.open(t, u, a, now); err != nil {
			return err
		}

		return addNote(t, a, now, "session.login", note)
	})
	return session, err
}

// person returns the user that a person is. At the first log-in it stores that, and note says so.
func person(t *store.Tx, who oidc.Identity, own Actor, now int64) (u store.User, note string, err error) {
	// With the length in front no other issuer and subject have the same text.
	hash := auth.Digest(strconv.Itoa(len(who.Issuer)) + " " + who.Issuer + " " + who.Subject)
	known, err := t.Identity(hash)
	if err == nil {
		u, err = t.User(known.User)
		return u, "", err
	}
	if !errors.Is(err, store.ErrNotFound) {
		return u, "", err
	}

	// The person is new, and becomes the user of the name, unless another person has.
	if u, err = findUser(t, who.User); err != nil {
		return u, "", err
	}
	if _, err := t.IdentityOf(u.Name); !errors.Is(err, store.ErrNotFound) {
		if err == nil {
			err = ErrNotLoggedIn
		}
		return u, "", err
	}

	if u.Disabled {
		return u, "", ErrNotLoggedIn
	}

	// A name is no proof for a user who has a password.
	if err := mayBecome(t, u, own); err != nil {
		return u, "", err
	}

	identity := store.Identity{Hash: hash, User: u.Name, At: now}
	return u, "the person at the provider becomes the user", t.InsertIdentity(identity)
}

// mayBecome returns ErrOwnPassword if a user has chosen a password, and has not signed in with it.
func mayBecome(t *store.Tx, u store.User, own Actor) error {
	if u.Password == "" || u.MustChange {
		return nil
	}
	if own.via != viaSession || own.user != u.Name {
		return ErrOwnPassword
	}
	_, err := t.Session(own.session)
	if errors.Is(err, store.ErrNotFound) { // it has ended since
		return ErrOwnPassword
	}
	return err
}
