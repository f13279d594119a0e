package web

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/drawing"
	"github.com/headgate/headgate/policy"
)

// form is the page for creating or editing a policy.
type form struct {
	draft
	Action   string // the address to send it to
	Back     string // the page to return to without saving
	New      bool
	App      string // that the address names, or ""
	Start    string // the name of the start that it begins with, or ""
	Needs    string // what the program has to do for the policy, or ""
	Mistakes mistakes
	Preview  preview
	OwnApps  []appChoice

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
	Parts    []part
}

// fault is a mistake with the field that shows it.
type fault struct{ Field, Words, Message string }

// showForm shows a draft with the mistakes in it: for a new policy unless the address names one.
func (r *request) showForm(status int, d draft, m mistakes) (err error) {
	if m == nil {
		m = mistakes{}
	}
	name := r.req.PathValue("name")
	f := form{
		draft: d, New: name == "", Mistakes: m, OwnApps: r.tick(d["apps"]), Lacks: r.lacks(d["apps"]),
		Action: "/new", Back: "/policies", App: r.query("app"), Start: r.query("template"),
	}
	if at := startAt(f.Start); at >= 0 {
		f.Needs = vocabulary.Starts[at].Needs
	}

	// The preview describes the draft with its own mistakes, whether the page shows them or not.
	if f.Preview, err = r.preview(d, m); err != nil {
		return err
	}

	title := "New policy"
	if !f.New {
		title, f.Back = "Edit "+name, policyPath(name)
		f.Action = f.Back + "/edit"
	}
	return r.show(status, "form", title, f)
}

// startAt returns the place of a start by its name, or -1.
func startAt(name string) int {
	return slices.IndexFunc(vocabulary.Starts, func(s start) bool { return s.Policy.Name == name })
}

// preview returns the preview of a draft, which lists the mistakes in show.
func (r *request) preview(d draft, show mistakes) (preview, error) {
	p, own := d.policy()
	out := previewOf(d, p, own, show)
	if p.Version == 0 || len(own) > 0 {
		return out, nil
	}

	// The saved policy has counts, by which a valid draft is measured.
	w, err := r.Service.WouldRefuse(r.req.Context(), r.actor, p)
	if w != nil {
		out.Would = w.Sentence()
	}
	return out, err
}

// tick lists the applications that may be chosen, and all that are chosen.
func (r *request) tick(chosen []string) []appChoice {
	var list []appChoice
	for _, a := range r.apps {
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
func previewOf(d draft, p policy.Policy, own, show mistakes) preview {
	out := preview{Describe: describe(p, own)}
	if p.Limit.Validate() == nil {
		out.Limit = p.Limit.String()
		out.Drawing = drawingPath(out.Limit)
	}

	for _, in := range vocabulary.Inputs {
		for _, text := range show[in.Name] {
			out.Faults = append(out.Faults, fault{in.Name, in.Words, text})
		}
		if len(own[in.Name]) > 0 {
			out.Open = append(out.Open, fault{in.Name, in.Words, own[in.Name][0]})
		}
	}

	for _, part := range vocabulary.Parts {
		part.Said, part.Open = part.of(d), show.anyIn(part.Inputs...)
		out.Parts = append(out.Parts, part)
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

// control is an input of the form, or a place for mistakes of several.
type control struct {
	Name, Words, Placeholder string
	Kind                     string // "area" has several lines, "number" digits alone
	Help                     string // code in it stands between backquotes
}

// Pieces returns the help, of which every second piece is code.
func (c control) Pieces() []string { return strings.Split(c.Help, "`") }

// inputOf returns an input by its name.
func inputOf(name string) control {
	inputs := vocabulary.Inputs
	return inputs[slices.IndexFunc(inputs, func(in control) bool { return in.Name == name })]
}

// part is a part of the form that is folded to one line.
type part struct {
	ID, Add string // Add names what can be added
	Inputs  []string
	Said    string // what it has, or ""
	Open    bool   // something in it is wrong
}

// of says in one line what a draft has of the part.
func (p part) of(d draft) string {
	if p.ID == "banning" && d.Get("ban_after") != "" {
		within, first, most := d.banTexts()
		return "Ban after " + clip(d.Get("ban_after")) + " refusals in " + clip(within) + " for " + clip(first) +
			", up to " + clip(most)
	}

	var said []string
	for _, name := range p.Inputs {
		text := strings.Join(strings.FieldsFunc(d.Get(name), func(c rune) bool { return c == '\n' }), ", ")
		at := slices.IndexFunc(choices(name), func(c choice) bool { return c.Value == text })
		switch {
		case text == "" || text == "gcra":
		case at >= 0:
			said = append(said, choices(name)[at].Words)
		case text == "yes":
			said = append(said, inputOf(name).Words)
		case name == "description":
			said = append(said, clip(text))
		default:
			said = append(said, inputOf(name).Words+" "+clip(text))
		}
	}
	return strings.Join(said, " · ")
}

// Part returns a part by its ID.
func (f form) Part(id string) part {
	return f.Preview.Parts[slices.IndexFunc(f.Preview.Parts, func(p part) bool { return p.ID == id })]
}

// Starts are the policies to begin with.
func (form) Starts() []start { return vocabulary.Starts }

// PathOf returns the address of the form with a start, which keeps the application.
func (f form) PathOf(s start) string {
	return "/new?" + given(map[string]string{"template": s.Policy.Name, "app": f.App}).Encode()
}

// Units are the units of the period. The smallest is there if the period has it.
func (f form) Units() []unit {
	if f.Get("unit") == "us" {
		return units()
	}
	return units()[1:]
}

// box is an input as templates show it.
type box struct {
	control
	Value           string
	Wrong, Disabled bool
	Errors          []remark
	Options         []option
}

// Box returns an input. What no instance can carry out can still be taken away.
func (f form) Box(name string) box {
	in := inputOf(name)
	return box{
		control: in, Value: f.Get(name), Wrong: f.Mistakes.anyIn(name), Errors: f.Errors(name),
		Disabled: f.Lacks[name] != "" && f.Get(name) == "", Options: f.Options(name),
	}
}

// option is a choice that may be chosen, or out of the reach of all instances.
type option struct {
	choice
	Chosen bool
	Lack   string
}

// Options returns the options of an input.
func (f form) Options(name string) []option {
	var list []option
	for _, c := range choices(name) {
		o := option{choice: c, Chosen: c.Value == f.Get(name)}
		if name == "key" {
			o.Lack = f.Lacks[c.Value]
		}
		list = append(list, o)
	}
	return list
}

// Errors returns the mistakes of several inputs.
func (f form) Errors(names ...string) []remark {
	var list []remark
	for _, name := range names {
		list = append(list, at(f.Mistakes, name))
	}
	return list
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

// validate answers with the preview of a form that is being filled in, and with its
// mistakes.
func validate(r *request) error {
	d := draftOf(r.req.URL.Query())
	_, m := d.policy()
	view, err := r.preview(d, m)
	if err != nil {
		return err
	}
	return r.fragment("form", "preview", view)
}

// draw serves the drawing of a limit. Browsers may cache it.
func draw(r *request) error {
	l, err := core.ParseLimit(r.query("limit"))
	var svg string
	if err == nil {
		svg, err = drawing.SVG(l)
	}
	if err != nil {
		http.Error(r.w, err.Error(), http.StatusBadRequest)
		return nil
	}
	h := r.w.Header()
	h.Set("Content-Type", "image/svg+xml")
	h.Set("Cache-Control", "private, max-age=3600")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; sandbox; frame-ancestors 'none'")
	_, _ = r.w.Write([]byte(svg)) // the client may have gone
	return nil
}
