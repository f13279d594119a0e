package store

// DeletedPolicy is the row of a policy that does not exist any more.
type DeletedPolicy struct {
	Policy  string
	Version int64 // that deleted it
	At      int64 // µs
}

// AddDeleted stores that a revision deleted a policy.
func (t *Tx) AddDeleted(d DeletedPolicy) error {
	_, err := t.exec("INSERT INTO deleted_policies (policy, version, at) VALUES (?, ?, ?)", d.Policy, d.Version, d.At)
	return err
}

// DropDeleted stores that a policy exists.
func (t *Tx) DropDeleted(policy string) error {
	_, err := t.exec("DELETE FROM deleted_policies WHERE policy = ?", policy)
	return err
}

// Deleted returns at most limit revisions that deleted a policy which was not restored
// since, the newest first, from the offset on.
func (t *Tx) Deleted(offset, limit int) ([]Revision, error) {
	const q = "SELECT " + revisionFields + " " +
		"FROM (SELECT policy, version, at FROM deleted_policies ORDER BY at DESC, policy LIMIT ? OFFSET ?) d " +
		"JOIN revisions r ON r.policy = d.policy AND r.version = d.version ORDER BY d.at DESC, d.policy"
	return readAll(t, scanRevision, q, limit, offset)
}
