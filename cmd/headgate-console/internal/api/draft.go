package api

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/policy"
)

// draft is a policy as a client sends it. It has the fields of a policyView, as
// texts where a policy has values, so that all mistakes can be reported and not
// only the first.
type draft struct {
	Name         string            `json:"name"`
	Description  string            `json:"description"`
	Apps         []string          `json:"apps"`
	Limit        string            `json:"limit"`
	Plans        map[string]string `json:"plans"`
	PlanBy       string            `json:"plan_by"`
	Overrides    map[string]string `json:"overrides"`
	Key          string            `json:"key"`
	Match        draftMatch        `json:"match"`
	Access       draftAccess       `json:"access"`
	OnLimit      string            `json:"on_limit"`
	Ban          policy.BanText    `json:"ban"`
	OnStoreError string            `json:"on_store_error"`
	Mode         string            `json:"mode"`
	Priority     int               `json:"priority"`
	Version      int64             `json:"version"`
	Comment      string            `json:"comment"` // on the change

	// Clients may send back fields that the console itself writes. They are ignored.
	Sentence  ignored `json:"sentence"`
	CreatedBy ignored `json:"created_by"`
	CreatedAt ignored `json:"created_at"`
	UpdatedBy ignored `json:"updated_by"`
	UpdatedAt ignored `json:"updated_at"`
}

type ignored = json.RawMessage

type draftMatch struct {
	Methods []string `json:"methods"`
	Host    string   `json:"host"`
	Path    string   `json:"path"`
}

type draftAccess struct {
	Allow      draftCallers `json:"allow"`
	Deny       draftCallers `json:"deny"`
	DenyOthers bool         `json:"deny_others"`
	DenyStatus int          `json:"deny_status"`
}

type draftCallers struct {
	Networks []string `json:"networks"`
	Keys     []string `json:"keys"`
}

func (a *draftAccess) access() policy.Access {
	return policy.Access{
		Allow: policy.Callers(a.Allow), Deny: policy.Callers(a.Deny), DenyOthers: a.DenyOthers, DenyStatus: a.DenyStatus,
	}
}

// policy reads the draft, and returns all mistakes in it.
func (d *draft) policy() (policy.Policy, []fault) {
	p := policy.Policy{
		Name: d.Name, Description: d.Description, Apps: d.Apps, Key: d.Key,
		PlanBy: d.PlanBy, Access: d.Access.access(),
		Match:   policy.Match{Methods: d.Match.Methods, Host: d.Match.Host, Path: d.Match.Path},
		OnLimit: d.OnLimit, OnStoreError: d.OnStoreError, Priority: d.Priority, Version: d.Version,
	}

	var list []fault
	unread := map[string]bool{}
	note := func(field string, err error) {
		if err != nil {
			unread[field] = true
			list = append(list, fault{Field: field, Message: err.Error()})
		}
	}

	var err error
	p.Limit, err = core.ParseLimit(d.Limit)
	note("limit", err)
	p.Plans = readLimits(d.Plans, func(name string, _ int, err error) { note("plans."+textform.Clip(name), err) })
	p.Overrides = readLimits(d.Overrides, func(key string, i int, err error) { note(policy.OverrideField(d.Key, key, i), err) })
	note("ban", p.Ban.UnmarshalText([]byte(d.Ban)))
	note("mode", p.Mode.UnmarshalText([]byte(d.Mode)))

	for _, f := range fieldFaults(p.Validate()) {
		if !unread[f.Field] {
			list = append(list, f)
		}
	}
	return p, list
}

// fieldFaults splits the error of a validation, which may be nil.
func fieldFaults(err error) (list []fault) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			list = append(list, fieldFaults(e)...)
		}
		return list
	}
	var f *policy.FieldError
	switch {
	case errors.As(err, &f):
		return []fault{{Field: f.Field, Message: f.Err.Error()}}
	case err != nil:
		return []fault{{Message: err.Error()}}
	}
	return nil
}

// readLimits reads the texts of limits, and notes the mistakes in the i-th by name.
func readLimits(texts map[string]string, note func(name string, i int, err error)) map[string]core.Limit {
	if texts == nil {
		return nil
	}
	limits := make(map[string]core.Limit, len(texts))
	for i, name := range slices.Sorted(maps.Keys(texts)) {
		var err error
		limits[name], err = core.ParseLimit(texts[name])
		note(name, i, err)
	}
	return limits
}
