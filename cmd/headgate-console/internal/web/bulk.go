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

// bulkChange changes the mode of the policies whose boxes are ticked. It asks first if that takes
// protection away, or is known to refuse more requests.
func bulkChange(r *request) error {
	here, err := url.ParseQuery(r.field("here"))
	if err != nil {
		return errBadForm
	}
	q := queryOf(here)

	list, m := r.ticked()
	var mode policy.Mode
	if do := r.field("do"); do == "" || mode.UnmarshalText([]byte(do)) != nil {
		m.add("", "Choose what to do with the policies.")
	}
	if len(m) > 0 {
		return r.showList(http.StatusUnprocessableEntity, q, m)
	}

	// The plan is made for the question alone. It is made again with the change, of the policies as
	// they are then.
	if !r.confirmed() {
		plan, err := r.Service.PlanSwitch(r.req.Context(), r.actor, list, mode)
		if err != nil {
			return r.bulkRefused(err, q)
		}
		c, err := r.bulkConfirmation(plan, mode)
		if err != nil {
			return err
		}
		if len(c.Consequences) > 0 {
			c.Action, c.Back, c.Fields = "/policies/bulk", listPath(q, q.Page), r.sent()
			r.keepComment(&c)
			return r.confirm(c)
		}
	}

	plan, err := r.Service.SwitchPolicies(r.req.Context(), r.saying(), list, mode)
	if err != nil {
		return r.bulkRefused(err, q)
	}

	if len(plan.Steps) == 0 {
		return r.seeOther(listPath(q, q.Page), "unchanged")
	}

	return r.seeOther(listPath(q, q.Page), "bulk&at="+number(plan.At.UnixMicro()))
}

// undoBulk takes back what was changed together, all or nothing.
func undoBulk(r *request) error {
	us, err := strconv.ParseInt(r.field("at"), 10, 64)
	if err != nil {
		return errBadForm
	}
	if err := r.Service.UndoSwitch(r.req.Context(), r.saying(), time.UnixMicro(us)); err != nil {
		return r.bulkRefused(err, service.Query{Page: 1})
	}
	return r.seeOther("/policies", "undone")
}

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

// tickValue returns a policy and its version as the form of the list sends them.
func tickValue(name string, version int64) string { return number(version) + ":" + name }

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
		// The list has a field for the comment alone. Other mistakes stand above it.
		for _, f := range invalid.Faults {
			m.add(map[string]string{"comment": "comment"}[f.Field], f.Message)
		}
		return r.showList(http.StatusUnprocessableEntity, q, m)
	}

	return err
}

// bulkConfirmation returns the question to ask before a change. It has no consequences if there is
// nothing to ask about.
func (r *request) bulkConfirmation(plan service.BulkPlan, mode policy.Mode) (c confirmation, err error) {
	if len(plan.Steps) == 0 {
		return c, nil
	}
	count := policiesWords(len(plan.Steps))

	c = confirmationOf("bulk "+mode.String(), count)
	if mode == policy.Enforce {
		c.Consequences, err = r.wouldRefuseTogether(plan.Steps)
	} else if gone := lost(plan); len(gone) > 0 || mode == policy.Off {
		c.Consequences = append(c.Consequences, gone...)
	} else {
		return confirmation{}, nil // a policy that was off protects no less in shadow
	}
	if err != nil || len(c.Consequences) == 0 {
		return c, err
	}

	if n := len(plan.Unchanged); n > 0 {
		c.Consequences = append(c.Consequences, policiesWords(n)+" stay as they are.")
	}
	return c, nil
}

// lost says which policies a change takes out of force, or nothing.
func lost(plan service.BulkPlan) []string {
	var names []string
	for _, step := range plan.Steps {
		if step.Unprotects() {
			names = append(names, step.Before.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}

	return []string{fmt.Sprintf("In force now: %s. In the last 24 hours they refused %s requests.",
		firstOf(names, 10), digits(plan.Refused))}
}

// wouldRefuseTogether says what policies that are to be in force would have refused in the last
// hour: of each one whose counts tell, and in all. It returns nothing unless one of them is known
// to refuse more than it did.
func (r *request) wouldRefuseTogether(steps []service.BulkStep) (list []string, err error) {
	var sum service.WouldRefuse
	known, more := 0, false
	for _, step := range steps {
		w, err := r.Service.WouldRefuse(r.req.Context(), r.actor, step.After)
		if err != nil {
			return nil, err
		}
		if w == nil || w.Unknown != "" {
			continue
		}

		// A request may meet several policies, so the sum is of decisions.
		list = append(list, step.After.Name+": "+w.Sentence())
		known++
		more = more || w.Least > w.Before
		sum.Requests, sum.Least, sum.Most = sum.Requests+w.Requests, sum.Least+w.Least, sum.Most+w.Most
	}
	if !more {
		return nil, nil
	}

	if known > 1 {
		figures := digits(sum.Least)
		if sum.Least < sum.Most {
			figures = "between " + figures + " and " + digits(sum.Most)
		}
		list = append(list, fmt.Sprintf("Together: %s of %s decisions.", figures, digits(sum.Requests)))
	}
	if n := len(steps) - known; n > 0 {
		list = append(list, "What "+policiesWords(n)+" would have refused is not known.")
	}
	return list, nil
}

func policiesWords(n int) string { return plural(int64(n), "policy", "policies") }
