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
	var session store.Session
	err := s.db.View(ctx, func(t *store.Tx) error {
		var err error
		if session, err = t.Session(hash); err != nil {
			return err
		}

		settings, err := settingsOf(t)
		if err != nil {
			return err
		}

		if now >= session.ExpiresAt || now >= session.SeenAt+settings.SessionIdle.Microseconds() {
			return ErrNotLoggedIn
		}
		return enabled(t, session.User)
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
	row := Actor{user: before.User, via: viaSession, meta: m}.auditRow(now, "session.logout", userObject(before.User))
	row.Outcome, row.Note = string(Done), "another log-in in the same browser"
	return t.AddAudit(row)
}

// touch writes the last use of a session or token. Pages can be read while the disk is full.
func (s *Service) touch(ctx context.Context, f func(*store.Tx) error) error {
	err := s.db.Update(ctx, f)
	if errors.Is(err, ErrFull) {
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
func (s *Service) Access(ctx context.Context, a Actor) (access Access, err error) {
	err = s.db.View(ctx, func(t *store.Tx) error {
		access, err = accessOf(t, a)
		return err
	})
	return access, err
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
func (s *Service) Sessions(ctx context.Context, a Actor) (list []OpenSession, err error) {
	err = s.ask(ctx, a, "session.list", userObject(a.user), func(d *action) error {
		if err := d.person(); err != nil {
			return err
		}

		settings, err := settingsOf(d.Tx)
		if err != nil {
			return err
		}

		rows, err := d.SessionsOf(a.user)
		list = nil
		for _, r := range rows {
			// Sessions that have ended stay in the table until the next login.
			if d.now >= r.ExpiresAt || d.now >= r.SeenAt+settings.SessionIdle.Microseconds() {
				continue
			}
			list = append(list, OpenSession{
				ID: r.Hash, CreatedAt: instant(r.CreatedAt), SeenAt: instant(r.SeenAt), Expires: instant(r.ExpiresAt),
				Address: r.Address, Agent: r.Agent, Current: r.Hash == a.session,
			})
		}
		return err
	})
	return list, err
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
