package store

// Identity is a person at a provider of OpenID Connect who is a user.
type Identity struct {
	Hash string `db:"hash"` // the digest of issuer and subject
	User string `db:"user_name"`
	At   int64  `db:"at"` // µs; the first log-in
}

var identityRows = newRows[Identity]("identities")

// Identity returns the identity with that hash, or ErrNotFound.
func (t *Tx) Identity(hash string) (Identity, error) {
	return identityRows.one(t, "WHERE hash = ?", hash)
}

// IdentityOf returns the identity of a user, or ErrNotFound.
func (t *Tx) IdentityOf(user string) (Identity, error) {
	return identityRows.one(t, "WHERE user_name = ?", user)
}

// InsertIdentity adds an identity, or returns ErrExists.
func (t *Tx) InsertIdentity(i Identity) error { return identityRows.insert(t, i) }

// DeleteIdentityOf removes the identity of a user. It does nothing if there is none.
func (t *Tx) DeleteIdentityOf(user string) error {
	return t.exec("DELETE FROM identities WHERE user_name = ?", user)
}
