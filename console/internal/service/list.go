package service

import (
	"context"
	"errors"
	"strings"

	"github.com/headgate/headgate/console/internal/store"
	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/policy"
)

// Sizes of a page.
const (
	DefaultPerPage = 50
	MaxPerPage     = 500
)

// Query selects a page of policies. The zero value selects the first page of all,
// by name.
type Query struct {
	Search string // in any field but mode and priority, in any case; "" for all
	App    string // only policies that list it; "" for all
	Mode   string // "enforce", "shadow", "off", or "" for all

	// Sort is "name", "mode", "priority" or "updated", with "-" before it for the
	// other direction; "" means "name".
	Sort string

	Page    int // from 1; 0 means 1
	PerPage int // 0 means DefaultPerPage; more than MaxPerPage means MaxPerPage
}

// Page is a page of policies.
type Page struct {
	Policies []policy.Policy
	Total    int64 // on all pages
	Page     int
	Pages    int // at least 1
	PerPage  int
}

// sorts returns the order that a value of Query.Sort names.
func sorts(name string) (store.PolicySort, bool) {
	switch name {
	case "", "name":
		return store.ByName, true
	case "-name":
		return store.ByNameDown, true
	case "mode":
		return store.ByMode, true
	case "-mode":
		return store.ByModeDown, true
	case "priority":
		return store.ByPriority, true
	case "-priority":
		return store.ByPriorityDown, true
	case "updated":
		return store.ByUpdate, true
	case "-updated":
		return store.ByUpdateDown, true
	}
	return 0, false
}

func perPage(n int) int {
	if n <= 0 {
		return DefaultPerPage
	}
	return min(n, MaxPerPage)
}

// maxPage keeps the offset of a page far from overflowing.
const maxPage = 1 << 20

// Policies returns a page of the policies that the actor sees. A page after the
// last is empty.
func (s *Service) Policies(ctx context.Context, a Actor, q Query) (page Page, err error) {
	ask, err := q.check()
	if err != nil {
		return Page{}, err
	}
	page = Page{Page: min(max(q.Page, 1), maxPage), PerPage: ask.Limit}
	ask.Offset = (page.Page - 1) * page.PerPage
	err = s.ask(ctx, a, "policy.list", "policies", func(d *action) error {
		ask.Visible = d.access.visible()
		rows, total, err := d.FindPolicies(ask)
		if err != nil {
			return err
		}
		page.Total = total
		page.Policies, err = policiesOf(rows)
		return err
	})
	page.Pages = max(1, int((page.Total+int64(page.PerPage)-1)/int64(page.PerPage)))
	return page, err
}

func (q *Query) check() (store.PolicyQuery, error) {
	var f faults
	f.note("search", textform.Check(q.Search, MaxSearch))
	if q.App != "" {
		f.note("app", policy.CheckApp(q.App))
	}
	var mode policy.Mode
	f.note("mode", mode.UnmarshalText([]byte(q.Mode)))
	sort, ok := sorts(q.Sort)
	if !ok {
		f.note("sort", errors.New("it is not name, mode, priority or updated, with - before it for the other direction"))
	}
	return store.PolicyQuery{
		App: q.App, Mode: q.Mode, Search: strings.ToLower(q.Search), Sort: sort,
		Limit: perPage(q.PerPage),
	}, f.err()
}
