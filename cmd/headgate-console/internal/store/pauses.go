package store

// Pause is the row of a policy that is in shadow or off until a time, and then goes back.
type Pause struct {
	Policy string `db:"policy"`
	Back   string `db:"mode_after"` // the mode that it goes back to
	Until  int64  `db:"until_at"`   // µs
	User   string `db:"user_name"`  // who paused it
	Via    string `db:"via"`        // how the user was authenticated
	Reason string `db:"reason"`     // why it did not go back when it was due; "" before
}

var pauseRows = newRows[Pause]("pauses")

// AddPause adds a pause, or returns ErrExists if the policy has one.
func (t *Tx) AddPause(p Pause) error { return pauseRows.insert(t, p) }

// Pause returns the pause of a policy, or ErrNotFound.
func (t *Tx) Pause(policy string) (Pause, error) { return pauseRows.one(t, "WHERE policy = ?", policy) }

// DuePause returns the pause that was the first to be due at an instant in µs, or ErrNotFound.
func (t *Tx) DuePause(at int64) (Pause, error) {
	return pauseRows.one(t, "WHERE reason = '' AND until_at <= ? ORDER BY until_at, policy LIMIT 1", at)
}

// DropPause removes the pause of a policy, or returns ErrNotFound.
func (t *Tx) DropPause(policy string) error {
	return t.execOne(ErrNotFound, "DELETE FROM pauses WHERE policy = ?", policy)
}

// FailPause stores why a policy did not go back, or returns ErrStale if the pause is another one
// by now.
func (t *Tx) FailPause(p Pause, reason string) error {
	const q = "UPDATE pauses SET reason = ? WHERE policy = ? AND until_at = ? AND user_name = ? AND reason = ''"
	return t.execOne(ErrStale, q, reason, p.Policy, p.Until, p.User)
}
