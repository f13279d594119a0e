package web

import (
	"cmp"
	"errors"
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
	Usual    []link
	Rows     []listed
	Total    int64
	Page     int
	Pages    int
	Previous string // addresses of pages, or ""
	Next     string
	Columns  []column
	Here     string // the query of this page
	CanAdd   bool   // the actor owns some application
	Manager  bool   // the actor may add applications
	CanBulk  bool   // some row may be changed
	Filtered bool
	Late     bool
	Wide     int // of a sparkline
	Mistakes mistakes
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
	Whole, Part string // paths of the sparkline
	Words       string // for people who cannot see it
	Refused     int64
	Share       string // "" without requests
}

// Tick is the value of the box that selects the policy.
func (l listed) Tick() string { return tickValue(l.Name, l.Version) }

// column is the head of a column. It has a Link if the list may be sorted by it.
type column struct {
	Words, Link, Order string // Order is the value of aria-sort
}

func listPage(r *request) error {
	q := queryOf(r.req.URL.Query())
	q.App = r.chosenApp()
	return r.showList(http.StatusOK, q, nil)
}

// showList shows a page of the list, with what was wrong with a change of it.
func (r *request) showList(status int, q service.Query, m mistakes) error {
	ctx := r.req.Context()
	page, err := r.Service.List(ctx, r.actor, q)
	if err != nil {
		return err
	}

	l := list{
		Query: q, Apps: r.apps, Total: page.Total, Page: page.Page.Page,
		Pages: page.Pages, Columns: columns(q), Here: listValues(q).Encode(),
		CanAdd: len(r.ownApps()) > 0, Manager: r.access.CanManage(),
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
func usualFilters(q service.Query) (list []link) {
	here := listPath(q, 1)
	for _, f := range vocabulary.Filters {
		u, _ := url.ParseQuery(f.Query)
		filter := queryOf(u)
		filter.App = q.App
		to := listPath(filter, 1)
		list = append(list, link{f.Name, to, to == here})
	}
	return list
}

func (r *request) rowOf(p policy.Policy) row {
	return row{p, p.Describe(), r.access.CanEdit(p.Apps)}
}

func (r *request) listedOf(p service.Listed) listed {
	l := listed{
		row: r.rowOf(p.Policy), Refused: p.Refused,
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
	offered := func(c choice) bool { return c.Value == l.Query.Sort }
	if l.Query.Sort == "name" || slices.ContainsFunc(choices("sort"), offered) {
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

// perPage is how many rows are on a page of a list that is read as a whole.
const perPage = 100

// paging is the place of a page in its list.
type paging struct {
	All            int64  // rows on all pages
	Previous, Next string // addresses of pages, or ""
}

// pageIn returns the number of the page that an address asks for: 1 if it is none.
func pageIn(u url.Values) int {
	page, err := strconv.Atoi(u.Get("page"))
	if err != nil {
		return 1
	}
	return page
}

// pageOf returns the part of a list that the address asks for: the first one if there is no such
// page.
func pageOf[T any](r *request, list []T) ([]T, paging) {
	page := pageIn(r.req.URL.Query())
	if last := max(1, (len(list)+perPage-1)/perPage); page < 1 || page > last {
		page = 1
	}
	// The other pages keep the search, which has made the list what it is.
	at := func(page int) string {
		q := given(map[string]string{"search": r.query("search"), "page": strconv.Itoa(page)})
		return r.req.URL.Path + "?" + q.Encode()
	}

	p := paging{All: int64(len(list))}
	if page > 1 {
		p.Previous = at(page - 1)
	}
	if page*perPage < len(list) {
		p.Next = at(page + 1)
	}

	return list[(page-1)*perPage : min(page*perPage, len(list))], p
}

// results is the page of a search in all applications.
type results struct {
	Text     string
	Policies []policy.Policy // those whose names begin with the text come first
	Total    int64           // with those that are not shown
	All      string          // the address of the list of all of them
	Key      string          // the address that looks the text up as a key
	Mistakes mistakes
}

// maxResults is how many policies a search shows.
const maxResults = 20

func searchPage(r *request) error {
	s := results{Text: strings.TrimSpace(r.query("q"))}
	if s.Text == "" {
		return r.show(http.StatusOK, "search", "Search", s)
	}

	q := service.Query{Search: s.Text, PerPage: service.MaxPerPage}
	page, err := r.Service.Policies(r.req.Context(), r.actor, q)
	if s.Mistakes = mistakesOf(err); s.Mistakes != nil {
		return r.show(http.StatusUnprocessableEntity, "search", "Search", s)
	}
	if err != nil {
		return err
	}

	// One of exactly that name comes first, also where more are found than are read.
	exact, err := r.Service.Policy(r.req.Context(), r.actor, s.Text)
	switch {
	case err == nil:
		same := func(p policy.Policy) bool { return p.Name == exact.Name }
		page.Policies = slices.Insert(slices.DeleteFunc(page.Policies, same), 0, exact)
	case !errors.Is(err, service.ErrNotFound):
		return err
	}

	// A policy that is called so comes before one whose path or description has the text.
	slices.SortStableFunc(page.Policies, func(a, b policy.Policy) int {
		return cmp.Compare(nearness(a, s.Text), nearness(b, s.Text))
	})
	s.Policies = page.Policies[:min(len(page.Policies), maxResults)]
	s.Total = page.Total
	s.All = "/policies?" + url.Values{"app": {""}, "search": {s.Text}}.Encode()
	s.Key = "/keys?" + url.Values{"key": {s.Text}}.Encode()
	return r.show(http.StatusOK, "search", "Search", s)
}

// nearness returns how well a policy answers a search: the least is best.
func nearness(p policy.Policy, text string) int {
	name, text := strings.ToLower(p.Name), strings.ToLower(text)
	switch {
	case name == text:
		return -1
	case strings.HasPrefix(name, text):
		return 0
	case strings.Contains(name, text):
		return 1
	case strings.Contains(strings.ToLower(p.Match.Path), text):
		return 2
	}
	return 3
}
