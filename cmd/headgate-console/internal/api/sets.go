package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/policy"
)

// verdict is the result of checking a policy without saving it.
type verdict struct {
	Valid    bool    `json:"valid"`
	Errors   []fault `json:"errors"`
	Limit    string  `json:"limit" doc:"Its canonical text, or empty if it is wrong."`
	Sentence string  `json:"sentence" doc:"Empty if there are mistakes."`
	MaySave  bool    `json:"may_save" doc:"The actor owns every application that it lists."`

	// WouldRefuse is null unless it refuses more than the saved policy.
	WouldRefuse *service.WouldRefuse `json:"would_refuse"`
	Consequence string               `json:"consequence,omitempty" doc:"Would_refuse in a sentence."`
}

// validate checks a policy. Mistakes are the answer here, and no failure.
func (c *call) validate(in *draft) (v verdict, err error) {
	access, err := c.access()
	if err != nil {
		return v, err
	}

	p, faults := in.policy()
	v = verdict{Valid: len(faults) == 0, Errors: faults, MaySave: access.CanEdit(p.Apps)}

	// The limit may be right while other fields are not.
	if p.Limit.Validate() == nil {
		v.Limit = p.Limit.String()
	}

	if v.Valid {
		v.Sentence = p.Describe()
		if v.WouldRefuse, err = c.o.Service.WouldRefuse(c.ctx(), c.actor, p); v.WouldRefuse != nil {
			v.Consequence = v.WouldRefuse.Sentence()
		}
	}
	return v, err
}

// access returns the actor's permissions, for data outside of the service. The error is
// ErrPasswordChange or ErrSecondFactor if the actor must do that first.
func (c *call) access() (service.Access, error) {
	access, err := c.o.Service.Access(c.ctx(), c.actor)
	switch {
	case err != nil:
	case access.MustChangePassword:
		err = service.ErrPasswordChange
	case access.MustSetUpSecondFactor:
		err = service.ErrSecondFactor
	case access.Backups:
		err = c.o.Service.Refuse(c.ctx(), c.actor, "api.access", "api", "the token is for backups alone")
	}
	return access, err
}

// sample is a request to test. It is a core.Request.
type sample struct {
	App    string `json:"app,omitempty" doc:"Empty for all."`
	Verb   string `json:"method,omitempty" doc:"GET if it is empty." example:"POST"`
	Host   string `json:"host,omitempty"`
	URL    string `json:"path" doc:"With its query." example:"/login"`
	Router string `json:"route,omitempty" doc:"The pattern that the router matched."`

	Token   claims `json:"claims,omitempty"`
	address string
}

// claims are those of a token. Numbers keep their digits, as in a gateway.
type claims map[string]any

func (c *claims) UnmarshalJSON(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	return d.Decode((*map[string]any)(c))
}

func (s *sample) Context() context.Context { return context.Background() }
func (s *sample) Method() string           { return s.Verb }
func (s *sample) Claims() map[string]any   { return s.Token }
func (s *sample) Route() string            { return s.Router }
func (s *sample) RemoteAddr() string       { return s.address }

// Path returns the path without its query.
func (s *sample) Path() string { path, _, _ := strings.Cut(s.URL, "?"); return path }

// RawQuery returns the query of the path.
func (s *sample) RawQuery() string { _, query, _ := strings.Cut(s.URL, "?"); return query }

// Header returns only the host: no other header is given.
func (s *sample) Header(name string) []string {
	if name == "Host" && s.Host != "" {
		return []string{s.Host}
	}
	return nil
}

type policies struct {
	Policies []policy.Policy `json:"policies"`
}

// test answers with the policies that apply to a request, in the order of the rules.
// Policies that are off do not apply.
func (c *call) test(in *sample) (v policies, err error) {
	in.Verb = cmp.Or(in.Verb, http.MethodGet)

	var faults []fault
	if !strings.HasPrefix(in.URL, "/") {
		faults = append(faults, fault{Field: "path", Message: "it does not begin with /"})
	}
	if err := policy.CheckApp(in.App); err != nil && in.App != "" {
		faults = append(faults, fault{Field: "app", Message: err.Error()})
	}
	if len(faults) > 0 {
		return v, invalid(faults...)
	}

	all, err := c.o.Service.PoliciesOf(c.ctx(), c.actor, in.App)
	if err != nil {
		return v, err
	}

	set := slices.DeleteFunc(policy.Set(all), func(p policy.Policy) bool { return p.Mode == policy.Off })

	// This is the order in which an instance asks its rules.
	slices.SortStableFunc(set, func(a, b policy.Policy) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Name, b.Name))
	})

	// The index is the one of the instances, so that the answer is what they do.
	index, err := policy.NewIndex(set)
	if err != nil {
		return v, invalid(service.FaultsOf(err)...)
	}
	for _, i := range index.Select(in, nil) {
		v.Policies = append(v.Policies, set[i])
	}
	return v, nil
}

type exportQuery struct {
	App    string `json:"app,omitempty" doc:"Only policies that list this application."`
	Format string `json:"format,omitempty" enum:"yaml,json"`
}

func (c *call) export(in *exportQuery) error {
	format, media := service.YAML, mediaYAML
	if in.Format == "json" {
		format, media = service.JSON, mediaJSON
	}
	data, err := c.o.Service.Export(c.ctx(), c.actor, format, in.App)
	if err != nil {
		return err
	}

	// Browsers save the answer as a file instead of showing it.
	c.w.Header().Set("Content-Type", media)
	c.w.Header().Set("Content-Disposition", `attachment; filename="policies.`+cmp.Or(in.Format, "yaml")+`"`)
	c.w.Write(data)
	return nil
}

// fileQuery is what imports of policies and of overrides have in common.
type fileQuery struct {
	Missing string   `json:"missing,omitempty" doc:"remove takes away what the file lacks."`
	Apps    []string `json:"apps,omitempty" empty:"no" doc:"Within these applications alone. A list with commas."`
	Comment string   `json:"comment,omitempty" doc:"For the history and the audit log."`
	Compare string   `json:"compare,omitempty" enum:"no,yes" doc:"Of a plan: see what differs, also to read alone."`
}

// upload reads the file of an import. The body may be large, so it is read last, and of those who
// may import alone. done gives back the place among the imports, before the answer, which the
// client may receive slowly.
func (c *call) upload(q fileQuery, most int64) (data []byte, media string, done func(), err error) {
	if done, err = c.o.Service.AdmitImport(c.ctx(), c.actor, q.Compare == "yes"); err != nil {
		return nil, "", nil, err
	}
	if data, media, err = c.body(most, c.route.takes...); err != nil {
		done()
		return nil, "", nil, err
	}
	return data, media, done, nil
}

type importQuery struct {
	fileQuery
	Base *int64 `json:"base,omitempty" empty:"no" doc:"The base of the plan that was confirmed."`
}
type plan struct {
	service.Plan
	Counts map[string]int `json:"counts" doc:"The steps by action."`
	progress
}

func (c *call) planImport(in *importQuery) (plan, error) {
	return c.transfer(in, c.o.Service.PlanImport)
}

func (c *call) applyImport(in *importQuery) (plan, error) {
	v, err := c.transfer(in, c.o.Service.Import)
	var saved []policy.Policy
	for _, s := range v.Steps {
		if s.After != nil {
			saved = append(saved, *s.After)
		}
	}
	if err == nil {
		v.progress = c.progress(saved...)
	}
	return v, err
}

func (c *call) transfer(
	in *importQuery, do func(context.Context, service.Actor, service.Import) (service.Plan, error),
) (v plan, err error) {
	data, media, done, err := c.upload(in.fileQuery, policy.MaxBytes)
	if err != nil {
		return v, err
	}
	defer done()

	i := service.Import{
		Missing: service.Missing(in.Missing), Apps: in.Apps, Base: in.Base, Compare: in.Compare == "yes",
		Data: data, Format: service.JSON,
	}
	if media == mediaYAML {
		i.Format = service.YAML
	}
	p, err := do(c.ctx(), c.actor.Saying(in.Comment), i)
	return plan{p, p.Counts(), progress{}}, err
}
