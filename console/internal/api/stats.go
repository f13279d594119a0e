package api

import (
	"net/http"
	"time"

	"github.com/headgate/headgate/policy/stats"
)

type minuteView struct {
	Start    time.Time    `json:"start"`
	Policies []countsView `json:"policies"`
}

type countsView struct {
	Policy   string `json:"policy"` // "" for failures of no single policy
	Passed   int64  `json:"passed"`
	Refused  int64  `json:"refused"`
	Degraded int64  `json:"degraded"`
	Shadowed int64  `json:"shadowed"`
	Failed   int64  `json:"failed"`
	Banned   int64  `json:"banned"`
}

func minuteOf(m stats.Minute) minuteView {
	v := minuteView{Start: m.Start, Policies: []countsView{}}
	for _, name := range sortedKeys(m.Policies) {
		n := m.Policies[name]
		v.Policies = append(v.Policies, countsView{name, n.Passed, n.Refused, n.Degraded, n.Shadowed, n.Failed, n.Banned})
	}
	return v
}

// stats answers with the counts of an application in which the actor has a role.
func (c *call) stats() error {
	a, err := c.app(c.path("app"))
	if err != nil {
		return err
	}
	if c.o.Stats == nil {
		return away("the console was started without Redis, so there are no counts")
	}
	minutes, err := c.o.Stats(c.ctx(), a.Name)
	if err != nil {
		return c.redisAway("counts", err)
	}
	return c.send(http.StatusOK, struct {
		Minutes []minuteView `json:"minutes"`
	}{mapped(minutes, minuteOf)})
}
