package web

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"github.com/headgate/headgate/console/internal/publish"
	"github.com/headgate/headgate/console/internal/service"
	"github.com/headgate/headgate/events"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/stats"
)

// live is the page of current counts, instances and publishing.
type live struct {
	App   string
	Apps  []service.App
	Every bool // the browser reloads the page without JavaScript
	At    time.Time

	Redis    bool
	Away     bool    // Redis does not answer
	Total    figures // of requests
	Lost     int64
	Busy     []busy // the busiest first
	More     int    // policies that are not shown
	Instance []instance
	Further  int    // instances that are not shown
	Label    string // of the published version
	Work     work
}

// busy holds the counts of one policy.
type busy struct {
	Name string
	figures
	Chart chart
}

// instance is a program that follows the policies.
type instance struct {
	policy.Instance
	Current bool // runs the published version
}

// work is the progress of publishing.
type work struct {
	service.Publishing
	Pending int64 // versions that are not published yet
	Failing bool
	Since   time.Time
	Runs    bool // there is a publisher
}

// wrongClock is how far a clock is off before the page warns of it.
const wrongClock = time.Second

// Off says how far the clock of the instance is off, or "".
func (i instance) Off() string {
	switch d := i.ClockOffset.Round(100 * time.Millisecond); {
	case d >= wrongClock:
		return d.String() + " ahead"
	case d <= -wrongClock:
		return (-d).String() + " behind"
	}
	return ""
}

// Decides says what decides for the instance.
func (i instance) Decides() string {
	switch i.Store {
	case "store":
		return "Redis"
	case "local":
		return "its memory: Redis is away"
	case "open":
		return "nothing: requests pass"
	case "closed":
		return "nothing: requests are refused"
	}
	return "not known"
}

// maxInstances is the largest number of instances that are shown.
const maxInstances = 200

// maxBusy is the largest number of policies that are shown.
const maxBusy = 60

func (l live) refresh() int {
	if l.Every {
		return 5
	}
	return 0
}

func statsPage(v *request) error {
	l, err := v.live()
	if err != nil {
		return err
	}
	return v.show(http.StatusOK, "stats", "Live counts", l)
}

// liveStats answers with the part of the page that the script reloads.
func liveStats(v *request) error {
	l, err := v.live()
	if err != nil {
		return err
	}
	return v.fragment("stats", "live", l)
}

func (v *request) live() (live, error) {
	l := live{App: v.query("app"), Every: v.query("refresh") != "", At: v.Clock(), Redis: v.Fleet != nil}
	var err error
	if l.Apps, err = v.Service.Apps(v.r.Context(), v.actor); err != nil {
		return l, err
	}
	if l.App == "" && len(l.Apps) > 0 {
		l.App = l.Apps[0].Name
	}
	p, err := v.Service.Publishing(v.r.Context(), v.actor)
	if err != nil {
		return l, err
	}
	l.Work = v.work(p)
	if l.App == "" {
		return l, nil
	}
	if !slices.ContainsFunc(l.Apps, func(a service.App) bool { return a.Name == l.App }) {
		return l, service.ErrNotFound
	}
	if v.Fleet != nil {
		v.readFleet(&l)
	}
	return l, nil
}

func (v *request) work(p service.Publishing) work {
	w := work{Publishing: p, Pending: p.Version - p.Published, Runs: v.Publishing != nil}
	if v.Publishing != nil {
		var s publish.Status = v.Publishing()
		w.Failing, w.Since = s.Err != nil, s.Since
	}
	return w
}

// readFleet reads the counts and instances from Redis. If Redis does not answer,
// the page says so.
func (v *request) readFleet(l *live) {
	ctx := v.r.Context()
	minutes, err := v.Fleet.Stats(ctx, l.App)
	l.Away = err != nil
	if l.Away {
		v.Logger.WarnContext(ctx, "the counts cannot be read", "error", err)
		return
	}
	l.addUp(minutes)
	label, err := v.Fleet.Published(ctx)
	list, err2 := v.Fleet.Instances(ctx)
	if err := cmp.Or(err, err2); err != nil {
		v.Logger.WarnContext(ctx, "the instances cannot be read", "error", err)
		l.Away = true
		return
	}
	l.Label = label
	for _, i := range list {
		if v.access.Role(i.App) != service.NoRole {
			l.Instance = append(l.Instance, instance{i, i.Version == label && i.Refused == ""})
		}
	}
	if len(l.Instance) > maxInstances {
		l.Further, l.Instance = len(l.Instance)-maxInstances, l.Instance[:maxInstances]
	}
}

// addUp adds up the minutes by policies.
func (l *live) addUp(minutes []stats.Minute) {
	total, lost := stats.Requests(minutes)
	l.Total, l.Lost = figuresOf(total), lost
	for name, c := range stats.Total(minutes) {
		l.Busy = append(l.Busy, busy{Name: name, figures: figuresOf(c)})
	}
	slices.SortFunc(l.Busy, func(a, b busy) int {
		return cmp.Or(cmp.Compare(b.All, a.All), cmp.Compare(a.Name, b.Name))
	})
	if len(l.Busy) > maxBusy {
		l.More, l.Busy = len(l.Busy)-maxBusy, l.Busy[:maxBusy]
	}
	for i := range l.Busy {
		l.Busy[i].Chart = chartOf(minutes, l.Busy[i].Name)
	}
}

// figures are counts as the page groups them.
type figures struct {
	Passed, Refused, Denied, Banned int64
	Degraded, Shadowed, Left        int64
	Open, Closed, Overruled, All    int64
}

func figuresOf(c stats.Counts) figures {
	return figures{
		Passed:  c[events.Allowed] + c[events.Waited],
		Refused: c[events.Refused] + c[events.Impossible] + c[events.QueueFull],
		Denied:  c[events.Denied], Banned: c[events.Banned], Left: c[events.Canceled],
		Degraded: c[events.Degraded], Shadowed: c[events.ShadowRefused],
		Open: c[events.FailedOpen], Closed: c[events.FailedClosed], Overruled: c[events.Overruled], All: c.Total(),
	}
}
