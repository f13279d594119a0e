package store

// DeletedPolicy is the row of a policy that does not exist any more.
type DeletedPolicy struct {
	Policy  string `db:"policy"`
	Version int64  `db:"version"` // that deleted it
	At      int64  `db:"at"`      // µs
}

var deletedRows = newRows[DeletedPolicy]("deleted_policies")

// AddDeleted stores that a revision deleted a policy.
func (t *Tx) AddDeleted(d DeletedPolicy) error { return deletedRows.insert(t, d) }

// DropDeleted stores that a policy exists.
func (t *Tx) DropDeleted(policy string) error {
	return t.exec("DELETE FROM deleted_policies WHERE policy = ?", policy)
}

// Deleted returns at most limit revisions that deleted a policy which was not restored
// since, the newest first, from the offset on.
func (t *Tx) Deleted(offset, limit int) ([]Revision, error) {
	return revisionRows.all(t,
		"JOIN (SELECT policy, version, at FROM deleted_policies ORDER BY at DESC, policy LIMIT ? OFFSET ?) d "+
			"ON revisions.policy = d.policy AND revisions.version = d.version ORDER BY d.at DESC, d.policy", limit, offset)
}
