package web

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/internal/textform"
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

// rangesOf returns the query of the range that a request chooses, or of the usual one, and the
// links to all ranges.
func (r *request) rangesOf(path string, keep url.Values) (q service.TrafficQuery, name string, links []link) {
	chosen := usualRange

	for i, known := range ranges {
		if known.name == r.query("range") {
			chosen = i
		}
	}
	for i, known := range ranges {
		// The map of the caller is not written to: every link has a range of its own.
		u := given(map[string]string{"app": keep.Get("app"), "range": known.name, "without": keep.Get("without")})
		links = append(links, link{known.words, path + "?" + u.Encode(), i == chosen})
	}

	known := ranges[chosen]
	q = service.TrafficQuery{Last: known.long, Step: known.step, Fine: known.long == 15*time.Minute}
	return q, known.name, links
}

// overview is the page of what happens.
type overview struct {
	App    string
	Apps   []service.App
	Range  string
	Ranges []link
	Long   string // the range in words, such as "1 hour"
	Every  bool   // the browser reloads the page without JavaScript
	Polls  bool   // the range moves on quickly enough for that
	Query  string // of this page
	CanAdd bool   // the actor owns some application

	Manager bool // the actor may add applications

	Redis        bool // there is one
	From, To     time.Time
	Total        figures
	Figures      []figure
	Lost         int64
	Late         bool
	Series       []series
	Chart        chart
	Refusing     []refusing
	MoreRefusing int64 // policies that refuse and are not shown

	ByApp       []sumRow
	ByPolicy    []sumRow
	More        int  // policies that are not shown
	TooMany     bool // policies to show any
	Changes     []changeGroup
	MoreChanges bool
	CSV         string // the address of the file
	Patterned   bool   // the areas have patterns
	Fleet       fleetView
	Work        service.Publishing
	Publishes   bool // there is a publisher

	unfolded
}

// unfolded are the parts of a page that can be folded and whose content is sent, by their ids. nil
// means that all are.
type unfolded []string

// Unfolded reports whether the content of a part that can be folded is sent.
func (u unfolded) Unfolded(id string) bool { return u == nil || slices.Contains(u, id) }

// unfolded returns the parts that are open on the page. Of what is folded the script has no use.
func (r *request) unfolded() unfolded { return append(unfolded{}, r.req.URL.Query()["open"]...) }

// sumRow has the counts of an application or of a policy.
type sumRow struct {
	App, Policy string
	Link        string // "" for policies that are not told apart
	figures
	Blocks []block // from left to right
}

// series is a kind of requests in the legend of the chart.
type series struct {
	kindCount
	Out  bool   // it is left out
	Link string // to the page with it left out, or shown again
}

// maxSums is the largest number of policies or applications that are shown, maxGroups the largest
// number of lines about changes, and maxRefusing that of the policies that refuse now.
const (
	maxSums     = 50
	maxGroups   = 6
	maxRefusing = 8
)

// Empty reports whether there is nothing to show, and nothing was set up.
func (o overview) Empty() bool { return o.Total.All == 0 && o.Work.Version == 0 }

// Look reports whether some instance needs attention.
func (o overview) Look() bool { return o.Fleet.Troubled > 0 }

func trafficPage(r *request) error {
	if r.req.URL.Query().Has("patterns") {
		return r.choosePatterns()
	}
	o, err := r.overview(nil)
	if err != nil {
		return err
	}
	r.reloads = o.Every && o.Polls
	return r.show(http.StatusOK, "traffic", "Traffic", o)
}

// liveTraffic answers with the part of the page that the script reloads.
func liveTraffic(r *request) error {
	o, err := r.overview(r.unfolded())
	if err != nil {
		return err
	}
	return r.fragment("traffic", "live", o)
}

// patternsCookie returns the name of the cookie of the choice of patterns.
func (r *request) patternsCookie() string { return r.Cookie() + "-patterns" }

// patterned reports whether the reader has chosen patterns, which tell areas apart without colours.
func (r *request) patterned() bool { return r.cookie(r.patternsCookie()) == "on" }

// choosePatterns remembers whether areas have patterns, and shows the page again.
func (r *request) choosePatterns() error {
	u := r.req.URL.Query()
	if u.Get("patterns") == "on" {
		r.setCookie(&http.Cookie{Name: r.patternsCookie(), Value: "on", Expires: r.Clock().Add(service.DeviceLife)})
	} else {
		r.dropCookie(r.patternsCookie())
	}
	u.Del("patterns")
	http.Redirect(r.w, r.req, "/?"+u.Encode(), http.StatusSeeOther)
	return nil
}

// overview returns the page without what is folded and not sent.
func (r *request) overview(open unfolded) (o overview, err error) {
	ctx := r.req.Context()
	o = overview{
		App: r.chosenApp(), Apps: r.apps, Every: r.query("refresh") != "", Manager: r.access.CanManage(),
		Redis: r.Fleet != nil, Publishes: r.Publishing != nil, Patterned: r.patterned(), unfolded: open,
	}

	// An application that the actor may not see is as one that does not exist.
	if o.App != "" && !r.sees(o.App) {
		return o, service.ErrNotFound
	}
	if o.App == "" && len(o.Apps) == 1 {
		o.App = o.Apps[0].Name
	}

	o.CanAdd = len(r.ownApps()) > 0
	without := o.leftOut(r.query("without"))
	keep := given(map[string]string{"app": o.App, "without": strings.Join(without, ",")})
	var q service.TrafficQuery
	q, o.Range, o.Ranges = r.rangesOf("/", keep)
	keep.Set("range", o.Range)
	o.Query, o.Polls = keep.Encode(), q.Last < 24*time.Hour

	if o.Work, err = r.Service.Publishing(ctx, r.actor); err != nil {
		return o, err
	}
	q.App, q.NoSums = o.App, !open.Unfolded("sums")

	seen, err := r.Service.Overview(ctx, r.actor, q)
	if err != nil {
		return o, err
	}

	o.fill(seen, without)
	o.addSeries(keep, without)
	if err := r.addRefusing(&o, seen.Refusing); err != nil {
		return o, err
	}

	o.Fleet, err = r.fleetView(given(map[string]string{"app": o.App})["app"]...)
	if o.Fleet.Away {
		o.Fleet.Label = o.Work.Label // as the database knows it
	}
	return o, err
}

// leftOut returns the classes of kinds that an address leaves out of the chart.
func (o *overview) leftOut(text string) (list []string) {
	named := strings.Split(text, ",")
	for _, k := range vocabulary.Kinds {
		if slices.Contains(named, k.Class) {
			list = append(list, k.Class)
		}
	}
	return list
}

// fill shows what the service has seen.
func (o *overview) fill(seen service.Overview, without []string) {
	t := seen.Traffic
	o.From, o.To, o.Lost, o.Late = t.From, t.To, t.Lost, t.Late
	o.Total = figuresOf(t.Total)
	o.Chart = chartOf(t, seen.Changes, "requests", without...)

	// A range that reaches into the future is averaged over the part that has passed.
	past := min(t.To.Sub(t.From), max(t.Now.Sub(t.From), time.Second))
	o.Long = rangeWords(o.Ranges)
	o.Figures = topFigures(o.Total, figuresOf(seen.Before), seen.Lately, past, o.Long)

	o.TooMany = seen.TooMany
	o.Changes, o.MoreChanges = changeGroups(seen.Changes), seen.MoreChanges
	if len(o.Changes) > maxGroups {
		o.Changes, o.MoreChanges = o.Changes[:maxGroups], true
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

// rangeWords returns the words of the range that was chosen.
func rangeWords(links []link) string {
	return links[slices.IndexFunc(links, func(l link) bool { return l.Here })].Words
}

// addSeries adds the legend, whose links leave a kind out of the chart, or show it again.
func (o *overview) addSeries(keep url.Values, without []string) {
	for _, p := range o.Total.Parts {
		s := series{kindCount: p, Out: slices.Contains(without, p.Class)}
		if p.N == 0 {
			continue
		}

		rest := slices.DeleteFunc(slices.Clone(without), func(class string) bool { return class == p.Class })
		if !s.Out {
			rest = append(rest, p.Class)
		}
		u := given(map[string]string{"app": keep.Get("app"), "range": keep.Get("range"),
			"without": strings.Join(rest, ",")})
		s.Link = "/?" + u.Encode()
		o.Series = append(o.Series, s)
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
		"from": t.From.Format(time.RFC3339), "to": t.To.Format(time.RFC3339),
		"step": textform.Duration(max(t.Step, time.Minute)), "app": app, "policy": policy,
	}).Encode()
}

// Pending returns how many versions are not published yet.
func (o overview) Pending() int64 { return o.Work.Version - o.Work.Published }
