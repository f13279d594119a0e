package store

// Override is the row of the limit of a single key, or of all keys with a prefix, of a policy.
type Override struct {
	Policy    string `db:"policy"`
	Key       string `db:"pattern"`    // "" for all keys of the policy, which were removed
	Text      string `db:"limit_text"` // of policy.ParseOverride; "" if it was removed, until that is published
	Revision  int64  `db:"revision"`   // of its last change, and of no other
	ChangedAt int64  `db:"changed_at"` // µs
	ChangedBy string `db:"changed_by"`
}

var (
	overrideRows        = newRows[Override]("overrides")
	deletedOverrideRows = newRows[Override]("deleted_overrides")
)

// lastText comes after all texts that go on a prefix.
const lastText = "\U0010ffff"

// Override returns that of a key, or ErrNotFound.
func (t *Tx) Override(policy, key string) (Override, error) {
	return overrideRows.one(t, "WHERE policy = ? AND pattern = ? AND limit_text <> ''", policy, key)
}

// Overrides returns at most limit overrides of a policy whose keys begin with the prefix and come
// after the key after, in the order of their bytes.
func (t *Tx) Overrides(policy, prefix, after string, limit int) ([]Override, error) {
	const q = "WHERE policy = ? AND pattern >= ? AND pattern <= ? AND pattern > ? " +
		"AND limit_text <> '' ORDER BY pattern LIMIT ?"
	return overrideRows.all(t, q, policy, prefix, prefix+lastText, after, limit)
}

// OverridesOf returns the overrides of a policy that have one of the keys.
func (t *Tx) OverridesOf(policy string, keys []string) ([]Override, error) {
	return readIn[Override](t, overrideRows.read+"WHERE policy = ? AND limit_text <> '' AND pattern", keys, "", policy)
}

// CountOverrides returns the number of overrides of a policy whose keys begin with the prefix.
func (t *Tx) CountOverrides(policy, prefix string) (int64, error) {
	const q = "SELECT COUNT(*) FROM overrides WHERE policy = ? AND pattern >= ? AND pattern <= ? AND limit_text <> ''"
	return readOne[int64](t, q, policy, prefix, prefix+lastText)
}

// ChangedOverrides returns at most limit overrides that were changed or removed after a revision,
// in the order of their revisions.
func (t *Tx) ChangedOverrides(revision int64, limit int) ([]Override, error) {
	return overrideRows.all(t, "WHERE revision > ? ORDER BY revision LIMIT ?", revision, limit)
}

// EndingOverrides returns at most limit overrides of a policy that have an end, passed or not, and
// come after the key after, in the order of their bytes.
func (t *Tx) EndingOverrides(policy, after string, limit int) ([]Override, error) {
	const q = "WHERE policy = ? AND pattern > ? AND limit_text LIKE '% until %' " +
		"ORDER BY pattern LIMIT ?"
	return overrideRows.all(t, q, policy, after, limit)
}

// banBegins begin the text of an override that bans, as policy.Override has it.
const banBegins = "banned until "

// BannedOverrides returns at most limit overrides of a policy, or with "" of all policies, that ban
// their keys at a time, which is written as in 2006-01-02T15:04:05, those whose bans last longest
// first.
func (t *Tx) BannedOverrides(policy, at string, limit int) ([]Override, error) {
	const bans = "limit_text > ? AND limit_text < ? ORDER BY limit_text DESC LIMIT ?"
	if policy == "" {
		return overrideRows.all(t, "WHERE "+bans, banBegins+at, banBegins+lastText, limit)
	}
	return overrideRows.all(t, "WHERE policy = ? AND "+bans, policy, banBegins+at, banBegins+lastText, limit)
}

// OverriddenPolicies returns the names of the policies that have overrides.
func (t *Tx) OverriddenPolicies() ([]string, error) {
	return readAll[string](t, "SELECT DISTINCT policy FROM overrides WHERE limit_text <> '' ORDER BY policy")
}

// PutOverrides writes overrides in place of those of their keys.
func (t *Tx) PutOverrides(list ...Override) error { return overrideRows.replace(t, list...) }

// InsertOverrides adds overrides of keys that have none.
func (t *Tx) InsertOverrides(list []Override) error { return overrideRows.insert(t, list...) }

// ForgetRemovals drops the rows of removals up to a revision, which was published.
func (t *Tx) ForgetRemovals(revision int64) error {
	return t.exec("DELETE FROM overrides WHERE limit_text = '' AND revision <= ?", revision)
}

// DeleteOverrides takes all overrides of a policy that is deleted to those of DeletedOverrides, and
// reports whether Redis may have some of them, or of those that were removed before.
func (t *Tx) DeleteOverrides(policy string) (bool, error) {
	if err := t.DropDeletedOverrides(policy); err != nil {
		return false, err
	}

	q := "INSERT INTO deleted_overrides (" + overrideRows.written + ") " +
		overrideRows.read + "WHERE policy = ? AND limit_text <> ''"
	if err := t.exec(q, policy); err != nil {
		return false, err
	}
	n, err := t.affected("DELETE FROM overrides WHERE policy = ? AND pattern <> ''", policy)
	return n > 0, err
}

// DeletedOverrides returns those that a policy had when it was deleted last.
func (t *Tx) DeletedOverrides(policy string) ([]Override, error) {
	return deletedOverrideRows.all(t, "WHERE policy = ?", policy)
}

// DropDeletedOverrides removes what DeletedOverrides returns.
func (t *Tx) DropDeletedOverrides(policy string) error {
	return t.exec("DELETE FROM deleted_overrides WHERE policy = ?", policy)
}

// PruneDeletedOverrides removes what DeletedOverrides returns of policies that were deleted before
// an instant in µs.
func (t *Tx) PruneDeletedOverrides(before int64) error {
	const q = "DELETE FROM deleted_overrides WHERE policy NOT IN (SELECT policy FROM deleted_policies WHERE at >= ?)"
	return t.exec(q, before)
}
