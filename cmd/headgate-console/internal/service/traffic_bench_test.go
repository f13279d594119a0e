package service

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/policy/stats"
)

// quick is the longest time of a query that a page makes.
const quick = 100 * time.Millisecond

// TestTrafficIsQuick asks for traffic beside 10,000 policies in ten applications that had
// requests on each of thirty days, of which a fifth has some in every hour and four hundred in
// every minute.
func TestTrafficIsQuick(t *testing.T) {
	test.Long(t, "it writes millions of rows")
	everyEngineOnDisk(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		now := w.clock.now()

		apps := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}
		for _, app := range apps[3:] {
			w.must(w.CreateApp(ctx, w.admin, app, ""))
		}

		begin := time.Now()
		ids := w.fillTraffic(apps, 1000)
		t.Logf("%d series were filled in %s", ids, time.Since(begin).Round(time.Second))

		// Redis has the current minute of a thousand policies of each application, to be added to
		// what the database has.
		live := stats.Minute{Start: now.Truncate(time.Minute), Policies: map[string]stats.Counts{}}
		for i := range 1000 {
			live.Policies[fmt.Sprintf("p%04d", i)] = stats.Counts{1}
		}

		w.fleet.minutes = map[string][]stats.Minute{}
		for _, app := range apps {
			w.fleet.minutes[app] = []stats.Minute{live}
		}

		// From ranges of minutes to ranges of days, as each level has rows of its own.
		for _, span := range []time.Duration{15 * time.Minute, time.Hour, 24 * time.Hour, 7 * 24 * time.Hour,
			30 * 24 * time.Hour, 390 * 24 * time.Hour} {
			from := now.Add(-span)
			for name, ask := range map[string]func() error{
				"requests of an application": func() error {
					_, err := w.Traffic(ctx, w.admin, TrafficQuery{App: "a", From: from})
					return err
				},
				"requests of all": func() error {
					_, err := w.Traffic(ctx, w.admin, TrafficQuery{From: from})
					return err
				},
				"a policy everywhere": func() error {
					_, err := w.Traffic(ctx, w.admin, TrafficQuery{Policy: "p0000", From: from})
					return err
				},
				"by policy": func() error {
					_, err := w.TrafficByPolicy(ctx, w.admin, TrafficQuery{App: "a", From: from})
					return err
				},
				"by policy, by a console that knows nothing": func() error {
					_, err := w.another().TrafficByPolicy(ctx, w.admin, TrafficQuery{App: "a", From: from})
					return err
				},
				"the overview of an application": func() error {
					_, err := w.Overview(ctx, w.admin, TrafficQuery{App: "a", From: from})
					return err
				},
				"the overview of all": func() error {
					_, err := w.Overview(ctx, w.admin, TrafficQuery{From: from})
					return err
				},
				"by application": func() error {
					_, err := w.TrafficByApp(ctx, w.admin, TrafficQuery{From: from})
					return err
				},
			} {
				took := median(t, ask)
				test.AtMost(t, fmt.Sprintf("%s over %s", name, span), took, quick)
			}
		}

		// What the collector writes is reported, and not judged: no request waits for it.
		m := live
		m.Start = m.Start.Add(-time.Minute)
		for i := range 1000 {
			m.Policies[fmt.Sprintf("p%04d", i)] = stats.Counts{2}
		}

		began := time.Now()
		w.must(w.Ledger().Record(ctx, "a", m))
		t.Logf("a minute of 1,000 policies was recorded in %s", time.Since(began).Round(time.Millisecond))

		last := int64(0)
		took := median(t, func() (err error) { last, err = w.Ledger().Prune(ctx, now, last); return err })
		t.Logf("a part was pruned in %s", took.Round(time.Millisecond))
	})
}

// median returns the median of five runs.
func median(t *testing.T, f func() error) time.Duration {
	t.Helper()
	var list []time.Duration
	for range 5 {
		began := time.Now()
		if err := f(); err != nil {
			t.Error(err)
		}
		list = append(list, time.Since(began))
	}
	slices.Sort(list)
	return list[2]
}

// fillTraffic writes rows of so many policies in each application, and returns the number of
// series.
func (w *world) fillTraffic(apps []string, policies int) (n int) {
	w.t.Helper()
	ctx, now := w.t.Context(), minute(w.clock.now())

	write := func(level int64, series int64, from int64) {
		var rows []store.Traffic
		for at := floorTo(from, level); at <= now; at += level {
			rows = append(rows, store.Traffic{Series: series, At: at, Counts: store.TrafficCounts{900, 3, 0, 0, 0, 97}})
		}
		w.must(w.db.Update(ctx, func(t *store.Tx) error { return t.AddTraffic(int(level), rows) }))
	}

	// The application "" is all together, of which there are the requests alone.
	all := append([]string{""}, apps...)
	for _, app := range all {
		for p := -1; p < policies && (app != "" || p < 0); p++ {
			name := store.RequestSeries
			if p >= 0 {
				name = fmt.Sprintf("p%04d", p)
			}

			var id int64
			w.must(w.db.Update(ctx, func(t *store.Tx) (err error) { id, err = t.SeriesID(app, name); return err }))
			n++

			days := int64(31)
			if p < 0 {
				days = 400
			}
			write(store.ByDay, id, now-days*24*60)
			write(store.ByTenDays, id, now-days*24*60)

			if p < policies/5 {
				write(store.ByHour, id, now-31*24*60)
			}

			if p < policies/25 {
				write(store.ByTenMinutes, id, now-keepTenMinutes)
				write(store.ByMinute, id, now-keepMinutes)
			}
		}
	}
	return n
}
