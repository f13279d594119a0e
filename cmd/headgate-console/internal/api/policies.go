package api

import (
	"encoding/json"
	"strconv"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/policy"
)

// draft is a policy as a client sends it, who may send back what the console itself has written.
type draft struct {
	Name string `json:"name,omitempty" doc:"It may be left out where the path has it."`
	policy.Written
	Comment string `json:"comment,omitempty" doc:"Why, for the history. At most 500 bytes."`

	Pending   ignored `json:"pending,omitempty" doc:"Ignored."`
	Reason    ignored `json:"pending_reason,omitempty" doc:"Ignored."`
	Warnings  ignored `json:"warnings,omitempty" doc:"Ignored."`
	CreatedBy ignored `json:"created_by,omitempty" doc:"Ignored."`
	CreatedAt ignored `json:"created_at,omitempty" doc:"Ignored."`
	UpdatedBy ignored `json:"updated_by,omitempty" doc:"Ignored."`
	UpdatedAt ignored `json:"updated_at,omitempty" doc:"Ignored."`
}

type ignored = json.RawMessage

// policy reads the draft, and returns all mistakes in it.
func (d *draft) policy() (policy.Policy, []fault) {
	d.Written.Name = d.Name
	p, err := d.Written.Policy()

	// There is one policy, which the mistakes need not name.
	faults := service.FaultsOf(err)
	for i := range faults {
		faults[i].Policy = ""
	}
	return p, faults
}

func (c *call) listPolicies(in *service.Query) (service.Page, error) {
	return c.o.Service.Policies(c.ctx(), c.actor, *in)
}

func (c *call) readPolicy(*none) (policy.Policy, error) {
	p, err := c.o.Service.Policy(c.ctx(), c.actor, c.name())
	c.tag = tag(p.Version)
	return p, err
}

// saved is a policy that was changed.
type saved struct {
	policy.Policy
	progress
}

// changed returns the answer to a change of a policy.
func (c *call) changed(p policy.Policy) saved {
	c.tag = tag(p.Version)
	return saved{p, c.progress(p)}
}

// savePolicy creates or updates a policy.
func (c *call) savePolicy(in *draft) (v saved, err error) {
	b, err := c.base(in.Version)
	if err != nil {
		return v, err
	}

	// The path names the policy. A client that sends back what it has read names it twice, and
	// cannot rename it in this way.
	if in.Name == "" {
		in.Name = c.name()
	}

	p, faults := in.policy()
	if in.Name != c.name() {
		faults = append(faults, fault{Field: "name", Message: "it is not the one of the path"})
	}
	if len(faults) > 0 {
		return v, invalid(faults...)
	}

	p.Version = b.version
	write, status := c.o.Service.UpdatePolicy, 200
	if b.version == 0 {
		write, status = c.o.Service.CreatePolicy, 201
	}

	// A conflict with an equal policy becomes a success. The policy exists already then, and
	// nothing is created.
	p, err = write(c.ctx(), c.actor.Saying(in.Comment), p)
	if err == nil {
		c.status = status
	}
	if p, err = acceptRepeat(p, err, b); err != nil {
		return v, err
	}
	return c.changed(p), nil
}

// based is what all changes of a policy that exists have.
type based struct {
	Version int64  `json:"version,omitempty" doc:"The version that the change is based on, without If-Match."`
	Comment string `json:"comment,omitempty" doc:"Why, for the history. At most 500 bytes."`
}

func (c *call) deletePolicy(in *based) (removal, error) {
	b, err := c.base(in.Version)
	if err != nil {
		return removal{}, err
	}

	// A deletion has no content that could be there already. This gives its conflict the status.
	err = c.o.Service.DeletePolicy(c.ctx(), c.actor.Saying(in.Comment), c.name(), b.version)
	_, err = acceptRepeat(policy.Policy{}, err, b)
	return c.gone(err)
}

// change makes a change of a policy that exists.
func (c *call) change(in based, do func(a service.Actor, version int64) (policy.Policy, error)) (v saved, err error) {
	b, err := c.base(in.Version)
	if err != nil {
		return v, err
	}

	p, err := do(c.actor.Saying(in.Comment), b.version)
	if p, err = acceptRepeat(p, err, b); err != nil {
		return v, err
	}
	return c.changed(p), nil
}

type modeSwitch struct {
	Mode string `json:"mode" enum:"enforce,shadow,off" example:"shadow"`
	based
}

func (c *call) switchMode(in *modeSwitch) (saved, error) {
	return c.change(in.based, func(a service.Actor, version int64) (p policy.Policy, err error) {
		var mode policy.Mode
		if err := mode.UnmarshalText([]byte(in.Mode)); err != nil || in.Mode == "" {
			return p, mistake("mode", "it is not enforce, shadow or off")
		}

		if p, err = c.o.Service.Policy(c.ctx(), a, c.name()); err != nil {
			return p, err
		}

		// The rest is that of the current version. If the client's is another, the service refuses
		// it.
		p.Mode, p.Version = mode, version
		return c.o.Service.UpdatePolicy(c.ctx(), a, p)
	})
}

type rollback struct {
	To int64 `json:"to" doc:"The version to go back to." example:"1"`
	based
}

func (c *call) rollback(in *rollback) (saved, error) {
	return c.change(in.based, func(a service.Actor, version int64) (policy.Policy, error) {
		if in.To <= 0 {
			return policy.Policy{}, mistake("to", "say which version to go back to")
		}

		// The service calls the version to go back to "version", which names the base here.
		p, err := c.o.Service.Rollback(c.ctx(), a, c.name(), in.To, version)
		for i, f := range faultsOf(err) {
			if f.Field == "version" {
				faultsOf(err)[i].Field = "to"
			}
		}
		return p, err
	})
}

type historyQuery struct {
	Before  int64 `json:"before,omitempty" doc:"Only versions below it."`
	PerPage int   `json:"per_page,omitempty"`
}

type history struct {
	Revisions []service.Revision `json:"revisions"`
}

func (c *call) history(in *historyQuery) (history, error) {
	list, err := c.o.Service.History(c.ctx(), c.actor, c.name(), in.Before, in.PerPage)
	return history{list}, err
}

func (c *call) revision(*none) (r service.Revision, err error) {
	version, err := strconv.ParseInt(c.path("version"), 10, 64)
	if err != nil {
		return r, service.ErrNotFound
	}
	return c.o.Service.Revision(c.ctx(), c.actor, c.name(), version)
}

type versions struct {
	From int64 `json:"from,omitempty" doc:"0 is empty, and so is a version that deleted the policy."`
	To   int64 `json:"to" doc:"The version that is compared with it."`
}

type difference struct {
	From    int64            `json:"from"`
	To      int64            `json:"to"`
	Changes []service.Change `json:"changes"`
}

func (c *call) diff(in *versions) (v difference, err error) {
	if in.To == 0 {
		return v, mistake("to", "say which version to compare")
	}
	changes, err := c.o.Service.Compare(c.ctx(), c.actor, c.name(), in.From, in.To)
	return difference{in.From, in.To, changes}, err
}

func mapped[T, V any](s []T, f func(T) V) []V {
	views := make([]V, len(s))
	for i, v := range s {
		views[i] = f(v)
	}
	return views
}
