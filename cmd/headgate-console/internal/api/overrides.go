package api

import (
	"context"
	"io"
	"reflect"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/core"
)

// override is the limit of a single key, or of all keys with a prefix, beside a policy.
type override struct {
	Key       string    `json:"key"`
	Limit     string    `json:"limit" doc:"Empty for a ban alone."`
	Until     time.Time `json:"until,omitzero"`
	Banned    time.Time `json:"banned_until,omitzero"`
	ChangedAt time.Time `json:"changed_at"`
	ChangedBy string    `json:"changed_by"`
	Reason    string    `json:"reason,omitempty" doc:"Why instances leave it out."`
}

func overrideOf(o service.Override) override {
	limit := ""
	if o.Limit != (core.Limit{}) {
		limit = o.Limit.String()
	}
	return override{o.Key, limit, o.Until, o.BannedUntil, o.ChangedAt, o.ChangedBy, o.Reason}
}

type overrideList struct {
	Overrides []override `json:"overrides"`
	Total     int64      `json:"total" doc:"That the query selects."`
	All       int64      `json:"all"`
	More      bool       `json:"more" doc:"There are further pages."`
}

func (c *call) listOverrides(in *service.OverridesQuery) (overrideList, error) {
	page, err := c.o.Service.Overrides(c.ctx(), c.actor, c.name(), *in)
	return overrideList{mapped(page.Overrides, overrideOf), page.Total, page.All, page.More}, err
}

// overridesChanged says how many overrides a change has changed, and what keeps it from the
// instances.
type overridesChanged struct {
	Changed int `json:"changed"`
	progress
}

type overrideDraft struct {
	Limit   string `json:"limit" example:"9000/1h"`
	Until   string `json:"until,omitempty" doc:"As of RFC 3339." example:"2099-12-04T17:00:00Z"`
	Comment string `json:"comment,omitempty" doc:"For the audit log."`
}

func (c *call) setOverride(in *overrideDraft) (v overridesChanged, err error) {
	// An empty limit is not the removal that it is for the service.
	if in.Limit == "" {
		return v, mistake("limit", "it is empty; DELETE removes an override")
	}
	change := service.OverrideChange{Key: c.path("key"), Limit: in.Limit, Until: in.Until}
	differs, err := c.o.Service.SetOverride(c.ctx(), c.actor.Saying(in.Comment), c.name(), change)
	if err != nil {
		return v, err
	}
	if v.progress = c.progress(); differs {
		v.Changed = 1
	}
	return v, nil
}

type comment struct {
	Comment string `json:"comment,omitempty" doc:"For the audit log."`
}

func (c *call) removeOverride(in *comment) (removal, error) {
	change := service.OverrideChange{Key: c.path("key")}
	differs, err := c.o.Service.SetOverride(c.ctx(), c.actor.Saying(in.Comment), c.name(), change)
	if err == nil && !differs {
		err = service.ErrNotFound
	}
	return c.gone(err)
}

// maxOverridesBody is the largest number of bytes of a body with many overrides.
const maxOverridesBody = 2 << 20

type overrideChanges struct {
	Changes []service.OverrideChange `json:"changes" doc:"At most 1,000." example:"[{\"key\": \"acme:*\"}]"`
	comment
}

func (*overrideChanges) maxBytes() int64 { return maxOverridesBody }

func (c *call) changeOverrides(in *overrideChanges) (v overridesChanged, err error) {
	n, err := c.o.Service.ChangeOverrides(c.ctx(), c.actor.Saying(in.Comment), c.name(), in.Changes)
	if err != nil {
		return v, err
	}
	return overridesChanged{n, c.progress()}, nil
}

type appQuery struct {
	App string `json:"app,omitempty" doc:"Only policies that list this application."`
}

// exportOverrides answers with the overrides of all policies that the actor sees, as a file.
func (c *call) exportOverrides(in *appQuery) error {
	return c.sendFile("overrides.json", mediaJSON, func(w io.Writer) error {
		return c.o.Service.ExportOverrides(c.ctx(), c.actor, in.App, w)
	})
}

type overridesQuery struct {
	fileQuery
	Base string `json:"base,omitempty" empty:"no" doc:"The base of the plan that was confirmed."`
}

// overridesPlan is what an import of overrides changes.
type overridesPlan struct {
	service.OverridesPlan
	Changes int `json:"changes"`
	progress
}

func (c *call) planOverrides(in *overridesQuery) (overridesPlan, error) {
	return c.transferOverrides(in, c.o.Service.PlanOverrides)
}

func (c *call) importOverrides(in *overridesQuery) (overridesPlan, error) {
	v, err := c.transferOverrides(in, c.o.Service.ImportOverrides)
	if err == nil {
		v.progress = c.progress()
	}
	return v, err
}

func (c *call) transferOverrides(
	in *overridesQuery, do func(context.Context, service.Actor, service.OverridesImport) (service.OverridesPlan, error),
) (v overridesPlan, err error) {
	i := service.OverridesImport{
		Missing: service.Missing(in.Missing), Apps: in.Apps, Base: in.Base, Compare: in.Compare == "yes",
	}
	data, _, done, err := c.upload(in.fileQuery, service.MaxOverridesFile)
	if err != nil {
		return v, err
	}
	defer done()

	// What was read takes many times the memory of its text, until it is written or compared: the
	// next text is read after that.
	err = c.o.Service.Parsing(c.ctx(), func() (err error) {
		if i.Set, err = overridesOf(data); err != nil {
			return err
		}
		data = nil

		p, err := do(c.ctx(), c.actor.Saying(in.Comment), i)
		v = overridesPlan{p, p.Changes(), progress{}}
		return err
	})
	return v, err
}

// overridesOf reads the body of an import.
func overridesOf(data []byte) (service.OverrideSet, error) {
	var body struct {
		Overrides service.OverrideSet `json:"overrides"`
	}
	var extent service.OverridesExtent
	if err := decodeBounded(data, reflect.ValueOf(&body).Elem(), extent.Add); err != nil {
		return nil, err
	}
	if body.Overrides == nil {
		return nil, mistake("overrides", "it is missing")
	}

	for _, name := range sortedKeys(body.Overrides) {
		if body.Overrides[name] == nil {
			return nil, mistake(clip("overrides."+name), "it is null")
		}
	}
	return body.Overrides, nil
}
