package store

// Session is the row of a session.
type Session struct {
	Hash      string `db:"hash"` // of the token, which is not stored
	User      string `db:"user_name"`
	CreatedAt int64  `db:"created_at"` // µs
	SeenAt    int64  `db:"seen_at"`    // µs
	ExpiresAt int64  `db:"expires_at"` // µs; use does not extend it
	Address   string `db:"address"`
	Agent     string `db:"agent"`

	// Provider means that it began at a provider of OpenID Connect.
	Provider bool `sql:"EXISTS (SELECT 1 FROM provider_sessions p WHERE p.hash = sessions.hash)"`
}

var sessionRows = newRows[Session]("sessions")

// InsertSession adds a session.
func (t *Tx) InsertSession(v Session) error {
	err := sessionRows.insert(t, v)
	if err == nil && v.Provider {
		err = t.exec("INSERT INTO provider_sessions (hash) VALUES (?)", v.Hash)
	}
	return err
}

// Session returns one session, or ErrNotFound.
func (t *Tx) Session(hash string) (Session, error) { return sessionRows.one(t, "WHERE hash = ?", hash) }

// SessionsOf returns the sessions of a user, the newest first.
func (t *Tx) SessionsOf(user string) ([]Session, error) {
	return sessionRows.all(t, "WHERE user_name = ? ORDER BY created_at DESC, hash", user)
}

// TouchSession stores that a session was used at a time in µs, unless a later time is
// stored.
func (t *Tx) TouchSession(hash string, at int64) error {
	return t.exec("UPDATE sessions SET seen_at = ? WHERE hash = ? AND seen_at < ?", at, hash, at)
}

// DeleteSession ends a session of a user, or returns ErrNotFound.
func (t *Tx) DeleteSession(user, hash string) error {
	return t.execOne(ErrNotFound, "DELETE FROM sessions WHERE user_name = ? AND hash = ?", user, hash)
}

// DeleteSessionsOf ends all sessions of a user, and returns their number.
func (t *Tx) DeleteSessionsOf(user string) (int64, error) {
	return t.affected("DELETE FROM sessions WHERE user_name = ?", user)
}

// DeleteOtherSessions ends all sessions of a user but one.
func (t *Tx) DeleteOtherSessions(user, hash string) error {
	return t.exec("DELETE FROM sessions WHERE user_name = ? AND hash <> ?", user, hash)
}

// DeleteEndedSessions deletes the sessions that expire by expired or were last used by
// idle, both in µs.
func (t *Tx) DeleteEndedSessions(expired, idle int64) error {
	return t.exec("DELETE FROM sessions WHERE expires_at <= ? OR seen_at <= ?", expired, idle)
}
