package store

import (
	"slices"
	"strings"
)

// Override is the row of the limit of a single key, or of all keys with a prefix, of a policy.
type Override struct {
	Policy    string
	Key       string // "" for all keys of the policy, which were removed
	Text      string // of policy.ParseOverride; "" if it was removed, until that is published
	Revision  int64  // of its last change, and of no other
	ChangedAt int64  // µs
	ChangedBy string
}

const overrideFields = "policy, pattern, limit_text, revision, changed_at, changed_by"

const overrideColumns = "SELECT " + overrideFields + " FROM overrides"

func scanOverride(s scanner) (o Override, err error) {
	return o, s.Scan(&o.Policy, &o.Key, &o.Text, &o.Revision, &o.ChangedAt, &o.ChangedBy)
}

// lastText comes after all texts that go on a prefix.
const lastText = "\U0010ffff"

// Override returns that of a key, or ErrNotFound.
func (t *Tx) Override(policy, key string) (Override, error) {
	const q = overrideColumns + " WHERE policy = ? AND pattern = ? AND limit_text <> ''"
	return readOne(t, scanOverride, q, policy, key)
}

// Overrides returns at most limit overrides of a policy whose keys begin with the prefix and come
// after the key after, in the order of their bytes.
func (t *Tx) Overrides(policy, prefix, after string, limit int) ([]Override, error) {
	const q = overrideColumns + " WHERE policy = ? AND pattern >= ? AND pattern <= ? AND pattern > ? " +
		"AND limit_text <> '' ORDER BY pattern LIMIT ?"
	return readAll(t, scanOverride, q, policy, prefix, prefix+lastText, after, limit)
}

// OverridesOf returns the overrides of a policy that have one of the keys.
func (t *Tx) OverridesOf(policy string, keys []string) (list []Override, err error) {
	for len(keys) > 0 && err == nil {
		part := keys[:min(len(keys), maxBatch)]
		keys = keys[len(part):]

		q := overrideColumns + " WHERE policy = ? AND limit_text <> '' AND pattern IN (" + placeholders(len(part)) + ")"
		var rows []Override
		rows, err = readAll(t, scanOverride, q, append([]any{policy}, values(part)...)...)
		list = append(list, rows...)
	}
	return list, err
}

// CountOverrides returns the number of overrides of a policy whose keys begin with the prefix.
func (t *Tx) CountOverrides(policy, prefix string) (int64, error) {
	const q = "SELECT COUNT(*) FROM overrides WHERE policy = ? AND pattern >= ? AND pattern <= ? AND limit_text <> ''"
	return readOne(t, scanCount, q, policy, prefix, prefix+lastText)
}

// ChangedOverrides returns at most limit overrides that were changed or removed after a revision,
// in the order of their revisions.
func (t *Tx) ChangedOverrides(revision int64, limit int) ([]Override, error) {
	return readAll(t, scanOverride, overrideColumns+" WHERE revision > ? ORDER BY revision LIMIT ?", revision, limit)
}

// IsRevision reports whether an override has the revision.
func (t *Tx) IsRevision(revision int64) (bool, error) {
	n, err := readOne(t, scanCount, "SELECT COUNT(*) FROM overrides WHERE revision = ?", revision)
	return n > 0, err
}

// EndingOverrides returns at most limit overrides of a policy that have an end, passed or not, and
// come after the key after, in the order of their bytes.
func (t *Tx) EndingOverrides(policy, after string, limit int) ([]Override, error) {
	const q = overrideColumns + " WHERE policy = ? AND pattern > ? AND limit_text LIKE '% until %' " +
		"ORDER BY pattern LIMIT ?"
	return readAll(t, scanOverride, q, policy, after, limit)
}

// OverriddenPolicies returns the names of the policies that have overrides.
func (t *Tx) OverriddenPolicies() ([]string, error) {
	scan := func(s scanner) (name string, err error) { return name, s.Scan(&name) }
	return readAll(t, scan, "SELECT DISTINCT policy FROM overrides WHERE limit_text <> '' ORDER BY policy")
}

// PutOverride writes an override in place of that of its key.
func (t *Tx) PutOverride(o Override) error {
	if _, err := t.exec("DELETE FROM overrides WHERE policy = ? AND pattern = ?", o.Policy, o.Key); err != nil {
		return err
	}
	return t.InsertOverrides([]Override{o})
}

// PutOverrides is PutOverride for several keys of one policy.
func (t *Tx) PutOverrides(list []Override) error {
	for part := range slices.Chunk(list, maxBatch) {
		args := []any{part[0].Policy}
		for _, o := range part {
			args = append(args, o.Key)
		}
		q := "DELETE FROM overrides WHERE policy = ? AND pattern IN (" + placeholders(len(part)) + ")"
		if _, err := t.exec(q, args...); err != nil {
			return err
		}
	}
	return t.InsertOverrides(list)
}

// InsertOverrides adds overrides of keys that have none.
func (t *Tx) InsertOverrides(list []Override) error {
	for len(list) > 0 {
		part := list[:min(len(list), maxBatch)]
		list = list[len(part):]

		args := make([]any, 0, 6*len(part))
		for _, o := range part {
			args = append(args, o.Policy, o.Key, o.Text, o.Revision, o.ChangedAt, o.ChangedBy)
		}
		q := "INSERT INTO overrides (" + overrideFields + ") VALUES " +
			strings.TrimSuffix(strings.Repeat("("+placeholders(6)+"),", len(part)), ",")
		if _, err := t.exec(q, args...); err != nil {
			return err
		}
	}
	return nil
}

// ForgetRemovals drops the rows of removals up to a revision, which was published.
func (t *Tx) ForgetRemovals(revision int64) error {
	_, err := t.exec("DELETE FROM overrides WHERE limit_text = '' AND revision <= ?", revision)
	return err
}

// DeleteOverrides takes all overrides of a policy that is deleted to those of DeletedOverrides, and
// reports whether Redis may have some of them, or of those that were removed before.
func (t *Tx) DeleteOverrides(policy string) (bool, error) {
	if err := t.DropDeletedOverrides(policy); err != nil {
		return false, err
	}

	const q = "INSERT INTO deleted_overrides (" + overrideFields + ") " +
		overrideColumns + " WHERE policy = ? AND limit_text <> ''"
	if _, err := t.exec(q, policy); err != nil {
		return false, err
	}
	n, err := t.exec("DELETE FROM overrides WHERE policy = ? AND pattern <> ''", policy)
	return n > 0, err
}

// DeletedOverrides returns those that a policy had when it was deleted last.
func (t *Tx) DeletedOverrides(policy string) ([]Override, error) {
	return readAll(t, scanOverride, "SELECT "+overrideFields+" FROM deleted_overrides WHERE policy = ?", policy)
}

// DropDeletedOverrides removes what DeletedOverrides returns.
func (t *Tx) DropDeletedOverrides(policy string) error {
	_, err := t.exec("DELETE FROM deleted_overrides WHERE policy = ?", policy)
	return err
}

// PruneDeletedOverrides removes what DeletedOverrides returns of policies that were deleted before
// an instant in µs.
func (t *Tx) PruneDeletedOverrides(before int64) error {
	const q = "DELETE FROM deleted_overrides WHERE policy NOT IN (SELECT policy FROM deleted_policies WHERE at >= ?)"
	_, err := t.exec(q, before)
	return err
}
