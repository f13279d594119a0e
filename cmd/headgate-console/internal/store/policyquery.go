package store

import "slices"

// PolicyQuery selects a page of policies. The zero value selects none, because its
// Limit is 0.
type PolicyQuery struct {
	// Visible names the applications whose policies the actor may see; nil means
	// all, and an empty list means none.
	Visible []string

	App    string // the policy lists this one; "" means any
	Mode   string // "" means any
	Search string // in lower case; "" means any
	Since  int64  // µs; the policy was changed then or later; 0 means any

	Sort   PolicySort
	Offset int
	Limit  int
}

// PolicySort names an order.
type PolicySort int

// The orders. Equal rows are ordered by name.
const (
	ByName PolicySort = iota
	ByNameDown
	ByMode
	ByModeDown
	ByPriority
	ByPriorityDown
	ByUpdate
	ByUpdateDown
)

// policyOrders lists all texts that can follow ORDER BY.
var policyOrders = [...]string{
	ByName:         "name",
	ByNameDown:     "name DESC",
	ByMode:         "mode, name",
	ByModeDown:     "mode DESC, name DESC",
	ByPriority:     "priority, name",
	ByPriorityDown: "priority DESC, name DESC",
	ByUpdate:       "updated_at, name",
	ByUpdateDown:   "updated_at DESC, name DESC",
}

// FindPolicies returns the page that q selects, and the number of policies on all
// pages.
func (t *Tx) FindPolicies(q PolicyQuery) (page []Policy, total int64, err error) {
	if q.none() {
		return nil, 0, nil
	}
	c := q.conditions()
	if total, err = readOne[int64](t, "SELECT COUNT(*) FROM policies"+c.where(), c.args...); err != nil {
		return nil, 0, err
	}
	end := q.Sort.orderBy() + " LIMIT ? OFFSET ?"
	page, err = policyRows.all(t, c.where()+end, append(c.args, q.Limit, q.Offset)...)
	return page, total, err
}

// PolicyNames returns the names of all policies that q selects, on any page, in its order.
func (t *Tx) PolicyNames(q PolicyQuery) ([]string, error) {
	if q.none() {
		return nil, nil
	}
	c := q.conditions()
	return readAll[string](t, "SELECT name FROM policies"+c.where()+q.Sort.orderBy(), c.args...)
}

// PoliciesNamed returns the policies of these names, in no order.
func (t *Tx) PoliciesNamed(names []string) ([]Policy, error) {
	return readIn[Policy](t, policyRows.read+"WHERE name", names, "")
}

func (p PolicySort) orderBy() string {
	if p < 0 || int(p) >= len(policyOrders) {
		p = ByName
	}
	return " ORDER BY " + policyOrders[p]
}

// none reports whether p selects no policy, whatever there is.
func (p *PolicyQuery) none() bool { return p.Visible != nil && len(p.Visible) == 0 }

// listsApp begins the condition that a policy lists an application.
const listsApp = "EXISTS (SELECT 1 FROM policy_apps x WHERE x.policy = policies.name AND x.app "

func (p *PolicyQuery) conditions() (c conditions) {
	// A policy that lists App is visible if App is.
	if p.Visible != nil && !slices.Contains(p.Visible, p.App) {
		c.addIf(true, listsApp+"IN "+tuples(1, len(p.Visible))+")", values(p.Visible)...)
	}
	c.addIf(p.App != "", listsApp+"= ?)", p.App)
	c.addIf(p.Mode != "", "mode = ?", p.Mode)

	// The text of a search is a value like any other: what LIKE takes for a pattern is escaped in
	// it.
	c.addIf(p.Search != "", "search LIKE ? ESCAPE '!'", like(p.Search))
	c.addIf(p.Since != 0, "updated_at >= ?", p.Since)
	return c
}
