package api

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/policy/stats"
)

// countsView has the counts by verdict.
type countsView map[string]int64

func countsOf(c stats.Counts) countsView {
	v := countsView{}
	for verdict, n := range c {
		v[events.Verdict(verdict).String()] = n
	}
	return v
}

type pointView struct {
	At     time.Time  `json:"at"`
	Counts countsView `json:"counts"`
	Lost   int64      `json:"lost"`
}

func pointOf(p service.Point) pointView { return pointView{p.At, countsOf(p.Counts), p.Lost} }

type sumView struct {
	App    string     `json:"app"`
	Policy string     `json:"policy"`
	Counts countsView `json:"counts"`
	Lost   int64      `json:"lost"`
}

func sumOf(s service.Sum) sumView { return sumView{s.App, s.Policy, countsOf(s.Counts), s.Lost} }

// steps are the values of the parameter step.
var steps = map[string]time.Duration{
	"": 0, "1m": time.Minute, "5m": 5 * time.Minute, "10m": 10 * time.Minute, "30m": 30 * time.Minute,
	"1h": time.Hour, "3h": 3 * time.Hour, "6h": 6 * time.Hour, "12h": 12 * time.Hour, "24h": 24 * time.Hour,
}

// trafficParams are the parameters of a query of traffic.
var trafficParams = []string{"app", "policy", "from", "to", "step"}

func (c *call) trafficQuery() (service.TrafficQuery, error) {
	q := &c.query
	step, ok := steps[q.text("step")]
	if !ok {
		q.addFault("step", "it is not 1m, 5m, 10m, 30m, 1h, 3h, 6h, 12h or 24h")
	}
	t := service.TrafficQuery{
		App: q.text("app"), Policy: q.text("policy"), From: q.instant("from"), To: q.instant("to"), Step: step,
	}
	return t, q.err()
}

func (c *call) traffic() error {
	q, err := c.trafficQuery()
	if err != nil {
		return err
	}

	t, err := c.o.Service.Traffic(c.ctx(), c.actor, q)
	if err != nil {
		return err
	}

	return c.send(http.StatusOK, struct {
		From   time.Time   `json:"from"`
		To     time.Time   `json:"to"`
		Step   int64       `json:"step"`
		Now    time.Time   `json:"now"`
		Late   bool        `json:"late"`
		Total  countsView  `json:"total"`
		Lost   int64       `json:"lost"`
		Points []pointView `json:"points"`
	}{t.From, t.To, int64(t.Step / time.Second), t.Now, t.Late, countsOf(t.Total), t.Lost, mapped(t.Points, pointOf)})
}

func (c *call) trafficByPolicy() error { return c.sums(c.o.Service.TrafficByPolicy) }

func (c *call) trafficByApp() error { return c.sums(c.o.Service.TrafficByApp) }

func (c *call) sums(read func(context.Context, service.Actor, service.TrafficQuery) ([]service.Sum, error)) error {
	q, err := c.trafficQuery()
	if err != nil {
		return err
	}
	list, err := read(c.ctx(), c.actor, q)
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, struct {
		Sums []sumView `json:"sums"`
	}{mapped(list, sumOf)})
}

func (c *call) trafficCSV() error {
	q, err := c.trafficQuery()
	if err != nil {
		return err
	}
	return c.csv("traffic.csv", func(w io.Writer) error { return c.o.Service.TrafficCSV(c.ctx(), c.actor, q, w) })
}

// csv is file for a table.
func (c *call) csv(name string, write func(io.Writer) error) error {
	return c.file(name, "text/csv; charset=utf-8", write)
}

// file answers with a file that write writes, or with the error if it has written nothing.
func (c *call) file(name, media string, write func(io.Writer) error) error {
	// The headers are set with the first line: before it, an error can still be answered as one.
	h := c.w.Header()
	w := &lateWriter{ResponseWriter: c.w, begin: func() {
		h.Set("Content-Type", media)
		h.Set("Content-Disposition", `attachment; filename="`+name+`"`)
	}}

	err := write(w)

	// Once the status is sent, only a broken connection shows that the file is not whole.
	if err != nil && w.begun {
		c.o.Logger.ErrorContext(c.ctx(), "an export broke off", "request_id", c.id(), "error", err)
		panic(http.ErrAbortHandler)
	}
	return err
}

// lateWriter calls begin before the first write.
type lateWriter struct {
	http.ResponseWriter
	begin func()
	begun bool
}

func (l *lateWriter) Write(b []byte) (int, error) {
	if !l.begun {
		l.begun = true
		l.begin()
	}
	return l.ResponseWriter.Write(b)
}

// shadow answers with what a policy in shadow has seen.
func (c *call) shadow() error {
	s, err := c.o.Service.SeenInShadow(c.ctx(), c.actor, c.path("name"))
	if err != nil {
		return err
	}

	// null says that the policy is not in shadow.
	var since *time.Time
	if !s.Since.IsZero() {
		since = &s.Since
	}

	return c.send(http.StatusOK, struct {
		Since  *time.Time `json:"since"`
		Seen   int64      `json:"seen"`
		Over   int64      `json:"over"`
		Counts countsView `json:"counts"`
		Late   bool       `json:"late"`
	}{since, s.Counts.Total(), s.Over(), countsOf(s.Counts), s.Late})
}
