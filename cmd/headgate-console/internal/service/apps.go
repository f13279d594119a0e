package service

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/policy"
)

// App is an application that policies list.
type App struct {
	store.App
	Role Role `json:"role"` // of the actor
}

func appObject(name string) string { return "app:" + name }

// Apps returns the applications in which the actor has a role, by name.
func (s *Service) Apps(ctx context.Context, a Actor) ([]App, error) {
	return answer(ctx, s, a, "app.list", "apps", func(d *action) (list []App, err error) {
		rows, err := d.Apps()
		for _, r := range rows {
			if role := d.access.Role(r.Name); role != NoRole {
				list = append(list, App{r, role})
			}
		}
		return list, err
	})
}

// CreateApp adds an application. It requires an administrator.
func (s *Service) CreateApp(ctx context.Context, a Actor, name, description string) error {
	return s.manage(ctx, a, "app.create", appObject(name), func(d *action) error {
		var f faults
		f.add("name", policy.CheckApp(name))
		f.add("description", textform.Check(description, MaxText))
		if err := f.err(); err != nil {
			return err
		}

		row := store.App{Name: name, Description: description, CreatedAt: instant(d.now), CreatedBy: a.user}
		err := d.InsertApp(row)
		if errors.Is(err, store.ErrExists) {
			return invalid("name", "there is an application of that name")
		}
		if err != nil {
			return err
		}

		return d.done("", appText(name, description))
	})
}

// addApp adds an application that a policy lists.
func (a *action) addApp(name string) error {
	if err := a.InsertApp(store.App{Name: name, CreatedAt: instant(a.now), CreatedBy: a.actor.user}); err != nil {
		return err
	}
	row := a.actor.auditRow(a.now, "app.create", appObject(name))
	row.After, row.Note = appText(name, ""), "by an import"
	return a.AddAudit(row)
}

// DescribeApp changes the description of an application. It requires an
// administrator.
func (s *Service) DescribeApp(ctx context.Context, a Actor, name, description string) error {
	return s.manage(ctx, a, "app.update", appObject(name), func(d *action) error {
		if err := textform.Check(description, MaxText); err != nil {
			return invalid("description", err.Error())
		}

		was, err := d.app(name)
		if err != nil {
			return err
		}

		// Nothing to change leaves no row in the audit log.
		if was.Description == description {
			return errUnchanged
		}

		if err := d.Tx.DescribeApp(name, description); err != nil {
			return err
		}
		return d.done(appText(name, was.Description), appText(name, description))
	})
}

// DeleteApp removes an application and the roles in it. It requires an
// administrator, and fails while a policy lists the application, or a webhook: the
// next application of the name may be of others.
func (s *Service) DeleteApp(ctx context.Context, a Actor, name string) error {
	// The lock of the webhooks keeps others from adding one for the application meanwhile.
	locks := []string{store.CounterUsers, store.CounterWebhooks}
	return s.actWith(ctx, a, locks, "app.delete", appObject(name), func(d *action) error {
		if err := d.manage(); err != nil {
			return err
		}

		was, err := d.app(name)
		if err != nil {
			return err
		}

		if was.Policies > 0 {
			return invalid("name",
				fmt.Sprintf("the policies that list the application have to go first: %d", was.Policies))
		}

		hooks, err := d.webhooksFor(name)
		if err != nil {
			return err
		}
		if len(hooks) > 0 {
			return invalid("name",
				"the webhooks that are for the application have to go first: "+strings.Join(hooks, ", "))
		}

		// A policy may list it since they were counted, as policies have another lock.
		err = d.Tx.DeleteApp(name)
		if errors.Is(err, store.ErrReferenced) {
			return invalid("name", "the policies that list the application have to go first")
		}
		if err != nil {
			return err
		}

		return d.done(appText(name, was.Description), "")
	})
}

// app returns an application. It does not look up invalid names.
func (a *action) app(name string) (store.App, error) {
	if policy.CheckApp(name) != nil {
		return store.App{}, ErrNotFound
	}
	return a.App(name)
}

// seesApp hides an application in which the actor has no role. All see "".
func (a *action) seesApp(name string) error {
	if name == "" {
		return nil
	}
	if _, err := a.app(name); err != nil {
		return err
	}
	if a.access.Role(name) == NoRole {
		return a.hide()
	}
	return nil
}

// appText returns the form of an application in the audit log.
func appText(name, description string) string {
	return text(struct {
		Name        string `json:"name"`
		Description string `json:"description,omitempty"`
	}{name, description})
}
