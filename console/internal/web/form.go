package web

import (
	"net/url"
	"slices"
	"strconv"

	"github.com/headgate/headgate/console/internal/service"
	"github.com/headgate/headgate/policy"
)

// form is the page for creating or editing a policy.
type form struct {
	draft
	Action       string // the address to send it to
	Back         string // the page to return to without saving
	New          bool
	Mistakes     mistakes
	Preview      preview
	Checked      bool // the user asked for the preview
	OwnApps      []appChoice
	Algos        []choice
	Recipes      []choice
	OnLimits     []choice
	FailureModes []choice
	Modes        []choice
	Units        []unit
	Calendars    []string
	Verbs        []appChoice
}

// appChoice is a check box.
type appChoice struct {
	Name    string
	Checked bool
	Help    string
}

// preview describes the effect of a policy.
type preview struct {
	Describe string // "" while something is wrong
	Limit    string // its text, or "" while something is wrong with it
	Drawing  string // the address of its drawing
	Faults   []fault
}

// fault is a mistake with the field that shows it.
type fault struct{ Field, Words, Message string }

// form completes a draft to a page.
func (v *request) form(d draft, m mistakes, isNew bool) (form, error) {
	apps, err := v.Service.Apps(v.r.Context(), v.actor)
	if err != nil {
		return form{}, err
	}
	p, own := d.policy()
	if m == nil {
		m = mistakes{}
	}
	f := form{
		draft: d, New: isNew, Mistakes: m, Preview: previewOf(p, own, m), Action: "/new", Back: "/policies",
		Algos: algorithms(), Recipes: recipes(), OnLimits: limitActions(), FailureModes: failureModes(), Modes: modes(), Units: units(), Calendars: calendarUnits(),
	}
	if !isNew {
		f.Back = policyPath(d.Name)
		f.Action = f.Back + "/edit"
	}
	f.OwnApps = tick(apps, d.Apps)
	for _, verb := range usualMethods() {
		f.Verbs = append(f.Verbs, appChoice{Name: verb, Checked: slices.Contains(d.Methods, verb)})
	}
	if len(own["limit"]) == 0 && p.Limit.Validate() == nil {
		f.draft.fillOther(p)
	}
	return f, nil
}

// fillOther fills in the form of the limit that the user did not choose, fields or
// text, from the chosen one.
func (d *draft) fillOther(p policy.Policy) {
	if d.LimitBy != "text" {
		d.LimitText = p.Limit.String()
		return
	}
	text := d.LimitText
	d.setLimit(p.Limit)
	d.LimitBy, d.LimitText = "text", text
}

// tick lists the applications that may be chosen, and all that are chosen.
func tick(apps []service.App, chosen []string) []appChoice {
	var list []appChoice
	for _, a := range apps {
		if a.Role == service.Owner || slices.Contains(chosen, a.Name) {
			list = append(list, appChoice{a.Name, slices.Contains(chosen, a.Name), a.Description})
		}
	}
	for _, name := range chosen {
		if !slices.ContainsFunc(list, func(c appChoice) bool { return c.Name == name }) {
			list = append(list, appChoice{Name: name, Checked: true})
		}
	}
	return list
}

// previewOf describes a policy. It lists the mistakes in show, in the order of the
// fields.
func previewOf(p policy.Policy, own, show mistakes) preview {
	var out preview
	if len(own) == 0 {
		out.Describe = p.Describe()
	}
	if p.Limit.Validate() == nil {
		out.Limit = p.Limit.String()
		out.Drawing = drawingPath(out.Limit)
	}
	for _, name := range formFields() {
		for _, text := range show[name] {
			out.Faults = append(out.Faults, fault{name, fieldWords(name), text})
		}
	}
	return out
}

// formFields are the names of all fields in the order of the page.
func formFields() []string {
	return []string{
		"", "name", "description", "apps", "algorithm", "quota", "period", "calendar", "tz", "start", "burst", "debt", "segments", "aligned", "limit_fields", "limit",
		"key", "key_other", "methods", "host", "path", "on_limit", "wait", "ban_after", "ban_for", "ban_max", "mode", "plans", "plan_by", "access", "on_store_error", "priority",
	}
}

func fieldWords(name string) string {
	switch name {
	case "":
		return "Policy"
	case "quota":
		return "Requests"
	case "tz":
		return "Time zone"
	case "start":
		return "First day"
	case "period", "burst", "debt", "algorithm", "segments", "calendar":
		return string(name[0]-'a'+'A') + name[1:]
	case "aligned":
		return "By the clock"
	case "limit_fields":
		return "Limit"
	case "key_other":
		return "Key"
	case "methods", "host", "path":
		return label("match." + name)
	case "wait":
		return "Longest wait"
	case "ban_after":
		return "Ban after"
	case "ban_for":
		return "Ban for"
	case "ban_max":
		return "Longest ban"
	}
	return label(name)
}

func policyPath(name string) string { return "/policies/" + url.PathEscape(name) }

func drawingPath(limit string) string { return "/drawing.svg?limit=" + url.QueryEscape(limit) }

// version reads the version that a change is based on; 0 is never current.
func (v *request) version(field string) int64 {
	n, err := strconv.ParseInt(v.field(field), 10, 64)
	if err != nil {
		return 0
	}
	return n
}
