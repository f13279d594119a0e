package store

// Revision is one change of a policy. No statement changes or removes one.
type Revision struct {
	Policy    string
	Version   int64 // that the change made
	At        int64 // µs
	Actor     string
	Action    string
	Before    string // a body; "" if there was no such policy
	After     string // a body; "" if the policy was deleted
	RequestID string
	Note      string
	Comment   string // of the author
}

const revisionFields = "r.policy, r.version, r.at, r.actor, r.action, " +
	"r.body_before, r.body_after, r.request_id, r.note, " +
	"COALESCE((SELECT c.comment FROM comments c WHERE c.policy = r.policy AND c.version = r.version), '')"

const revisionColumns = "SELECT " + revisionFields + " FROM revisions r"

func scanRevision(s scanner) (r Revision, err error) {
	return r, s.Scan(&r.Policy, &r.Version, &r.At, &r.Actor, &r.Action,
		&r.Before, &r.After, &r.RequestID, &r.Note, &r.Comment)
}

// AddRevision writes a revision, or returns ErrExists if the policy has one of
// that version.
func (t *Tx) AddRevision(r Revision) error {
	const q = "INSERT INTO revisions (policy, version, at, actor, action, body_before, body_after, request_id, note) " +
		"VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
	_, err := t.exec(q, r.Policy, r.Version, r.At, r.Actor, r.Action, r.Before, r.After, r.RequestID, r.Note)
	if err != nil || r.Comment == "" {
		return err
	}
	_, err = t.exec("INSERT INTO comments (policy, version, comment) VALUES (?, ?, ?)", r.Policy, r.Version, r.Comment)
	return err
}

// Revision returns the change that made a version, or ErrNotFound.
func (t *Tx) Revision(policy string, version int64) (Revision, error) {
	return readOne(t, scanRevision, revisionColumns+" WHERE policy = ? AND version = ?", policy, version)
}

// Revisions returns at most limit revisions of a policy, the newest first, that
// are older than the version before, which is 0 for the newest.
func (t *Tx) Revisions(policy string, before int64, limit int) ([]Revision, error) {
	const q = revisionColumns + " WHERE policy = ? AND (? = 0 OR version < ?) ORDER BY version DESC LIMIT ?"
	return readAll(t, scanRevision, q, policy, before, before, limit)
}

// LastVersion returns the highest version that a policy of that name ever had, or 0.
func (t *Tx) LastVersion(policy string) (int64, error) {
	return readOne(t, scanCount, "SELECT COALESCE(MAX(version), 0) FROM revisions WHERE policy = ?", policy)
}

// RevisionsBetween returns at most limit revisions of a policy, or with "" of all, from an instant
// until another, which is not included, in µs, the newest first. Those of one instant are in the
// order of the index: by name, the last one first.
func (t *Tx) RevisionsBetween(policy string, from, to int64, limit int) ([]Revision, error) {
	if policy != "" {
		const q = revisionColumns + " WHERE policy = ? AND at >= ? AND at < ? ORDER BY version DESC LIMIT ?"
		return readAll(t, scanRevision, q, policy, from, to, limit)
	}

	const q = revisionColumns + " WHERE at >= ? AND at < ? ORDER BY at DESC, policy DESC, version DESC LIMIT ?"
	return readAll(t, scanRevision, q, from, to, limit)
}
