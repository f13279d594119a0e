package service

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
)

// Change is a field that differs between two policies.
type Change struct {
	Field  string `json:"field"`  // as in JSON, such as "limit" or "match.path"
	Before string `json:"before"` // the text of the value; "" for none
	After  string `json:"after"`
}

// field is a field that people edit, the text of its value, and what takes over the value of
// another policy.
type field struct {
	name string
	text func(*policy.Policy) string
	take func(p, from *policy.Policy)
}

// fields are all fields that people edit, in the order of display.
var fields = []field{
	{"name", func(p *policy.Policy) string { return p.Name }, func(p, from *policy.Policy) { p.Name = from.Name }},
	{"description", func(p *policy.Policy) string { return p.Description },
		func(p, from *policy.Policy) { p.Description = from.Description }},
	{"apps", func(p *policy.Policy) string { return strings.Join(p.Apps, ", ") },
		func(p, from *policy.Policy) { p.Apps = from.Apps }},
	{"limit", limitText, func(p, from *policy.Policy) { p.Limit = from.Limit }},
	{"cost", costText, func(p, from *policy.Policy) { p.Cost = from.Cost }},
	{"refund", func(p *policy.Policy) string { return strings.Join(p.Refund, ", ") },
		func(p, from *policy.Policy) { p.Refund = from.Refund }},
	{"count_only", func(p *policy.Policy) string { return strings.Join(p.CountOnly, ", ") },
		func(p, from *policy.Policy) { p.CountOnly = from.CountOnly }},
	{"plans", plansText, func(p, from *policy.Policy) { p.Plans = from.Plans }},
	{"plan_by", func(p *policy.Policy) string { return p.PlanBy },
		func(p, from *policy.Policy) { p.PlanBy = from.PlanBy }},
	{"overrides", overridesText, func(p, from *policy.Policy) { p.Overrides = from.Overrides }},
	{"key", func(p *policy.Policy) string { return p.Key }, func(p, from *policy.Policy) { p.Key = from.Key }},
	{"match.methods", func(p *policy.Policy) string { return strings.Join(p.Match.Methods, ", ") },
		func(p, from *policy.Policy) { p.Match.Methods = from.Match.Methods }},
	{"match.host", func(p *policy.Policy) string { return p.Match.Host },
		func(p, from *policy.Policy) { p.Match.Host = from.Match.Host }},
	{"match.path", func(p *policy.Policy) string { return p.Match.Path },
		func(p, from *policy.Policy) { p.Match.Path = from.Match.Path }},
	{"match.except", func(p *policy.Policy) string { return strings.Join(p.Match.Except, ", ") },
		func(p, from *policy.Policy) { p.Match.Except = from.Match.Except }},
	{"match.headers", func(p *policy.Policy) string { return tableText(p.Match.Headers) },
		func(p, from *policy.Policy) { p.Match.Headers = from.Match.Headers }},
	{"match.query", func(p *policy.Policy) string { return tableText(p.Match.Query) },
		func(p, from *policy.Policy) { p.Match.Query = from.Match.Query }},
	{"match.claims", func(p *policy.Policy) string { return tableText(p.Match.Claims) },
		func(p, from *policy.Policy) { p.Match.Claims = from.Match.Claims }},
	{"access", accessText, func(p, from *policy.Policy) { p.Access = from.Access }},
	{"on_limit", func(p *policy.Policy) string { return p.OnLimit },
		func(p, from *policy.Policy) { p.OnLimit = from.OnLimit }},
	{"enforce", func(p *policy.Policy) string { return shareText(p.Enforce) },
		func(p, from *policy.Policy) { p.Enforce = from.Enforce }},
	{"warn", func(p *policy.Policy) string { return shareText(p.Warn) },
		func(p, from *policy.Policy) { p.Warn = from.Warn }},
	{"ban", func(p *policy.Policy) string { return p.Ban.String() }, func(p, from *policy.Policy) { p.Ban = from.Ban }},
	{"on_store_error", func(p *policy.Policy) string { return p.OnStoreError },
		func(p, from *policy.Policy) { p.OnStoreError = from.OnStoreError }},
	{"mode", modeText, func(p, from *policy.Policy) { p.Mode = from.Mode }},
	{"priority", priorityText, func(p, from *policy.Policy) { p.Priority = from.Priority }},
}

// The zero policy, which is compared with a new one, has no limit, and the texts
// of its mode and priority are left out too.
func limitText(p *policy.Policy) string {
	if p.Limit.Quota == 0 {
		return ""
	}
	return p.Limit.String()
}

// costText returns the cost of a request, or "" for the usual one.
func costText(p *policy.Policy) string {
	if p.Cost.IsZero() {
		return ""
	}
	return p.Cost.String()
}

// shareText returns a share, or "" for none.
func shareText(s core.Share) string {
	if s == 0 {
		return ""
	}
	return s.String()
}

// tableText returns, say, "X-Plan: free or trial, X-Region: eu". Other tables have other texts.
func tableText(table map[string]policy.Values) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(table)) {
		values := slices.Clone(table[name])
		for i, value := range values {
			if strings.ContainsAny(value, `,"`) || strings.Contains(value, " or ") {
				values[i] = strconv.Quote(value)
			}
		}
		parts = append(parts, name+": "+values.String())
	}
	return strings.Join(parts, ", ")
}

// plansText returns, say, "free: 1000/1h, pro: 100000/1h".
func plansText(p *policy.Policy) string { return limitsText(p.Plans) }

func overridesText(p *policy.Policy) string { return limitsText(p.Overrides) }

func limitsText[L fmt.Stringer](limits map[string]L) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		parts = append(parts, name+": "+limits[name].String())
	}
	return strings.Join(parts, ", ")
}

// accessText returns, say, "allow 10.0.0.0/8; deny key mallory; status 429".
func accessText(p *policy.Policy) string {
	a := &p.Access
	var parts []string
	add := func(word string, list []string) {
		if len(list) > 0 {
			parts = append(parts, word+" "+strings.Join(list, ", "))
		}
	}

	add("allow", a.Allow.Networks)
	add("allow key", a.Allow.Keys)
	add("deny", a.Deny.Networks)
	add("deny key", a.Deny.Keys)

	if a.DenyOthers {
		parts = append(parts, "deny others")
	}
	if a.DenyStatus != 0 {
		parts = append(parts, "status "+strconv.Itoa(a.DenyStatus))
	}

	return strings.Join(parts, "; ")
}

func modeText(p *policy.Policy) string {
	if p.Name == "" {
		return ""
	}
	return p.Mode.String()
}

func priorityText(p *policy.Policy) string {
	if p.Name == "" {
		return ""
	}
	return strconv.Itoa(p.Priority)
}

// Diff lists the fields that differ, in the order in which a page shows them. It
// does not compare the version and the authors and times of changes. The zero
// policy stands for a policy that does not exist.
func Diff(a, b policy.Policy) []Change {
	var list []Change
	for _, f := range fields {
		if before, after := f.text(&a), f.text(&b); before != after {
			list = append(list, Change{f.name, before, after})
		}
	}
	return list
}
