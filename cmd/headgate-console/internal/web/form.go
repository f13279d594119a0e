package web

import (
	"net/url"
	"slices"
	"strconv"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/policy"
)

// form is the page for creating or editing a policy.
type form struct {
	draft
	Action       string // the address to send it to
	Back         string // the page to return to without saving
	New          bool
	Needs        string // what the program has to do for the policy, or ""
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
	Comment      string

	Lacks map[string]string // what no instance can carry out, and why; see lacks
}

// appChoice is a check box.
type appChoice struct {
	Name    string
	Checked bool
	Help    string
}

// preview describes the effect of a policy.
type preview struct {
	Describe string // "" while something that matters for it is wrong
	Limit    string // its text, or "" while something is wrong with it
	Drawing  string // the address of its drawing
	Would    string // what it would have refused, if that is more than what the saved policy does
	Faults   []fault
	Open     []fault // the first mistake of each field, shown or not
}

// fault is a mistake with the field that shows it.
type fault struct{ Field, Words, Message string }

// form completes a draft to a page.
func (r *request) form(d draft, m mistakes, isNew bool) (form, error) {
	apps, err := r.Service.Apps(r.req.Context(), r.actor)
	if err != nil {
		return form{}, err
	}

	// The preview describes the draft with its own mistakes, whether the page shows them or not.
	p, own := d.policy()
	if m == nil {
		m = mistakes{}
	}

	f := form{
		draft: d, New: isNew, Mistakes: m, Preview: previewOf(p, own, m), Action: "/new", Back: "/new",
		Algos: algorithms(), Recipes: recipes(), OnLimits: limitActions(), FailureModes: failureModes(),
		Modes: modes(), Units: units(), Calendars: calendarUnits(),
	}

	// The comment is of the edit, and not of the policy that it makes.
	f.Comment = r.field("comment")

	if !isNew {
		f.Back = policyPath(d.Name)
		f.Action = f.Back + "/edit"
	}

	if f.Preview.Would, err = r.wouldRefuse(d, p, own); err != nil {
		return form{}, err
	}

	f.OwnApps, f.Lacks = tick(apps, d.Apps), r.lacks(d.Apps)
	for _, verb := range usualMethods() {
		f.Verbs = append(f.Verbs, appChoice{Name: verb, Checked: slices.Contains(d.Methods, verb)})
	}

	if len(own["limit"]) == 0 && p.Limit.Validate() == nil {
		f.draft.fillOther(p)
	}

	return f, nil
}

// wouldRefuse says what a valid draft of a saved policy would have refused, or "".
func (r *request) wouldRefuse(d draft, p policy.Policy, own mistakes) (string, error) {
	if d.Version == 0 || len(own) > 0 {
		return "", nil
	}
	w, err := r.Service.WouldRefuse(r.req.Context(), r.actor, p)
	if w == nil {
		return "", err
	}
	return w.Sentence(), nil
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

	// An application that the actor does not see stays ticked: the edit must not take it away.
	for _, name := range chosen {
		if !slices.ContainsFunc(list, func(c appChoice) bool { return c.Name == name }) {
			list = append(list, appChoice{Name: name, Checked: true})
		}
	}

	return list
}

// previewOf describes a policy with its own mistakes. It lists the mistakes in show, in the
// order of the fields.
func previewOf(p policy.Policy, own, show mistakes) preview {
	out := preview{Describe: describe(p, own)}
	if p.Limit.Validate() == nil {
		out.Limit = p.Limit.String()
		out.Drawing = drawingPath(out.Limit)
	}

	for _, name := range formFields() {
		for _, text := range show[name] {
			out.Faults = append(out.Faults, fault{name, fieldWords(name), text})
		}
		if len(own[name]) > 0 {
			out.Open = append(out.Open, fault{name, fieldWords(name), own[name][0]})
		}
	}

	return out
}

// describe says in words what a policy does, or returns "" if a mistake leaves that open. Its
// name, its applications and its description do not matter for it.
func describe(p policy.Policy, own mistakes) string {
	for name, texts := range own {
		if len(texts) > 0 && name != "name" && name != "apps" && name != "description" {
			return ""
		}
	}
	p.Name, p.Apps, p.Description = "any", []string{"any"}, ""
	return p.Describe()
}

// formFields are the names of all fields in the order of the page.
func formFields() []string {
	return []string{
		"", "name", "apps", "description", "methods", "path", "host", "except", "headers",
		"query", "claims", "key", "key_other", "quota", "period", "calendar", "tz", "start", "burst",
		"limit_fields", "limit", "on_limit",
		"wait", "ban_after", "ban_for", "ban_max", "mode", "enforce", "warn", "algorithm", "debt", "segments",
		"aligned", "cost", "refund", "count_only", "plans", "plan_by", "overrides",
		"access", "on_store_error", "priority", "comment", "at", "zone",
	}
}

// fieldNames are the names of fields of the form that no field of a policy has.
var fieldNames = map[string]string{
	"": "Policy", "quota": "Requests", "period": "Period", "calendar": "Calendar", "tz": "Time zone",
	"start": "First day",
	"burst": "At once at most", "limit_fields": "Limit", "key_other": "Key", "wait": "Longest wait",
	"ban_after": "Ban after", "ban_for": "Ban for", "ban_max": "Longest ban",
	"algorithm": "Counted by", "debt": "In debt at most", "segments": "Segments", "aligned": "By the clock",
	"methods": label("match.methods"), "host": label("match.host"), "path": label("match.path"),
	"except": label("match.except"), "headers": label("match.headers"),
	"query": label("match.query"), "claims": label("match.claims"),
}

// fieldWords returns the name of a field of the form for people.
func fieldWords(name string) string {
	if words, ok := fieldNames[name]; ok {
		return words
	}
	return label(name)
}

// OneOfUnit reports whether the period is one unit, whose word has no "s" then.
func (f form) OneOfUnit() bool {
	n, err := strconv.ParseInt(f.Period, 10, 64)
	return err == nil && n == 1
}

// Counting reports whether the limit is counted in an unusual way, or wrongly filled in there.
func (f form) Counting() bool {
	return f.LimitBy == "text" || f.Algorithm != "gcra" || f.Debt+f.Segments != "" || f.Aligned ||
		f.Mistakes.anyIn("algorithm", "debt", "segments", "aligned")
}

// Narrowed reports whether the form has paths that are left out, headers, a query or claims.
func (f form) Narrowed() bool {
	return f.Except+f.Headers+f.Query+f.Claims != "" || f.Mistakes.anyIn("except", "headers", "query", "claims")
}

// Priced reports whether the form says what a request takes, or which answers count.
func (f form) Priced() bool {
	return f.Cost+f.Refund+f.CountOnly != "" || f.Mistakes.anyIn("cost", "refund", "count_only")
}

// Banning reports whether the form has a ban.
func (f form) Banning() bool {
	return f.BanAfter+f.BanFor+f.BanMax != "" || f.Mistakes.anyIn("ban_after", "ban_for", "ban_max")
}

// Sharing reports whether the form is for a share of the keys, or has keys near the limit reported.
func (f form) Sharing() bool { return f.Enforce+f.Warn != "" || f.Mistakes.anyIn("enforce", "warn") }

// Planned reports whether the form has plans, or limits of single keys.
func (f form) Planned() bool {
	return f.Plans+f.PlanBy+f.Overrides != "" || f.Mistakes.anyIn("plans", "plan_by", "overrides")
}

// Excepting reports whether the form has exceptions.
func (f form) Excepting() bool {
	return f.AllowNetworks+f.AllowKeys+f.DenyNetworks+f.DenyKeys+f.DenyStatus != "" || f.DenyOthers ||
		f.Mistakes.anyIn("access")
}

// Failing reports whether the form says what happens if the store fails, or has a priority.
func (f form) Failing() bool {
	return f.OnStoreError != "" || f.Priority != "0" || f.Mistakes.anyIn("on_store_error", "priority")
}

// anyIn reports whether there are mistakes in some of the fields.
func (m mistakes) anyIn(fields ...string) bool {
	return slices.ContainsFunc(fields, func(name string) bool { return len(m[name]) > 0 })
}

func policyPath(name string) string { return "/policies/" + url.PathEscape(name) }

func drawingPath(limit string) string { return "/drawing.svg?limit=" + url.QueryEscape(limit) }

// version reads the version that a change is based on; 0 is never current.
func (r *request) version(field string) int64 {
	n, err := strconv.ParseInt(r.field(field), 10, 64)
	if err != nil {
		return 0
	}
	return n
}
