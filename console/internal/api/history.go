package api

import (
	"net/http"
	"strconv"
	"time"

	"github.com/headgate/headgate/console/internal/service"
	"github.com/headgate/headgate/policy"
)

type revisionView struct {
	Version   int64       `json:"version"`
	At        time.Time   `json:"at"`
	By        string      `json:"by"`
	Action    string      `json:"action"`
	RequestID string      `json:"request_id"`
	Note      string      `json:"note"`
	Before    *policyView `json:"before"`
	After     *policyView `json:"after"`
	Changes   []change    `json:"changes"`
}

func revisionOf(r service.Revision) revisionView {
	return revisionView{
		Version: r.Version, At: r.At, By: r.Actor, Action: r.Action, RequestID: r.RequestID, Note: r.Note,
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
	if to == 0 {
		return invalid(fault{Field: "to", Message: "say which version to compare"})
	}
	before, err := c.contentAt(from)
	if err != nil {
		return err
	}
	after, err := c.contentAt(to)
	if err != nil {
		return err
	}
	return c.sendTagged(struct {
		From    int64    `json:"from"`
		To      int64    `json:"to"`
		Changes []change `json:"changes"`
	}{from, to, changesOf(service.Diff(before, after))}, "")
}

// contentAt returns the policy as it was in a version.
func (c *call) contentAt(version int64) (policy.Policy, error) {
	if version == 0 {
		return policy.Policy{}, nil
	}
	r, err := c.o.Service.Revision(c.ctx(), c.actor, c.path("name"), version)
	if err != nil || r.After == nil {
		return policy.Policy{}, err
	}
	return *r.After, nil
}

func (c *call) rollback() error {
	var in struct {
		To      int64 `json:"to"`
		Version int64 `json:"version"`
	}
	if err := c.decode(&in); err != nil {
		return err
	}
	b, err := c.base(in.Version)
	if err != nil {
		return err
	}
	if in.To <= 0 {
		return invalid(fault{Field: "to", Message: "say which version to go back to"})
	}
	saved, err := c.o.Service.Rollback(c.ctx(), c.actor, c.path("name"), in.To, b.version)
	if saved, err = acceptRepeat(saved, err, b); err != nil {
		return renamed(err, "version", "to")
	}
	return c.sendPolicy(http.StatusOK, saved)
}
