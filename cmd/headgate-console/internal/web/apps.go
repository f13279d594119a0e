package web

import (
	"fmt"
	"slices"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
)

// applications is a page of the applications in which the actor has a role.
type applications struct {
	Apps     []service.App
	Manager  bool
	Name     string // of the application to be added
	About    string
	Mistakes mistakes
	paging
}

func appsPage(r *request) error { return r.showApps(applications{}) }

// showApps shows the applications, with what was wrong with a form.
func (r *request) showApps(a applications) error {
	a.Manager = r.access.CanManage()
	a.Apps, a.paging = pageOf(r, r.apps)
	return r.show(statusOf(a.Mistakes), "apps", "Applications", a)
}

func createApp(r *request) error {
	a := applications{Name: r.field("name"), About: r.field("description")}
	err := r.Service.CreateApp(r.req.Context(), r.actor, a.Name, a.About)
	again := func(m mistakes) error {
		a.Mistakes = m
		return r.showApps(a)
	}
	return after(err, again, r.to("/apps", "app"))
}

func describeApp(r *request) error {
	err := r.Service.DescribeApp(r.req.Context(), r.actor, r.field("name"), r.field("description"))
	return after(err, nil, r.to("/apps", "appsaved"))
}

func deleteAppPage(r *request) error {
	c, err := r.askAppDeletion(r.query("name"))
	if err != nil {
		return err
	}
	return r.confirm(c)
}

// askAppDeletion returns the question before an application goes, which says what goes with it.
func (r *request) askAppDeletion(name string) (c confirmation, err error) {
	if !r.access.CanManage() {
		return c, r.Service.Refuse(r.req.Context(), r.actor, "app.delete", "app:"+name, "it takes an administrator")
	}

	at := slices.IndexFunc(r.apps, func(a service.App) bool { return a.Name == name })
	if at < 0 {
		return c, service.ErrNotFound
	}

	// The service refuses to delete an application that is in use. The page says so before it is
	// asked.
	c = r.asks("app", name, "/apps", hidden{"name", name})
	if n := r.apps[at].Policies; n > 0 {
		c.Consequences = []string{fmt.Sprintf("Policies that list it, %s of them, have to go first.", digits(int64(n)))}
	}
	return c, nil
}

func deleteApp(r *request) error {
	name := r.field("name")
	return r.decide(func() (confirmation, error) { return r.askAppDeletion(name) },
		func() error { return r.Service.DeleteApp(r.req.Context(), r.actor, name) },
		r.to("/apps", "appdeleted"))
}
