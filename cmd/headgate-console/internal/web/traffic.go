package web

import (
	"net/http"
	"net/url"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
)

// ranges are the ranges of charts, each with a step that makes at most 73 bars.
var ranges = []struct {
	name, words string
	long, step  time.Duration
}{
	{"15m", "15 minutes", 15 * time.Minute, time.Minute},
	{"1h", "1 hour", time.Hour, time.Minute},
	{"6h", "6 hours", 6 * time.Hour, 5 * time.Minute},
	{"24h", "24 hours", 24 * time.Hour, 30 * time.Minute},
	{"7d", "7 days", 7 * 24 * time.Hour, 3 * time.Hour},
	{"30d", "30 days", 30 * 24 * time.Hour, 12 * time.Hour},
}

// usualRange is the index of the range without a choice.
const usualRange = 1

// rangeLink leads to a page with another range.
type rangeLink struct {
	Words, Link string
	Here        bool
}

// rangesOf returns the query of the range that a request chooses, or of the usual one, and the
// links to all ranges.
func (r *request) rangesOf(path string, keep url.Values) (q service.TrafficQuery, name string, links []rangeLink) {
	chosen := usualRange

	for i, known := range ranges {
		if known.name == r.query("range") {
			chosen = i
		}
	}
	for i, known := range ranges {
		// The map of the caller is not written to: every link has a range of its own.
		u := given(map[string]string{"app": keep.Get("app"), "range": known.name})
		links = append(links, rangeLink{known.words, path + "?" + u.Encode(), i == chosen})
	}

	known := ranges[chosen]
	return service.TrafficQuery{Last: known.long, Step: known.step}, known.name, links
}

// overview is the page of what happens.
type overview struct {
	App    string
	Apps   []service.App
	Range  string
	Ranges []rangeLink
	Every  bool   // the browser reloads the page without JavaScript
	Query  string // of this page
	CanAdd bool   // the actor owns some application

	Manager bool // the actor may add applications

	Redis       bool // there is one
	From, To    time.Time
	Total       figures
	Rate        string
	Lost        int64
	Late        bool
	Chart       chart
	ByApp       []sumRow
	ByPolicy    []sumRow
	More        int  // policies that are not shown
	TooMany     bool // policies to show any
	Changes     []service.Marker
	MoreChanges bool
	CSV         string // the address of the file
	Fleet       fleetView
	Work        work
}

// sumRow has the counts of an application or of a policy.
type sumRow struct {
	App, Policy string
	Link        string // "" for policies that are not told apart
	figures
	Blocks []block // from left to right
}

// maxSums is the largest number of policies or applications that are shown, and maxMarked the
// largest number of changes in the list below the chart.
const (
	maxSums   = 50
	maxMarked = 20
)

// Empty reports whether there is nothing to show, and nothing was set up.
func (o overview) Empty() bool { return o.Total.All == 0 && o.Work.Version == 0 }

func (o overview) refresh() int { return reload(o.Every) }

// reload returns after how many seconds a browser without JavaScript reloads a page.
func reload(every bool) int {
	if every {
		return 5
	}
	return 0
}

func trafficPage(r *request) error {
	o, err := r.overview()
	if err != nil {
		return err
	}
	return r.show(http.StatusOK, "traffic", "Traffic", o)
}

// liveTraffic answers with the part of the page that the script reloads.
func liveTraffic(r *request) error {
	o, err := r.overview()
	if err != nil {
		return err
	}
	return r.fragment("traffic", "live", o)
}

func (r *request) overview() (o overview, err error) {
	o = overview{Every: r.query("refresh") != "", Manager: r.access.CanManage(), Redis: r.Fleet != nil}
	ctx := r.req.Context()
	if o.Apps, err = r.apps(); err != nil {
		return o, err
	}
	if o.App, err = r.chosenApp(); err != nil {
		return o, err
	}

	// An application that the actor may not see is as one that does not exist.
	if o.App != "" && !sees(o.Apps, o.App) {
		return o, service.ErrNotFound
	}
	if o.App == "" && len(o.Apps) == 1 {
		o.App = o.Apps[0].Name
	}

	o.CanAdd = ownsSome(o.Apps)
	keep := given(map[string]string{"app": o.App})
	var q service.TrafficQuery
	q, o.Range, o.Ranges = r.rangesOf("/", keep)
	keep.Set("range", o.Range)
	o.Query = keep.Encode()

	p, err := r.Service.Publishing(ctx, r.actor)
	if err != nil {
		return o, err
	}
	o.Work = r.work(p)
	q.App = o.App

	seen, err := r.Service.Overview(ctx, r.actor, q)
	if err != nil {
		return o, err
	}

	o.fill(seen)
	o.Fleet, err = r.fleetView(keep["app"]...)
	if o.Fleet.Away {
		o.Fleet.Label = o.Work.Label // as the database knows it
	}
	return o, err
}

// fill shows what the service has seen.
func (o *overview) fill(seen service.Overview) {
	t := seen.Traffic
	o.From, o.To, o.Lost, o.Late = t.From, t.To, t.Lost, t.Late
	o.Total = figuresOf(t.Total)

	// A range that reaches into the future is averaged over the part that has passed.
	past := min(t.To.Sub(t.From), max(t.Now.Sub(t.From), time.Second))
	o.Rate = rate(float64(o.Total.All) / past.Seconds())
	o.Chart = chartOf(t, seen.Changes, "requests")

	o.TooMany = seen.TooMany
	o.Changes, o.MoreChanges = seen.Changes, seen.MoreChanges
	if len(o.Changes) > maxMarked {
		o.Changes, o.MoreChanges = o.Changes[:maxMarked], true
	}

	o.CSV = csvPath(o.App, "", t)
	if o.App == "" {
		for _, s := range seen.Apps[:min(maxSums, len(seen.Apps))] {
			o.ByApp = append(o.ByApp, sumRowOf(s, "/?"+url.Values{"app": {s.App}, "range": {o.Range}}.Encode()))
		}
	}

	// The policies that decided most come first. Those beyond the last row are only counted.
	for _, s := range seen.Policies {
		if s.Counts.Total() == 0 {
			continue
		}
		if len(o.ByPolicy) == maxSums {
			o.More++
			continue
		}

		link := ""
		if s.Policy != service.OtherPolicies {
			link = policyPath(s.Policy) + "?range=" + o.Range
		}

		o.ByPolicy = append(o.ByPolicy, sumRowOf(s, link))
	}
}

// sumRowOf returns a row with a bar that is divided as its counts are.
func sumRowOf(s service.Sum, link string) sumRow {
	l := sumRow{App: s.App, Policy: s.Policy, Link: link, figures: figuresOf(s.Counts)}
	at := 0.0
	for _, p := range l.Parts {
		if p.N == 0 {
			continue
		}

		// A block that is too narrow to be seen is drawn wider, and the next one begins where it
		// should nevertheless.
		wide := float64(p.N) / float64(l.All) * 100
		l.Blocks = append(l.Blocks, block{p.Class, percent(at), percent(max(slightest, wide))})
		at += wide
	}
	return l
}

// csvPath returns the address of the file with the counts of a chart. An empty app stands for all,
// and an empty policy for none.
func csvPath(app, policy string, t service.Traffic) string {
	return "/api/traffic/csv?" + given(map[string]string{
		"from": t.From.Format(time.RFC3339), "to": t.To.Format(time.RFC3339), "step": stepNames[t.Step],
		"app": app, "policy": policy,
	}).Encode()
}

// stepNames are the steps in addresses of the API.
var stepNames = map[time.Duration]string{
	time.Minute: "1m", 5 * time.Minute: "5m", 30 * time.Minute: "30m", 3 * time.Hour: "3h", 12 * time.Hour: "12h",
}

// work is the progress of publishing.
type work struct {
	service.Publishing
	Pending int64 // versions that are not published yet
	Runs    bool  // there is a publisher
}

func (r *request) work(p service.Publishing) work {
	return work{Publishing: p, Pending: p.Version - p.Published, Runs: r.Publishing != nil}
}
