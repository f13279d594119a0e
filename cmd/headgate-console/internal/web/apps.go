package web

import (
	"errors"
	"fmt"
	"net/http"

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

func appsPage(v *request) error { return v.showApps(http.StatusOK, applications{}) }

func (v *request) showApps(status int, a applications) error {
	list, err := v.Service.Apps(v.r.Context(), v.actor)
	if err != nil {
		return err
	}
	a.Manager = v.access.CanManage()
	a.Apps, a.paging = pageOf(v, list)
	return v.show(status, "apps", "Applications", a)
}

func createApp(v *request) error {
	a := applications{Name: v.field("name"), About: v.field("description")}
	err := v.Service.CreateApp(v.r.Context(), v.actor, a.Name, a.About)
	if a.Mistakes = mistakesOf(err); a.Mistakes != nil {
		return v.showApps(http.StatusUnprocessableEntity, a)
	}
	if err != nil {
		return err
	}
	return v.seeOther("/apps", "app")
}

// mistakesOf returns the mistakes in the input, or nil.
func mistakesOf(err error) mistakes {
	var invalid *service.InvalidError
	if !errors.As(err, &invalid) {
		return nil
	}

	m := mistakes{}
	for _, f := range invalid.Faults {
		m.add(f.Field, f.Message)
	}
	return m
}

func describeApp(v *request) error {
	if err := v.Service.DescribeApp(v.r.Context(), v.actor, v.field("name"), v.field("description")); err != nil {
		return err
	}
	return v.seeOther("/apps", "appsaved")
}

func deleteAppPage(v *request) error { return v.confirmAppDeletion(v.query("name"), nil) }

func (v *request) confirmAppDeletion(name string, m mistakes) error {
	if !v.access.CanManage() {
		return v.Service.Refuse(v.r.Context(), v.actor, "app.delete", "app:"+name, "it takes an administrator")
	}

	apps, err := v.Service.Apps(v.r.Context(), v.actor)
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
		return v.confirm(confirmation{
			Title: "Delete the application " + name + "?", Consequences: []string{consequence},
			Action: "/apps/delete", Fields: []hidden{{"name", name}},
			Button: "Delete the application", Danger: true, Back: "/apps", Mistakes: m,
		})
	}

	return service.ErrNotFound
}

func deleteApp(v *request) error {
	name := v.field("name")
	if !v.confirmed() {
		return v.confirmAppDeletion(name, nil)
	}

	err := v.Service.DeleteApp(v.r.Context(), v.actor, name)
	if m := mistakesOf(err); m != nil {
		return v.confirmAppDeletion(name, m)
	}
	if err != nil {
		return err
	}
	return v.seeOther("/apps", "appdeleted")
}
