package service

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestFiltersAreEachUsersOwn(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		x := w.person("x", map[string]Role{"a": Viewer})

		q := Query{Search: "Log%_in", App: "a", Mode: "shadow", Changed: "month", Refusing: true, Sort: "-share",
			Page: 7, PerPage: 9}
		w.must(w.SaveFilter(ctx, x, Filter{"  watch ", q}))
		w.must(w.SaveFilter(ctx, x, Filter{"Watch", Query{Mode: "off"}}))
		w.must(w.SaveFilter(ctx, w.admin, Filter{"watch", Query{Mode: "enforce"}}))

		// A filter is what is looked for, not the page on which it was saved, and its name has no
		// spaces around it.
		q.Page, q.PerPage = 0, 0
		want := []Filter{{"Watch", Query{Mode: "off"}}, {"watch", q}}
		if list, err := w.Filters(ctx, x); err != nil || !slices.Equal(list, want) {
			t.Errorf("the filters are %+v (%v), want %+v", list, err, want)
		}

		// The same name replaces it.
		w.must(w.SaveFilter(ctx, x, Filter{"watch", Query{Sort: "-name"}}))
		w.must(w.DeleteFilter(ctx, x, "Watch"))
		wantErr(t, "a filter that is gone", w.DeleteFilter(ctx, x, "Watch"), ErrNotFound)

		if list, err := w.Filters(ctx, x); err != nil ||
			!slices.Equal(list, []Filter{{"watch", Query{Sort: "-name"}}}) {
			t.Errorf("the filters are %+v (%v)", list, err)
		}

		// What others have saved under the name is untouched.
		if list, err := w.Filters(ctx, w.admin); err != nil ||
			!slices.Equal(list, []Filter{{"watch", Query{Mode: "enforce"}}}) {
			t.Errorf("the other's filters are %+v (%v)", list, err)
		}

		rows := w.entries(AuditQuery{Actor: "x", Object: "filter:watch"})
		if len(rows) != 2 || rows[0].Before != rows[1].After || rows[0].After != `{"sort":"-name"}` {
			t.Errorf("the audit log has %+v", rows)
		}
	})
}

func TestFiltersAreBounded(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		for i := range MaxFilters {
			w.must(w.SaveFilter(ctx, w.admin, Filter{fmt.Sprintf("f%d", i), Query{}}))
		}

		wantFault(t, "one too many", w.SaveFilter(ctx, w.admin, Filter{"more", Query{}}), "name")

		// At the bound a filter can be replaced, and after a deletion another can be added.
		w.must(w.SaveFilter(ctx, w.admin, Filter{"f7", Query{Mode: "off"}}))
		w.must(w.DeleteFilter(ctx, w.admin, "f8"))
		w.must(w.SaveFilter(ctx, w.admin, Filter{"more", Query{}}))

		for field, f := range map[string]Filter{
			"name":    {strings.Repeat("x", MaxFilterName+1), Query{}},
			"search":  {"x", Query{Search: strings.Repeat("x", MaxSearch+1)}},
			"sort":    {"x", Query{Sort: "size"}},
			"mode":    {"x", Query{Mode: "on"}},
			"app":     {"x", Query{App: "'"}},
			"changed": {"x", Query{Changed: "year"}},
		} {
			wantFault(t, field, w.SaveFilter(ctx, w.admin, f), field)
		}

		for _, name := range []string{"", " \t ", "a\nb", "a\x00b", "\xff"} {
			wantFault(t, fmt.Sprintf("%q", name), w.SaveFilter(ctx, w.admin, Filter{name, Query{}}), "name")
			wantErr(t, fmt.Sprintf("%q", name), w.DeleteFilter(ctx, w.admin, name), ErrNotFound)
		}
	})
}

func TestBuiltInFiltersAreValid(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range BuiltInFilters() {
		if err := f.check(); err != nil || seen[f.Name] {
			t.Errorf("%q: %v", f.Name, err)
		}
		seen[f.Name] = true
	}
}
