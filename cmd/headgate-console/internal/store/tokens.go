package store

// Token is a row of an API token.
type Token struct {
	ID        string `db:"id"`
	Hash      string `db:"hash"` // of the secret, which is not stored
	User      string `db:"user_name"`
	Label     string `db:"label"`
	Scope     string `db:"scope"`
	Apps      string `db:"apps"`       // a JSON array
	CreatedAt int64  `db:"created_at"` // µs
	ExpiresAt int64  `db:"expires_at"` // µs
	UsedAt    int64  `db:"used_at"`    // µs; 0 means never
	RevokedAt int64  `db:"revoked_at"` // µs; 0 means never
}

var tokenRows = newRows[Token]("tokens")

// InsertToken adds a token.
func (t *Tx) InsertToken(v Token) error { return tokenRows.insert(t, v) }

// TokenByHash returns the token with that hash, or ErrNotFound.
func (t *Tx) TokenByHash(hash string) (Token, error) { return tokenRows.one(t, "WHERE hash = ?", hash) }

// Token returns one token, or ErrNotFound.
func (t *Tx) Token(id string) (Token, error) { return tokenRows.one(t, "WHERE id = ?", id) }

// TokensOf returns the tokens of a user, the newest first.
func (t *Tx) TokensOf(user string) ([]Token, error) {
	return tokenRows.all(t, "WHERE user_name = ? ORDER BY created_at DESC, id", user)
}

// TouchToken stores that a token was used at a time in µs, unless a later time is
// stored.
func (t *Tx) TouchToken(id string, at int64) error {
	return t.exec("UPDATE tokens SET used_at = ? WHERE id = ? AND used_at < ?", at, id, at)
}

// RevokeToken ends a token at a time in µs, or returns ErrNotFound if it does not
// exist or has been revoked.
func (t *Tx) RevokeToken(id string, at int64) error {
	return t.execOne(ErrNotFound, "UPDATE tokens SET revoked_at = ? WHERE id = ? AND revoked_at = 0", at, id)
}
