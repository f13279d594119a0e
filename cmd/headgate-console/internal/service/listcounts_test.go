package service

import (
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/policy/stats"
)

// spread returns counts with every verdict, of which five refuse: 2, 3, 5, 7 and 11.
func spread() stats.Counts {
	c := stats.Counts{}
	for v := range c {
		c[v] = 100
	}
	c[events.Refused], c[events.Banned], c[events.Denied], c[events.Impossible], c[events.QueueFull] = 2, 3, 5, 7, 11
	return c
}

func TestListCountsAndOrders(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx, now := t.Context(), w.clock.now()
		for name, apps := range map[string][]string{"most": {"a"}, "some": {"a", "b"}, "none": {"a"}, "idle": {"a"},
			"live": {"b"}} {
			w.create(sample(name, apps...))
		}

		record := func(app string, ago time.Duration, counts map[string]stats.Counts) {
			w.must(w.Ledger().Record(ctx, app,
				stats.Minute{Start: now.Add(-ago).Truncate(time.Minute), Policies: counts}))
		}
		record("a", 3*time.Hour, map[string]stats.Counts{"most": {events.Allowed: 10, events.Refused: 90},
			"some": spread(), "none": {events.Allowed: 1}})
		record("b", 5*time.Minute, map[string]stats.Counts{"some": {events.Refused: 40}})
		record("a", 25*time.Hour,
			map[string]stats.Counts{"none": {events.Refused: 1000}}) // before the hours that are shown

		// The minute that runs is in Redis alone.
		last := stats.Minute{Start: now.Truncate(time.Minute),
			Policies: map[string]stats.Counts{"live": {events.Banned: 4, events.Allowed: 4}}}
		w.fleet.minutes = map[string][]stats.Minute{"b": {last}}

		list := must(w.List(ctx, w.admin, Query{}))

		// 28 of the spread refuse, and 40 are of the other application.
		all := spread()
		for _, r := range list.Rows {
			want := map[string][2]int64{"most": {90, 100}, "some": {28 + 40, all.Total() + 40}, "none": {0, 1},
				"idle": {0, 0}, "live": {4, 8}}[r.Name]
			if got := [2]int64{r.Refused, r.Total.Total()}; got != want || len(r.Hours) != 24 {
				t.Errorf("%s refused %v of its requests in %d hours, want %v", r.Name, got, len(r.Hours), want)
			}
		}

		some := list.Rows[slices.IndexFunc(list.Rows, func(r Listed) bool { return r.Name == "some" })]
		if at := some.Hours[20]; at.Counts != all || !at.At.Equal(now.Truncate(time.Hour).Add(-3*time.Hour)) ||
			some.Hours[22].Counts[events.Refused] != 40 {
			t.Errorf("the hours are %+v", some.Hours)
		}

		// By share: 90 of 100, half, 68 of a thousand and more, none of one, and nothing at all.
		orders := map[string][]string{
			"-share": {"most", "live", "some", "none", "idle"}, "share": {"idle", "none", "some", "live", "most"},
			"-refused": {"most", "some", "live", "none", "idle"}, "refused": {"idle", "none", "live", "some", "most"},
		}

		for sort, want := range orders {
			list, err := w.List(ctx, w.admin, Query{Sort: sort})
			if err != nil || !slices.Equal(names(list.Policies), want) || list.Rows[0].Name != want[0] ||
				list.Total != 5 {
				t.Errorf("by %s the list is %v of %d, want %v (%v)", sort, names(list.Policies), list.Total, want, err)
			}
		}

		w.refusingNow([]string{"live", "some"})
		w.clock.pass(20 * time.Minute)
		w.refusingNow([]string{})

		// Someone with a role in one application sees its counts alone.
		viewer := w.person("v", map[string]Role{"a": Viewer})
		list = must(w.List(ctx, viewer, Query{Sort: "-refused"}))
		if got := names(list.Policies); !slices.Equal(got, []string{"most", "some", "none", "idle"}) ||
			list.Rows[1].Refused != 28 {
			t.Errorf("the viewer of a sees %v, and that some refused %d", got, list.Rows[1].Refused)
		}
	})
}

// refusingNow checks which policies the administrator is told to refuse requests now.
func (w *world) refusingNow(want []string) {
	w.t.Helper()
	for _, sort := range []string{"", "share"} {
		page, err := w.Policies(w.t.Context(), w.admin, Query{Refusing: true, Sort: sort})
		got := names(page.Policies)
		slices.Sort(got)
		if err != nil || !slices.Equal(got, want) || page.Total != int64(len(want)) {
			w.t.Errorf("%v of %d refuse now, want %v (%v)", got, page.Total, want, err)
		}
	}
}

func TestListFiltersByChange(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		for _, name := range []string{"old", "month", "week", "day"} {
			w.create(sample(name, "a"))
			w.clock.pass(map[string]time.Duration{"old": 20 * 24 * time.Hour, "month": 10 * 24 * time.Hour,
				"week": 6 * 24 * time.Hour, "day": 23 * time.Hour}[name])
		}

		for changed, want := range map[string][]string{"": {"day", "month", "old", "week"},
			"month": {"day", "month", "week"}, "week": {"day", "week"}, "day": {"day"}} {
			page, err := w.Policies(t.Context(), w.admin, Query{Changed: changed})
			if err != nil || !slices.Equal(names(page.Policies), want) {
				t.Errorf("changed in the last %q: %v, want %v (%v)", changed, names(page.Policies), want, err)
			}
		}
	})
}
