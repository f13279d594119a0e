package store

// Identity is a person at a provider of OpenID Connect who is a user.
type Identity struct {
	Hash string // the digest of issuer and subject
	User string
	At   int64 // µs; the first log-in
}

func scanIdentity(s scanner) (i Identity, err error) { return i, s.Scan(&i.Hash, &i.User, &i.At) }

// Identity returns the identity with that hash, or ErrNotFound.
func (t *Tx) Identity(hash string) (Identity, error) {
	return readOne(t, scanIdentity, "SELECT hash, user_name, at FROM identities WHERE hash = ?", hash)
}

// IdentityOf returns the identity of a user, or ErrNotFound.
func (t *Tx) IdentityOf(user string) (Identity, error) {
	return readOne(t, scanIdentity, "SELECT hash, user_name, at FROM identities WHERE user_name = ?", user)
}

// InsertIdentity adds an identity, or returns ErrExists.
func (t *Tx) InsertIdentity(i Identity) error {
	_, err := t.exec("INSERT INTO identities (hash, user_name, at) VALUES (?, ?, ?)", i.Hash, i.User, i.At)
	return err
}

// DeleteIdentityOf removes the identity of a user. It does nothing if there is none.
func (t *Tx) DeleteIdentityOf(user string) error {
	_, err := t.exec("DELETE FROM identities WHERE user_name = ?", user)
	return err
}
