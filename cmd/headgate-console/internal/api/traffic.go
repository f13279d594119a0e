package api

import (
	"io"
	"net/http"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/policy/stats"
)

// counts are counts by verdict.
type counts map[string]int64

func countsOf(c stats.Counts) counts {
	v := counts{}
	for verdict, n := range c {
		v[events.Verdict(verdict).String()] = n
	}
	return v
}

// span is a range of time in steps.
type span struct {
	From time.Time `json:"from,omitzero" doc:"A quarter of an hour before to by default."`
	To   time.Time `json:"to,omitzero" doc:"It is not included. Now by default."`
	Step string    `json:"step,omitempty" enum:"1m,5m,10m,30m,1h,3h,6h,12h,24h" doc:"One that suits by default."`
}

func (s span) query(app, policy string) service.TrafficQuery {
	step, _ := time.ParseDuration(s.Step) // empty, or one of those above
	return service.TrafficQuery{App: app, Policy: policy, From: s.From, To: s.To, Step: step}
}

type appSpan struct {
	App string `json:"app,omitempty" doc:"Empty for all in which the actor has a role."`
	span
}

type policySpan struct {
	Policy string `json:"policy,omitempty" doc:"Its decisions, in the place of requests."`
	appSpan
}

type point struct {
	At     time.Time `json:"at"`
	Counts counts    `json:"counts"`
	Lost   int64     `json:"lost" doc:"Requests whose counts were lost."`
}

func pointOf(p service.Point) point { return point{p.At, countsOf(p.Counts), p.Lost} }

type series struct {
	From   time.Time `json:"from"`
	To     time.Time `json:"to"`
	Step   int64     `json:"step" doc:"In seconds."`
	Now    time.Time `json:"now" doc:"By the clock of Redis, if it answers."`
	Late   bool      `json:"late" doc:"The counts of the last two minutes may be missing."`
	Total  counts    `json:"total"`
	Lost   int64     `json:"lost"`
	Points []point   `json:"points"`
}

func (c *call) traffic(in *policySpan) (series, error) {
	t, err := c.o.Service.Traffic(c.ctx(), c.actor, in.query(in.App, in.Policy))
	return series{t.From, t.To, int64(t.Step / time.Second), t.Now, t.Late, countsOf(t.Total), t.Lost,
		mapped(t.Points, pointOf)}, err
}

type sum struct {
	App    string `json:"app"`
	Policy string `json:"policy" doc:"Empty for requests."`
	Counts counts `json:"counts"`
	Lost   int64  `json:"lost"`
}

func sumOf(s service.Sum) sum { return sum{s.App, s.Policy, countsOf(s.Counts), s.Lost} }

type sums struct {
	Sums []sum `json:"sums"`
}

func (c *call) trafficByPolicy(in *appSpan) (sums, error) {
	list, err := c.o.Service.TrafficByPolicy(c.ctx(), c.actor, in.query(in.App, ""))
	return sums{mapped(list, sumOf)}, err
}

func (c *call) trafficByApp(in *span) (sums, error) {
	list, err := c.o.Service.TrafficByApp(c.ctx(), c.actor, in.query("", ""))
	return sums{mapped(list, sumOf)}, err
}

func (c *call) trafficCSV(in *policySpan) error {
	return c.sendFile("traffic.csv", "text/csv; charset=utf-8", func(w io.Writer) error {
		return c.o.Service.TrafficCSV(c.ctx(), c.actor, in.query(in.App, in.Policy), w)
	})
}

// sendFile answers with a file that write writes, or with the error if it has written nothing.
func (c *call) sendFile(name, media string, write func(io.Writer) error) error {
	h := c.w.Header()
	h.Set("Content-Type", media)
	h.Set("Content-Disposition", `attachment; filename="`+name+`"`)
	w := &counter{Writer: c.w}
	err := write(w)

	// Before the first line an error is answered as one. Then the status is sent, and only a broken
	// connection shows that the file is not whole.
	if err != nil && w.n > 0 {
		c.o.Logger.ErrorContext(c.ctx(), "an export broke off", "request_id", c.id(), "error", err)
		panic(http.ErrAbortHandler)
	}
	return err
}

// counter counts the writes to a writer.
type counter struct {
	io.Writer
	n int
}

func (c *counter) Write(b []byte) (int, error) { c.n++; return c.Writer.Write(b) }

// seen is what a policy in shadow has seen.
type seen struct {
	Since  time.Time `json:"since,omitzero" doc:"Absent if the policy is not in shadow."`
	Seen   int64     `json:"seen"`
	Over   int64     `json:"over" doc:"What it would have refused."`
	Counts counts    `json:"counts"`
	Late   bool      `json:"late" doc:"The counts of the last two minutes may be missing."`
}

func (c *call) shadow(*none) (seen, error) {
	s, err := c.o.Service.SeenInShadow(c.ctx(), c.actor, c.name())
	return seen{s.Since, s.Counts.Total(), s.Over(), countsOf(s.Counts), s.Late}, err
}
