package web

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
)

// mistakes maps the name of a field to the mistakes that are shown there; "" is the
// whole form.
type mistakes map[string][]string

func (m mistakes) add(field, text string) {
	for _, there := range m[field] {
		if there == text {
			return
		}
	}
	m[field] = append(m[field], text)
}

// addFaults adds the mistakes that the service found.
func (m mistakes) addFaults(faults []service.Fault) {
	for _, f := range faults {
		m.addField(f.Field, f.Message)
	}
}

// addField adds a mistake in a field of a policy.
func (m mistakes) addField(field, text string) {
	if plan, ok := strings.CutPrefix(field, "plans."); ok {
		field, text = "plans", plan+": "+text
	}

	if key, ok := strings.CutPrefix(field, "overrides."); ok {
		field, text = "overrides", key+": "+text
	}

	if part, ok := strings.CutPrefix(field, "cost."); ok {
		field, text = "cost", part+": "+text
	}

	if strings.HasPrefix(field, "overrides[") { // which does not name a key that may be a secret
		field = "overrides"
	}

	// A ban is one field of a policy, and three of the form. The text begins with what is wrong.
	if name, _, _ := strings.Cut(text, " "); field == "ban" && (name == "for" || name == "max") {
		field += "." + name
	}

	m.add(formField(field), text)
}

// formField returns the field of the form that shows a field of a policy.
func formField(name string) string {
	switch name {
	case "match.methods":
		return "methods"
	case "match.host":
		return "host"
	case "match.path":
		return "path"
	case "match.except":
		return "except"
	case "match.headers":
		return "headers"
	case "match.query":
		return "query"
	case "match.claims":
		return "claims"
	case "ban":
		return "ban_after"
	case "ban.for", "ban.max":
		return strings.Replace(name, ".", "_", 1)
	}
	return name
}

// policy reads the form. Without mistakes the policy is valid.
func (d *draft) policy() (policy.Policy, mistakes) {
	m := mistakes{}
	p := policy.Policy{
		Name: d.Name, Description: d.Description, Apps: d.Apps, Version: d.Version,
		Limit: d.limit(m), Key: d.key(), OnLimit: d.onLimit(m), OnStoreError: d.OnStoreError,
		Match: policy.Match{
			Methods: append(append([]string(nil), d.Methods...),
				strings.FieldsFunc(strings.ToUpper(d.OtherMethods), isSeparator)...),
			Host: strings.ToLower(d.Host), Path: d.Path, Except: lines(d.Except),
			Headers: table(m, "headers", d.Headers, "X-Plan: free"), Query: table(m, "query", d.Query, "export: csv"),
			Claims: table(m, "claims", d.Claims, "plan: free"),
		},
		Cost: d.cost(m), Refund: statuses(d.Refund), CountOnly: statuses(d.CountOnly),
	}

	if err := p.Mode.UnmarshalText([]byte(d.Mode)); err != nil {
		m.add("mode", err.Error())
	}
	p.Enforce, p.Warn = d.share(m, "enforce", d.Enforce), d.share(m, "warn", d.Warn)
	p.Priority = int(d.count(m, "priority", d.Priority, math.MinInt32, math.MaxInt32))

	p.Ban = d.ban(m)
	p.Plans, p.PlanBy, p.Overrides, p.Access = d.plans(m), d.PlanBy, d.overrides(m), d.access(m)

	d.check(p, m)
	return p, m
}

func isSeparator(c rune) bool { return c == ' ' || c == ',' || c == '\t' || c == '\r' || c == '\n' }

// check adds the mistakes of the policy, unless a mistake in its text explains them
// already.
func (d *draft) check(p policy.Policy, m mistakes) {
	explained := d.explained(m)
	for _, err := range split(p.Validate()) {
		var f *policy.FieldError
		if !errors.As(err, &f) {
			m.add("", err.Error())
			continue
		}

		// The first name of a path such as plans.pro or overrides[2] is that of the field.
		field, _, _ := strings.Cut(f.Field, ".")
		field, _, _ = strings.Cut(field, "[")

		switch {
		case explained[field] && field == "limit" && d.LimitBy != "text":
			m.period(f.Err)
		case explained[field]:
		case field == "limit" && d.LimitBy != "text":
			m.assignToFields(f.Err)
		case field == "on_limit" && d.OnLimit == "wait":
			m.add("wait", f.Err.Error())
		case field == "key" && d.KeyBy == "other":
			m.add("key_other", f.Err.Error())
		default:
			for _, e := range split(f.Err) {
				m.addField(f.Field, e.Error())
			}
		}
	}

	d.tooShort(p.Limit, m)
}

// tooShort says in the words of the form that the period is not positive.
func (d *draft) tooShort(l core.Limit, m mistakes) {
	if l.Period <= 0 && strings.HasPrefix(strings.Join(m["period"], ""), "period") {
		m["period"] = []string{fmt.Sprintf("%q is too short; write 1 or more", clip(d.Period))}
	}
}

// explained returns the fields of a policy whose text has a mistake.
func (d *draft) explained(m mistakes) map[string]bool {
	return map[string]bool{
		"limit": m.anyIn("limit", "quota", "period", "burst", "debt", "segments", "algorithm", "calendar",
			"tz", "start"),
		"on_limit": m.anyIn("wait"),
		"plans":    m.anyIn("plans"),
		"plan_by":  m.anyIn("plans"),
		"access":   m.anyIn("access"),

		"overrides": m.anyIn("overrides"),
		"cost":      m.anyIn("cost"),
		"match":     m.anyIn("headers", "query", "claims"),
	}
}

// assignToFields assigns each mistake of a limit to the field that it begins with.
func (m mistakes) assignToFields(err error) {
	for _, e := range split(err) {
		field := "limit_fields"
		for _, name := range []string{"quota", "period", "burst", "debt", "segments", "aligned"} {
			if strings.HasPrefix(e.Error(), name) {
				field = name
			}
		}

		m.add(field, e.Error())
	}
}

// period adds the mistake of the period, which depends on no other field of the limit, unless
// there is one already.
func (m mistakes) period(err error) {
	for _, e := range split(err) {
		if strings.HasPrefix(e.Error(), "period") && len(m["period"]) == 0 && len(m["algorithm"]) == 0 {
			m.add("period", e.Error())
		}
	}
}

// split returns the parts of a joined error.
func split(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var list []error
		for _, e := range joined.Unwrap() {
			list = append(list, split(e)...)
		}
		return list
	}

	if err == nil {
		return nil
	}
	return []error{err}
}

// The length of a ban whose fields are left empty.
const (
	usualBan    = "10m"
	usualMaxBan = "24h"
)

// banTexts returns how long a ban lasts at first, and at most: the usual where a field is empty.
func (d *draft) banTexts() (first, most string) {
	first, most = cmp.Or(d.BanFor, usualBan), cmp.Or(d.BanMax, usualMaxBan)

	// One that is longer than the usual maximum is the longest itself.
	usual, _ := time.ParseDuration(usualMaxBan)
	if span, err := time.ParseDuration(first); d.BanMax == "" && err == nil && span > usual {
		most = first
	}
	return first, most
}

// ban reads the fields of a ban, none of which is filled in without one.
func (d *draft) ban(m mistakes) core.Ban {
	text := ""
	first, most := d.BanFor, d.BanMax
	if d.BanAfter != "" {
		first, most = d.banTexts()
	}
	for _, field := range []struct{ name, word, value string }{
		{"ban_after", "", d.BanAfter}, {"ban_for", " for ", first}, {"ban_max", " max ", most},
	} {
		if strings.ContainsFunc(field.value, unicode.IsSpace) {
			m.add(field.name, fmt.Sprintf("%q is more than one word", clip(field.value)))
		}

		if field.value != "" {
			text += field.word + field.value
		}
	}

	// The fields are put together to the text form only if each is one word, or a field could fill
	// in the next one.
	if text == "" || m.anyIn("ban_after", "ban_for", "ban_max") {
		return core.Ban{}
	}

	ban, err := core.ParseBan(text)
	for _, e := range split(errors.Unwrap(err)) {
		m.addField("ban", e.Error())
	}
	return ban
}

func (d *draft) limit(m mistakes) core.Limit {
	if d.LimitBy == "text" {
		l, err := core.ParseLimit(d.LimitText)
		if err != nil {
			for _, e := range split(errors.Unwrap(err)) {
				m.add("limit", e.Error())
			}
		}

		return l
	}

	l := core.Limit{
		Quota:    d.count(m, "quota", d.Quota, math.MinInt64, math.MaxInt64),
		Burst:    d.optional(m, "burst", d.Burst),
		Debt:     d.optional(m, "debt", d.Debt),
		Segments: int(d.optional(m, "segments", d.Segments)),
		Aligned:  d.Aligned,
	}

	if !l.Algorithm.Parse(d.Algorithm) {
		m.add("algorithm", "choose one of them")
	}
	if l.NeedsWindows() {
		l.Calendar = d.calendar(m)
	} else {
		l.Period = d.period(m)
	}

	return l
}

// calendar returns the text of the calendar. It reads one field after the other, so that each
// mistake is shown beside its own.
func (d *draft) calendar(m mistakes) string {
	if !slices.Contains(calendarUnits(), d.Calendar) {
		m.add("calendar", "choose one of them")
		return ""
	}

	text := d.Calendar
	for _, field := range []struct{ name, value string }{{"tz", d.Zone}, {"start", d.Start}} {
		if field.value == "" {
			continue
		}

		if strings.ContainsFunc(field.value, unicode.IsSpace) {
			m.add(field.name, fmt.Sprintf("%q is more than one word", clip(field.value)))
			continue
		}

		// Each field is tried alone, so that its mistake is not that of another.
		text += " " + field.name + "=" + field.value
		_, err := core.ParseLimit("1/" + d.Calendar + " " + field.name + "=" + field.value)
		for _, e := range split(errors.Unwrap(err)) {
			m.add(field.name, cmp.Or(errors.Unwrap(e), e).Error())
		}
	}

	l, _ := core.ParseLimit("1/" + text)
	return l.Calendar
}

func (d *draft) period(m mistakes) time.Duration {
	n := d.count(m, "period", d.Period, math.MinInt32, math.MaxInt32)
	if n < 1 {
		return 0 // which the check of the limit reports, beside the other mistakes in it
	}

	for _, u := range units() {
		if u.Name != d.Unit {
			continue
		}
		if n > int64(core.MaxPeriod/u.size) {
			m.add("period", "it is above 400 days")
			return 0
		}
		return time.Duration(n) * u.size
	}

	m.add("period", "choose a unit")
	return 0
}

// count reads a whole number.
func (d *draft) count(m mistakes, field, text string, low, high int64) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case text == "":
		m.add(field, "it is empty; write a whole number")
	case err != nil:
		m.add(field, fmt.Sprintf("%q is not a whole number", clip(text)))
	case n < low || n > high:
		m.add(field, fmt.Sprintf("%d is out of range", n))
	default:
		return n
	}

	return 0
}

// optional reads a number above 0 that may be left out.
func (d *draft) optional(m mistakes, field, text string) int64 {
	if text == "" {
		return 0
	}
	n := d.count(m, field, text, math.MinInt32, math.MaxInt64)
	if n <= 0 && len(m[field]) == 0 {
		m.add(field, fmt.Sprintf("%d is not positive; leave it empty for the default", n))
	}
	return n
}

// shareText returns a share, or "" for none.
func shareText(s core.Share) string {
	if s == 0 {
		return ""
	}
	return s.String()
}

// share reads a share, whose sign may be missing.
func (d *draft) share(m mistakes, field, text string) (s core.Share) {
	if number := strings.TrimSpace(strings.TrimSuffix(text, "%")); number != "" {
		text = number + "%"
	}
	if err := s.UnmarshalText([]byte(text)); err != nil {
		m.add(field, err.Error())
	}
	return s
}

// cost reads a number, or a table in JSON.
func (d *draft) cost(m mistakes) policy.Cost {
	if !strings.HasPrefix(d.Cost, "{") {
		return policy.Cost{Units: d.optional(m, "cost", d.Cost)}
	}
	c, err := policy.ParseCost(d.Cost)
	if err != nil {
		m.add("cost", clip(strings.TrimPrefix(err.Error(), "cost: ")))
	}
	return c
}

// clip shortens a text for a message.
func clip(s string) string {
	if len(s) > 100 {
		return strings.ToValidUTF8(s[:100], "") + "…"
	}
	return s
}

func (d *draft) key() string {
	if d.KeyBy == "other" {
		return d.KeyOther
	}
	return d.KeyBy
}

func (d *draft) onLimit(m mistakes) string {
	switch d.OnLimit {
	case "reject":
		return ""
	case "wait":
		if d.Wait == "" {
			m.add("wait", "it is empty; write how long at most, such as 500ms or 2s")
		}
		return "wait " + d.Wait
	}
	return d.OnLimit
}
