package api

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/policy"
)

type policyVersion struct {
	Name    string `json:"name"`
	Version int64  `json:"version"`
}

// changePolicies changes the mode or the applications of several policies, all or none.
func (c *call) changePolicies() error {
	var in struct {
		Policies  []policyVersion `json:"policies"`
		Mode      string          `json:"mode"`
		AddApp    string          `json:"add_app"`
		RemoveApp string          `json:"remove_app"`
		Comment   string          `json:"comment"`
	}
	if err := c.decode(&in); err != nil {
		return err
	}

	b := service.Bulk{AddApp: in.AddApp, RemoveApp: in.RemoveApp}
	b.Policies = versionsOf(in.Policies)
	if in.Mode != "" {
		mode, err := readMode(in.Mode)
		if err != nil {
			return err
		}
		b.Mode = &mode
	}

	// Policies that are so already stay as they are, and are named in the answer.
	plan, err := c.o.Service.ChangePolicies(c.ctx(), c.actor.Saying(in.Comment), b)
	if err != nil {
		return staleOr(err)
	}
	return c.send(http.StatusOK, struct {
		Changed   []policyVersion `json:"changed"`
		Unchanged []string        `json:"unchanged"`
		progress
	}{
		mapped(plan.Steps,
			func(s service.BulkStep) policyVersion { return policyVersion{s.After.Name, s.After.Version} }),
		list(plan.Unchanged),
		c.progress(mapped(plan.Steps, func(s service.BulkStep) policy.Policy { return s.After })...),
	})
}

// undoPolicies takes back the changes that made the current versions of several policies, all or
// none.
func (c *call) undoPolicies() error {
	var in struct {
		Policies []policyVersion `json:"policies"`
		Comment  string          `json:"comment"`
	}
	if err := c.decode(&in); err != nil {
		return err
	}

	now, _, err := c.o.Service.UndoPolicies(c.ctx(), c.actor.Saying(in.Comment), versionsOf(in.Policies))
	if err != nil {
		return staleOr(err)
	}

	return c.send(http.StatusOK, struct {
		Changed []policyVersion `json:"changed"`
		progress
	}{mapped(now, func(p service.PolicyVersion) policyVersion { return policyVersion(p) }), c.progress()})
}

func versionsOf(list []policyVersion) []service.PolicyVersion {
	return mapped(list, func(p policyVersion) service.PolicyVersion { return service.PolicyVersion(p) })
}

// staleOr lists the policies that have changed first, or returns the error.
func staleOr(err error) error {
	var e *service.ConflictsError
	if !errors.As(err, &e) {
		return err
	}

	p := newProblem(http.StatusConflict, "stale", fmt.Sprintf("%d of the policies were changed in the "+
		"meantime; nothing was changed", len(e.Conflicts)))

	for _, c := range e.Conflicts {
		text := fmt.Sprintf("it has version %d", c.Theirs.Version)
		if c.Deleted {
			text = "it was deleted"
		}
		p.Errors = append(p.Errors, fault{Policy: c.Mine.Name, Field: "version", Message: text})
	}

	return p
}

// filterView is the query of a saved filter.
type filterView struct {
	Search   string `json:"search"`
	App      string `json:"app"`
	Mode     string `json:"mode"`
	Changed  string `json:"changed"`
	Refusing string `json:"refusing"` // "now" or ""
	Sort     string `json:"sort"`
}

type namedFilter struct {
	Name string `json:"name"`
	filterView
}

func filterOf(f service.Filter) namedFilter {
	q := f.Query
	v := namedFilter{f.Name, filterView{Search: q.Search, App: q.App, Mode: q.Mode, Changed: q.Changed, Sort: q.Sort}}
	if q.Refusing {
		v.Refusing = refusingNow
	}
	return v
}

// refusingNow selects the policies that refuse requests now.
const refusingNow = "now"

func (c *call) listFilters() error {
	own, err := c.o.Service.Filters(c.ctx(), c.actor)
	if err != nil {
		return err
	}
	return c.sendTagged(struct {
		Filters []namedFilter `json:"filters"`
		BuiltIn []namedFilter `json:"built_in"`
	}{mapped(own, filterOf), mapped(service.BuiltInFilters(), filterOf)}, "")
}

func (c *call) saveFilter() error {
	var in filterView
	if err := c.decode(&in); err != nil {
		return err
	}

	if in.Refusing != "" && in.Refusing != refusingNow {
		return invalid(fault{Field: "refusing", Message: "it is not now"})
	}
	q := service.Query{
		Search: in.Search, App: in.App, Mode: in.Mode, Changed: in.Changed, Refusing: in.Refusing != "", Sort: in.Sort,
	}
	return c.nothing(c.o.Service.SaveFilter(c.ctx(), c.actor, service.Filter{Name: c.path("filter"), Query: q}))
}

func (c *call) deleteFilter() error {
	return c.nothing(c.o.Service.DeleteFilter(c.ctx(), c.actor, c.path("filter")))
}
