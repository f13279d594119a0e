package api

import (
	"errors"
	"net/http"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/policy"
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

	LeftOut     []policy.LeftOut  `json:"left_out"`
	LeftOutMore int               `json:"left_out_more"`
	Can         *policy.Abilities `json:"can,omitempty"` // absent if it is not known
}

func instanceOf(i policy.Instance) instanceView {
	return instanceView{i.ID, i.Process, i.App, i.Version, i.Refused, i.Error, i.Store, i.Age.Milliseconds(),
		i.ClockOffset.Milliseconds(), list(i.LeftOut), i.MoreLeftOut, i.Can}
}

// instances lists the instances of applications in which the actor has a role.
func (c *call) instances() error {
	all, err := c.o.Service.Instances(c.ctx(), c.actor, "")
	if err != nil {
		return c.fleetErr("instances", err)
	}
	return c.send(http.StatusOK, struct {
		Instances []instanceView `json:"instances"`
	}{mapped(all, instanceOf)})
}

// fleetErr returns the error for the client of a method of the service that asks Redis.
func (c *call) fleetErr(what string, err error) error {
	switch {
	case err == service.ErrNoFleet:
		return away("the console was started without Redis, so there are no " + what)
	case errors.Is(err, service.ErrNoFleet):
		return c.redisAway(what, err)
	}
	return err
}

// redisAway logs the error of Redis, and returns the one for the client.
func (c *call) redisAway(what string, err error) error {
	c.o.Logger.WarnContext(c.ctx(), "Redis did not answer", "asked_for", what, "error", err)
	return away("Redis did not answer")
}
