package service

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/observe/topkeys"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/stats"
	"github.com/headgate/headgate/store/redisstore"
)

// Fleet is the Redis of the running instances. Its methods are safe for concurrent use.
type Fleet interface {
	// Minutes returns the counts of an application in the last minutes by the server's
	// clock, the current one last.
	Minutes(ctx context.Context, app string) ([]stats.Minute, error)

	// Instances returns the instances that have reported lately.
	Instances(ctx context.Context) ([]policy.Instance, error)

	// Version returns the label of the published version.
	Version(ctx context.Context) (string, error)

	// Top returns the top keys of the instances of an application.
	Top(ctx context.Context, app string) (stats.Top, error)

	// MinuteKeys returns the keys that a policy decided about most often in n minutes from an
	// instant on; see [stats.ReadMinuteKeys].
	MinuteKeys(ctx context.Context, app, policy string, from time.Time, n int) ([]topkeys.Summary, error)

	// Apply and Credits are those of [redisstore.Store].
	Apply(ctx context.Context, ops []core.Op, out []core.Decision) error
	Credits(ctx context.Context, id core.ID) ([]redisstore.Credit, error)

	// Bans returns the keys that policies have banned, those whose bans last longest first.
	Bans(ctx context.Context, policies []string) ([]core.Banned, error)
}

// TrafficQuery selects counts.
type TrafficQuery struct {
	App    string // "" for all applications in which the actor has a role
	Policy string // "" for requests; the name of a policy for its decisions

	// From and To bound the range; To is not included. Both are widened to whole steps. A
	// zero To stands for now, and a zero From for Last before To.
	From, To time.Time

	// Last is the length of a range without From; 0 means a quarter of an hour.
	Last time.Duration

	// Step is one of Steps, or 0 for a step that suits the range.
	Step time.Duration

	// Fine asks an overview by minutes for steps of ten seconds, where they are known of the whole
	// range: of the last quarter of an hour at most.
	Fine bool

	// NoSums leaves the sums by application and by policy out of an overview.
	NoSums bool
}

// Traffic is a series of counts.
type Traffic struct {
	From, To time.Time // in UTC
	Step     time.Duration
	Now      time.Time // by the server's clock, if Redis answers

	// Points has one point for each step, the empty ones included.
	Points []Point
	Total  stats.Counts
	Lost   int64 // requests whose counts were lost, see stats.Minute

	// Late reports whether the counts of the last two minutes may be missing, because Redis
	// does not answer or there are too many applications to ask for.
	Late bool
}

// Point has the counts of one step.
type Point struct {
	At     time.Time
	Counts stats.Counts
	Lost   int64
}

// OtherPolicies stands in a Sum for policies that are not told apart.
const OtherPolicies = store.OtherPolicies

// Sum is the sum of the counts of a range.
type Sum struct {
	App    string
	Policy string // "" for the requests
	Counts stats.Counts
	Lost   int64
}

// maxLive is the largest number of applications whose last minutes are read from Redis for
// one answer.
const maxLive = 20

// Traffic returns the requests of an application or the decisions of a policy over time.
// The actor needs a role in the application.
func (s *Service) Traffic(ctx context.Context, a Actor, q TrafficQuery) (traffic Traffic, err error) {
	err = s.readTraffic(ctx, a, q, func(r *reading) error {
		traffic, err = r.chart(q.Policy)
		return err
	})
	return traffic, err
}

// TrafficByPolicy returns the decisions in a range by policy, the busiest first. The actor
// needs a role in the application, which must be given.
func (s *Service) TrafficByPolicy(ctx context.Context, a Actor, q TrafficQuery) (list []Sum, err error) {
	if q.App == "" {
		return nil, invalid("app", "it is empty")
	}

	q.Policy = ""
	err = s.readTraffic(ctx, a, q, func(r *reading) error {
		sums, err := r.sums(q.App)
		list = nil
		for name, sum := range sums {
			if name != store.RequestSeries {
				list = append(list, sum)
			}
		}

		slices.SortFunc(list, func(a, b Sum) int {
			return cmp.Or(cmp.Compare(b.Counts.Total(), a.Counts.Total()), cmp.Compare(a.Policy, b.Policy))
		})
		return err
	})
	return list, err
}

// TrafficByApp returns the requests in a range, by application, of all those in which the
// actor has a role. q.App and q.Policy are ignored.
func (s *Service) TrafficByApp(ctx context.Context, a Actor, q TrafficQuery) (list []Sum, err error) {
	q.App, q.Policy = "", ""
	err = s.readTraffic(ctx, a, q, func(r *reading) error {
		list = nil
		for _, app := range r.apps {
			t, err := r.total(app, store.RequestSeries)
			if err != nil {
				return err
			}
			list = append(list, t)
		}
		return nil
	})
	return list, err
}

// within returns the query with both ends of its range.
func (t TrafficQuery) within(now time.Time) TrafficQuery {
	if t.To.IsZero() {
		t.To = now.Truncate(time.Minute).Add(time.Minute)
	}
	if t.From.IsZero() {
		t.From = t.To.Add(-cmp.Or(t.Last, 15*time.Minute))
	}
	return t
}

// reading reads counts in one transaction.
type reading struct {
	*action
	s    *Service
	ctx  context.Context // of the one call
	span span
	apps []string // in which the actor has a role, or the one of the query
	all  bool     // apps are all applications

	// window has the last minutes of each application, and live those of them of which the
	// database may lack counts.
	window, live map[string][]stats.Minute
	now          time.Time
	late         bool
}

// readTraffic calls f in a read transaction, after it has read the last minutes from Redis.
func (s *Service) readTraffic(ctx context.Context, a Actor, q TrafficQuery, f func(*reading) error) error {
	if q.Policy != "" && !isRuleName(q.Policy) {
		return ErrNotFound
	}

	object := "apps"
	if q.App != "" {
		object = appObject(q.App)
	}

	apps := func(d *action) ([]string, error) { return d.trafficApps(q.App) }
	return s.withLive(ctx, a, "traffic.read", object, apps, func(r *reading) (err error) {
		r.all = q.App == "" && r.access.seesAll()
		if r.span, err = q.span(r.now); err != nil {
			return err
		}
		return f(r)
	})
}

// withLive calls f in a read transaction, after it has read the last minutes of the applications
// that apps returns from Redis. No transaction is open while Redis answers, so apps is called in
// one before, and again, as the roles may have changed since.
func (s *Service) withLive(
	ctx context.Context, a Actor, verb, object string, apps func(*action) ([]string, error), f func(*reading) error,
) (err error) {
	r := &reading{s: s, ctx: ctx, now: s.clock().UTC()}
	if r.apps, err = answer(ctx, s, a, verb, object, apps); err != nil {
		return err
	}
	r.readLive()

	return s.ask(ctx, a, verb, object, func(d *action) (err error) {
		if err := r.attach(d); err != nil {
			return err
		}
		if r.apps, err = apps(d); err != nil {
			return err
		}
		return f(r)
	})
}

// trafficApps returns the applications of a query.
func (a *action) trafficApps(app string) ([]string, error) {
	if app != "" {
		return []string{app}, a.seesApp(app)
	}
	names, err := a.AppNames()
	return a.mine(names), err
}

// liveAtOnce is how many applications are read from Redis at the same time.
const liveAtOnce = 4

// lastMinutes reads the last minutes of applications from Redis, and leaves out those that cannot
// be read. The log names one of these, as most often Redis is away for all.
func (s *Service) lastMinutes(ctx context.Context, apps []string) map[string][]stats.Minute {
	var mu sync.Mutex // guards found and failed
	var failed func()
	var reading sync.WaitGroup
	found, free := map[string][]stats.Minute{}, make(chan struct{}, liveAtOnce)

	for _, app := range apps {
		free <- struct{}{}
		reading.Go(func() {
			defer func() { <-free }()
			minutes, err := s.fleet.Minutes(ctx, app)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				found[app] = minutes
				return
			}
			failed = func() {
				s.logger.WarnContext(ctx, "the last counts cannot be read", "app", app,
					"others", len(apps)-len(found)-1, "error", err)
			}
		})
	}

	reading.Wait()
	if failed != nil {
		failed()
	}
	return found
}

// readLive reads the last minutes of the applications from Redis.
func (r *reading) readLive() {
	// Redis is not asked for too many applications: their last minutes come with the collection.
	if r.late = r.s.fleet == nil || len(r.apps) > maxLive; r.late {
		return
	}

	r.window = r.s.lastMinutes(r.ctx, r.apps)
	r.live = maps.Clone(r.window)
	r.late = len(r.window) < len(r.apps)

	// The minutes are those of the server's clock.
	for _, app := range r.apps {
		minutes := r.window[app]
		if n := len(minutes); n > 0 && !minutes[n-1].Seen.IsZero() {
			r.now = minutes[n-1].Seen
		} else if n > 0 && minute(minutes[n-1].Start) != minute(r.now) {
			r.now = minutes[n-1].Start
		}
	}
}

// attach takes the transaction in which the rows are read. It leaves out the last minutes of which
// the database has every count, because to compare the two costs more than all else: they did
// not change after the instant until which the collector has read every change.
func (r *reading) attach(a *action) error {
	r.action = a
	if len(r.live) == 0 {
		return nil
	}

	collected, err := a.CollectedOfAll()
	if err != nil {
		return err
	}

	for app, minutes := range r.live {
		until := instant(collected[app])
		// A server whose clock was set back says nothing of what was collected.
		if n := len(minutes); n == 0 || until.After(minutes[n-1].Start.Add(time.Minute)) {
			continue
		}

		var changed []stats.Minute
		for _, m := range minutes {
			if m.Changed.IsZero() || !m.Changed.Before(until.Truncate(time.Millisecond)) {
				changed = append(changed, m)
			}
		}
		r.live[app] = changed
	}

	return nil
}

// chart returns the counts of a policy, or of the requests, over time.
func (r *reading) chart(policy string) (Traffic, error) {
	s := r.span
	t := Traffic{
		From: atMinute(s.from), To: atMinute(s.to), Step: time.Duration(s.step) * time.Minute,
		Now: r.now, Late: r.late, Points: s.emptyPoints(),
	}

	series, err := r.SeriesNamed(r.apps, policy)
	if err != nil {
		return t, err
	}

	// The requests of all applications together have rows of their own.
	shown := series
	if r.all && policy == store.RequestSeries {
		if shown, err = r.SeriesNamed([]string{""}, policy); err != nil {
			return t, err
		}
	}

	add := func(_ string, row store.Traffic) {
		p := &t.Points[(row.At-s.from)/s.step]
		p.Counts.Add(countsOf(row.Counts))
		p.Lost += row.Lost
		t.Total.Add(countsOf(row.Counts))
		t.Lost += row.Lost
	}

	for _, one := range shown {
		rows, err := r.TrafficOf(int(s.level), one.ID, s.from, s.to)
		if err != nil {
			return t, err
		}
		for _, row := range rows {
			add(policy, row)
		}
	}
	return t, r.uncollected(r.apps, []string{policy}, series, add)
}

// uncollected calls add with the counts of the last minutes of applications that are in Redis
// alone: those of the names, of which the series exist.
func (r *reading) uncollected(
	apps, names []string, series []store.Series, add func(name string, row store.Traffic),
) error {
	ids, byApp := []int64{}, map[string]map[string]int64{}
	for _, s := range series {
		if byApp[s.App] == nil {
			byApp[s.App] = map[string]int64{}
		}
		byApp[s.App][s.Policy], ids = s.ID, append(ids, s.ID)
	}

	var live []stats.Minute
	for _, app := range apps {
		live = append(live, r.liveIn(app)...)
	}
	known, err := r.collectedIn(live, ids)
	for _, app := range apps {
		addUncollected(r.liveIn(app), names, byApp[app], known, add)
	}
	return err
}

// liveIn returns the last minutes of an application that are in the span.
func (r *reading) liveIn(app string) []stats.Minute {
	return slices.DeleteFunc(slices.Clone(r.live[app]), func(m stats.Minute) bool {
		at := minute(m.Start)
		return at < r.span.from || at >= r.span.to
	})
}

// seriesMinute is a minute of a series.
type seriesMinute struct{ series, at int64 }

// collectedIn returns what the database has of series in some minutes.
func (r *reading) collectedIn(live []stats.Minute, ids []int64) (map[seriesMinute]store.Traffic, error) {
	first, last := int64(math.MaxInt64), int64(0)
	for _, m := range live {
		first, last = min(first, minute(m.Start)), max(last, minute(m.Start))
	}
	if first > last {
		return nil, nil
	}

	rows, err := r.TrafficWithin(store.ByMinute, ids, first, last+1)
	known := make(map[seriesMinute]store.Traffic, len(rows))
	for _, row := range rows {
		known[seriesMinute{row.Series, row.At}] = row
	}
	return known, err
}

// addUncollected calls add with the counts that Redis has of the named series of an application,
// and the database has not: a minute may have been collected in part.
func addUncollected(
	live []stats.Minute, names []string, ids map[string]int64, known map[seriesMinute]store.Traffic,
	add func(name string, row store.Traffic),
) {
	for _, m := range live {
		for _, name := range names {
			row := liveRow(m, name)
			if id, ok := ids[name]; ok {
				row.Reduce(known[seriesMinute{id, row.At}])
			}
			if !row.Empty() {
				add(name, row)
			}
		}
	}
}

// liveRow returns the counts of a policy, or of the requests, in a minute.
func liveRow(m stats.Minute, policy string) store.Traffic {
	row := store.Traffic{At: minute(m.Start)}
	switch policy {
	case store.RequestSeries:
		row.Counts, row.Lost = columnsOf(m.Requests), bounded(m.Lost)
	case store.OtherPolicies:
		// What cannot have a series of its own is in that of the others, as in the ledger.
		var others stats.Counts
		for name, c := range m.Policies {
			if !isRuleName(name) {
				others.Add(c)
			}
		}
		row.Counts = columnsOf(others)
	default:
		row.Counts = columnsOf(m.Policies[policy])
	}

	return row
}

// total returns the sum of a policy of an application, or of its requests.
func (r *reading) total(app, policy string) (Sum, error) {
	sum := Sum{App: app, Policy: policy}
	rows, err := r.SeriesNamed([]string{app}, policy)
	if err != nil {
		return sum, err
	}

	for _, s := range rows {
		for _, p := range r.span.pieces() {
			list, err := r.TrafficOf(int(p.level), s.ID, p.from, p.to)
			if err != nil {
				return sum, err
			}
			sum.add(list)
		}
	}

	err = r.uncollected([]string{app}, []string{policy}, rows, func(_ string, row store.Traffic) {
		sum.add([]store.Traffic{row})
	})
	return sum, err
}

func (s *Sum) add(rows []store.Traffic) {
	for _, row := range rows {
		s.Counts.Add(countsOf(row.Counts))
		s.Lost += row.Lost
	}
}

// sums returns the sums of an application by policy, with that of the requests.
func (r *reading) sums(app string) (map[string]Sum, error) {
	version, err := r.TrafficVersion(app)
	if err != nil {
		return nil, err
	}

	t, err := r.totals(app, version)
	if err != nil {
		return nil, err
	}

	// The sums are kept for other readers too, and must not be changed.
	sums := maps.Clone(t.sums)
	live := r.liveIn(app)
	if len(live) == 0 {
		return sums, nil
	}

	key := rangeKey{app, minute(live[0].Start), minute(live[len(live)-1].Start) + 1}
	known, err := r.s.collected.get(r.ctx, key, version, func() (map[seriesMinute]store.Traffic, int, error) {
		known, err := r.collectedIn(live, slices.Sorted(maps.Values(t.ids)))
		return known, len(known) + 1, err
	})
	if err != nil {
		return nil, err
	}

	for _, m := range live {
		addUncollected([]stats.Minute{m}, seriesIn(m), t.ids, known, func(name string, row store.Traffic) {
			addSum(sums, app, name, row)
		})
	}
	return sums, nil
}

// seriesIn returns the names of all series that have counts in a minute.
func seriesIn(m stats.Minute) []string {
	names := []string{store.RequestSeries, store.OtherPolicies}
	for name := range m.Policies {
		if name != store.OtherPolicies && isRuleName(name) {
			names = append(names, name)
		}
	}
	return names
}

// addSum adds a row to the sum of its series.
func addSum(sums map[string]Sum, app, name string, row store.Traffic) {
	sum := sums[name]
	sum.App, sum.Policy = app, name
	sum.add([]store.Traffic{row})
	sums[name] = sum
}

// totals are the collected counts of an application in a range, by policy.
type totals struct {
	ids  map[string]int64 // of all series
	sums map[string]Sum   // of those that have counts
}

// rangeKey names what is known of an application in a range of minutes.
type rangeKey struct {
	app      string
	from, to int64 // to is not included
}

// totals returns the collected counts of an application. Its rows have the version.
func (r *reading) totals(app string, version int64) (totals, error) {
	pieces := r.span.pieces()
	key := rangeKey{app, r.span.from, pieces[len(pieces)-1].to}

	return r.s.totals.get(r.ctx, key, version, func() (t totals, weight int, err error) {
		series, err := r.SeriesOf(app)
		if err != nil {
			return t, 0, err
		}

		t = totals{ids: map[string]int64{}, sums: map[string]Sum{}}
		names, ids := map[int64]string{}, make([]int64, len(series))
		for i, s := range series {
			names[s.ID], t.ids[s.Policy], ids[i] = s.Policy, s.ID, s.ID
		}

		// Each piece is read from the rows of its level, for all series with one statement.
		for _, p := range pieces {
			rows, err := r.TrafficSums(int(p.level), ids, p.from, p.to)
			if err != nil {
				return t, 0, err
			}
			for _, row := range rows {
				addSum(t.sums, app, names[row.Series], row)
			}
		}

		// An application without a series weighs something too, or its sums would not be kept.
		return t, len(series) + 1, nil
	})
}

// Marker is a change of a policy, for the time axis of a chart.
type Marker struct {
	At      time.Time
	Policy  string
	Version int64
	Action  string // as of Revision
	Actor   string

	// Created and Deleted report what became of the policy, and Changes the fields that differ, as
	// far as the actor sees them. An overview alone has them.
	Created, Deleted bool
	Changes          []Change
}

// maxMarkers is the largest number of changes that are looked at for one answer.
const maxMarkers = 500

// Markers returns the changes of policies in the range of a query, the newest first, that
// the actor sees. Of more than 500 changes it returns the newest.
func (s *Service) Markers(ctx context.Context, a Actor, q TrafficQuery) ([]Marker, error) {
	q = q.within(s.clock())
	return answer(ctx, s, a, "traffic.read", "apps", func(d *action) (list []Marker, err error) {
		if err := d.seesApp(q.App); err != nil {
			return nil, err
		}
		list, _, err = d.markers(q, maxMarkers, false)
		return list, err
	})
}

// markers looks at up to limit changes between q.From and q.To, the newest first. It returns those
// that the actor sees, and whether there may be older ones. differ says whether each has the fields
// that differ, which costs the reading of both policies.
func (a *action) markers(q TrafficQuery, limit int, differ bool) (list []Marker, more bool, err error) {
	rows, err := a.RevisionsBetween(q.Policy, microseconds(q.From), microseconds(q.To), limit)
	if err != nil {
		return nil, false, err
	}

	for _, row := range rows {
		shown, err := a.showsMarker(row, q.App)
		if err != nil {
			return nil, false, err
		}
		if !shown {
			continue
		}

		m := Marker{At: instant(row.At), Policy: row.Policy, Version: row.Version, Action: row.Action, Actor: row.Actor,
			Created: row.Before == "", Deleted: row.After == ""}
		if differ && !m.Created && !m.Deleted {
			r, err := a.revision(row)
			if err != nil {
				return nil, false, err
			}
			// What the actor did not see before cannot be compared.
			if r.Before != nil {
				m.Changes = r.Changes()
			}
		}
		list = append(list, m)
	}
	return list, len(rows) == limit, nil
}

// showsMarker reports whether the actor sees the policy of a revision, as [Service.Revision] has
// it, and sees that it lists an application, before or afterwards. Every policy lists "". The rest
// of the policy is not read.
func (a *action) showsMarker(row store.Revision, app string) (bool, error) {
	before, err := appsOf(row.Before)
	if err != nil {
		return false, err
	}
	after, err := appsOf(row.After)
	if err != nil {
		return false, err
	}

	current := after
	if row.After == "" {
		current = before
	}

	if !a.access.CanSee(current) {
		return false, nil
	}

	// An actor who did not see the policy before the change does not learn what it listed then.
	return app == "" || slices.Contains(after, app) || a.access.CanSee(before) && slices.Contains(before, app), nil
}

// appsOf returns the applications of a body, or none of "".
func appsOf(body string) ([]string, error) {
	if body == "" {
		return nil, nil
	}
	var p struct {
		Apps []string `json:"apps"`
	}
	err := json.Unmarshal([]byte(body), &p)
	return p.Apps, err
}

// Instances returns the instances of the applications in which the actor has a role, or of
// one of them. What they say of policies that the actor does not see is replaced in their errors,
// and left out elsewhere. The error is ErrNoFleet or wraps it if Redis does not answer.
func (s *Service) Instances(ctx context.Context, a Actor, app string) ([]policy.Instance, error) {
	access, err := answer(ctx, s, a, "instance.list", "instances", func(d *action) (Access, error) {
		return d.access, d.seesApp(app)
	})
	if err != nil {
		return nil, err
	}

	if s.fleet == nil {
		return nil, ErrNoFleet
	}

	all, err := s.fleet.Instances(ctx)
	if err != nil {
		return nil, errors.Join(ErrNoFleet, err)
	}

	all = slices.DeleteFunc(all, func(i policy.Instance) bool {
		return access.Role(i.App) == NoRole || app != "" && i.App != app
	})

	// What an instance says of policies may be anything, as it comes from Redis.
	return all, s.ask(ctx, a, "policy.list", "policies", func(d *action) error { return d.hideOthers(all) })
}
