package store

// Revision is one change of a policy. No statement changes or removes one.
type Revision struct {
	Policy    string `db:"policy"`
	Version   int64  `db:"version"` // that the change made
	At        int64  `db:"at"`      // µs
	Actor     string `db:"actor"`
	Action    string `db:"action"`
	Before    string `db:"body_before"` // "" if there was no such policy
	After     string `db:"body_after"`  // "" if the policy was deleted
	RequestID string `db:"request_id"`
	Note      string `db:"note"`

	// Comment is of the author.
	Comment string `sql:"COALESCE((SELECT c.comment FROM comments c WHERE c.policy = revisions.policy AND c.version = revisions.version), '')"`
}

var revisionRows = newRows[Revision]("revisions")

// AddRevision writes a revision, or returns ErrExists if the policy has one of
// that version.
func (t *Tx) AddRevision(r Revision) error {
	err := revisionRows.insert(t, r)
	if err != nil || r.Comment == "" {
		return err
	}
	return t.exec("INSERT INTO comments (policy, version, comment) VALUES (?, ?, ?)", r.Policy, r.Version, r.Comment)
}

// Revision returns the change that made a version, or ErrNotFound.
func (t *Tx) Revision(policy string, version int64) (Revision, error) {
	return revisionRows.one(t, "WHERE policy = ? AND version = ?", policy, version)
}

// Revisions returns at most limit revisions of a policy, the newest first, that
// are older than the version before, which is 0 for the newest.
func (t *Tx) Revisions(policy string, before int64, limit int) ([]Revision, error) {
	const q = "WHERE policy = ? AND (? = 0 OR version < ?) ORDER BY version DESC LIMIT ?"
	return revisionRows.all(t, q, policy, before, before, limit)
}

// LastVersion returns the highest version that a policy of that name ever had, or 0.
func (t *Tx) LastVersion(policy string) (int64, error) {
	return readOne[int64](t, "SELECT COALESCE(MAX(version), 0) FROM revisions WHERE policy = ?", policy)
}

// RevisionsBetween returns at most limit revisions of a policy, or with "" of all, from an instant
// until another, which is not included, in µs, the newest first. Those of one instant are in the
// order of the index: by name, the last one first.
func (t *Tx) RevisionsBetween(policy string, from, to int64, limit int) ([]Revision, error) {
	if policy != "" {
		const q = "WHERE policy = ? AND at >= ? AND at < ? ORDER BY version DESC LIMIT ?"
		return revisionRows.all(t, q, policy, from, to, limit)
	}

	const q = "WHERE at >= ? AND at < ? ORDER BY at DESC, policy DESC, version DESC LIMIT ?"
	return revisionRows.all(t, q, from, to, limit)
}
