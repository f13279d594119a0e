package web

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
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
	if !slices.Contains(m[field], text) {
		m[field] = append(m[field], text)
	}
}

// mistakesOf returns the mistakes in the input, or nil.
func mistakesOf(err error) mistakes {
	var invalid *service.InvalidError
	if !errors.As(err, &invalid) {
		return nil
	}

	m := mistakes{}
	for _, f := range invalid.Faults {
		m.add(f.Field, f.Message)
	}
	return m
}

// err returns the mistakes as an error.
func (m mistakes) err() error {
	var list []service.Fault
	for field, texts := range m {
		for _, text := range texts {
			list = append(list, service.Fault{Field: field, Message: text})
		}
	}
	return &service.InvalidError{Faults: list}
}

// mistake returns the error of one field of a form.
func mistake(field, text string) error {
	return &service.InvalidError{Faults: []service.Fault{{Field: field, Message: text}}}
}

// renamed returns the mistakes, with those of a field of the service at the field of the form.
func (m mistakes) renamed(field, shown string) mistakes {
	if texts := m[field]; texts != nil && field != shown {
		delete(m, field)
		m[shown] = texts
	}
	return m
}

// place returns the input that shows a mistake in a field of a policy, and the text there.
func (d draft) place(field, text string) (string, string) {
	top, rest, deep := strings.Cut(field, ".")
	top, _, _ = strings.Cut(top, "[") // which does not name a key that may be a secret
	word, _, _ := strings.Cut(text, " ")

	// The first word of a mistake tells which of the inputs of a field it is about.
	switch {
	case top == "match":
		top = rest
	case deep:
		text = rest + ": " + text
	case top == "limit" && slices.Contains([]string{"quota", "period", "burst", "debt", "segments", "aligned"}, word):
		top = word
	case top == "ban" && slices.Contains([]string{"within", "for", "max"}, word):
		top = "ban_" + word
	case top == "ban":
		top = "ban_after"
	case top == "key" && d.Get("key") == "other":
		top = "key_other"
	case top == "on_limit" && d.Get("on_limit") == "wait":
		top = "wait"
	}
	return top, text
}

// policy reads the form. Without mistakes the policy is valid.
func (d draft) policy() (policy.Policy, mistakes) {
	m := mistakes{}
	p := policy.Policy{
		Name: d.Get("name"), Description: d.Get("description"), Apps: d["apps"],
		Limit: d.limit(m), Key: d.Get("key"), OnLimit: d.onLimit(m), OnStoreError: d.Get("on_store_error"),
		Match: policy.Match{
			Methods: strings.FieldsFunc(strings.ToUpper(d.Get("methods")), isSeparator),
			Host:    strings.ToLower(d.Get("host")), Path: d.Get("path"), Except: lines(d.Get("except")),
			Headers: table(m, "headers", d.Get("headers"), "X-Plan: free"),
			Query:   table(m, "query", d.Get("query"), "export: csv"),
			Claims:  table(m, "claims", d.Get("claims"), "plan: free"),
		},
		Cost: d.cost(m), Refund: statuses(d.Get("refund")), CountOnly: statuses(d.Get("count_only")),
		Enforce: d.share(m, "enforce"), Warn: d.share(m, "warn"), Ban: d.ban(m), PlanBy: d.Get("plan_by"),
		Plans: limitTable(m, "plans", d.Get("plans"),
			"a name, a colon and a limit, such as pro: 9000/1h", core.ParseLimit),
		Overrides: limitTable(m, "overrides", d.Get("overrides"),
			"a key, a colon and a limit, such as user:42: 9000/1h", policy.ParseOverride),
		Access: d.access(m),
	}

	// What stands in two inputs, or is no text, is read by itself.
	p.Version, _ = strconv.ParseInt(d.Get("version"), 10, 64) // 0 is no version, and so stale
	if p.Key == "other" {
		p.Key = d.Get("key_other")
	}
	if err := p.Mode.UnmarshalText([]byte(d.Get("mode"))); err != nil {
		m.add("mode", err.Error())
	}
	if text := d.Get("priority"); text != "" {
		p.Priority = int(whole(m, "priority", text, math.MinInt32))
	}

	d.check(p, m)
	return p, m
}

func isSeparator(c rune) bool { return c == ' ' || c == ',' || c == '\t' || c == '\r' || c == '\n' }

// readFor are the inputs without which a field of a policy cannot be checked.
var readFor = map[string][]string{
	"limit": {"algorithm", "calendar", "tz", "start"},
	"match": {"headers", "query", "claims"}, "on_limit": {"wait"}, "plan_by": {"plans"},
	"ban": {"ban_after", "ban_within", "ban_for", "ban_max"},
}

// check adds the mistakes of the policy, unless one in the text of an input explains them.
func (d draft) check(p policy.Policy, m mistakes) {
	unread := maps.Clone(m)
	for _, err := range split(p.Validate()) {
		var f *policy.FieldError
		if !errors.As(err, &f) {
			m.add("", err.Error())
			continue
		}

		// The first name of a path such as plans.pro or overrides[2] is that of the field.
		top := f.Field[:strings.IndexAny(f.Field+".", ".[")]
		if unread.anyIn(top) || unread.anyIn(readFor[top]...) {
			continue
		}
		for _, e := range split(f.Err) {
			if at, text := d.place(f.Field, e.Error()); !unread.anyIn(at) {
				m.add(at, text)
			}
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

// oneWord reports whether a text is one word, and adds a mistake if not. Several could fill in
// what another input is for.
func oneWord(m mistakes, field, text string) bool {
	if strings.ContainsFunc(text, unicode.IsSpace) {
		m.add(field, fmt.Sprintf("%q is more than one word", clip(text)))
		return false
	}
	return true
}

// banTexts returns the times of a ban: the usual where an input is empty.
func (d draft) banTexts() (within, first, most string) {
	within, first = cmp.Or(d.Get("ban_within"), "1m"), cmp.Or(d.Get("ban_for"), "10m")
	most = cmp.Or(d.Get("ban_max"), "24h")

	// One that is longer than the usual maximum is the longest itself.
	if span, err := time.ParseDuration(first); d.Get("ban_max") == "" && err == nil && span > 24*time.Hour {
		most = first
	}
	return within, first, most
}

// ban reads the inputs of a ban, none of which is filled in without one.
func (d draft) ban(m mistakes) core.Ban {
	names := readFor["ban"]
	empty, words := true, true
	for _, name := range names {
		empty = empty && d.Get(name) == ""
		words = oneWord(m, name, d.Get(name)) && words
	}
	if empty || !words || whole(m, "ban_after", d.Get("ban_after"), 1) == 0 {
		return core.Ban{}
	}

	within, first, most := d.banTexts()
	ban, err := core.ParseBan(d.Get("ban_after") + "/" + within + " for " + first + " max " + most)
	for _, e := range split(errors.Unwrap(err)) {
		m.add(d.place("ban", e.Error()))
	}
	return ban
}

func (d draft) limit(m mistakes) core.Limit {
	l := core.Limit{
		Quota: whole(m, "quota", d.Get("quota"), 1), Burst: optional(m, "burst", d.Get("burst")),
		Debt: optional(m, "debt", d.Get("debt")), Segments: int(optional(m, "segments", d.Get("segments"))),
		Aligned: d.Get("aligned") != "",
	}
	if !l.Algorithm.Parse(d.Get("algorithm")) {
		m.add("algorithm", "choose one of them")
	}
	if l.NeedsWindows() {
		l.Calendar = d.calendar(m)
	} else {
		l.Period = d.period(m)
	}
	return l
}

// calendar returns the text of the calendar. Each input is tried alone, so that its mistake is not
// that of another.
func (d draft) calendar(m mistakes) string {
	text := "1/" + d.Get("calendar")
	if !slices.ContainsFunc(choices("calendar"), func(c choice) bool { return c.Value == d.Get("calendar") }) {
		m.add("calendar", "choose one of them")
		return ""
	}

	for _, name := range []string{"tz", "start"} {
		value := d.Get(name)
		if value == "" || !oneWord(m, name, value) {
			continue
		}
		_, err := core.ParseLimit("1/" + d.Get("calendar") + " " + name + "=" + value)
		for _, e := range split(errors.Unwrap(err)) {
			m.add(name, cmp.Or(errors.Unwrap(e), e).Error())
		}
		text += " " + name + "=" + value
	}

	l, _ := core.ParseLimit(text)
	return l.Calendar
}

func (d draft) period(m mistakes) time.Duration {
	n := whole(m, "period", d.Get("period"), 1)
	for _, u := range units() {
		switch {
		case u.Name != d.Get("unit"):
		case n > int64(core.MaxPeriod/u.size):
			m.add("period", "it is above 400 days")
			return 0
		default:
			return time.Duration(n) * u.size
		}
	}
	m.add("period", "choose a unit")
	return 0
}

// whole reads a whole number that is not below low.
func whole(m mistakes, field, text string, low int64) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case text == "":
		m.add(field, "it is empty; write a whole number")
	case errors.Is(err, strconv.ErrRange):
		m.add(field, clip(text)+" is out of range")
	case err != nil:
		m.add(field, fmt.Sprintf("%q is not a whole number", clip(text)))
	case n < low:
		m.add(field, fmt.Sprintf("%d is too small; write %d or more", n, low))
	default:
		return n
	}
	return 0
}

// optional reads a number above 0 that may be left out.
func optional(m mistakes, field, text string) int64 {
	if text == "" {
		return 0
	}
	return whole(m, field, text, 1)
}

// share reads a share, whose sign may be missing.
func (d draft) share(m mistakes, field string) (s core.Share) {
	text := d.Get(field)
	if number := strings.TrimSpace(strings.TrimSuffix(text, "%")); number != "" {
		text = number + "%"
	}
	if err := s.UnmarshalText([]byte(text)); err != nil {
		m.add(field, err.Error())
	}
	return s
}

// cost reads a number, or a table in JSON.
func (d draft) cost(m mistakes) policy.Cost {
	text := d.Get("cost")
	if !strings.HasPrefix(text, "{") {
		return policy.Cost{Units: optional(m, "cost", text)}
	}
	c, err := policy.ParseCost(text)
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

func (d draft) onLimit(m mistakes) string {
	switch action := d.Get("on_limit"); action {
	case "reject":
		return ""
	case "wait":
		if d.Get("wait") == "" {
			m.add("wait", "it is empty; write how long at most, such as 500ms or 2s")
		}
		return "wait " + d.Get("wait")
	default:
		return action
	}
}

// readTime reads a time of a field with the zone of another, and adds mistakes.
func readTime(m mistakes, field, text, zone string) time.Time {
	where, err := time.LoadLocation(zone)
	if err != nil || zone == "" || zone == "Local" {
		m.add("zone", "it is not the name of a time zone, such as UTC or Europe/Berlin")
		return time.Time{}
	}
	for _, layout := range []string{"2006-01-02T15:04", "2006-01-02T15:04:05"} {
		t, err := time.ParseInLocation(layout, text, where)
		if err != nil {
			continue
		}

		// Twice a year a clock skips an hour, or shows one twice. Go picks an instant in both
		// cases, and the user has to say which one is meant.
		switch {
		case t.Format(layout) != text:
			m.add(field, "the clocks of this time zone skip this time; choose another")
		case t.Add(time.Hour).Format(layout) == text || t.Add(-time.Hour).Format(layout) == text:
			m.add(field, "the clocks of this time zone show this time twice; give it in UTC")
		}
		return t
	}

	m.add(field, "it is not a date and a time, such as 2030-01-31T09:00")
	return time.Time{}
}
