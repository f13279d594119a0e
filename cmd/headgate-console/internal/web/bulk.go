package web

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/policy"
)

// bulkChange changes the policies whose boxes are ticked. It asks first if that takes
// protection away.
func bulkChange(r *request) error {
	here, err := url.ParseQuery(r.field("here"))
	if err != nil {
		return errBadForm
	}
	q := queryOf(here)

	b, m := r.bulk()
	if len(m) > 0 {
		return r.showList(http.StatusUnprocessableEntity, q, m)
	}

	// The plan is made for the question alone. It is made again with the change, of the policies as
	// they are then.
	if !r.confirmed() {
		plan, err := r.Service.PlanBulk(r.req.Context(), r.actor, b)
		if err != nil {
			return r.bulkRefused(err, q)
		}
		if c, ok := r.bulkConfirmation(b, plan, q); ok {
			return r.confirm(c)
		}
	}

	plan, err := r.Service.ChangePolicies(r.req.Context(), r.saying(), b)
	if err != nil {
		return r.bulkRefused(err, q)
	}

	if len(plan.Steps) == 0 {
		return r.seeOther(listPath(q, q.Page), "unchanged")
	}

	return r.seeOther(listPath(q, q.Page), "bulk&"+undoAt(plan.At))
}

// undoBulk takes back the changes of several policies, all or none.
func undoBulk(r *request) error {
	list, m := r.ticked()
	if len(m) > 0 {
		return r.showList(http.StatusUnprocessableEntity, service.Query{Page: 1}, m)
	}

	_, at, err := r.Service.UndoPolicies(r.req.Context(), r.saying(), list)
	if err != nil {
		return r.bulkRefused(err, service.Query{Page: 1})
	}

	return r.seeOther("/policies", "undone&"+undoAt(at))
}

// undoAt returns the parameter of a page that offers to take back what was changed at an
// instant.
func undoAt(at time.Time) string { return "at=" + number(at.UnixMicro()) }

// ticked reads the policies of a form, and their versions.
func (r *request) ticked() (list []service.PolicyVersion, m mistakes) {
	m = mistakes{}
	for _, value := range r.req.PostForm["policy"] {
		version, name, ok := strings.Cut(value, ":")
		n, err := strconv.ParseInt(version, 10, 64)
		if err != nil || !ok {
			m.add("", fmt.Sprintf("%q is not a version and a policy", clip(value)))
			continue
		}

		list = append(list, service.PolicyVersion{Name: name, Version: n})
	}

	if len(list) == 0 && len(m) == 0 {
		m.add("", "Tick the policies to change first.")
	}

	return list, m
}

// bulk reads the change from the form.
func (r *request) bulk() (b service.Bulk, m mistakes) {
	b.Policies, m = r.ticked()
	app := r.field("with")

	switch do := r.field("do"); do {
	case "enforce", "shadow", "off":
		var mode policy.Mode
		_ = mode.UnmarshalText([]byte(do)) // which is a mode
		b.Mode = &mode
	case "add":
		b.AddApp = app
	case "remove":
		b.RemoveApp = app
	default:
		m.add("", "Choose what to do with the policies.")
	}

	// Without a mode it is a change of applications, which has to name one.
	if b.Mode == nil && app == "" && len(m) == 0 {
		m.add("with", "Choose an application.")
	}

	return b, m
}

// bulkRefused shows the list again with the reason why nothing was changed.
func (r *request) bulkRefused(err error, q service.Query) error {
	m := mistakes{}
	var conflicts *service.ConflictsError
	var invalid *service.InvalidError

	switch {
	case errors.As(err, &conflicts):
		for _, c := range conflicts.Conflicts {
			what := "was changed"
			if c.Deleted {
				what = "was deleted"
			}
			m.add("", fmt.Sprintf("%s %s in the meantime, so nothing was changed. Look at it first.",
				c.Mine.Name, what))
		}
		return r.showList(http.StatusConflict, q, m)
	case errors.As(err, &invalid):
		for _, f := range invalid.Faults {
			// The list has a field for the comment alone. Other mistakes stand above it, with the
			// name of their policy.
			text := f.Message
			if f.Policy != "" {
				text = f.Policy + ": " + text
			}

			field := ""
			if f.Field == "comment" {
				field = f.Field
			}

			m.add(field, text)
		}
		return r.showList(http.StatusUnprocessableEntity, q, m)
	}

	return err
}

// bulkConfirmation returns the question to ask before a change, unless it takes no protection
// away.
func (r *request) bulkConfirmation(b service.Bulk, plan service.BulkPlan, q service.Query) (confirmation, bool) {
	lose := 0
	var names []string
	for _, step := range plan.Steps {
		if step.Unprotects() {
			lose++
			if len(names) < 10 {
				names = append(names, step.Before.Name)
			}
		}
	}

	// Switching off is asked about even if nothing is lost now: a policy in shadow counts, and one
	// that is off does not.
	off := b.Mode != nil && *b.Mode == policy.Off && len(plan.Steps) > 0
	if lose == 0 && !off {
		return confirmation{}, false
	}

	c := confirmation{
		Action: "/policies/bulk", Danger: true, Back: listPath(q, q.Page),
		Fields: []hidden{{"here", r.field("here")}, {"do", r.field("do")}, {"with", r.field("with")}},
	}

	r.keepComment(&c)
	for _, value := range r.req.PostForm["policy"] {
		c.Fields = append(c.Fields, hidden{"policy", value})
	}

	count := policiesWords(len(plan.Steps))
	switch {
	case b.RemoveApp != "":
		c.Title, c.Button = "Take "+count+" from "+b.RemoveApp+"?", "Take them from "+b.RemoveApp
		c.Consequences = append(c.Consequences, "The instances of "+b.RemoveApp+" stop applying them within seconds.")
	case off:
		c.Title, c.Button = "Switch "+count+" off?", "Switch them off"
		c.Consequences = append(c.Consequences, "A policy that is off has no effect, and counts nothing.")
	default:
		c.Title, c.Button = "Switch "+count+" to shadow?", "Switch them to shadow"
		c.Consequences = append(c.Consequences, "A policy in shadow counts and refuses nothing.")
	}

	if lose > 0 {
		more := ""
		if lose > len(names) {
			more = fmt.Sprintf(" and %s more", digits(int64(lose-len(names))))
		}

		c.Consequences = append(c.Consequences, fmt.Sprintf("In force now: %s%s. "+
			"In the last 24 hours they refused %s requests.",
			strings.Join(names, ", "), more, digits(plan.Refused)))
	}

	if n := len(plan.Unchanged); n > 0 {
		c.Consequences = append(c.Consequences, policiesWords(n)+" stay as they are.")
	}

	return c, true
}

func policiesWords(n int) string {
	if n == 1 {
		return "1 policy"
	}
	return digits(int64(n)) + " policies"
}
