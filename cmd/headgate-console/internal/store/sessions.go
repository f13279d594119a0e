package store

// Session is the row of a session.
type Session struct {
	Hash      string // of the token, which is not stored
	User      string
	CreatedAt int64 // µs
	SeenAt    int64 // µs
	ExpiresAt int64 // µs; use does not extend it
	Address   string
	Agent     string
	Provider  bool // it began at a provider of OpenID Connect
}

const sessionColumns = "SELECT hash, user_name, created_at, seen_at, expires_at, address, agent, " +
	"EXISTS (SELECT 1 FROM provider_sessions p WHERE p.hash = sessions.hash) FROM sessions"

func scanSession(s scanner) (v Session, err error) {
	return v, s.Scan(&v.Hash, &v.User, &v.CreatedAt, &v.SeenAt, &v.ExpiresAt, &v.Address, &v.Agent, &v.Provider)
}

// InsertSession adds a session.
func (t *Tx) InsertSession(v Session) error {
	const q = "INSERT INTO sessions (hash, user_name, created_at, seen_at, expires_at, address, agent) " +
		"VALUES (?, ?, ?, ?, ?, ?, ?)"
	_, err := t.exec(q, v.Hash, v.User, v.CreatedAt, v.SeenAt, v.ExpiresAt, v.Address, v.Agent)
	if err == nil && v.Provider {
		_, err = t.exec("INSERT INTO provider_sessions (hash) VALUES (?)", v.Hash)
	}
	return err
}

// Session returns one session, or ErrNotFound.
func (t *Tx) Session(hash string) (Session, error) {
	return readOne(t, scanSession, sessionColumns+" WHERE hash = ?", hash)
}

// SessionsOf returns the sessions of a user, the newest first.
func (t *Tx) SessionsOf(user string) ([]Session, error) {
	return readAll(t, scanSession, sessionColumns+" WHERE user_name = ? ORDER BY created_at DESC, hash", user)
}

// TouchSession stores that a session was used at a time in µs, unless a later time is
// stored.
func (t *Tx) TouchSession(hash string, at int64) error {
	_, err := t.exec("UPDATE sessions SET seen_at = ? WHERE hash = ? AND seen_at < ?", at, hash, at)
	return err
}

// DeleteSession ends a session of a user, or returns ErrNotFound.
func (t *Tx) DeleteSession(user, hash string) error {
	return t.execOne(ErrNotFound, "DELETE FROM sessions WHERE user_name = ? AND hash = ?", user, hash)
}

// DeleteSessionsOf ends all sessions of a user, and returns their number.
func (t *Tx) DeleteSessionsOf(user string) (int64, error) {
	return t.exec("DELETE FROM sessions WHERE user_name = ?", user)
}

// DeleteOtherSessions ends all sessions of a user but one.
func (t *Tx) DeleteOtherSessions(user, hash string) error {
	_, err := t.exec("DELETE FROM sessions WHERE user_name = ? AND hash <> ?", user, hash)
	return err
}

// DeleteEndedSessions deletes the sessions that expire by expired or were last used by
// idle, both in µs.
func (t *Tx) DeleteEndedSessions(expired, idle int64) error {
	_, err := t.exec("DELETE FROM sessions WHERE expires_at <= ? OR seen_at <= ?", expired, idle)
	return err
}
