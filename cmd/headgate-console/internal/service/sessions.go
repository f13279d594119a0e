package service

import (
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/auth"
	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
)

// touchEvery is the least time between two writes of the last use of a session or
// token.
const touchEvery = time.Minute

// Authenticate returns the actor of a session's token, or ErrNotLoggedIn.
func (s *Service) Authenticate(ctx context.Context, token string, m Meta) (Actor, error) {
	hash, now := auth.Digest(token), s.now()
	session, err := view(ctx, s, func(t *store.Tx) (store.Session, error) {
		session, err := t.Session(hash)
		if err != nil {
			return session, err
		}

		settings, err := settingsOf(t)
		if err != nil {
			return session, err
		}
		if settings.ended(session, now) {
			return session, ErrNotLoggedIn
		}
		return session, enabled(t, session.User)
	})
	if err != nil {
		return Actor{}, asNotLoggedIn(err)
	}

	// The last use is written once a minute, or each request would be a write.
	if !m.Poll && now >= session.SeenAt+touchEvery.Microseconds() {
		err = s.touch(ctx, func(t *store.Tx) error { return t.TouchSession(hash, now) })
	}

	a := Actor{user: session.User, via: viaSession, session: hash, meta: m.sanitized()}
	if session.Provider {
		a.via = viaOIDC
	}

	return a, err
}

// endBefore ends the session that a browser has had until a log-in, which replaces its cookie.
func (s *Service) endBefore(t *store.Tx, m Meta, now int64) error {
	if m.Session == "" {
		return nil
	}
	before, err := t.Session(auth.Digest(m.Session))
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}

	// Another transaction may have ended it since it was read, and has written that.
	err = t.DeleteSession(before.User, before.Hash)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	a := Actor{user: before.User, via: viaSession, meta: m}
	return addNote(t, a, now, "session.logout", "another log-in in the same browser")
}

// touch writes the last use of a session or token. Pages can be read while nothing can be
// written: a database that does not answer is told by what reads it.
func (s *Service) touch(ctx context.Context, f func(*store.Tx) error) error {
	err := s.db.Update(ctx, f)
	if errors.Is(err, ErrUnavailable) {
		return nil
	}
	return err
}

// AuthenticateByProxy returns the actor for a user that a trusted proxy has
// authenticated, or ErrNotLoggedIn if the user does not exist or is disabled. Such
// an actor has no session, and need not change the console's own password.
func (s *Service) AuthenticateByProxy(ctx context.Context, name string, m Meta) (Actor, error) {
	m = m.sanitized()
	err := s.db.View(ctx, func(t *store.Tx) error {
		if CheckUser(name) != nil {
			return ErrNotLoggedIn
		}
		return enabled(t, name)
	})
	if err = asNotLoggedIn(err); errors.Is(err, ErrNotLoggedIn) {
		reason := "the proxy names a user who does not exist or is disabled"
		s.auditLogin(ctx, "session.login", name, m, viaProxy, reason, true)
	}

	if err != nil {
		return Actor{}, err
	}

	return Actor{user: name, via: viaProxy, meta: m}, nil
}

// asNotLoggedIn replaces ErrNotFound by ErrNotLoggedIn.
func asNotLoggedIn(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return ErrNotLoggedIn
	}
	return err
}

// enabled refuses a user who is disabled.
func enabled(t *store.Tx, name string) error {
	u, err := t.User(name)
	if err == nil && u.Disabled {
		return ErrNotLoggedIn
	}
	return err
}

// Access returns the actor's current permissions. It also works for an actor who
// must change the password or set up a second factor first.
func (s *Service) Access(ctx context.Context, a Actor) (Access, error) {
	return view(ctx, s, func(t *store.Tx) (Access, error) { return accessOf(t, a) })
}

// OpenSession is a session that has not ended, for display to its user.
type OpenSession struct {
	ID        string // the digest of its secret
	CreatedAt time.Time
	SeenAt    time.Time // to the minute
	Expires   time.Time
	Address   string
	Agent     string
	Current   bool // the session of the actor
}

// Sessions returns the actor's own sessions, the newest first.
func (s *Service) Sessions(ctx context.Context, a Actor) ([]OpenSession, error) {
	return answer(ctx, s, a, "session.list", userObject(a.user), func(d *action) (list []OpenSession, err error) {
		if err := d.person(); err != nil {
			return nil, err
		}

		settings, err := settingsOf(d.Tx)
		if err != nil {
			return nil, err
		}

		rows, err := d.SessionsOf(a.user)
		for _, r := range rows {
			// Sessions that have ended stay in the table until the next login.
			if settings.ended(r, d.now) {
				continue
			}
			list = append(list, OpenSession{
				ID: r.Hash, CreatedAt: instant(r.CreatedAt), SeenAt: instant(r.SeenAt), Expires: instant(r.ExpiresAt),
				Address: r.Address, Agent: r.Agent, Current: r.Hash == a.session,
			})
		}
		return list, err
	})
}

// RevokeSession ends one of the actor's own sessions, or returns ErrNotFound.
func (s *Service) RevokeSession(ctx context.Context, a Actor, id string) error {
	return s.act(ctx, a, store.CounterUsers, "session.revoke", userObject(a.user), func(d *action) error {
		if err := d.person(); err != nil {
			return err
		}
		if !isDigest(id) {
			return ErrNotFound
		}
		if err := d.DeleteSession(a.user, id); err != nil {
			return err
		}
		return d.done("", "")
	})
}

func isDigest(s string) bool {
	for i := range len(s) {
		if !('0' <= s[i] && s[i] <= '9' || 'a' <= s[i] && s[i] <= 'f') {
			return false
		}
	}
	return len(s) == len(auth.Digest(""))
}
