package store

import (
	"slices"
	"strings"
)

// PolicyQuery selects a page of policies. The zero value selects none, because its
// Limit is 0.
type PolicyQuery struct {
	// Visible names the applications whose policies the actor may see; nil means
	// all, and an empty list means none.
	Visible []string

	App    string // the policy lists this one; "" means any
	Mode   string // "" means any
	Search string // in lower case; "" means any

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
	if q.Visible != nil && len(q.Visible) == 0 {
		return nil, 0, nil
	}
	where, args := q.where()
	if total, err = one(t, scanCount, "SELECT COUNT(*) FROM policies"+where, args...); err != nil {
		return nil, 0, err
	}
	order := policyOrders[ByName]
	if q.Sort >= 0 && int(q.Sort) < len(policyOrders) {
		order = policyOrders[q.Sort]
	}
	query := policyColumns + where + " ORDER BY " + order + " LIMIT ? OFFSET ?"
	page, err = all(t, scanPolicy, query, append(args, q.Limit, q.Offset)...)
	return page, total, err
}

// listsApp begins the condition that a policy lists an application.
const listsApp = "EXISTS (SELECT 1 FROM policy_apps x WHERE x.policy = policies.name AND x.app "

// where returns the conditions, made of constants and placeholders, and the values
// of the placeholders.
func (q *PolicyQuery) where() (string, []any) {
	var conditions []string
	var args []any
	add := func(condition string, values ...any) {
		conditions = append(conditions, condition)
		args = append(args, values...)
	}
	if q.Visible != nil && !slices.Contains(q.Visible, q.App) { // otherwise App implies it
		add(listsApp+"IN ("+placeholders(len(q.Visible))+"))", values(q.Visible)...)
	}
	if q.App != "" {
		add(listsApp+"= ?)", q.App)
	}
	if q.Mode != "" {
		add("mode = ?", q.Mode)
	}
	if q.Search != "" {
		add("search LIKE ? ESCAPE '!'", like(q.Search))
	}
	if len(conditions) == 0 {
		return "", nil
	}
	return " WHERE " + strings.Join(conditions, " AND "), args
}
