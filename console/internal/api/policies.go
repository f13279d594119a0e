package api

import (
	"net/http"

	"github.com/headgate/headgate/console/internal/service"
	"github.com/headgate/headgate/policy"
)

type policyList struct {
	Policies []policyView `json:"policies"`
	Total    int64        `json:"total"`
	Page     int          `json:"page"`
	Pages    int          `json:"pages"`
	PerPage  int          `json:"per_page"`
}

func (c *call) listPolicies() error {
	q := &c.query
	ask := service.Query{
		Search: q.text("search"), App: q.text("app"), Mode: q.text("mode"), Sort: q.text("sort"),
		Page: q.small("page"), PerPage: q.small("per_page"),
	}
	if err := q.err(); err != nil {
		return err
	}
	page, err := c.o.Service.Policies(c.ctx(), c.actor, ask)
	if err != nil {
		return err
	}
	return c.sendTagged(policyList{mapped(page.Policies, viewOf), page.Total, page.Page, page.Pages, page.PerPage}, "")
}

func (c *call) readPolicy() error {
	p, err := c.o.Service.Policy(c.ctx(), c.actor, c.path("name"))
	if err != nil {
		return err
	}
	return c.sendTagged(viewOf(p), tag(p.Version))
}

func (c *call) savePolicy() error {
	var d draft
	if err := c.decode(&d); err != nil {
		return err
	}
	b, err := c.base(d.Version)
	if err != nil {
		return err
	}
	name := c.path("name")
	if d.Name == "" {
		d.Name = name
	}
	p, faults := d.policy()
	if d.Name != name {
		faults = append(faults, fault{Field: "name", Message: "it is not the one of the path"})
	}
	if len(faults) > 0 {
		return invalid(faults...)
	}
	return c.save(p, b)
}

// save creates or updates a policy.
func (c *call) save(p policy.Policy, b base) error {
	p.Version = b.version
	write, status := c.o.Service.UpdatePolicy, http.StatusOK
	if b.version == 0 {
		write, status = c.o.Service.CreatePolicy, http.StatusCreated
	}
	saved, err := write(c.ctx(), c.actor, p)
	if err != nil {
		status = http.StatusOK // the policy exists already
	}
	if saved, err = acceptRepeat(saved, err, b); err != nil {
		return err
	}
	return c.sendPolicy(status, saved)
}

// sendPolicy answers with a policy that was changed.
func (c *call) sendPolicy(status int, p policy.Policy) error {
	c.w.Header().Set("ETag", tag(p.Version))
	return c.send(status, viewOf(p))
}

func (c *call) deletePolicy() error {
	q := &c.query
	version := q.number("version")
	if err := q.err(); err != nil {
		return err
	}
	b, err := c.base(version)
	if err != nil {
		return err
	}
	err = c.o.Service.DeletePolicy(c.ctx(), c.actor, c.path("name"), b.version)
	_, err = acceptRepeat(policy.Policy{}, err, b)
	return c.nothing(err)
}

func (c *call) switchMode() error {
	var in struct {
		Mode    string `json:"mode"`
		Version int64  `json:"version"`
	}
	if err := c.decode(&in); err != nil {
		return err
	}
	b, err := c.base(in.Version)
	if err != nil {
		return err
	}
	var mode policy.Mode
	if err := mode.UnmarshalText([]byte(in.Mode)); err != nil || in.Mode == "" {
		return invalid(fault{Field: "mode", Message: "it is not enforce, shadow or off"})
	}
	p, err := c.o.Service.Policy(c.ctx(), c.actor, c.path("name"))
	if err != nil {
		return err
	}
	p.Mode, p.Version = mode, b.version
	saved, err := c.o.Service.UpdatePolicy(c.ctx(), c.actor, p)
	if saved, err = acceptRepeat(saved, err, b); err != nil {
		return err
	}
	return c.sendPolicy(http.StatusOK, saved)
}
