package service

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/stats"
)

// Sizes of a page.
const (
	DefaultPerPage = 50
	MaxPerPage     = 500
)

// Query selects a page of policies. The zero value selects the first page of all,
// by name.
type Query struct {
	Search string `json:"search,omitempty"` // in any field but mode and priority, in any case; "" for all
	App    string `json:"app,omitempty"`    // only policies that list it; "" for all
	Mode   string `json:"mode,omitempty"`   // "enforce", "shadow", "off", or "" for all

	// Changed is "day", "week" or "month", for policies that were changed in the last 1, 7
	// or 30 days, or "" for all.
	Changed string `json:"changed,omitempty"`

	// Refusing selects the policies that have refused a request in the last ten minutes.
	Refusing bool `json:"refusing,omitempty"`

	// Sort is "name", "mode", "priority", "updated", "refused" or "share", with "-" before
	// it for the other direction; "" means "name". The last two are the refused requests
	// of the last 24 hours, by number and as a share of all that the policy decided.
	Sort string `json:"sort,omitempty"`

	Page    int `json:"page,omitempty"`     // from 1; 0 means 1
	PerPage int `json:"per_page,omitempty"` // 0 means DefaultPerPage; more than MaxPerPage means MaxPerPage
}

// Page is a page of policies.
type Page struct {
	Policies []policy.Policy `json:"policies"`
	Total    int64           `json:"total"` // on all pages
	Page     int             `json:"page"`
	Pages    int             `json:"pages"` // at least 1
	PerPage  int             `json:"per_page"`
}

// sorts are the orders that a value of Query.Sort names. byTraffic are those that the counts
// decide, and not a column.
var (
	sorts = map[string]store.PolicySort{
		"": store.ByName, "name": store.ByName, "-name": store.ByNameDown,
		"mode": store.ByMode, "-mode": store.ByModeDown,
		"priority": store.ByPriority, "-priority": store.ByPriorityDown,
		"updated": store.ByUpdate, "-updated": store.ByUpdateDown,
	}
	byTraffic = []string{"refused", "-refused", "share", "-share"}
)

// changedDays are the days that a value of Query.Changed stands for.
var changedDays = map[string]int{"": 0, "day": 1, "week": 7, "month": 30}

// perPage returns how many rows a page has, within bounds.
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

	now := s.clock()
	if days := changedDays[q.Changed]; days > 0 {
		ask.Since = now.AddDate(0, 0, -days).UnixMicro()
	}

	// No transaction is open while Redis answers.
	live := &reading{}
	if q.Refusing {
		if live, err = s.liveOfAll(ctx, a); err != nil {
			return Page{}, err
		}
	}

	page = Page{Page: min(max(q.Page, 1), maxPage), PerPage: ask.Limit}
	ask.Offset = (page.Page - 1) * page.PerPage
	err = s.ask(ctx, a, "policy.list", "policies", func(d *action) (err error) {
		ask := ask
		ask.Visible = d.access.visible()
		var rows []store.Policy

		// The database alone can neither order nor select by counts, some of which are in Redis.
		if q.Refusing || slices.Contains(byTraffic, q.Sort) {
			rows, page.Total, err = d.byCounts(s.recent, q, ask, live)
		} else {
			rows, page.Total, err = d.FindPolicies(ask)
		}
		if err != nil {
			return err
		}

		page.Policies, err = policiesOf(rows)
		return err
	})

	page.Pages = max(1, int((page.Total+int64(page.PerPage)-1)/int64(page.PerPage)))
	return page, err
}

func (q *Query) check() (store.PolicyQuery, error) {
	var f faults
	f.add("search", textform.Check(q.Search, MaxSearch))
	if q.App != "" {
		f.add("app", policy.CheckApp(q.App))
	}

	var mode policy.Mode
	f.add("mode", mode.UnmarshalText([]byte(q.Mode)))

	if _, ok := changedDays[q.Changed]; !ok {
		f.add("changed", errors.New("it is not day, week or month"))
	}

	sort, ok := sorts[q.Sort]
	if !ok && !slices.Contains(byTraffic, q.Sort) {
		f.add("sort", errors.New("it is not name, mode, priority, updated, refused or share, "+
			"with - before it for the other direction"))
	}

	return store.PolicyQuery{
		App: q.App, Mode: q.Mode, Search: strings.ToLower(q.Search), Sort: sort,
		Limit: perPage(q.PerPage),
	}, f.err()
}

// refusingMinutes is how long a policy that has refused a request counts as refusing. It may
// be up to ten minutes longer.
const refusingMinutes = 10

// liveOfAll returns the last minutes of the applications in which the actor has a role.
func (s *Service) liveOfAll(ctx context.Context, a Actor) (*reading, error) {
	apps, err := answer(ctx, s, a, "policy.list", "policies", func(d *action) ([]string, error) {
		return d.trafficApps("")
	})
	r := &reading{s: s, ctx: ctx, apps: apps}
	if err == nil {
		r.readLive()
	}
	return r, err
}

// byCounts returns the page of a query that the counts decide, and the number of policies on all
// pages. ask is the rest of the query.
func (a *action) byCounts(
	known *recentCounts, q Query, ask store.PolicyQuery, live *reading,
) ([]store.Policy, int64, error) {
	names, err := a.PolicyNames(ask)
	if err != nil {
		return nil, 0, err
	}

	recent, err := known.read(a, recentLife)
	if err != nil {
		return nil, 0, err
	}

	if q.Refusing {
		refusing := a.refusing(recent, live)
		names = slices.DeleteFunc(names, func(name string) bool { return !refusing[name] })
	}
	if slices.Contains(byTraffic, q.Sort) {
		a.order(names, q.Sort, recent)
	}

	// Only the rows of the page are read, which the database returns in an order of its own.
	from := min(ask.Offset, len(names))
	wanted := names[from:min(from+ask.Limit, len(names))]
	rows, err := a.PoliciesNamed(wanted)
	slices.SortFunc(rows, func(a, b store.Policy) int {
		return cmp.Compare(slices.Index(wanted, a.Name), slices.Index(wanted, b.Name))
	})

	return rows, int64(len(names)), err
}

// refusing returns the names of the policies that have refused requests lately, in the
// applications in which the actor has a role.
func (a *action) refusing(recent *recent, live *reading) map[string]bool {
	first := floorTo(minute(instant(a.now))-refusingMinutes, store.ByTenMinutes)
	names := map[string]bool{}

	for _, s := range recent.series {
		if s.refusedAt >= first && a.access.Role(s.app) != NoRole {
			names[s.policy] = true
		}
	}

	// The newest minutes are in Redis alone.
	for app, minutes := range live.live {
		if a.access.Role(app) == NoRole { // the role may have gone since
			continue
		}
		for _, m := range minutes {
			if minute(m.Start) < first {
				continue
			}
			for name, c := range m.Policies {
				if refusedOf(c) > 0 {
					names[name] = true
				}
			}
		}
	}

	return names
}

// order orders policies by what they refused in the hours that a list shows, in the applications
// in which the actor has a role. The names are in their own order.
func (a *action) order(names []string, sort string, recent *recent) {
	sums := make(map[string]recentSeries, len(recent.series))
	for _, s := range recent.series {
		if a.access.Role(s.app) != NoRole {
			sum := sums[s.policy]
			sum.refused, sum.decided = sum.refused+s.refused, sum.decided+s.decided
			sums[s.policy] = sum
		}
	}

	keys := make(map[string]float64, len(names))
	for _, name := range names {
		keys[name] = orderKey(sort, sums[name].refused, sums[name].decided)
	}

	// Equal policies stay in the order of their names, and are reversed with the others.
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(keys[a], keys[b]) })
	if sort[0] == '-' {
		slices.Reverse(names)
	}
}

// orderKey returns the number by which a policy is ordered. Policies without requests come
// before those that refused none of theirs.
func orderKey(sort string, refused, decided int64) float64 {
	switch {
	case strings.HasSuffix(sort, "refused"):
		return float64(refused)
	case decided == 0:
		return -1
	}
	return float64(refused) / float64(decided)
}

// listHours is the number of hours whose counts a list shows.
const listHours = 24

// day returns the hours that a list shows at a minute. The last one has not ended.
func day(now int64) span {
	to := floorTo(now, store.ByHour) + store.ByHour
	return span{from: to - listHours*store.ByHour, to: to, step: store.ByHour, level: store.ByHour, now: now}
}

// refusedOf returns how many requests a policy refused, as [store.PolicySum] has it.
func refusedOf(c stats.Counts) int64 {
	return c[events.Refused] + c[events.Banned] + c[events.Impossible] + c[events.Denied] + c[events.QueueFull]
}

// Listed is a policy in a list, with what it decided.
type Listed struct {
	policy.Policy

	// Hours has what it decided in each of the last 24 hours, in the applications in which
	// the actor has a role. The last hour has not ended.
	Hours   []Point
	Total   stats.Counts
	Refused int64 // of Total
}

// List is a page of policies with what they decided.
type List struct {
	Page
	Rows []Listed // of Page.Policies, in the order of the page

	// Late reports whether the counts of the last two minutes may be missing, as in Traffic.
	Late bool
}

// List returns a page as Policies does, with what each policy decided in the last 24 hours. In
// an order by refused requests the counts that choose the page are up to three minutes old; its
// rows are in the order of the numbers that they show.
func (s *Service) List(ctx context.Context, a Actor, q Query) (list List, err error) {
	page, err := s.Policies(ctx, a, q)
	if err != nil {
		return List{}, err
	}
	list.Page = page

	seen, late, err := s.lastDay(ctx, a, page.Policies)
	if err != nil {
		return List{}, err
	}

	for _, p := range page.Policies {
		list.Rows = append(list.Rows, Listed{Policy: p})
	}

	for i := range list.Rows {
		row := &list.Rows[i]
		row.Hours = seen[row.Name]
		for _, p := range row.Hours {
			row.Total.Add(p.Counts)
		}
		row.Refused = refusedOf(row.Total)
	}

	list.Late = late
	// The page was chosen by counts that may be older than those in its rows.
	list.sortByNumbers(q.Sort)
	return list, nil
}

// lastDay returns what policies decided in each of the hours that a list shows, by name, and
// whether the last minutes may be missing.
func (s *Service) lastDay(
	ctx context.Context, a Actor, policies []policy.Policy,
) (seen map[string][]Point, late bool, err error) {
	names := make([]string, len(policies))
	for i, p := range policies {
		names[i] = p.Name
	}

	apps := func(d *action) ([]string, error) { return d.appsOfAll(policies), nil }
	err = s.withLive(ctx, a, "policy.list", "policies", apps, func(r *reading) (err error) {
		r.span, late = day(minute(r.now)), r.late
		seen, err = r.hours(names)
		return err
	})
	return seen, late, err
}

// appsOfAll returns the applications of policies in which the actor has a role.
func (a *action) appsOfAll(policies []policy.Policy) []string {
	var apps []string
	for _, p := range policies {
		apps = append(apps, p.Apps...)
	}
	slices.Sort(apps)
	return a.mine(slices.Compact(apps))
}

// sortByNumbers orders the rows of a page by the numbers that it shows.
func (l *List) sortByNumbers(sort string) {
	if !slices.Contains(byTraffic, sort) {
		return
	}

	slices.SortStableFunc(l.Rows, func(a, b Listed) int {
		order := cmp.Compare(orderKey(sort, a.Refused, a.Total.Total()), orderKey(sort, b.Refused, b.Total.Total()))
		if sort[0] == '-' {
			return -order
		}
		return order
	})

	for i, r := range l.Rows {
		l.Policies[i] = r.Policy
	}
}

// hours returns what policies decided in each step of the span, the steps without any included.
func (r *reading) hours(names []string) (map[string][]Point, error) {
	s, seen := r.span, map[string][]Point{}
	// Each policy has a point for each hour, also without counts.
	for _, name := range names {
		seen[name] = s.emptyPoints()
	}
	add := func(name string, row store.Traffic) {
		seen[name][(row.At-s.from)/s.step].Counts.Add(countsOf(row.Counts))
	}

	all, err := r.SeriesOfPolicies(names)
	if err != nil {
		return nil, err
	}

	// The series of applications in which the actor has no role are left out.
	all = slices.DeleteFunc(all, func(one store.Series) bool { return r.access.Role(one.App) == NoRole })
	of, ids := map[int64]string{}, []int64{}
	for _, one := range all {
		of[one.ID], ids = one.Policy, append(ids, one.ID)
	}

	rows, err := r.TrafficWithin(int(s.level), ids, s.from, s.to)
	for _, row := range rows {
		add(of[row.Series], row)
	}
	if err != nil {
		return nil, err
	}
	return seen, r.uncollected(r.apps, names, all, add)
}
