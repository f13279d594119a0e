package api

import (
	"net/http"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/internal/strictjson"
)

// overrideView is the limit of a single key, or of all keys with a prefix, beside a policy.
type overrideView struct {
	Key       string    `json:"key"`
	Limit     string    `json:"limit"`
	Until     time.Time `json:"until,omitzero"`
	ChangedAt time.Time `json:"changed_at"`
	ChangedBy string    `json:"changed_by"`
	Reason    string    `json:"reason,omitempty"` // why instances leave it out
}

func overrideOf(o service.Override) overrideView {
	return overrideView{o.Key, o.Limit.String(), o.Until, o.ChangedAt, o.ChangedBy, o.Reason}
}

// listOverrides answers with a page of the overrides of a policy.
func (c *call) listOverrides() error {
	q := &c.query
	ask := service.OverridesQuery{Prefix: q.text("search"), After: q.text("after"), PerPage: q.small("per_page")}
	if err := q.err(); err != nil {
		return err
	}
	page, err := c.o.Service.Overrides(c.ctx(), c.actor, c.path("name"), ask)
	if err != nil {
		return err
	}
	return c.sendTagged(struct {
		Overrides []overrideView `json:"overrides"`
		Total     int64          `json:"total"`
		All       int64          `json:"all"`
		More      bool           `json:"more"`
	}{mapped(page.Overrides, overrideOf), page.Total, page.All, page.More}, "")
}

// changed says how many overrides a change has changed, and what keeps it from the instances.
type changed struct {
	Changed int `json:"changed"`
	progress
}

// setOverride sets the override of the key in the path.
func (c *call) setOverride() error {
	var in struct {
		Limit   string `json:"limit"`
		Until   string `json:"until"`
		Comment string `json:"comment"`
	}
	if err := c.decode(&in); err != nil {
		return err
	}

	// An empty limit is not the removal that it is for the service.
	if in.Limit == "" {
		return invalid(fault{Field: "limit", Message: "it is empty; DELETE removes an override"})
	}
	change := service.OverrideChange{Key: c.path("key"), Limit: in.Limit, Until: in.Until}
	differs, err := c.o.Service.SetOverride(c.ctx(), c.actor.Saying(in.Comment), c.path("name"), change)
	if err != nil {
		return err
	}

	answer := changed{progress: c.progress()}
	if differs {
		answer.Changed = 1
	}
	return c.send(http.StatusOK, answer)
}

// removeOverride removes the override of the key in the path.
func (c *call) removeOverride() error {
	actor := c.actor.Saying(c.query.text("comment"))
	change := service.OverrideChange{Key: c.path("key")}
	differs, err := c.o.Service.SetOverride(c.ctx(), actor, c.path("name"), change)
	if err == nil && !differs {
		err = service.ErrNotFound
	}
	return c.gone(err)
}

// maxOverridesBody is the largest number of bytes of a body with many overrides.
const maxOverridesBody = 2 << 20

// overrideChange is a change among many. A field that is not known is a mistake: an end that is
// spelled otherwise would be none.
type overrideChange service.OverrideChange

// UnmarshalJSON implements [json.Unmarshaler].
func (o *overrideChange) UnmarshalJSON(data []byte) error {
	type plain overrideChange
	return strictjson.Decode(data, (*plain)(o))
}

// changeOverrides sets and removes many overrides, all or none.
func (c *call) changeOverrides() error {
	var in struct {
		Changes []overrideChange `json:"changes"`
		Comment string           `json:"comment"`
	}
	data, _, err := c.body(maxOverridesBody, "application/json")
	if err != nil {
		return err
	}
	if err := decodeStrictly(data, &in); err != nil {
		return err
	}

	list := make([]service.OverrideChange, len(in.Changes))
	for i, change := range in.Changes {
		list[i] = service.OverrideChange(change)
	}
	n, err := c.o.Service.ChangeOverrides(c.ctx(), c.actor.Saying(in.Comment), c.path("name"), list)
	if err != nil {
		return err
	}
	return c.send(http.StatusOK, changed{n, c.progress()})
}
