package api

import (
	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/policy"
)

// policyView is a policy in an answer: its written form, of which some fields are there also if
// they are empty. In a history it has no version and no authors and times of changes.
type policyView struct {
	policy.Written
	Description  string    `json:"description"`
	Match        matchView `json:"match"`
	OnLimit      string    `json:"on_limit"`
	OnStoreError string    `json:"on_store_error"`
	Mode         string    `json:"mode"`
	Priority     int       `json:"priority"`
	Sentence     string    `json:"sentence"`
}

type matchView struct {
	Methods []string `json:"methods"`
	Host    string   `json:"host"`
	Path    string   `json:"path"`

	Except  []string                 `json:"except,omitempty"`
	Headers map[string]policy.Values `json:"headers,omitempty"`
	Query   map[string]policy.Values `json:"query,omitempty"`
	Claims  map[string]policy.Values `json:"claims,omitempty"`
}

func viewOf(p policy.Policy) policyView {
	v := policyView{
		Written: policy.WrittenOf(&p), Description: p.Description,
		Match: matchView{list(p.Match.Methods), p.Match.Host, p.Match.Path, p.Match.Except, p.Match.Headers,
			p.Match.Query, p.Match.Claims},
		OnLimit: p.OnLimit, OnStoreError: p.OnStoreError, Mode: p.Mode.String(), Priority: p.Priority,
		Sentence: p.Describe(),
	}
	v.Apps = list(v.Apps)
	return v
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
