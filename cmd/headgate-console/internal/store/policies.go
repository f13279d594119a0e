package store

// Policy is the row of a policy as it is now.
type Policy struct {
	Name      string   `db:"name" set:"once"`
	Version   int64    `db:"version"`
	Mode      string   `db:"mode"`
	Priority  int      `db:"priority"`
	Apps      []string // written to a separate table; not read, because Body has them
	Size      int      `db:"size"`   // in bytes, of the published form
	Search    string   `db:"search"` // the text that a search looks through, in lower case
	Body      string   `db:"body"`
	CreatedAt int64    `db:"created_at" set:"once"` // µs
	CreatedBy string   `db:"created_by" set:"once"`
	UpdatedAt int64    `db:"updated_at"` // µs
	UpdatedBy string   `db:"updated_by"`
}

var policyRows = newRows[Policy]("policies")

// Policy returns one policy, or ErrNotFound.
func (t *Tx) Policy(name string) (Policy, error) { return policyRows.one(t, "WHERE name = ?", name) }

// Policies returns all policies by name.
func (t *Tx) Policies() ([]Policy, error) { return policyRows.all(t, "ORDER BY name") }

// InsertPolicy adds a policy. It returns ErrExists if there is one of that name,
// and ErrReferenced if an application does not exist.
func (t *Tx) InsertPolicy(p Policy) error {
	if err := policyRows.insert(t, p); err != nil {
		return err
	}
	return t.insertPolicyApps(p)
}

// UpdatePolicy writes a policy over the version base, or returns ErrStale.
func (t *Tx) UpdatePolicy(p Policy, base int64) error {
	if err := policyRows.update(t, ErrStale, p, "WHERE name = ? AND version = ?", p.Name, base); err != nil {
		return err
	}
	if err := t.exec("DELETE FROM policy_apps WHERE policy = ?", p.Name); err != nil {
		return err
	}
	return t.insertPolicyApps(p)
}

func (t *Tx) insertPolicyApps(p Policy) error {
	for _, app := range p.Apps {
		if err := t.exec("INSERT INTO policy_apps (policy, app) VALUES (?, ?)", p.Name, app); err != nil {
			return err
		}
	}
	return nil
}

// DeletePolicy removes the version base of a policy, or returns ErrStale.
func (t *Tx) DeletePolicy(name string, base int64) error {
	if err := t.exec("DELETE FROM policy_apps WHERE policy = ?", name); err != nil {
		return err
	}
	return t.execOne(ErrStale, "DELETE FROM policies WHERE name = ? AND version = ?", name, base)
}

// Extent returns how many policies there are, and the sum of their sizes.
func (t *Tx) Extent() (policies, bytes int64, err error) {
	is, err := readOne[[2]int64](t, "SELECT COUNT(*), COALESCE(SUM(size), 0) FROM policies")
	return is[0], is[1], err
}
