package api

import (
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
)

type appView struct {
	Name        string    `json:"name"`
	Description string    `json:"description"`
	CreatedAt   time.Time `json:"created_at"`
	CreatedBy   string    `json:"created_by"`
	Policies    int64     `json:"policies"`
	Role        string    `json:"role"`
}

func appOf(a service.App) appView {
	return appView{a.Name, a.Description, a.CreatedAt, a.CreatedBy, a.Policies, string(a.Role)}
}

func (c *call) listApps() error {
	apps, err := c.o.Service.Apps(c.ctx(), c.actor)
	if err != nil {
		return err
	}
	return c.sendTagged(struct {
		Apps []appView `json:"apps"`
	}{mapped(apps, appOf)}, "")
}

// app returns an application in which the actor has a role.
func (c *call) app(name string) (appView, error) {
	apps, err := c.o.Service.Apps(c.ctx(), c.actor)
	if err != nil {
		return appView{}, err
	}
	i := slices.IndexFunc(apps, func(a service.App) bool { return a.Name == name })
	if i < 0 {
		return appView{}, service.ErrNotFound
	}
	return appOf(apps[i]), nil
}

func (c *call) readApp() error {
	a, err := c.app(c.path("app"))
	if err != nil {
		return err
	}
	return c.sendTagged(a, "")
}

// saveApp changes the description of an application, or creates the application.
func (c *call) saveApp() error {
	var in struct {
		Description string `json:"description"`
	}
	if err := c.decode(&in); err != nil {
		return err
	}

	// Most of the applications that are saved exist, so a description is tried first.
	name, status := c.path("app"), http.StatusOK
	err := c.o.Service.DescribeApp(c.ctx(), c.actor, name, in.Description)
	if errors.Is(err, service.ErrNotFound) {
		status = http.StatusCreated
		err = c.o.Service.CreateApp(c.ctx(), c.actor, name, in.Description)
	}
	if err != nil {
		return err
	}

	a, err := c.app(name)
	if err != nil {
		return err
	}
	return c.send(status, a)
}

func (c *call) deleteApp() error {
	return c.nothing(c.o.Service.DeleteApp(c.ctx(), c.actor, c.path("app")))
}
