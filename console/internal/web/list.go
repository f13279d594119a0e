package web

import (
	"net/http"
	"net/url"
	"strconv"

	"github.com/headgate/headgate/console/internal/service"
	"github.com/headgate/headgate/policy"
)

// list is the page with all policies.
type list struct {
	Query    service.Query
	Apps     []service.App
	Modes    []choice
	Rows     []row
	Total    int64
	Page     int
	Pages    int
	Previous string // addresses of pages, or ""
	Next     string
	Columns  []column
	Here     string // the query of this page
	CanAdd   bool   // the actor owns some application
	Filtered bool
}

// row is a policy in a list.
type row struct {
	policy.Policy
	Describe string
	CanEdit  bool
}

// column is the head of a column by which the list may be sorted.
type column struct {
	Words, Link, Order string // Order is the value of aria-sort
}

func listPage(v *request) error {
	q := queryOf(v.r.URL.Query())
	page, err := v.Service.Policies(v.r.Context(), v.actor, q)
	if err != nil {
		return err
	}
	apps, err := v.Service.Apps(v.r.Context(), v.actor)
	if err != nil {
		return err
	}
	l := list{
		Query: q, Apps: apps, Modes: modes(), Total: page.Total, Page: page.Page, Pages: page.Pages,
		Columns: columns(q), Here: listValues(q).Encode(), CanAdd: ownsSome(apps), Filtered: q.Search != "" || q.App != "" || q.Mode != "",
	}
	for _, p := range page.Policies {
		l.Rows = append(l.Rows, v.rowOf(p))
	}
	if page.Page > 1 {
		l.Previous = listPath(q, min(page.Page-1, page.Pages))
	}
	if page.Page < page.Pages {
		l.Next = listPath(q, page.Page+1)
	}
	return v.show(http.StatusOK, "list", "Policies", l)
}

func (v *request) rowOf(p policy.Policy) row {
	return row{p, p.Describe(), v.access.CanEdit(p.Apps)}
}

func ownsSome(apps []service.App) bool {
	for _, a := range apps {
		if a.Role == service.Owner {
			return true
		}
	}
	return false
}

// queryOf reads the query of a list. The service refuses impossible values.
func queryOf(u url.Values) service.Query {
	page, err := strconv.Atoi(u.Get("page"))
	if err != nil {
		page = 1
	}
	return service.Query{Search: u.Get("search"), App: u.Get("app"), Mode: u.Get("mode"), Sort: u.Get("sort"), Page: page}
}

// listValues returns the query of a page of a list.
func listValues(q service.Query) url.Values {
	u := url.Values{}
	for name, value := range map[string]string{"search": q.Search, "app": q.App, "mode": q.Mode, "sort": q.Sort} {
		if value != "" {
			u.Set(name, value)
		}
	}
	if q.Page > 1 {
		u.Set("page", strconv.Itoa(q.Page))
	}
	return u
}

func listPath(q service.Query, page int) string {
	q.Page = page
	return "/policies?" + listValues(q).Encode()
}

// columns returns the columns by which a list may be sorted. The link of the current
// one reverses the order.
func columns(q service.Query) []column {
	var list []column
	for _, c := range []struct{ name, words string }{{"name", "Name"}, {"mode", "Mode"}, {"priority", "Priority"}, {"updated", "Changed"}} {
		order, to := "none", c.name
		switch {
		case q.Sort == c.name || q.Sort == "" && c.name == "name":
			order, to = "ascending", "-"+c.name
		case q.Sort == "-"+c.name:
			order = "descending"
		}
		next := q
		next.Sort = to
		list = append(list, column{c.words, listPath(next, 1), order})
	}
	return list
}
