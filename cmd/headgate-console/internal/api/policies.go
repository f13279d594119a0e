package api

import (
	"net/http"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/policy"
)

type policyList struct {
	Policies []policyView `json:"policies"`
	Total    int64        `json:"total"`
	Page     int          `json:"page"`
	Pages    int          `json:"pages"`
	PerPage  int          `json:"per_page"`
}

// refusingNow selects the policies that refuse requests now.
const refusingNow = "now"

func (c *call) listPolicies() error {
	q := &c.query
	ask := service.Query{
		Search: q.text("search"), App: q.text("app"), Mode: q.text("mode"), Changed: q.text("changed"),
		Sort: q.text("sort"), Page: q.small("page"), PerPage: q.small("per_page"),
	}

	switch q.text("refusing") {
	case "":
	case refusingNow:
		ask.Refusing = true
	default:
		q.addFault("refusing", "it is not now")
	}

	// All mistakes of the query are reported at once.
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

	// The path names the policy. A client that sends back what it has read names it twice, and
	// cannot rename it in this way.
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

	return c.save(p, b, d.Comment)
}

// save creates or updates a policy.
func (c *call) save(p policy.Policy, b base, comment string) error {
	p.Version = b.version
	write, status := c.o.Service.UpdatePolicy, http.StatusOK
	if b.version == 0 {
		write, status = c.o.Service.CreatePolicy, http.StatusCreated
	}

	// A conflict with an equal policy becomes a success. The policy exists already then, and
	// nothing is created.
	saved, err := write(c.ctx(), c.actor.Saying(comment), p)
	if err != nil {
		status = http.StatusOK
	}
	if saved, err = acceptRepeat(saved, err, b); err != nil {
		return err
	}
	return c.sendPolicy(status, saved)
}

// sendPolicy answers with a policy that was changed.
func (c *call) sendPolicy(status int, p policy.Policy) error {
	c.w.Header().Set("ETag", tag(p.Version))
	return c.send(status, struct {
		policyView
		progress
	}{viewOf(p), c.progress(p)})
}

func (c *call) deletePolicy() error {
	q := &c.query
	version, comment := q.number("version"), q.text("comment")
	if err := q.err(); err != nil {
		return err
	}

	b, err := c.base(version)
	if err != nil {
		return err
	}

	// A deletion has no content that could be there already. This gives its conflict the status.
	err = c.o.Service.DeletePolicy(c.ctx(), c.actor.Saying(comment), c.path("name"), b.version)
	_, err = acceptRepeat(policy.Policy{}, err, b)
	return c.gone(err)
}

func (c *call) switchMode() error {
	var in struct {
		Mode    string `json:"mode"`
		Version int64  `json:"version"`
		Comment string `json:"comment"`
	}

	return c.change(&in, &in.Version, &in.Comment, func(a service.Actor, version int64) (policy.Policy, error) {
		mode, err := readMode(in.Mode)
		if err != nil {
			return policy.Policy{}, err
		}

		p, err := c.o.Service.Policy(c.ctx(), a, c.path("name"))
		if err != nil {
			return p, err
		}

		// The rest is that of the current version. If the client's is another, the service refuses
		// it.
		p.Mode, p.Version = mode, version
		return c.o.Service.UpdatePolicy(c.ctx(), a, p)
	})
}

// readMode reads the mode of a body.
func readMode(s string) (mode policy.Mode, err error) {
	if err := mode.UnmarshalText([]byte(s)); err != nil || s == "" {
		return 0, invalid(fault{Field: "mode", Message: "it is not enforce, shadow or off"})
	}
	return mode, nil
}

// change makes a change of a policy that exists, and answers with the policy, or with nothing if
// it is gone. in points to the body, and version and comment to the fields of it that all changes
// have.
func (c *call) change(
	in any, version *int64, comment *string,
	do func(a service.Actor, version int64) (policy.Policy, error),
) error {
	if err := c.decode(in); err != nil {
		return err
	}

	b, err := c.base(*version)
	if err != nil {
		return err
	}

	saved, err := do(c.actor.Saying(*comment), b.version)
	if saved, err = acceptRepeat(saved, err, b); err != nil {
		return err
	}

	if saved.Name == "" {
		return c.gone(nil)
	}

	return c.sendPolicy(http.StatusOK, saved)
}
