package web

import (
	"fmt"

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
	list, err := r.Service.Apps(r.req.Context(), r.actor)
	if err != nil {
		return err
	}
	a.Manager = r.access.CanManage()
	a.Apps, a.paging = pageOf(r, list)
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

func deleteAppPage(r *request) error { return r.confirmAppDeletion(r.query("name"), nil) }

// confirmAppDeletion asks before an application goes, and says what goes with it.
func (r *request) confirmAppDeletion(name string, m mistakes) error {
	if !r.access.CanManage() {
		return r.Service.Refuse(r.req.Context(), r.actor, "app.delete", "app:"+name, "it takes an administrator")
	}

	apps, err := r.Service.Apps(r.req.Context(), r.actor)
	if err != nil {
		return err
	}
	for _, a := range apps {
		if a.Name != name {
			continue
		}

		// The service refuses to delete an application that is in use. The page says so before it
		// is asked.
		consequence := "The roles in it are deleted too. Webhooks that are for it have to go first."
		if a.Policies > 0 {
			consequence = fmt.Sprintf("Policies that list it, %s of them, have to go first.", digits(int64(a.Policies)))
		}
		return r.confirm(confirmation{
			Title: "Delete the application " + name + "?", Consequences: []string{consequence},
			Action: "/apps/delete", Fields: []hidden{{"name", name}},
			Button: "Delete the application", Danger: true, Back: "/apps", Mistakes: m,
		})
	}

	return service.ErrNotFound
}

func deleteApp(r *request) error {
	name := r.field("name")
	if !r.confirmed() {
		return r.confirmAppDeletion(name, nil)
	}

	err := r.Service.DeleteApp(r.req.Context(), r.actor, name)
	again := func(m mistakes) error { return r.confirmAppDeletion(name, m) }
	return after(err, again, r.to("/apps", "appdeleted"))
}
