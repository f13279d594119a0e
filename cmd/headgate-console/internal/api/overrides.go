package api

import (
	"context"
	"io"
	"net/http"
	"strings"
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

// exportOverrides answers with the overrides of all policies that the actor sees, as a file.
func (c *call) exportOverrides() error {
	app := c.query.text("app")
	return c.file("overrides.json", mediaJSON, func(w io.Writer) error {
		return c.o.Service.ExportOverrides(c.ctx(), c.actor, app, w)
	})
}

// overridesPlan is what an import of overrides changes.
type overridesPlan struct {
	Digest   string           `json:"base"`
	Changes  int              `json:"changes"`
	Policies []overrideCounts `json:"policies"`
	Steps    []overrideStep   `json:"steps"`
	progress
}

type overrideCounts struct {
	Policy    string `json:"policy"`
	Set       int    `json:"set"`
	Removed   int    `json:"removed"`
	Unchanged int    `json:"unchanged"`
	Missing   int    `json:"missing"`
	Ended     int    `json:"ended"`
}

type overrideStep struct {
	Policy string `json:"policy"`
	Key    string `json:"key"`
	Before string `json:"before"`
	After  string `json:"after"`
}

func (c *call) planOverrides() error {
	return c.transferOverrides(c.o.Service.PlanOverrides, func() progress { return progress{} })
}

func (c *call) importOverrides() error {
	return c.transferOverrides(c.o.Service.ImportOverrides, func() progress { return c.progress() })
}

func (c *call) transferOverrides(
	do func(context.Context, service.Actor, service.OverridesImport) (service.OverridesPlan, error),
	after func() progress,
) error {
	q := &c.query
	actor := c.actor.Saying(q.text("comment"))
	i := service.OverridesImport{Missing: service.Missing(q.text("missing")), Base: q.text("base")}
	if apps := q.text("apps"); apps != "" {
		i.Apps = strings.Split(apps, ",")
	}
	switch q.text("compare") {
	case "", "no":
	case "yes":
		i.Compare = true
	default:
		q.addFault("compare", "it is not yes or no")
	}
	if err := q.err(); err != nil {
		return err
	}

	// The body may be large, so it is read last, and of those who may import alone.
	done, err := c.o.Service.AdmitImport(c.ctx(), actor, i.Compare)
	if err != nil {
		return err
	}
	defer done()
	data, _, err := c.body(service.MaxOverridesFile, mediaJSON)
	if err != nil {
		return err
	}
	var in struct {
		Overrides service.OverrideSet `json:"overrides"`
	}
	if err := decodeStrictly(data, &in); err != nil {
		return err
	}
	if i.Set = in.Overrides; i.Set == nil {
		return invalid(fault{Field: "overrides", Message: "it is missing"})
	}

	plan, err := do(c.ctx(), actor, i)
	if err != nil {
		return err
	}
	done() // the client may receive the answer slowly
	return c.send(http.StatusOK, overridesPlan{
		plan.Digest, plan.Changes(),
		mapped(plan.Policies, func(o service.OverrideCounts) overrideCounts { return overrideCounts(o) }),
		mapped(plan.Steps, func(o service.OverrideStep) overrideStep { return overrideStep(o) }), after(),
	})
}
