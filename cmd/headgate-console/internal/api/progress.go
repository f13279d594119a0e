package api

import "net/http"

// progress is what the answer to a change of policies says of its way to the instances. It is
// empty if nothing keeps the change.
type progress struct {
	Pending  bool     `json:"pending,omitempty"` // the change is saved, and is not published
	Reason   string   `json:"pending_reason,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
}

// progress returns that of a change that was just saved. Its reason names no host, so all users
// may see it.
func (c *call) progress() (p progress) {
	if c.o.Publishing == nil {
		return p
	}
	switch status := c.o.Publishing(); {
	case status.Foreign() != nil:
		p.Pending, p.Reason = true, status.Foreign().Reason()
	case status.Err != nil:
		p.Pending, p.Reason = true, "publishing fails at the moment, and is tried again"
	}
	return p
}

// gone answers to the deletion of a policy: 204, or 200 with what keeps it from the instances.
func (c *call) gone(err error) error {
	if err != nil {
		return err
	}
	if p := c.progress(); p.Pending {
		return c.send(http.StatusOK, p)
	}
	return c.nothing(nil)
}
