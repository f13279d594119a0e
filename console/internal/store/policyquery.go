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

	App    string   // the policy lists this one; "" means any
	Mode   string   // "" means any
	Search string   // in lower case; "" means any
	Since  int64    // µs; the policy was changed then or later; 0 means any
	Names  []string // the policy is one of these; nil means any

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

// Span is the rows of a level from a minute until another, which is not included.
type Span struct {
	Level    int
	From, To int64
}

// FindPolicies returns the page that q selects, and the number of policies on all
// pages.
func (t *Tx) FindPolicies(q PolicyQuery) (page []Policy, total int64, err error) {
	if q.none() {
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

// PolicyNames returns the names of all policies that q selects, on any page, by name.
func (t *Tx) PolicyNames(q PolicyQuery) ([]string, error) {
	if q.none() {
		return nil, nil
	}
	where, args := q.where()
	return all(t, scanText, "SELECT name FROM policies"+where+" ORDER BY name", args...)
}

// none reports whether q selects no policy, whatever there is.
func (q *PolicyQuery) none() bool {
	return q.Visible != nil && len(q.Visible) == 0 || q.Names != nil && len(q.Names) == 0
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
	if q.Since != 0 {
		add("updated_at >= ?", q.Since)
	}
	if q.Names != nil {
		add("name IN ("+placeholders(len(q.Names))+")", values(q.Names)...)
	}
	if len(conditions) == 0 {
		return "", nil
	}
	return " WHERE " + strings.Join(conditions, " AND "), args
}

// PolicySum is how many requests of an application a policy decided, and how many of them
// it refused.
type PolicySum struct {
	App, Policy      string
	Refused, Decided int64
}

// SumPolicies adds up the rows of each series in a span. The series are read in the order of
// their ids, so that no engine has to sort the rows.
func (t *Tx) SumPolicies(s Span) ([]PolicySum, error) {
	const refused = "t.refused + t.banned + t.impossible + t.denied + t.queue_full"
	scan := func(s scanner) (v PolicySum, err error) { return v, s.Scan(&v.App, &v.Policy, &v.Refused, &v.Decided) }
	return all(t, scan, "SELECT MIN(s.app), MIN(s.policy), SUM("+refused+"), SUM("+refused+" + t.allowed + t.waited + t.degraded"+
		" + t.shadow_refused + t.failed_open + t.canceled + t.failed_closed + t.overruled) FROM traffic_series s "+t.db.engine.joinInOrder()+
		" traffic t ON t.series = s.id WHERE t.level = ? AND t.at >= ? AND t.at < ? GROUP BY s.id", s.Level, s.From, s.To)
}

// PolicyTraffic is a row of the counts of a policy in an application.
type PolicyTraffic struct {
	App, Policy string
	Traffic
}

// TrafficOfPolicies returns the rows of policies in all applications, in no order.
func (t *Tx) TrafficOfPolicies(s Span, policies []string) (list []PolicyTraffic, err error) {
	scan := func(s scanner) (r PolicyTraffic, err error) {
		c := &r.Counts
		return r, s.Scan(&r.App, &r.Policy, &r.Series, &r.At, &c[0], &c[1], &c[2], &c[3], &c[4], &c[5], &c[6], &c[7], &c[8], &c[9], &c[10], &c[11], &c[12], &r.Lost)
	}
	for part := range slices.Chunk(policies, chunk) {
		rows, err := all(t, scan, "SELECT s.app, s.policy, t.series, t.at, "+trafficColumns+" FROM traffic_series s "+t.db.engine.joinInOrder()+
			" traffic t ON t.series = s.id WHERE s.policy IN ("+placeholders(len(part))+") AND t.level = ? AND t.at >= ? AND t.at < ?",
			append(values(part), s.Level, s.From, s.To)...)
		if err != nil {
			return nil, err
		}
		list = append(list, rows...)
	}
	return list, nil
}
