package api

import (
	"strconv"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/policy"
)

type revisionView struct {
	Version   int64       `json:"version"`
	At        time.Time   `json:"at"`
	By        string      `json:"by"`
	Action    string      `json:"action"`
	RequestID string      `json:"request_id"`
	Note      string      `json:"note"`
	Comment   string      `json:"comment"`
	Before    *policyView `json:"before"`
	After     *policyView `json:"after"`
	Changes   []change    `json:"changes"`
}

func revisionOf(r service.Revision) revisionView {
	return revisionView{
		Version: r.Version, At: r.At, By: r.Actor, Action: r.Action, RequestID: r.RequestID,
		Note: r.Note, Comment: r.Comment,
		Before: viewOrNull(r.Before), After: viewOrNull(r.After), Changes: changesOf(r.Changes()),
	}
}

func (c *call) history() error {
	q := &c.query
	before, perPage := q.number("before"), q.small("per_page")
	if err := q.err(); err != nil {
		return err
	}

	revisions, err := c.o.Service.History(c.ctx(), c.actor, c.path("name"), before, perPage)
	if err != nil {
		return err
	}

	return c.sendTagged(struct {
		Revisions []revisionView `json:"revisions"`
	}{mapped(revisions, revisionOf)}, "")
}

func (c *call) revision() error {
	version, err := strconv.ParseInt(c.path("version"), 10, 64)
	if err != nil {
		return service.ErrNotFound
	}
	r, err := c.o.Service.Revision(c.ctx(), c.actor, c.path("name"), version)
	if err != nil {
		return err
	}
	return c.sendTagged(revisionOf(r), "")
}

// diff compares two versions. A version that deleted the policy is empty, and so
// is version 0.
func (c *call) diff() error {
	q := &c.query
	from, to := q.number("from"), q.number("to")
	if err := q.err(); err != nil {
		return err
	}

	// from may be left out: version 0 is empty, and so everything is new.
	if to == 0 {
		return invalid(fault{Field: "to", Message: "say which version to compare"})
	}

	changes, err := c.o.Service.Compare(c.ctx(), c.actor, c.path("name"), from, to)
	if err != nil {
		return err
	}

	return c.sendTagged(struct {
		From    int64    `json:"from"`
		To      int64    `json:"to"`
		Changes []change `json:"changes"`
	}{from, to, changesOf(changes)}, "")
}

func (c *call) rollback() error {
	var in struct {
		To      int64  `json:"to"`
		Version int64  `json:"version"`
		Comment string `json:"comment"`
	}

	return c.change(&in, &in.Version, &in.Comment, func(a service.Actor, version int64) (policy.Policy, error) {
		if in.To <= 0 {
			return policy.Policy{}, invalid(fault{Field: "to", Message: "say which version to go back to"})
		}

		// The service calls the version to go back to "version", which names the base here.
		p, err := c.o.Service.Rollback(c.ctx(), a, c.path("name"), in.To, version)
		return p, renamed(err, "version", "to")
	})
}
