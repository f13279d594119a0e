package store

// SecondFactor is the row of a user's second factor.
type SecondFactor struct {
	User        string `db:"user_name"`
	Secret      string `db:"secret"`       // in base32; it has to be readable, because codes are computed from it
	Session     string `db:"session"`      // the hash of the session that sets it up
	CreatedAt   int64  `db:"created_at"`   // µs
	ConfirmedAt int64  `db:"confirmed_at"` // µs; 0 means that it is not in force yet
	LastStep    int64  `db:"last_step"`    // the time step of the last code that was accepted

	stored string // the secret as it is in the row
}

var factorRows = newRows[SecondFactor]("second_factors")

// place names the column of the secret.
func (s *SecondFactor) place() string { return "second_factors.secret " + s.User }

// SecondFactor returns the second factor of a user, confirmed or not, or ErrNotFound.
func (t *Tx) SecondFactor(user string) (SecondFactor, error) {
	f, err := factorRows.one(t, "WHERE user_name = ?", user)
	if err == nil {
		f.stored = f.Secret
		f.Secret, err = t.db.seal.opened(f.stored, f.place())
	}
	return f, err
}

// UsersWithSecondFactor returns the names of the users whose second factor is confirmed.
func (t *Tx) UsersWithSecondFactor() ([]string, error) {
	return readAll[string](t, "SELECT user_name FROM second_factors WHERE confirmed_at > 0 ORDER BY user_name")
}

// InsertSecondFactor adds a second factor, or returns ErrExists if the user has one.
func (t *Tx) InsertSecondFactor(f SecondFactor) error {
	f.Secret = t.db.seal.encrypted(f.Secret, f.place())
	return factorRows.insert(t, f)
}

// ConfirmSecondFactor puts a second factor in force at a time in µs, and stores the time step of
// its first code. The error is ErrNotFound if the user has another one, or it is in force.
func (t *Tx) ConfirmSecondFactor(f SecondFactor, at, step int64) error {
	const q = "UPDATE second_factors SET confirmed_at = ?, last_step = ? " +
		"WHERE user_name = ? AND secret = ? AND confirmed_at = 0"
	return t.execOne(ErrNotFound, q, at, step, f.User, f.stored)
}

// UseStep stores that a code of a time step was accepted. The error is ErrStale if one of this
// step or a later one was accepted before, or the user has another second factor.
func (t *Tx) UseStep(f SecondFactor, step int64) error {
	const q = "UPDATE second_factors SET last_step = ? " +
		"WHERE user_name = ? AND secret = ? AND confirmed_at > 0 AND last_step < ?"
	return t.execOne(ErrStale, q, step, f.User, f.stored, step)
}

// DeleteSecondFactor removes the second factor of a user and its recovery codes. It does
// nothing if there is none.
func (t *Tx) DeleteSecondFactor(user string) error {
	if err := t.exec("DELETE FROM recovery_codes WHERE user_name = ?", user); err != nil {
		return err
	}
	return t.exec("DELETE FROM second_factors WHERE user_name = ?", user)
}

// recoveryCode is the row of a code, which is its hash.
type recoveryCode struct {
	User string `db:"user_name"`
	Hash string `db:"hash"`
}

var recoveryRows = newRows[recoveryCode]("recovery_codes")

// SetRecoveryCodes replaces the recovery codes of a user by others, given by their hashes.
func (t *Tx) SetRecoveryCodes(user string, hashes []string) error {
	if err := t.exec("DELETE FROM recovery_codes WHERE user_name = ?", user); err != nil {
		return err
	}
	codes := make([]recoveryCode, len(hashes))
	for i, hash := range hashes {
		codes[i] = recoveryCode{user, hash}
	}
	return recoveryRows.insert(t, codes...)
}

// UseRecoveryCode removes a recovery code of a user, or returns ErrNotFound.
func (t *Tx) UseRecoveryCode(user, hash string) error {
	return t.execOne(ErrNotFound, "DELETE FROM recovery_codes WHERE user_name = ? AND hash = ?", user, hash)
}

// RecoveryCodes returns the number of a user's recovery codes.
func (t *Tx) RecoveryCodes(user string) (int64, error) {
	return readOne[int64](t, "SELECT COUNT(*) FROM recovery_codes WHERE user_name = ?", user)
}

// PendingLogin is a log-in that waits for a code.
type PendingLogin struct {
	Hash       string `db:"hash"` // of the secret in its cookie, which is not stored
	User       string `db:"user_name"`
	PasswordAt int64  `db:"password_at"` // µs; when the password was set that was right
	ExpiresAt  int64  `db:"expires_at"`  // µs
}

var pendingRows = newRows[PendingLogin]("pending_logins")

// PendingLogin returns a pending log-in, or ErrNotFound.
func (t *Tx) PendingLogin(hash string) (PendingLogin, error) {
	return pendingRows.one(t, "WHERE hash = ?", hash)
}

// InsertPendingLogin adds a pending log-in.
func (t *Tx) InsertPendingLogin(p PendingLogin) error { return pendingRows.insert(t, p) }

// DeletePendingLogin ends a pending log-in, or returns ErrNotFound.
func (t *Tx) DeletePendingLogin(hash string) error {
	return t.execOne(ErrNotFound, "DELETE FROM pending_logins WHERE hash = ?", hash)
}

// DeletePendingLoginsOf ends all pending log-ins of a user.
func (t *Tx) DeletePendingLoginsOf(user string) error {
	return t.exec("DELETE FROM pending_logins WHERE user_name = ?", user)
}

// DeleteEndedPendingLogins deletes the pending log-ins that expire by a time in µs.
func (t *Tx) DeleteEndedPendingLogins(expired int64) error {
	return t.exec("DELETE FROM pending_logins WHERE expires_at <= ?", expired)
}
