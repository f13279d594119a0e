package web

import (
	"net/http"
	"net/url"

	"github.com/headgate/headgate/console/internal/service"
	"github.com/headgate/headgate/policy"
)

// one is the page of a policy.
type one struct {
	row
	Limit   string
	Drawing string
	Fields  []value
	Modes   []choice
	Redis   bool
}

// value is a field of a policy with the text of its value.
type value struct{ Field, Text string }

func policyPage(v *request) error {
	p, err := v.Service.Policy(v.r.Context(), v.actor, v.r.PathValue("name"))
	if err != nil {
		return err
	}
	texts := textsOf(p)
	page := one{row: v.rowOf(p), Limit: p.Limit.String(), Drawing: drawingPath(p.Limit.String()), Modes: modes(), Redis: v.Fleet != nil}
	for _, f := range policyFields() {
		if f != "name" {
			page.Fields = append(page.Fields, value{f, texts[f]})
		}
	}
	return v.show(http.StatusOK, "policy", p.Name, page)
}

// setMode changes only the mode.
func setMode(v *request) error {
	p, err := v.Service.Policy(v.r.Context(), v.actor, v.r.PathValue("name"))
	if err != nil {
		return err
	}
	mine := p
	mine.Version = v.version("version")
	if err := mine.Mode.UnmarshalText([]byte(v.field("mode"))); err != nil {
		return errBadForm
	}
	if _, err := v.Service.UpdatePolicy(v.r.Context(), v.actor, mine); err != nil {
		return v.conflictOr(err)
	}
	if here, err := url.ParseQuery(v.field("here")); err == nil && v.field("back") == "list" {
		q := queryOf(here)
		return v.seeOther(listPath(q, q.Page), "mode")
	}
	return v.seeOther(policyPath(p.Name), "mode")
}

// textsOf returns the texts of all fields of a policy by their names.
func textsOf(p policy.Policy) map[string]string {
	texts := map[string]string{}
	for _, c := range service.Diff(policy.Policy{}, p) {
		texts[c.Field] = c.After
	}
	return texts
}

// policyFields are the fields that people edit, in the order of display.
func policyFields() []string {
	return []string{
		"name", "description", "apps", "limit", "plans", "plan_by", "key", "match.methods", "match.host", "match.path",
		"access", "on_limit", "ban", "on_store_error", "mode", "priority",
	}
}
