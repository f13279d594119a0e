package api

import (
	"errors"
	"slices"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
)

type appList struct {
	Apps []service.App `json:"apps"`
}

func (c *call) listApps(*none) (v appList, err error) {
	v.Apps, err = c.o.Service.Apps(c.ctx(), c.actor)
	return v, err
}

// readApp answers with an application in which the actor has a role.
func (c *call) readApp(*none) (service.App, error) {
	v, err := c.listApps(nil)
	if err != nil {
		return service.App{}, err
	}
	i := slices.IndexFunc(v.Apps, func(a service.App) bool { return a.Name == c.path("app") })
	if i < 0 {
		return service.App{}, service.ErrNotFound
	}
	return v.Apps[i], nil
}

type appDraft struct {
	Description string `json:"description,omitempty" example:"The shop."`
}

// saveApp changes the description of an application, or creates the application.
func (c *call) saveApp(in *appDraft) (service.App, error) {
	// Most of the applications that are saved exist, so a description is tried first.
	err := c.o.Service.DescribeApp(c.ctx(), c.actor, c.path("app"), in.Description)
	if errors.Is(err, service.ErrNotFound) {
		c.status = 201
		err = c.o.Service.CreateApp(c.ctx(), c.actor, c.path("app"), in.Description)
	}
	if err != nil {
		return service.App{}, err
	}
	return c.readApp(nil)
}

func (c *call) deleteApp(*none) (none, error) {
	return none{}, c.o.Service.DeleteApp(c.ctx(), c.actor, c.path("app"))
}
