package api

import (
	"net/http"
	"time"

	"github.com/headgate/headgate/policy/stats"
)

type minuteView struct {
	Start    time.Time    `json:"start"`
	Requests countsView   `json:"requests"`
	Lost     int64        `json:"lost"`
	Policies []policySums `json:"policies"`
}

type policySums struct {
	Policy    string     `json:"policy"` // "" for those that instances do not tell apart
	Decisions countsView `json:"decisions"`
}

func minuteOf(m stats.Minute) minuteView {
	v := minuteView{Start: m.Start, Requests: countsOf(m.Requests), Lost: m.Lost, Policies: []policySums{}}
	for _, name := range sortedKeys(m.Policies) {
		v.Policies = append(v.Policies, policySums{name, countsOf(m.Policies[name])})
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
