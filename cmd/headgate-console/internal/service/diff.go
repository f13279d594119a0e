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

// fields are all fields that people edit, in the order of display, with the text of a value.
var fields = []struct {
	name string
	text func(*policy.Policy) string
}{
	{"name", func(p *policy.Policy) string { return p.Name }},
	{"description", func(p *policy.Policy) string { return p.Description }},
	{"apps", func(p *policy.Policy) string { return strings.Join(p.Apps, ", ") }},
	{"limit", limitText},
	{"cost", costText},
	{"refund", func(p *policy.Policy) string { return strings.Join(p.Refund, ", ") }},
	{"count_only", func(p *policy.Policy) string { return strings.Join(p.CountOnly, ", ") }},
	{"plans", func(p *policy.Policy) string { return limitsText(p.Plans) }},
	{"plan_by", func(p *policy.Policy) string { return p.PlanBy }},
	{"overrides", func(p *policy.Policy) string { return limitsText(p.Overrides) }},
	{"key", func(p *policy.Policy) string { return p.Key }},
	{"match.methods", func(p *policy.Policy) string { return strings.Join(p.Match.Methods, ", ") }},
	{"match.host", func(p *policy.Policy) string { return p.Match.Host }},
	{"match.path", func(p *policy.Policy) string { return p.Match.Path }},
	{"match.except", func(p *policy.Policy) string { return strings.Join(p.Match.Except, ", ") }},
	{"match.headers", func(p *policy.Policy) string { return tableText(p.Match.Headers) }},
	{"match.query", func(p *policy.Policy) string { return tableText(p.Match.Query) }},
	{"match.claims", func(p *policy.Policy) string { return tableText(p.Match.Claims) }},
	{"access", accessText},
	{"on_limit", func(p *policy.Policy) string { return p.OnLimit }},
	{"enforce", func(p *policy.Policy) string { return shareText(p.Enforce) }},
	{"warn", func(p *policy.Policy) string { return shareText(p.Warn) }},
	{"ban", func(p *policy.Policy) string { return p.Ban.String() }},
	{"on_store_error", func(p *policy.Policy) string { return p.OnStoreError }},
	{"mode", func(p *policy.Policy) string { return unlessZero(p, p.Mode.String()) }},
	{"priority", func(p *policy.Policy) string { return unlessZero(p, strconv.Itoa(p.Priority)) }},
}

// limitText returns a limit, or "" for that of the zero policy, which is compared with a new one.
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

// limitsText returns, say, "free: 1000/1h, pro: 100000/1h".
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

// unlessZero returns the text of a field of a policy, or "" for the zero policy.
func unlessZero(p *policy.Policy, text string) string {
	if p.Name == "" {
		return ""
	}
	return text
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
