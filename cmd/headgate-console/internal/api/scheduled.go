package api

import (
	"net/http"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/policy"
)

// scheduledView is a change that is made at a time.
type scheduledView struct {
	ID        string    `json:"id"`
	Policy    string    `json:"policy"`
	Version   int64     `json:"version"` // that it is based on
	At        time.Time `json:"at"`
	By        string    `json:"by"`
	CreatedAt time.Time `json:"created_at"`
	Comment   string    `json:"comment"`
	Changes   []change  `json:"changes"`
	Hidden    bool      `json:"hidden"`           // so comment and changes are empty
	Reason    string    `json:"reason,omitempty"` // why it was not made
	EndedAt   time.Time `json:"ended_at,omitzero"`
}

func scheduledOf(c service.Scheduled) scheduledView {
	return scheduledView{c.ID, c.Policy, c.Base, c.At, c.By, c.CreatedAt, c.Comment, changesOf(c.Changes),
		c.Hidden, c.Reason, c.EndedAt}
}

func (c *call) coming() error {
	list, err := c.o.Service.Coming(c.ctx(), c.actor)
	if err != nil {
		return err
	}
	return c.sendTagged(struct {
		Scheduled []scheduledView `json:"scheduled"`
	}{mapped(list, scheduledOf)}, "")
}

func (c *call) scheduledOfPolicy() error {
	waiting, failed, err := c.o.Service.ScheduledOf(c.ctx(), c.actor, c.path("name"))
	if err != nil {
		return err
	}
	return c.sendTagged(struct {
		Scheduled []scheduledView `json:"scheduled"`
		Failed    []scheduledView `json:"failed"`
	}{mapped(waiting, scheduledOf), mapped(failed, scheduledOf)}, "")
}

// schedule has a policy changed at a time, or now for a number of seconds. The change is a mode or
// a whole policy.
func (c *call) schedule() error {
	var in struct {
		At      string  `json:"at"`
		For     int64   `json:"for"`
		Mode    string  `json:"mode"`
		Policy  ignored `json:"policy"`
		Version int64   `json:"version"`
		Comment string  `json:"comment"`
	}
	if err := c.decode(&in); err != nil {
		return err
	}

	b, err := c.base(in.Version)
	if err != nil {
		return err
	}

	// What can be wrong with the body alone is reported at once, before a policy is looked up.
	at, faults := readMoment(in.At, in.For)
	if (in.Mode == "") == (len(in.Policy) == 0) {
		faults = append(faults, fault{Field: "mode", Message: "give either a mode or a policy"})
	}
	if len(faults) > 0 {
		return invalid(faults...)
	}

	p, err := c.wanted(in.Mode, in.Policy)
	if err != nil {
		return err
	}
	p.Version = b.version

	actor := c.actor.Saying(in.Comment)
	var s service.Scheduled
	if in.For != 0 {
		_, s, err = c.o.Service.ChangeFor(c.ctx(), actor, p, time.Duration(in.For)*time.Second)
	} else {
		s, err = c.o.Service.Schedule(c.ctx(), actor, p, at)
	}
	if _, err = acceptRepeat(policy.Policy{}, err, b); err != nil {
		return err
	}

	// The request is a repeated one, which has been carried out.
	if s.ID == "" {
		return invalid(fault{Message: "the policy is like this already"})
	}

	return c.send(http.StatusCreated, scheduledOf(s))
}

const notMoment = "it is not a time with its zone as of RFC 3339, such as 2030-01-31T09:00:00Z"

// readMoment reads the time of a change; exactly one of the two says it.
func readMoment(at string, span int64) (t time.Time, list []fault) {
	if (at == "") == (span == 0) {
		return t, []fault{{Field: "at", Message: "give either at or for"}}
	}

	if at != "" {
		var err error
		if t, err = time.Parse(time.RFC3339, at); err != nil {
			return t, []fault{{Field: "at", Message: notMoment}}
		}
	}

	if span < 0 || span > int64(service.MaxAhead/time.Second) {
		return t, []fault{{Field: "for", Message: "it is not a number of seconds above 0 and of at most a year"}}
	}
	return t, nil
}

// wanted returns the policy of the path with another mode, or as the body has it.
func (c *call) wanted(mode string, body []byte) (policy.Policy, error) {
	name := c.path("name")

	// The current policy is the base. If the client's version is another, the service refuses it.
	if mode != "" {
		p, err := c.o.Service.Policy(c.ctx(), c.actor, name)
		if err == nil {
			p.Mode, err = readMode(mode)
		}
		return p, err
	}

	var d draft
	if err := decodeStrictly(body, &d); err != nil {
		return policy.Policy{}, err
	}
	if d.Name == "" {
		d.Name = name
	}

	p, faults := d.policy()
	if d.Name != name {
		faults = append(faults, fault{Field: "name", Message: "it is not the one of the path"})
	}
	if len(faults) > 0 {
		return p, invalid(faults...)
	}

	return p, nil
}

func (c *call) cancelScheduled() error {
	_, err := c.o.Service.CancelScheduled(c.ctx(), c.actor, c.path("id"))
	return c.nothing(err)
}
