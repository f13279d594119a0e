package store

// Policy is the row of a policy as it is now.
type Policy struct {
	Name      string
	Version   int64
	Mode      string
	Priority  int
	Apps      []string // written to a separate table; not read, because Body has them
	Size      int      // in bytes, of the published form
	Search    string   // the text that a search looks through, in lower case
	Body      string
	CreatedAt int64 // µs
	CreatedBy string
	UpdatedAt int64 // µs
	UpdatedBy string
}

const policyColumns = "SELECT name, version, mode, priority, size, search, body, " +
	"created_at, created_by, updated_at, updated_by FROM policies"

func scanPolicy(s scanner) (p Policy, err error) {
	return p, s.Scan(&p.Name, &p.Version, &p.Mode, &p.Priority, &p.Size, &p.Search, &p.Body,
		&p.CreatedAt, &p.CreatedBy, &p.UpdatedAt, &p.UpdatedBy)
}

// Policy returns one policy, or ErrNotFound.
func (t *Tx) Policy(name string) (Policy, error) {
	return readOne(t, scanPolicy, policyColumns+" WHERE name = ?", name)
}

// Policies returns all policies by name.
func (t *Tx) Policies() ([]Policy, error) {
	return readAll(t, scanPolicy, policyColumns+" ORDER BY name")
}

// InsertPolicy adds a policy. It returns ErrExists if there is one of that name,
// and ErrReferenced if an application does not exist.
func (t *Tx) InsertPolicy(p Policy) error {
	const q = "INSERT INTO policies " +
		"(name, version, mode, priority, size, search, body, created_at, created_by, updated_at, updated_by) " +
		"VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
	_, err := t.exec(q, p.Name, p.Version, p.Mode, p.Priority, p.Size, p.Search, p.Body,
		p.CreatedAt, p.CreatedBy, p.UpdatedAt, p.UpdatedBy)
	if err != nil {
		return err
	}
	return t.insertPolicyApps(p)
}

// UpdatePolicy writes a policy over the version base, or returns ErrStale.
func (t *Tx) UpdatePolicy(p Policy, base int64) error {
	const q = "UPDATE policies SET " +
		"version = ?, mode = ?, priority = ?, size = ?, search = ?, body = ?, updated_at = ?, updated_by = ? " +
		"WHERE name = ? AND version = ?"
	err := t.execOne(ErrStale, q, p.Version, p.Mode, p.Priority, p.Size, p.Search, p.Body,
		p.UpdatedAt, p.UpdatedBy, p.Name, base)
	if err != nil {
		return err
	}
	if _, err := t.exec("DELETE FROM policy_apps WHERE policy = ?", p.Name); err != nil {
		return err
	}
	return t.insertPolicyApps(p)
}

func (t *Tx) insertPolicyApps(p Policy) error {
	for _, app := range p.Apps {
		if _, err := t.exec("INSERT INTO policy_apps (policy, app) VALUES (?, ?)", p.Name, app); err != nil {
			return err
		}
	}
	return nil
}

// DeletePolicy removes the version base of a policy, or returns ErrStale.
func (t *Tx) DeletePolicy(name string, base int64) error {
	if _, err := t.exec("DELETE FROM policy_apps WHERE policy = ?", name); err != nil {
		return err
	}
	return t.execOne(ErrStale, "DELETE FROM policies WHERE name = ? AND version = ?", name, base)
}

// Extent returns how many policies there are, and the sum of their sizes.
func (t *Tx) Extent() (policies, bytes int64, err error) {
	type extent struct{ policies, bytes int64 }
	scan := func(s scanner) (e extent, err error) { return e, s.Scan(&e.policies, &e.bytes) }
	e, err := readOne(t, scan, "SELECT COUNT(*), COALESCE(SUM(size), 0) FROM policies")
	return e.policies, e.bytes, err
}
