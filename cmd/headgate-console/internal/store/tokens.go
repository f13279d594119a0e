package store

// Token is a row of an API token.
type Token struct {
	ID        string
	Hash      string // of the secret, which is not stored
	User      string
	Label     string
	Scope     string
	Apps      string // a JSON array
	CreatedAt int64  // µs
	ExpiresAt int64  // µs
	UsedAt    int64  // µs; 0 means never
	RevokedAt int64  // µs; 0 means never
}

const tokenColumns = "SELECT id, hash, user_name, label, scope, apps, " +
	"created_at, expires_at, used_at, revoked_at FROM tokens"

func scanToken(s scanner) (v Token, err error) {
	return v, s.Scan(&v.ID, &v.Hash, &v.User, &v.Label, &v.Scope, &v.Apps,
		&v.CreatedAt, &v.ExpiresAt, &v.UsedAt, &v.RevokedAt)
}

// InsertToken adds a token.
func (t *Tx) InsertToken(v Token) error {
	const q = "INSERT INTO tokens " +
		"(id, hash, user_name, label, scope, apps, created_at, expires_at, used_at, revoked_at) " +
		"VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
	_, err := t.exec(q, v.ID, v.Hash, v.User, v.Label, v.Scope, v.Apps, v.CreatedAt, v.ExpiresAt, v.UsedAt, v.RevokedAt)
	return err
}

// TokenByHash returns the token with that hash, or ErrNotFound.
func (t *Tx) TokenByHash(hash string) (Token, error) {
	return readOne(t, scanToken, tokenColumns+" WHERE hash = ?", hash)
}

// Token returns one token, or ErrNotFound.
func (t *Tx) Token(id string) (Token, error) {
	return readOne(t, scanToken, tokenColumns+" WHERE id = ?", id)
}

// TokensOf returns the tokens of a user, the newest first.
func (t *Tx) TokensOf(user string) ([]Token, error) {
	return readAll(t, scanToken, tokenColumns+" WHERE user_name = ? ORDER BY created_at DESC, id", user)
}

// TouchToken stores that a token was used at a time in µs, unless a later time is
// stored.
func (t *Tx) TouchToken(id string, at int64) error {
	_, err := t.exec("UPDATE tokens SET used_at = ? WHERE id = ? AND used_at < ?", at, id, at)
	return err
}

// RevokeToken ends a token at a time in µs, or returns ErrNotFound if it does not
// exist or has been revoked.
func (t *Tx) RevokeToken(id string, at int64) error {
	return t.execOne(ErrNotFound, "UPDATE tokens SET revoked_at = ? WHERE id = ? AND revoked_at = 0", at, id)
}
