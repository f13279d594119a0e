// This file has the written form of policies.

package policy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/textform"
)

// Written is the written form of a policy, which [DecodeJSON] reads and [EncodeJSON] writes. Its
// fields are texts where those of [Policy] are values, so that all mistakes can be reported and
// not only the first.
type Written struct {
	Name         string                  `json:"name"`
	Description  string                  `json:"description,omitempty"`
	Apps         []string                `json:"apps"`
	Limit        string                  `json:"limit"`
	Plans        map[string]string       `json:"plans,omitempty"`
	PlanBy       string                  `json:"plan_by,omitempty"`
	Overrides    map[string]OverrideText `json:"overrides,omitempty"`
	Cost         Cost                    `json:"cost,omitzero"`
	Refund       Statuses                `json:"refund,omitempty"`
	CountOnly    Statuses                `json:"count_only,omitempty"`
	Key          string                  `json:"key"`
	Match        Match                   `json:"match,omitzero"`
	Access       Access                  `json:"access,omitzero"`
	OnLimit      string                  `json:"on_limit,omitempty"`
	Enforce      string                  `json:"enforce,omitempty"`
	Warn         string                  `json:"warn,omitempty"`
	Ban          BanText                 `json:"ban,omitempty"`
	OnStoreError string                  `json:"on_store_error,omitempty"`
	Mode         string                  `json:"mode,omitempty"`
	Priority     int                     `json:"priority,omitempty"`
	Version      int64                   `json:"version,omitempty"`
	CreatedBy    string                  `json:"created_by,omitempty"`
	CreatedAt    string                  `json:"created_at,omitempty"`
	UpdatedBy    string                  `json:"updated_by,omitempty"`
	UpdatedAt    string                  `json:"updated_at,omitempty"`
}

// WrittenOf returns the written form of a valid policy.
func WrittenOf(p *Policy) Written {
	w := Written{
		Name: p.Name, Description: p.Description, Apps: p.Apps,
		Limit: p.Limit.String(), Plans: textsOf(p.Plans), PlanBy: p.PlanBy,
		Overrides: overrideTexts(p.Overrides), Key: p.Key,
		Cost: p.Cost, Refund: p.Refund, CountOnly: p.CountOnly,
		OnLimit: p.OnLimit, Ban: BanText(p.Ban.String()), OnStoreError: p.OnStoreError,
		Priority: p.Priority, Version: p.Version,
		CreatedBy: p.CreatedBy, CreatedAt: timeText(p.CreatedAt),
		UpdatedBy: p.UpdatedBy, UpdatedAt: timeText(p.UpdatedAt),
	}

	// What is empty is left out, also if it is a list without elements.
	if !p.Match.isAll() {
		w.Match = p.Match
	}
	if !p.Access.isZero() {
		w.Access = p.Access
	}
	if p.Enforce > 0 {
		w.Enforce = p.Enforce.String()
	}
	if p.Warn > 0 {
		w.Warn = p.Warn.String()
	}
	if p.Mode != Enforce {
		w.Mode = p.Mode.String()
	}
	return w
}

// Policy reads the written form. Its error joins a [*FieldError] for every mistake.
func (w *Written) Policy() (Policy, error) { return w.with(nil) }

// with reads the written form of a policy that has the plans of the table, unless it is nil.
func (w *Written) with(table *planTable) (Policy, error) {
	p := Policy{
		Name: w.Name, Description: w.Description, Apps: w.Apps, Key: w.Key, PlanBy: w.PlanBy,
		Cost: w.Cost, Refund: w.Refund, CountOnly: w.CountOnly,
		Match: w.Match, Access: w.Access, OnLimit: w.OnLimit, OnStoreError: w.OnStoreError,
		Priority: w.Priority, Version: w.Version, CreatedBy: w.CreatedBy, UpdatedBy: w.UpdatedBy,
	}

	unread := map[string]bool{}
	var errs []error
	mistake := func(field string, err error) {
		if err != nil {
			unread[field] = true
			errs = append(errs, &FieldError{w.Name, field, err})
		}
	}

	var err error
	p.Limit, err = core.ParseLimit(w.Limit)
	mistake("limit", err)
	p.Plans = readLimits(w.Plans, func(name string, err error) {
		mistake("plans."+textform.Clip(name), err)
	})
	p.Overrides = readOverrides(w.Overrides, func(key string, i int, err error) {
		mistake(OverrideField(w.Key, key, i), err)
	})
	mistake("enforce", p.Enforce.UnmarshalText([]byte(w.Enforce)))
	mistake("warn", p.Warn.UnmarshalText([]byte(w.Warn)))
	mistake("ban", p.Ban.UnmarshalText([]byte(w.Ban)))
	mistake("mode", p.Mode.UnmarshalText([]byte(w.Mode)))
	p.CreatedAt, err = parseTime(w.CreatedAt)
	mistake("created_at", err)
	p.UpdatedAt, err = parseTime(w.UpdatedAt)
	mistake("updated_at", err)

	if table != nil {
		p.Plans = maps.Clone(table.plans)
	}
	faults := p.faults()
	if table != nil {
		faults = table.unfit(faults)
	}

	// A field that could not be read is not checked.
	for _, fault := range faults {
		if !unread[fault.Field] {
			errs = append(errs, fault)
		}
	}
	return p, errors.Join(errs...)
}

// textsOf returns the texts of limits, or nil for none.
func textsOf(limits map[string]core.Limit) map[string]string {
	if len(limits) == 0 {
		return nil
	}
	texts := make(map[string]string, len(limits))
	for name, limit := range limits {
		texts[name] = limit.String()
	}
	return texts
}

// readLimits reads the texts of limits, and notes the mistakes by name.
func readLimits(texts map[string]string, mistake func(name string, err error)) map[string]core.Limit {
	if texts == nil {
		return nil
	}
	limits := make(map[string]core.Limit, len(texts))
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		var err error
		limits[name], err = core.ParseLimit(texts[name])
		mistake(name, err)
	}
	return limits
}

// overrideTexts returns the texts of overrides, or nil for none.
func overrideTexts(overrides map[string]Override) map[string]OverrideText {
	if len(overrides) == 0 {
		return nil
	}
	texts := make(map[string]OverrideText, len(overrides))
	for key, o := range overrides {
		texts[key] = OverrideText(o.String())
	}
	return texts
}

// readOverrides reads the texts of overrides, and notes the mistakes in the i-th by its key.
func readOverrides(texts map[string]OverrideText, mistake func(key string, i int, err error)) map[string]Override {
	if texts == nil {
		return nil
	}
	overrides := make(map[string]Override, len(texts))
	for i, key := range slices.Sorted(maps.Keys(texts)) {
		var err error
		overrides[key], err = ParseOverride(string(texts[key]))
		mistake(key, i, err)
	}
	return overrides
}

// checkTime refuses times that RFC 3339 cannot express.
func checkTime(t time.Time) error {
	if y := t.UTC().Year(); y < 1 || y > 9999 {
		return fmt.Errorf("the year %d is not within 1 to 9999", y)
	}
	return nil
}

// timeText returns t in UTC, or "" for the zero time.
func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

func parseTime(s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is not a time such as 2026-01-31T12:00:00Z", textform.Clip(s))
	}
	return t.UTC(), nil
}
