package api

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/policy"
)

// progress is what the answer to a change of policies says of its way to the instances. It is
// empty if nothing keeps the change.
type progress struct {
	Pending  bool     `json:"pending,omitempty" doc:"The change is saved, and is not published."`
	Reason   string   `json:"pending_reason,omitempty" doc:"Why it is not published."`
	Warnings []string `json:"warnings,omitempty" doc:"What instances do not carry out of it."`
}

// fleetTime bounds what an answer waits for the instances. The console reads them once a second,
// so only a Redis that is slow takes longer. Tests give a busy machine more.
var fleetTime = 300 * time.Millisecond

// progress returns that of a change of policies that was just saved. Its reason names no host, so
// all users may see it.
func (c *call) progress(saved ...policy.Policy) (p progress) {
	if c.o.Publishing == nil {
		return p
	}
	p.Warnings = c.warnings(saved)
	switch status := c.o.Publishing(); {
	case status.Foreign() != nil:
		p.Pending, p.Reason = true, status.Foreign().Reason()
	case status.Err != nil:
		p.Pending, p.Reason = true, "publishing fails at the moment, and is tried again"
	}
	return p
}

// warnings says which instances do not carry out the policies that were saved, or will not. It is
// empty while Redis does not answer.
func (c *call) warnings(saved []policy.Policy) (texts []string) {
	if len(saved) == 0 || c.o.Publishing().Err != nil && c.o.Publishing().Foreign() == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.ctx(), fleetTime)
	defer cancel()
	list, _, err := c.o.Service.Unable(ctx, c.actor, saved...)
	if err != nil && !errors.Is(err, service.ErrNoFleet) {
		c.o.Logger.WarnContext(c.ctx(), "what the instances do not carry out cannot be read", "error", err)
	}

	// What is wrong with other policies does not concern this change, unless it stops all changes.
	for _, u := range list {
		ofSaved := func(p policy.Policy) bool {
			return u.Policy == p.Name || u.Policy == "" && slices.Contains(p.Apps, u.App)
		}
		if slices.ContainsFunc(saved, ofSaved) {
			texts = append(texts, u.String())
		}
	}
	return texts
}

// removal is the answer to a deletion: what keeps it from the instances, or nothing.
type removal progress

func (r removal) empty() bool { return !r.Pending }

// gone returns the answer to a deletion.
func (c *call) gone(err error) (removal, error) {
	if err != nil {
		return removal{}, err
	}
	return removal(c.progress()), nil
}
