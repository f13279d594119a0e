package policy

import (
	"errors"

	"github.com/headgate/headgate/core"
)

// entry is the written form of a policy. Its fields are texts where those of
// Policy are values, so that all mistakes can be reported and not only the first.
type entry struct {
	Name         string      `json:"name" yaml:"name"`
	Description  string      `json:"description,omitempty" yaml:"description,omitempty"`
	Apps         []string    `json:"apps" yaml:"apps"`
	Limit        string      `json:"limit" yaml:"limit"`
	Key          string      `json:"key" yaml:"key"`
	Match        *matchEntry `json:"match,omitempty" yaml:"match,omitempty"`
	OnLimit      string      `json:"on_limit,omitempty" yaml:"on_limit,omitempty"`
	OnStoreError string      `json:"on_store_error,omitempty" yaml:"on_store_error,omitempty"`
	Mode         string      `json:"mode,omitempty" yaml:"mode,omitempty"`
	Priority     int         `json:"priority,omitempty" yaml:"priority,omitempty"`
	Version      int64       `json:"version,omitempty" yaml:"version,omitempty"`
	CreatedBy    string      `json:"created_by,omitempty" yaml:"created_by,omitempty"`
	CreatedAt    string      `json:"created_at,omitempty" yaml:"created_at,omitempty"`
	UpdatedBy    string      `json:"updated_by,omitempty" yaml:"updated_by,omitempty"`
	UpdatedAt    string      `json:"updated_at,omitempty" yaml:"updated_at,omitempty"`
}

type matchEntry Match

// entryOf returns the written form of a valid policy.
func entryOf(p *Policy) entry {
	e := entry{
		Name: p.Name, Description: p.Description, Apps: p.Apps, Limit: p.Limit.String(), Key: p.Key,
		OnLimit: p.OnLimit, OnStoreError: p.OnStoreError, Priority: p.Priority, Version: p.Version,
		CreatedBy: p.CreatedBy, CreatedAt: timeText(p.CreatedAt),
		UpdatedBy: p.UpdatedBy, UpdatedAt: timeText(p.UpdatedAt),
	}
	if !p.Match.isAll() {
		m := matchEntry(p.Match)
		e.Match = &m
	}
	if p.Mode != Enforce {
		e.Mode = p.Mode.String()
	}
	return e
}

// policy reads the entry. Its error joins a [*FieldError] for every mistake.
func (e *entry) policy() (Policy, error) {
	p := Policy{
		Name: e.Name, Description: e.Description, Apps: e.Apps, Key: e.Key,
		OnLimit: e.OnLimit, OnStoreError: e.OnStoreError, Priority: e.Priority, Version: e.Version,
		CreatedBy: e.CreatedBy, UpdatedBy: e.UpdatedBy,
	}
	if e.Match != nil {
		p.Match = Match(*e.Match)
	}
	unread := map[string]bool{}
	var errs []error
	note := func(field string, err error) {
		if err != nil {
			unread[field] = true
			errs = append(errs, &FieldError{e.Name, field, err})
		}
	}
	var err error
	p.Limit, err = core.ParseLimit(e.Limit)
	note("limit", err)
	note("mode", p.Mode.UnmarshalText([]byte(e.Mode)))
	p.CreatedAt, err = parseTime(e.CreatedAt)
	note("created_at", err)
	p.UpdatedAt, err = parseTime(e.UpdatedAt)
	note("updated_at", err)
	for _, fault := range p.faults() {
		if !unread[fault.Field] {
			errs = append(errs, fault)
		}
	}
	return p, errors.Join(errs...)
}
