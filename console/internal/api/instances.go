package api

import (
	"net/http"

	"github.com/headgate/headgate/console/internal/service"
)

type instanceView struct {
	ID            string `json:"id"`
	Process       string `json:"process"`
	App           string `json:"app"`
	Version       string `json:"version"`
	Refused       string `json:"refused"`
	Error         string `json:"error"`
	Store         string `json:"store"`
	AgeMS         int64  `json:"age_ms"`
	ClockOffsetMS int64  `json:"clock_offset_ms"`
}

// instances lists the instances of applications in which the actor has a role.
func (c *call) instances() error {
	access, err := c.access()
	if err != nil {
		return err
	}
	if c.o.Instances == nil {
		return away("the console was started without Redis, so there are no instances")
	}
	all, err := c.o.Instances(c.ctx())
	if err != nil {
		return c.redisAway("instances", err)
	}
	views := []instanceView{}
	for _, i := range all {
		if access.Role(i.App) != service.NoRole {
			views = append(views, instanceView{i.ID, i.Process, i.App, i.Version, i.Refused, i.Error, i.Store,
				i.Age.Milliseconds(), i.ClockOffset.Milliseconds()})
		}
	}
	return c.send(http.StatusOK, struct {
		Instances []instanceView `json:"instances"`
	}{views})
}

// redisAway logs the error of Redis, and returns the one for the client.
func (c *call) redisAway(what string, err error) error {
	c.o.Logger.WarnContext(c.ctx(), "Redis did not answer", "asked_for", what, "error", err)
	return away("Redis did not answer")
}
