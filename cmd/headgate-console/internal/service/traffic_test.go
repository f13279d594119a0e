package service

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/observe/topkeys"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/stats"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// fakeFleet is a Redis with fixed answers.
type fakeFleet struct {
	Fleet // what it has not

	mu        sync.Mutex
	minutes   map[string][]stats.Minute
	instances []policy.Instance
	err       error

	top  func(app string) (stats.Top, error)
	keys func(from time.Time, n int) ([]topkeys.Summary, error)
	op   func(core.Op) (core.Decision, error) // nil admits everything

	banned []core.Banned
	calls  int // of Apply and Bans
}

func (f *fakeFleet) Top(_ context.Context, app string) (t stats.Top, err error) {
	if f.top != nil {
		t, err = f.top(app)
	}
	return t, err
}

func (f *fakeFleet) MinuteKeys(_ context.Context, _, _ string, from time.Time, n int) ([]topkeys.Summary, error) {
	if f.keys == nil {
		return make([]topkeys.Summary, n), nil
	}
	return f.keys(from, n)
}

func (f *fakeFleet) Apply(_ context.Context, ops []core.Op, out []core.Decision) (err error) {
	f.calls++
	for i, op := range ops {
		if out[i] = (core.Decision{Allowed: true, Taken: op.Cost}); f.op != nil && err == nil {
			out[i], err = f.op(op)
		}
	}
	return err
}

func (f *fakeFleet) Bans(_ context.Context, policies []string) (list []core.Banned, err error) {
	f.calls++
	for _, b := range f.banned {
		if slices.Contains(policies, b.Rule) {
			list = append(list, b)
		}
	}
	return list, nil
}

// label is the version that a fakeFleet has published.
const label = "v2"

func (f *fakeFleet) Minutes(_ context.Context, app string) ([]stats.Minute, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.minutes[app], f.err
}

func (f *fakeFleet) Instances(context.Context) ([]policy.Instance, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]policy.Instance{}, f.instances...), f.err
}

// minuteWith returns a minute with n requests that were allowed and m that were refused, all
// under the policy p.
func minuteWith(at time.Time, n, m int64) stats.Minute {
	c := stats.Counts{events.Allowed: n, events.Refused: m}
	return stats.Minute{Start: at.Truncate(time.Minute), Requests: c, Policies: map[string]stats.Counts{"p": c}}
}

// sumOf returns the requests of an application in a range, as the chart and the sums have
// them, which must agree.
func (w *world) sumOf(app string, from time.Time, step time.Duration) stats.Counts {
	w.t.Helper()
	ctx := w.t.Context()

	q := TrafficQuery{App: app, From: from, Step: step}
	chart := must(w.Traffic(ctx, w.admin, q))

	var points stats.Counts
	for i, p := range chart.Points {
		points.Add(p.Counts)
		if want := chart.From.Add(time.Duration(i) * chart.Step); !p.At.Equal(want) {
			w.t.Errorf("point %d is at %s, want %s", i, p.At, want)
		}
	}

	if points != chart.Total {
		w.t.Errorf("the points have %v, the total is %v", points, chart.Total)
	}

	// The sums by application and the overview are asked for in other ways, and must not count
	// otherwise.
	if app != "" {
		list := must(w.TrafficByApp(ctx, w.admin, q))
		for _, s := range list {
			if s.App == app && s.Counts != chart.Total {
				w.t.Errorf("the sum of %s by application is %v, and the chart's %v", app, s.Counts, chart.Total)
			}
		}

		o := must(w.Overview(ctx, w.admin, q))
		if o.Traffic.Total != chart.Total || len(o.Apps) != 1 || o.Apps[0].Counts != chart.Total {
			w.t.Errorf("the overview of %s has %v and %v, and the chart %v", app, o.Traffic.Total, o.Apps, chart.Total)
		}
	}
	return chart.Total
}

// The counts of weeks are the same under every step, in charts and sums, however often and by
// however many consoles they were recorded.
func TestLedgerRecordsOnce(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.fleet.err = errors.New("away")

		r := rand.New(rand.NewPCG(1, 2))
		now := w.clock.now().Truncate(time.Minute)

		ledgers := []Ledger{w.Ledger(), w.another().Ledger(), w.another().Ledger()}
		counts := map[time.Duration]stats.Counts{} // by age
		var minutes []stats.Minute

		// Forty minutes of the last day, each at most once.
		for range 40 {
			age := time.Duration(r.Int64N(24*60)) * time.Minute
			m := minuteWith(now.Add(-age), r.Int64N(100), r.Int64N(100))
			if _, again := counts[age]; again {
				continue
			}
			counts[age] = m.Requests
			minutes = append(minutes, m)
		}

		w.must(recordByAll(ctx, ledgers, minutes, r))

		// The range that a step makes of a span is the program's, and what is in it is added up
		// here by hand.
		for _, span := range []time.Duration{time.Minute, time.Hour, 6 * time.Hour, 23 * time.Hour, 7 * 24 * time.Hour,
			30 * 24 * time.Hour} {
			for _, step := range append([]time.Duration{0}, Steps...) {
				from := now.Add(-span)
				s, err := TrafficQuery{From: from, Step: step}.span(w.clock.now())
				if err != nil {
					continue
				}

				var want stats.Counts
				for age, c := range counts {
					if at := minute(now.Add(-age)); at >= s.from && at < s.to {
						want.Add(c)
					}
				}

				// The other applications have nothing, so that of all is the same.
				for _, app := range []string{"a", ""} {
					equal(t, fmt.Sprintf("%q over %s by %s", app, span, step), w.sumOf(app, from, step), want)
				}

				list, err := w.TrafficByPolicy(ctx, w.admin, TrafficQuery{App: "a", From: from, Step: step})
				if w.must(err); want.Total() > 0 &&
					(len(list) != 1 || list[0].Policy != "p" || list[0].Counts != want) {
					t.Errorf("by policy over %s by %s: %v, want %v", span, step, list, want)
				}
			}
		}
	})
}

// recordByAll has every ledger record all minutes, each in an order of its own, first with less
// counts and each time twice.
func recordByAll(ctx context.Context, ledgers []Ledger, minutes []stats.Minute, r *rand.Rand) error {
	var group sync.WaitGroup
	errs := make([]error, len(ledgers))

	for i, l := range ledgers {
		order := r.Perm(len(minutes))

		group.Go(func() {
			for _, at := range order {
				// Half of the counts first, as if the minute had not ended, and then the whole: a
				// minute only grows.
				for _, part := range []int64{2, 1} {
					m := stats.Minute{Start: minutes[at].Start, Policies: map[string]stats.Counts{}}
					for v, n := range minutes[at].Requests {
						m.Requests[v] = n / part
					}
					m.Policies["p"] = m.Requests
					errs[i] = errors.Join(errs[i], l.Record(ctx, "a", m), l.Record(ctx, "a", m))
				}
			}
		})
	}

	group.Wait()
	return errors.Join(errs...)
}

// The last minutes come from Redis until they are collected, and count once.
func TestTrafficHasTheLastMinutes(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		now := w.clock.now()

		l := w.Ledger()
		var live []stats.Minute
		for i := range stats.Minutes {
			m := minuteWith(now.Add(time.Duration(i-stats.Minutes+1)*time.Minute), 100, 10)
			m.Lost, m.Policies["q q"] = 1, stats.Counts{events.Banned: 3}
			m.Policies[""] = stats.Counts{events.Waited: 2}
			live = append(live, m)

			// Of the 15 minutes that Redis has, five are in the database, one is there in part,
			// and nine are not.
			if i < 5 {
				w.must(l.Record(ctx, "a", m))
			}
			if i == 5 { // only a part was there
				w.must(l.Record(ctx, "a", minuteWith(m.Start, 40, 0)))
			}
		}

		w.fleet.minutes = map[string][]stats.Minute{"a": live}

		// The second round is after all minutes were recorded, and the answers are the same.
		for range 2 {
			for _, step := range []time.Duration{time.Minute, 10 * time.Minute, time.Hour, 24 * time.Hour} {
				q := TrafficQuery{App: "a", From: now.Add(-time.Hour), Step: step}
				chart := must(w.Traffic(ctx, w.admin, q))
				if want := (stats.Counts{events.Allowed: 1500, events.Refused: 150}); chart.Total != want ||
					chart.Lost != 15 || chart.Late {
					t.Errorf("by %s: %v, %d lost, late: %v", step, chart.Total, chart.Lost, chart.Late)
				}

				list, err := w.TrafficByPolicy(ctx, w.admin, q)
				w.must(err)

				// Decisions without the name of a policy are listed as those of other policies.
				want := []Sum{
					{App: "a", Policy: "p", Counts: stats.Counts{events.Allowed: 1500, events.Refused: 150}},
					{App: "a", Policy: "q q", Counts: stats.Counts{events.Banned: 45}},
					{App: "a", Policy: store.OtherPolicies, Counts: stats.Counts{events.Waited: 30}},
				}
				equal(t, fmt.Sprintf("by %s", step), list, want)

				q.Policy = "q q"
				if chart, err = w.Traffic(ctx, w.admin, q); err != nil || chart.Total != want[1].Counts {
					t.Errorf("the policy by %s: %v %v", step, chart.Total, err)
				}
			}

			for _, m := range live {
				w.must(l.Record(ctx, "a", m))
			}
		}

		w.clockBehind(now)
	})
}

// The database has every count of a minute that changed last before the instant until which all was
// collected, so the two are not compared. Here it lacks one, which shows where the page looks.
func TestTrafficLeavesCollectedMinutesToTheDatabase(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx, now := t.Context(), w.clock.now()
		until := now.Truncate(time.Minute).Add(-9 * time.Second)
		w.must(w.Ledger().Record(ctx, "a", minuteWith(now, 1, 0)))

		// The database has one request and Redis two: two mean that Redis was asked.
		for _, row := range []struct {
			what           string
			until, changed time.Time
			asked          bool
		}{
			{"none was collected", time.Time{}, until, true},
			{"changed before", until, until.Add(-time.Millisecond), false},
			{"changed then", until, until, true},
			{"changed within the same millisecond", until.Add(900 * time.Microsecond), until, true},
			{"changed afterwards", until, until.Add(time.Second), true},
			{"nothing is known of changes", until, time.Time{}, true},
			{"the clock was set back", now.Truncate(time.Minute).Add(61 * time.Second), until, true},
			{"the window ends then", now.Truncate(time.Minute).Add(60 * time.Second), until, false},
		} {
			w.must(w.Ledger().SetCollected(ctx, "a", row.until))

			m := minuteWith(now, 2, 0)
			m.Changed = row.changed
			w.fleet.minutes = map[string][]stats.Minute{"a": {m}}

			want := stats.Counts{events.Allowed: 1}
			if row.asked {
				want[events.Allowed] = 2
			}

			o := must(w.Overview(ctx, w.admin, TrafficQuery{App: "a"}))
			if o.Traffic.Total != want || o.Apps[0].Counts != want || o.Policies[0].Counts != want {
				t.Errorf("%s: %v, %v and %v, want %v", row.what, o.Traffic.Total,
					o.Apps[0].Counts, o.Policies[0].Counts, want)
			}

			if w.fleet.minutes["a"][0].Start != m.Start {
				t.Errorf("%s: the fleet's list was changed", row.what)
			}
		}
	})
}

// clockBehind checks the last minutes when the console's clock is wrong, and without Redis.
func (w *world) clockBehind(now time.Time) {
	w.t.Helper()
	w.clock.pass(-3 * time.Hour)
	if got := w.sumOf("a", now.Add(-time.Hour), 0); got.Total() != 1650 {
		w.t.Errorf("with a clock that is behind: %v", got)
	}

	// Without Redis the page is there and says that the last minutes are late.
	w.fleet.err = errors.New("away")
	if chart, err := w.Traffic(w.t.Context(), w.admin, TrafficQuery{App: "a"}); err != nil || !chart.Late {
		w.t.Errorf("%+v, %v", chart, err)
	}
}

func TestTrafficOfAppsAndPeople(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.fleet.err = errors.New("away")

		// One digit for each application, so that a sum says of which ones it is.
		for i, app := range []string{"a", "b", "c"} {
			w.must(w.Ledger().Record(ctx, app, minuteWith(w.clock.now(), []int64{1, 10, 100}[i], 0)))
		}

		two := w.person("two", map[string]Role{"a": Viewer, "c": Owner})
		for _, row := range []struct {
			who  Actor
			q    TrafficQuery
			want int64
		}{
			{w.admin, TrafficQuery{}, 111}, {w.admin, TrafficQuery{Policy: "p"}, 111},
			{w.admin, TrafficQuery{App: "b"}, 10},
			{w.admin, TrafficQuery{App: "b", Policy: "p"}, 10}, {w.admin, TrafficQuery{App: "b", Policy: "x"}, 0},
			{two, TrafficQuery{}, 101}, {two, TrafficQuery{Policy: "p"}, 101}, {two, TrafficQuery{App: "a"}, 1},
			{w.token(w.admin, Read, "b", "c"), TrafficQuery{}, 110},
			{w.token(two, Read, "c"), TrafficQuery{Policy: "p"}, 100},
		} {
			got, err := w.Traffic(ctx, row.who, row.q)
			if err != nil || got.Total[events.Allowed] != row.want {
				t.Errorf("%s sees %v of %+v, want %d; %v", row.who.user, got.Total, row.q, row.want, err)
			}
		}

		list, err := w.TrafficByApp(ctx, two, TrafficQuery{})
		if err != nil || len(list) != 2 || list[0].App != "a" || list[0].Counts[events.Allowed] != 1 ||
			list[1].Counts[events.Allowed] != 100 {
			t.Errorf("%v %v", list, err)
		}

		// What a person may not see, what does not exist and what cannot be a name are answered
		// alike.
		for _, q := range []TrafficQuery{{App: "b"}, {App: "x"}, {App: "b", Policy: "p"}, {App: "no app!"},
			{Policy: "no\npolicy"}} {
			wantErr(t, fmt.Sprint(q), errOf(w.Traffic(ctx, two, q)), ErrNotFound)

			if q.App != "" {
				wantErr(t, fmt.Sprint(q), errOf(w.TrafficByPolicy(ctx, two, q)), ErrNotFound)
				wantErr(t, fmt.Sprint(q), w.TrafficCSV(ctx, two, q, nil), ErrNotFound)
				wantErr(t, fmt.Sprint(q), errOf(w.Instances(ctx, two, q.App)), ErrNotFound)
				wantErr(t, fmt.Sprint(q), errOf(w.Markers(ctx, two, q)), ErrNotFound)
			}
		}
	})
}

func TestLedgerPrunes(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		l, begin := w.Ledger(), w.clock.now()

		// With the requests and p they are 52 series, one row each at every level.
		m := minuteWith(begin, 5, 0)
		for i := range 50 {
			m.Policies[fmt.Sprint("p", i)] = stats.Counts{events.Allowed: 1}
		}

		w.must(l.Record(ctx, "a", m))
		rows := func() (n []int64) {
			for _, level := range []int{store.ByMinute, store.ByTenMinutes, store.ByHour, store.ByDay} {
				sum := int64(0)
				w.must(w.db.View(ctx, func(tx *store.Tx) error {
					series, err := tx.SeriesOf("a")
					for _, s := range series {
						list, err2 := tx.TrafficOf(level, s.ID, 0, 1<<40)
						err = errors.Join(err, err2)
						sum += int64(len(list))
					}
					return err
				}))

				n = append(n, sum)
			}
			return n
		}

		// Each level has its age: minutes two days, ten minutes ten days, hours and days 400 days.
		for _, row := range []struct {
			age  time.Duration
			want []int64
		}{
			{47 * time.Hour, []int64{52, 52, 52, 52}}, {49 * time.Hour, []int64{0, 52, 52, 52}},
			{9 * 24 * time.Hour, []int64{0, 52, 52, 52}}, {11 * 24 * time.Hour, []int64{0, 0, 52, 52}},
			{398 * 24 * time.Hour, []int64{0, 0, 52, 52}}, {402 * 24 * time.Hour, []int64{0, 0, 0, 0}},
		} {
			// 52 series are pruned in three parts, so that no transaction is long.
			parts := 0
			for last := int64(0); ; parts++ {
				var err error
				last, err = l.Prune(ctx, begin.Add(row.age), last)
				if w.must(err); last == 0 {
					break
				}
			}

			if got := rows(); !reflect.DeepEqual(got, row.want) || parts != 2 {
				t.Errorf("after %s: %v in %d parts, want %v", row.age, got, parts+1, row.want)
			}
		}
	})
}

func TestMarkersAreChangesThatTheActorSees(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		begin := w.clock.now()

		// A minute between the changes, so that a range can have one alone.
		w.create(sample("p", "a"))
		w.clock.pass(time.Minute)
		w.create(sample("q", "b"))
		w.clock.pass(time.Minute)
		w.must(w.DeletePolicy(ctx, w.admin, "p", 1))

		viewer := w.person("viewer", map[string]Role{"a": Viewer})
		for _, row := range []struct {
			who  Actor
			q    TrafficQuery
			want string
		}{
			{w.admin, TrafficQuery{}, "p2delete q1create p1create "},
			{w.admin, TrafficQuery{App: "a"}, "p2delete p1create "},
			{w.admin, TrafficQuery{Policy: "q"}, "q1create "}, {viewer, TrafficQuery{}, "p2delete p1create "},
			{w.admin, TrafficQuery{From: begin.Add(time.Minute), To: begin.Add(2 * time.Minute)}, "q1create "},
			{w.admin, TrafficQuery{From: begin.Add(-time.Hour), To: begin}, ""},
		} {
			list := must(w.Markers(ctx, row.who, row.q))

			got := ""
			for _, m := range list {
				got += m.Policy + itoa(m.Version) + m.Action + " "
			}
			equal(t, fmt.Sprintf("%s, %+v", row.who.user, row.q), got, row.want)
		}
	})
}

func TestInstancesAreThoseOfTheActor(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	ctx := t.Context()

	// Two processes have one id, as a configured name has in two deployments: both are listed.
	w.fleet.instances = []policy.Instance{
		{ID: "i", Process: "1", App: "a", ClockOffset: 90 * time.Second, Store: "local",
			Error: `policy "secret": limit: wrong`},
		{ID: "i", Process: "2", App: "a"}, {ID: "j", Process: "3", App: "b"},
	}
	w.create(sample("secret", "b"))

	viewer := w.person("viewer", map[string]Role{"a": Viewer})
	for _, row := range []struct {
		who  Actor
		app  string
		want int
	}{{w.admin, "", 3}, {w.admin, "b", 1}, {viewer, "", 2}, {viewer, "a", 2}, {w.admin, "c", 0}} {
		list, err := w.Instances(ctx, row.who, row.app)
		if err != nil || len(list) != row.want {
			t.Errorf("%s, %q: %v, %v", row.who.user, row.app, list, err)
		}
	}

	// The error of an instance may name a policy of another application, which the viewer must not
	// learn of.
	for _, row := range []struct {
		who  Actor
		want string
	}{
		{w.admin, `policy "secret": limit: wrong`},
		{viewer, "a policy of another application is not valid for this instance"},
	} {
		if list, err := w.Instances(ctx, row.who, "a"); err != nil || list[0].Error != row.want {
			t.Errorf("%s sees %+v, %v", row.who.user, list, err)
		}
	}

	// The error says that the fleet is not known, and why.
	w.fleet.err = errors.New("away")
	_, err := w.Instances(ctx, w.admin, "")
	wantErr(t, "without Redis", err, ErrNoFleet)
	wantErr(t, "without Redis", err, w.fleet.err)
}

func TestTrafficCSV(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		at := w.clock.now().Truncate(time.Minute)
		m := minuteWith(at.Add(-time.Minute), 7, 2)
		m.Lost = 3

		// Names that a spreadsheet would take for a formula, and some that it would not.
		for _, name := range []string{`=cmd|' /C calc'!A0`, "+1", "-1", "@x", "%x", `a"b,c`, "<script>"} {
			m.Policies[name] = stats.Counts{events.Banned: 1}
		}

		w.must(w.Ledger().Record(ctx, "a", m))
		w.fleet.minutes = map[string][]stats.Minute{"a": {minuteWith(at, 1, 0)}}

		var b strings.Builder
		viewer := w.person("viewer", map[string]Role{"a": Viewer})
		w.must(w.TrafficCSV(ctx, viewer, TrafficQuery{App: "a"}, &b))

		rows := must(csv.NewReader(strings.NewReader(b.String())).ReadAll())

		// Of the columns those that have something here.
		got := ""
		for _, r := range rows {
			got += strings.Join(append(r[:7:7], r[10], r[11], r[18]), " ") + "\n"
		}
		want := `time minutes application counted policy allowed waited refused banned lost
2026-03-01T11:59:00Z 1 a requests  7 0 2 0 3
2026-03-01T12:00:00Z 1 a requests  1 0 0 0 0
2026-03-01T11:59:00Z 1 a decisions '%x 0 0 0 1 0
2026-03-01T11:59:00Z 1 a decisions '+1 0 0 0 1 0
2026-03-01T11:59:00Z 1 a decisions '-1 0 0 0 1 0
2026-03-01T11:59:00Z 1 a decisions <script> 0 0 0 1 0
2026-03-01T11:59:00Z 1 a decisions '=cmd|' /C calc'!A0 0 0 0 1 0
2026-03-01T11:59:00Z 1 a decisions '@x 0 0 0 1 0
2026-03-01T11:59:00Z 1 a decisions a"b,c 0 0 0 1 0
2026-03-01T11:59:00Z 1 a decisions p 7 0 2 0 0
2026-03-01T12:00:00Z 1 a decisions p 1 0 0 0 0
`
		if got != want {
			t.Errorf("the file is\n%s\nwant\n%s", got, want)
		}

		// An export is in the audit log with the range as it was rounded.
		list := w.entries(AuditQuery{Action: "traffic.export"})
		if len(list) != 1 || list[0].Actor != "viewer" || list[0].Object != "app:a" ||
			list[0].After != `{"from":"2026-03-01T11:46:00Z","to":"2026-03-01T12:01:00Z","step":"1m0s"}` {
			t.Errorf("%+v", list)
		}

		w.manyInCSV(viewer)
		wantFault(t, "a range that is not",
			w.TrafficCSV(ctx, viewer, TrafficQuery{App: "a", From: at, To: at}, &b), "to")
	})
}

// manyInCSV checks the files of several applications, where those of TestTrafficCSV are of one.
func (w *world) manyInCSV(viewer Actor) {
	w.t.Helper()
	ctx, at := w.t.Context(), w.clock.now().Truncate(time.Minute)

	m := minuteWith(at.Add(-time.Minute), 4, 0)
	m.Policies = map[string]stats.Counts{"p": {events.Allowed: 4}}
	w.must(errors.Join(w.Ledger().Record(ctx, "b", m), w.Ledger().Record(ctx, "c", m)))

	both := w.person("both", map[string]Role{"a": Viewer, "c": Viewer})
	const of = "2026-03-01T11:59:00Z "

	for _, row := range []struct {
		who    Actor
		policy string
		want   string
	}{
		{viewer, "", of + "a requests  7\n2026-03-01T12:00:00Z a requests  1\n"},
		{both, "", of + "a requests  7\n2026-03-01T12:00:00Z a requests  1\n" + of + "c requests  4\n"},
		{w.admin, "p", of + "a decisions p 7\n2026-03-01T12:00:00Z a decisions p 1\n" + of + "b decisions p 4\n" +
			of + "c decisions p 4\n"},
		{w.person("none", nil), "", ""},
	} {
		var b strings.Builder
		w.must(w.TrafficCSV(ctx, row.who, TrafficQuery{Policy: row.policy}, &b))
		rows := must(csv.NewReader(strings.NewReader(b.String())).ReadAll())

		got := ""
		for _, r := range rows[1:] {
			got += r[0] + " " + strings.Join(r[2:6], " ") + "\n"
		}
		if got != row.want {
			w.t.Errorf("%s, policy %q: the file is\n%s\nwant\n%s", row.who.user, row.policy, got, row.want)
		}

		last := w.entries(AuditQuery{Action: "traffic.export"})[0]
		if last.Actor != row.who.user || last.Object != "apps" {
			w.t.Errorf("the audit log has %+v", last)
		}
	}
}

func TestDeletedPoliciesAreFoundAndRestored(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()

		// A second between the deletions, as the newest comes first.
		for _, name := range []string{"x", "y", "z"} {
			w.create(sample(name, map[string]string{"x": "a", "y": "b", "z": "a"}[name]))
			w.clock.pass(time.Second)
			w.must(w.DeletePolicy(ctx, w.admin, name, 1))
		}

		viewer := w.person("viewer", map[string]Role{"a": Viewer})
		names := func(a Actor, page, size int) (got string) {
			list, more, err := w.Deleted(ctx, a, page, size)
			w.must(err)
			for _, r := range list {
				got += r.Policy + itoa(r.Version) + " "
			}
			if more {
				got += "…"
			}
			return got
		}

		if got := names(w.admin, 1, 0) + "/" + names(w.admin, 1, 2) + "/" + names(w.admin, 2, 2) + "/" +
			names(viewer, 0, 0); got != "z2 y2 x2 /z2 y2 …/x2 /z2 x2 " {
			t.Errorf("%q", got)
		}

		// A policy that exists again is not listed, whether it was restored or made anew.
		if p, err := w.Rollback(ctx, w.admin, "z", 1, 2); err != nil || p.Version != 3 {
			t.Fatal(p, err)
		}

		w.create(sample("x", "a"))
		equal(t, "after z was restored and x made anew", names(w.admin, 1, 0), "y2 ")

		w.must(w.DeletePolicy(ctx, w.admin, "z", 3))
		equal(t, "after z was deleted again", names(w.admin, 1, 0), "z4 y2 ")
	})
}

func TestImportRestoresAnEmptyConsole(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()

		// A policy with each field, at its second version, and one of two applications.
		p := w.create(full("p"))
		p.Priority++
		must(w.UpdatePolicy(ctx, w.admin, p))

		w.create(sample("q", "b", "c"))
		for _, format := range []Format{YAML, JSON} {
			data := must(w.Export(ctx, w.admin, format, ""))

			// The second console is on an engine of the same kind and has nothing, not even
			// applications.
			url := sqliteURL(t)
			if strings.HasPrefix(w.url, "mysql") {
				url = maria.Server(t).Database(t)
			}
			empty := newWorld(t, url)
			for _, app := range []string{"a", "b", "c"} {
				empty.must(empty.DeleteApp(ctx, empty.admin, app))
			}

			// What is planned is what is done.
			in := Import{Data: data, Format: format}
			plan, err := empty.PlanImport(ctx, empty.admin, in)
			empty.must(err)
			in.Base = &plan.Base
			done, err := empty.Import(ctx, empty.admin, in)
			empty.must(err)

			if !reflect.DeepEqual(done, plan) || !reflect.DeepEqual(plan.Counts(), map[string]int{created: 2}) ||
				len(plan.Apps) < 2 {
				t.Errorf("%+v, %+v", plan, done)
			}

			// The instances would get the same policies, of the same versions, from either
			// console.
			before, _, err := w.Outbox().Snapshot(ctx)
			w.must(err)
			after, _, err := empty.Outbox().Snapshot(ctx)
			empty.must(err)
			if !reflect.DeepEqual(before, after) || after[0].Version != 2 {
				t.Errorf("restored: %+v, want %+v", after, before)
			}

			// Three were added with the world.
			if n := len(empty.entries(AuditQuery{Action: "app.create", Outcome: Done})); n != 3+len(plan.Apps) {
				t.Errorf("%d applications were added", n)
			}

			// A restored policy goes on from its version, and a deleted one is not restored by
			// chance.
			empty.must(empty.DeletePolicy(ctx, empty.admin, "q", 1))
			_, err = empty.Import(ctx, empty.admin, Import{Data: data, Format: format})
			wantFault(t, "an import of a deleted policy", err, "version")
		}
	})
}
