package web

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/internal/drawing"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/policy"
)

// list is the page with all policies.
type list struct {
	Query    service.Query
	Apps     []service.App
	Modes    []choice
	Spans    []choice // of the last change
	Usual    []usualFilter
	Rows     []listed
	Total    int64
	Page     int
	Pages    int
	Previous string // addresses of pages, or ""
	Next     string
	Columns  []column
	Orders   []choice
	Here     string // the query of this page
	CanAdd   bool   // the actor owns some application
	Manager  bool   // the actor may add applications
	CanBulk  bool   // some row may be changed
	Filtered bool
	Late     bool
	Wide     int // of a sparkline
	Mistakes mistakes
}

// usualFilter is a link to a filter that many look at.
type usualFilter struct {
	Name, Link string
	Here       bool // the list is that of the filter, whichever page of it
}

// row is a policy in a list.
type row struct {
	policy.Policy
	Describe string
	CanEdit  bool
}

// listed is a policy in the list, in one line.
type listed struct {
	row
	ForWhom, Match string
	Whole, Part    string // paths of the sparkline
	Words          string // for people who cannot see it
	Refused        int64
	Share          string // "" without requests
}

// Tick is the value of the box that selects the policy.
func (l listed) Tick() string { return tickValue(l.Name, l.Version) }

// column is the head of a column. It has a Link if the list may be sorted by it.
type column struct {
	Words, Link, Order string // Order is the value of aria-sort
}

func listPage(r *request) error {
	q := queryOf(r.req.URL.Query())
	var err error
	if q.App, err = r.chosenApp(); err != nil {
		return err
	}
	return r.showList(http.StatusOK, q, nil)
}

// showList shows a page of the list, with what was wrong with a change of it.
func (r *request) showList(status int, q service.Query, m mistakes) error {
	ctx := r.req.Context()
	page, err := r.Service.List(ctx, r.actor, q)
	if err != nil {
		return err
	}

	apps, err := r.apps()
	if err != nil {
		return err
	}

	l := list{
		Query: q, Apps: apps, Modes: modes(), Spans: choices("changed"), Total: page.Total, Page: page.Page.Page,
		Pages: page.Pages, Columns: columns(q), Orders: choices("sort"), Here: listValues(q).Encode(),
		CanAdd: ownsSome(apps), Manager: r.access.CanManage(),
		Filtered: q.Search != "" || q.Mode != "" || q.Changed != "" || q.Refusing,
		Usual:    usualFilters(q), Late: page.Late && r.Fleet != nil, Wide: drawing.SparkWidth(24), Mistakes: m,
	}

	for _, p := range page.Rows {
		r := r.listedOf(p)
		l.CanBulk = l.CanBulk || r.CanEdit
		l.Rows = append(l.Rows, r)
	}

	// A page beyond the end leads back to the last one that there is.
	if l.Page > 1 {
		l.Previous = listPath(q, min(l.Page-1, l.Pages))
	}
	if l.Page < l.Pages {
		l.Next = listPath(q, l.Page+1)
	}

	return r.show(status, "list", "Policies", l)
}

// usualFilters returns links to the filters that many look at, from a list with the query q.
func usualFilters(q service.Query) (list []usualFilter) {
	here := listPath(q, 1)
	for _, f := range vocabulary.Filters {
		u, _ := url.ParseQuery(f.Query)
		filter := queryOf(u)
		filter.App = q.App
		link := listPath(filter, 1)
		list = append(list, usualFilter{f.Name, link, link == here})
	}
	return list
}

func (r *request) rowOf(p policy.Policy) row {
	return row{p, p.Describe(), r.access.CanEdit(p.Apps)}
}

func (r *request) listedOf(p service.Listed) listed {
	l := listed{
		row: r.rowOf(p.Policy), ForWhom: forWhom(p.Key), Match: matchWords(p.Match), Refused: p.Refused,
		Share: share(p.Refused, p.Total.Total()),
	}

	whole, part := make([]int64, len(p.Hours)), make([]int64, len(p.Hours))
	highest := int64(0)

	for i, h := range p.Hours {
		f := figuresOf(h.Counts)
		whole[i], part[i] = f.All, f.Of("refused")
		highest = max(highest, f.All)
	}

	// The words say what the sparkline shows.
	l.Whole, l.Part = drawing.Sparkline(whole, part)
	if l.Words = "no requests in the last 24 hours"; highest > 0 {
		l.Words = fmt.Sprintf("%s requests in the last 24 hours, at most %s in one, "+
			"and %s refused", digits(p.Total.Total()), digits(highest), digits(p.Refused))
		if n := p.Total[events.ShadowRefused]; n > 0 {
			l.Words += ", and " + digits(n) + " that shadow would have refused"
		}
	}

	return l
}

// forWhom says for whom a policy counts, in short.
func forWhom(key string) string {
	for _, r := range recipes() {
		if r.Value == key {
			return strings.ToLower(r.Words[:1]) + r.Words[1:]
		}
	}
	return key
}

// matchWords says which requests a policy applies to, in short.
func matchWords(m policy.Match) string {
	var parts []string
	if len(m.Methods) > 0 {
		parts = append(parts, strings.Join(m.Methods, ", "))
	}
	if m.Host+m.Path != "" {
		parts = append(parts, m.Host+m.Path)
	}

	if len(parts) == 0 {
		return "all requests"
	}
	return strings.Join(parts, " ")
}

func ownsSome(apps []service.App) bool {
	return slices.ContainsFunc(apps, func(a service.App) bool { return a.Role == service.Owner })
}

// queryOf reads the query of a list. The service refuses impossible values.
func queryOf(u url.Values) service.Query {
	return service.Query{
		Search: u.Get("search"), App: u.Get("app"), Mode: u.Get("mode"), Changed: u.Get("changed"),
		Refusing: u.Get("refusing") != "", Sort: u.Get("sort"), Page: pageIn(u),
	}
}

// listValues returns the query of a page of a list.
func listValues(q service.Query) url.Values {
	// What is usual is left out, so that one list has one address.
	u := given(map[string]string{
		"search": q.Search, "app": q.App, "mode": q.Mode, "changed": q.Changed, "sort": q.Sort,
		"page": strconv.Itoa(q.Page),
	})
	if q.Sort == "name" {
		u.Del("sort")
	}
	if q.Page <= 1 {
		u.Del("page")
	}
	if q.Refusing {
		u.Set("refusing", "now")
	}
	return u
}

func listPath(q service.Query, page int) string {
	q.Page = page
	path := "/policies?" + listValues(q).Encode()
	return strings.TrimSuffix(path, "?")
}

// OtherOrder names the order of the list if the form does not offer it, or is "".
func (l list) OtherOrder() string {
	if l.Query.Sort == "name" || slices.ContainsFunc(l.Orders, func(c choice) bool { return c.Value == l.Query.Sort }) {
		return ""
	}
	return "The other way round"
}

// columns returns the columns of a list. The link of the one by which it is sorted reverses
// the order. Numbers and times begin with the highest.
func columns(q service.Query) []column {
	var list []column
	for _, c := range vocabulary.Columns {
		if c.Name == "" {
			list = append(list, column{Words: c.Words})
			continue
		}
		// The first click sorts as the column does by default, and the next one the other way
		// round.
		name, order, to := strings.TrimPrefix(c.Name, "-"), "none", c.Name
		switch {
		case q.Sort == name || q.Sort == "" && name == "name":
			order, to = "ascending", "-"+name
		case q.Sort == "-"+name:
			order, to = "descending", name
		}

		next := q
		next.Sort = to
		list = append(list, column{c.Words, listPath(next, 1), order})
	}
	return list
}
