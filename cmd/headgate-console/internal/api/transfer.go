package api

import (
	"context"
	"net/http"
	"strings"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/policy"
)

// The media types of sets of policies.
const (
	mediaJSON = "application/json"
	mediaYAML = "application/yaml"
)

func (c *call) export() error {
	q := &c.query
	format, media, file := service.YAML, mediaYAML, "policies.yaml"
	if q.text("format") == "json" {
		format, media, file = service.JSON, mediaJSON, "policies.json"
	} else if f := q.text("format"); f != "" && f != "yaml" {
		q.addFault("format", "it is not yaml or json")
	}

	if err := q.err(); err != nil {
		return err
	}

	data, err := c.o.Service.Export(c.ctx(), c.actor, format, q.text("app"))
	if err != nil {
		return err
	}

	// Browsers save the answer as a file instead of showing it.
	c.w.Header().Set("Content-Type", media)
	c.w.Header().Set("Content-Disposition", `attachment; filename="`+file+`"`)
	c.w.Write(data)
	return nil
}

type planView struct {
	Base      int64          `json:"base"`
	Apps      []string       `json:"apps"`
	Counts    map[string]int `json:"counts"`
	Steps     []stepView     `json:"steps"`
	LeftAlone []string       `json:"left"`
	progress
}

type stepView struct {
	Name    string      `json:"name"`
	Action  string      `json:"action"`
	Before  *policyView `json:"before"`
	After   *policyView `json:"after"`
	Changes []change    `json:"changes"`
}

func stepOf(s service.PlanStep) stepView {
	return stepView{s.Name, s.Action, viewOrNull(s.Before), viewOrNull(s.After), changesOf(s.Changes)}
}

func (c *call) planImport() error {
	return c.transfer(c.o.Service.PlanImport, func(...policy.Policy) progress { return progress{} })
}

func (c *call) applyImport() error { return c.transfer(c.o.Service.Import, c.progress) }

// importOptions reads what the query says of an import.
func (c *call) importOptions() (i service.Import, err error) {
	q := &c.query
	i.Missing = service.Missing(q.text("missing"))
	if apps := q.text("apps"); apps != "" {
		i.Apps = strings.Split(apps, ",")
	}

	// Without a base the import is of the policies as they are. 0 is one: there were no policies.
	if q.text("base") != "" {
		base := q.number("base")
		i.Base = &base
	}

	switch q.text("compare") {
	case "", "no":
	case "yes":
		i.Compare = true
	default:
		q.addFault("compare", "it is not yes or no")
	}
	return i, q.err()
}

func (c *call) transfer(
	do func(context.Context, service.Actor, service.Import) (service.Plan, error),
	after func(...policy.Policy) progress,
) error {
	actor := c.actor.Saying(c.query.text("comment"))
	i, err := c.importOptions()
	if err != nil {
		return err
	}

	// The body may be large, so it is read last, and of those who may import alone.
	done, err := c.o.Service.AdmitImport(c.ctx(), actor, i.Compare)
	if err != nil {
		return err
	}
	defer done()

	var media string
	if i.Data, media, err = c.body(policy.MaxBytes, mediaYAML, mediaJSON); err != nil {
		return err
	}
	if i.Format = service.JSON; media == mediaYAML {
		i.Format = service.YAML
	}

	plan, err := do(c.ctx(), actor, i)
	if err != nil {
		return err
	}

	var saved []policy.Policy
	for _, s := range plan.Steps {
		if s.After != nil {
			saved = append(saved, *s.After)
		}
	}

	// The client may receive the answer slowly.
	done()
	return c.send(http.StatusOK, planView{
		plan.Base, list(plan.Apps), plan.Counts(), mapped(plan.Steps, stepOf), list(plan.LeftAlone), after(saved...),
	})
}
