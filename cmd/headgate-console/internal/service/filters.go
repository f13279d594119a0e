package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/internal/textform"
)

// Bounds of saved filters.
const (
	MaxFilters    = 50 // of a user
	MaxFilterName = 60 // in bytes
)

// Filter is a query of the list of policies under a name. Its Page and PerPage are 0.
type Filter struct {
	Name  string
	Query Query
}

// BuiltInFilters returns the filters that everyone has.
func BuiltInFilters() []Filter {
	return []Filter{
		{"Refusing now", Query{Refusing: true, Sort: "-share"}},
		{"In shadow", Query{Mode: "shadow"}},
		{"Switched off", Query{Mode: "off"}},
		{"Changed this week", Query{Changed: "week", Sort: "-updated"}},
	}
}

// storedQuery is the form of a filter in its row and in the audit log.
type storedQuery struct {
	Search   string `json:"search,omitempty"`
	App      string `json:"app,omitempty"`
	Mode     string `json:"mode,omitempty"`
	Changed  string `json:"changed,omitempty"`
	Refusing bool   `json:"refusing,omitempty"`
	Sort     string `json:"sort,omitempty"`
}

func (q Query) stored() string {
	return text(storedQuery{q.Search, q.App, q.Mode, q.Changed, q.Refusing, q.Sort})
}

func (s storedQuery) query() Query {
	return Query{Search: s.Search, App: s.App, Mode: s.Mode, Changed: s.Changed, Refusing: s.Refusing, Sort: s.Sort}
}

func filterObject(name string) string { return "filter:" + name }

// Filters returns the filters that the user has saved, by name. A token has none.
func (s *Service) Filters(ctx context.Context, a Actor) (list []Filter, err error) {
	err = s.ask(ctx, a, "filter.list", "filters", func(d *action) error {
		list = nil
		if err := d.person(); err != nil {
			return err
		}

		rows, err := d.FiltersOf(a.user)
		for _, row := range rows {
			var q storedQuery
			if err := json.Unmarshal([]byte(row.Query), &q); err != nil {
				return fmt.Errorf("row of filter %q of %q: %w", row.Name, row.User, err)
			}
			list = append(list, Filter{row.Name, q.query()})
		}
		return err
	})
	return list, err
}

// SaveFilter stores a filter of the user, in the place of one that has its name, without the
// space around it. Its page is not stored. A user has at most MaxFilters. A token may not save
// filters.
func (s *Service) SaveFilter(ctx context.Context, a Actor, f Filter) error {
	f.Name = strings.TrimSpace(f.Name)
	return s.act(ctx, a, store.CounterUsers, "filter.save", filterObject(f.Name), func(d *action) error {
		if err := d.person(); err != nil {
			return err
		}

		if err := f.check(); err != nil {
			return err
		}

		rows, err := d.FiltersOf(a.user)
		if err != nil {
			return err
		}

		// The bound is for new names: a filter that has the name already is replaced.
		before, body := "", f.Query.stored()
		i := slices.IndexFunc(rows, func(row store.Filter) bool { return row.Name == f.Name })
		switch {
		case i >= 0 && rows[i].Query == body:
			return errUnchanged
		case i >= 0:
			before = rows[i].Query
			if err := d.Tx.DeleteFilter(a.user, f.Name); err != nil {
				return err
			}
		case len(rows) >= MaxFilters:
			return invalid("name", fmt.Sprintf("you have %d filters already; delete one first", MaxFilters))
		}

		if err := d.InsertFilter(store.Filter{User: a.user, Name: f.Name, Query: body, CreatedAt: d.now}); err != nil {
			return err
		}

		return d.done(before, body)
	})
}

// DeleteFilter deletes a filter of the user, or returns ErrNotFound. A token may not delete
// filters.
func (s *Service) DeleteFilter(ctx context.Context, a Actor, name string) error {
	name = strings.TrimSpace(name)
	return s.act(ctx, a, store.CounterUsers, "filter.delete", filterObject(name), func(d *action) error {
		if err := d.person(); err != nil {
			return err
		}

		if checkFilterName(name) != nil {
			return ErrNotFound
		}

		// The audit log gets the query that is deleted, so that it is read first.
		rows, err := d.FiltersOf(a.user)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(rows, func(row store.Filter) bool { return row.Name == name })
		if i < 0 {
			return ErrNotFound
		}

		if err := d.Tx.DeleteFilter(a.user, name); err != nil {
			return err
		}

		return d.done(rows[i].Query, "")
	})
}

func (f *Filter) check() error {
	var list faults
	list.add("name", checkFilterName(f.Name))
	var wrong *InvalidError
	if _, err := f.Query.check(); errors.As(err, &wrong) {
		list = append(list, wrong.Faults...)
	}
	return list.err()
}

func checkFilterName(name string) error {
	if name == "" {
		return errors.New("it is empty")
	}
	if strings.ContainsAny(name, "\n\t") {
		return errors.New("it is more than one line")
	}
	return textform.Check(name, MaxFilterName)
}
