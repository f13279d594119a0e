package api

import (
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
)

// policyView is a policy in an answer. In a history it has no version and no authors
// and times of changes.
type policyView struct {
	Name         string            `json:"name"`
	Description  string            `json:"description"`
	Apps         []string          `json:"apps"`
	Limit        string            `json:"limit"`
	Plans        map[string]string `json:"plans,omitempty"`
	PlanBy       string            `json:"plan_by,omitempty"`
	Overrides    map[string]string `json:"overrides,omitempty"`
	Key          string            `json:"key"`
	Match        matchView         `json:"match"`
	Access       policy.Access     `json:"access,omitzero"`
	OnLimit      string            `json:"on_limit"`
	Ban          core.Ban          `json:"ban,omitzero"`
	OnStoreError string            `json:"on_store_error"`
	Mode         string            `json:"mode"`
	Priority     int               `json:"priority"`
	Sentence     string            `json:"sentence"`
	Version      int64             `json:"version,omitempty"`
	CreatedBy    string            `json:"created_by,omitempty"`
	CreatedAt    time.Time         `json:"created_at,omitzero"`
	UpdatedBy    string            `json:"updated_by,omitempty"`
	UpdatedAt    time.Time         `json:"updated_at,omitzero"`
}

type matchView struct {
	Methods []string `json:"methods"`
	Host    string   `json:"host"`
	Path    string   `json:"path"`
}

func viewOf(p policy.Policy) policyView {
	return policyView{
		Name: p.Name, Description: p.Description, Apps: list(p.Apps), Limit: p.Limit.String(), Key: p.Key,
		Plans: textsOf(p.Plans), PlanBy: p.PlanBy, Overrides: textsOf(p.Overrides), Access: p.Access,
		Match:   matchView{list(p.Match.Methods), p.Match.Host, p.Match.Path},
		OnLimit: p.OnLimit, Ban: p.Ban, OnStoreError: p.OnStoreError, Mode: p.Mode.String(), Priority: p.Priority,
		Sentence: p.Describe(), Version: p.Version,
		CreatedBy: p.CreatedBy, CreatedAt: p.CreatedAt, UpdatedBy: p.UpdatedBy, UpdatedAt: p.UpdatedAt,
	}
}

// textsOf returns the texts of limits.
func textsOf(limits map[string]core.Limit) map[string]string {
	texts := make(map[string]string, len(limits))
	for name, l := range limits {
		texts[name] = l.String()
	}
	return texts
}

// viewOrNull returns the view of a policy, or nil, which JSON writes as null.
func viewOrNull(p *policy.Policy) *policyView {
	if p == nil {
		return nil
	}
	v := viewOf(*p)
	return &v
}

// change is a field that differs.
type change struct {
	Field  string `json:"field"`
	Before string `json:"before"`
	After  string `json:"after"`
}

func changesOf(list []service.Change) []change {
	return mapped(list, func(c service.Change) change { return change(c) })
}

// list returns s, or an empty slice for nil, so that JSON never writes null.
func list[T any](s []T) []T { return append([]T{}, s...) }

func mapped[T, V any](s []T, f func(T) V) []V {
	views := make([]V, len(s))
	for i, v := range s {
		views[i] = f(v)
	}
	return views
}
