package service

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/policy/stats"
)

// told returns the sums of an overview in their order.
func told(list []Sum) (text string) {
	for _, s := range list {
		text += fmt.Sprintf("%s/%s:%d-%d ", s.App, s.Policy, s.Counts.Total(), s.refused())
	}
	return text
}

func TestOverview(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		now := w.clock.now().Truncate(time.Minute)

		// Counts of forty minutes ago, of two hours ago and of now in Redis, so that each range
		// has others.
		l := w.Ledger()
		w.must(l.Record(ctx, "a", stats.Minute{Start: now.Add(-40 * time.Minute),
			Requests: stats.Counts{events.Allowed: 10, events.Refused: 2}, Policies: map[string]stats.Counts{
				"busy": {events.Allowed: 12}, "strict": {events.Allowed: 5, events.Banned: 1},
				"=x": {events.FailedClosed: 1},
			}}))
		w.must(l.Record(ctx, "b", stats.Minute{Start: now.Add(-2 * time.Hour),
			Requests: stats.Counts{events.Allowed: 100},
			Policies: map[string]stats.Counts{"old": {events.Allowed: 100}}}))
		w.fleet.minutes = map[string][]stats.Minute{"b": {{Start: now, Requests: stats.Counts{events.Refused: 20},
			Policies: map[string]stats.Counts{"live": {events.Refused: 20}}}}}

		w.create(sample("p", "a"))
		viewer := w.person("viewer", map[string]Role{"a": Viewer})
		nobody := w.person("nobody", nil)

		for _, row := range []struct {
			who            Actor
			q              TrafficQuery
			apps, policies string
			changes        int
		}{
			{w.admin, TrafficQuery{Last: time.Hour}, "b/:20-20 a/:12-2 c/:0-0 ",
				"b/live:20-20 a/strict:6-1 a/=x:1-1 a/busy:12-0 ", 1},
			{w.admin, TrafficQuery{Last: 6 * time.Hour, App: "b"}, "b/:120-20 ", "b/live:20-20 b/old:100-0 ", 0},
			{w.admin, TrafficQuery{Last: 15 * time.Minute}, "b/:20-20 a/:0-0 c/:0-0 ", "b/live:20-20 ", 1},
			{w.admin, TrafficQuery{}, "b/:20-20 a/:0-0 c/:0-0 ", "b/live:20-20 ", 1},
			{viewer, TrafficQuery{Last: time.Hour, Policy: "p"}, "a/:12-2 ", "a/strict:6-1 a/=x:1-1 a/busy:12-0 ", 1},
			{nobody, TrafficQuery{Last: time.Hour}, "", "", 0},
		} {
			o := must(w.Overview(ctx, row.who, row.q))
			if told(o.Apps) != row.apps || told(o.Policies) != row.policies || len(o.Changes) != row.changes ||
				o.TooMany || o.MoreChanges {
				t.Errorf("%s, %+v: %s, %s, %+v", row.who.user, row.q, told(o.Apps), told(o.Policies), o.Changes)
			}

			// The applications and the chart beside them must not differ.
			var sum int64
			for _, s := range o.Apps {
				sum += s.Counts.Total()
			}
			if sum != o.Traffic.Total.Total() {
				t.Errorf("%s, %+v: the applications have %d requests, and the chart %d", row.who.user, row.q, sum,
					o.Traffic.Total.Total())
			}

			// Without the sums the rest is the same.
			row.q.NoSums = true
			less := must(w.Overview(ctx, row.who, row.q))
			o.Apps, o.Policies, o.TooMany = nil, nil, false
			if !reflect.DeepEqual(less, o) {
				t.Errorf("%s, %+v: %+v, want %+v", row.who.user, row.q, less, o)
			}
		}

		wantErr(t, "of another application", errOf(w.Overview(ctx, viewer, TrafficQuery{App: "b"})), ErrNotFound)
	})
}

// An overview of several applications with too many policies has the requests alone, and names
// the newest changes.
// While Redis is away the log has one line for a look at all applications.
func TestOverviewWithoutRedisLogsOnce(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		var log bytes.Buffer
		w.logger = slog.New(slog.NewTextHandler(&log, nil))
		w.fleet.set(func(f *fakeFleet) { f.err = errors.New("away") })

		_, err := w.Overview(t.Context(), w.admin, TrafficQuery{})
		if lines := strings.Count(log.String(), "\n"); err != nil || lines != 1 {
			t.Errorf("%v, the log has\n%s", err, &log)
		}
	})
}

func TestOverviewIsBounded(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	ctx := t.Context()

	now := w.clock.now().Truncate(time.Minute)
	w.must(w.Ledger().Record(ctx, "b", stats.Minute{Start: now, Requests: stats.Counts{events.Refused: 3},
		Policies: map[string]stats.Counts{"x": {events.Refused: 3}}}))

	// As many series as are added up, and then one more.
	w.must(w.db.Update(ctx, func(t *store.Tx) error {
		for i := range maxSummed - 2 { // two are there
			if _, err := t.SeriesID("a", fmt.Sprint("p", i)); err != nil {
				return err
			}
		}
		return nil
	}))

	ask := func(app string) Overview {
		o := must(w.Overview(ctx, w.admin, TrafficQuery{App: app}))
		return o
	}

	if o := ask(""); o.TooMany || told(o.Policies) != "b/x:3-3 " {
		t.Errorf("of as many as may be it tells %s", told(o.Policies))
	}

	w.must(w.db.Update(ctx, func(t *store.Tx) error { _, err := t.SeriesID("a", "more"); return err }))
	if o := ask(""); !o.TooMany || told(o.Policies) != "" || told(o.Apps) != "b/:3-3 a/:0-0 c/:0-0 " {
		t.Errorf("of too many it tells %s and %s", told(o.Apps), told(o.Policies))
	}

	// One application by itself is shown with its policies all the same.
	if o := ask("b"); o.TooMany || told(o.Policies) != "b/x:3-3 " {
		t.Errorf("of one application it tells %s", told(o.Policies))
	}

	for i := range maxChanges {
		w.create(sample(fmt.Sprint("p", i), "a"))
	}
	if o := ask("a"); !o.MoreChanges || len(o.Changes) != maxChanges {
		t.Errorf("it tells %d changes", len(o.Changes))
	}
}
