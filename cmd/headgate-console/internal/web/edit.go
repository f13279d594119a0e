package web

import (
	"errors"
	"net/http"
	"net/url"
	"slices"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/policy"
)

// newPage shows the templates, or the form of a new policy: from a template, from nothing, or
// as a copy of another policy.
func newPage(r *request) error {
	apps, err := r.ownApps()
	if err != nil {
		return err
	}

	// A manager can add the application that is missing. Others have to be given one.
	if len(apps) == 0 && r.access.CanManage() {
		return r.show(http.StatusOK, "noapps", "New policy", nil)
	}
	if len(apps) == 0 {
		return r.Service.Refuse(r.req.Context(), r.actor, "policy.create", "policies",
			"it takes the owner of an application")
	}

	if r.query("from") == "" && r.query("template") == "" {
		return r.show(http.StatusOK, "begin", "New policy", r.templates())
	}

	d, needs, err := r.newDraft()
	if err != nil {
		return err
	}

	if len(d.Apps) == 0 {
		d.Apps = appsToBegin(apps, r.query("app"))
	}

	f, err := r.form(d, nil, true)
	if err != nil {
		return err
	}
	f.Needs = needs
	return r.show(http.StatusOK, "form", "New policy", f)
}

// appsToBegin returns the applications that a new policy begins with: the wanted one, or the only
// one that there is.
func appsToBegin(own []string, wanted string) []string {
	switch {
	case slices.Contains(own, wanted):
		return []string{wanted}
	case len(own) == 1:
		return own
	}
	return nil
}

// templateList is the page of the templates.
type templateList struct {
	Kinds   []kindLink
	Nothing string // the address of the form without a template
}

// kindLink leads to the form of a template.
type kindLink struct {
	kindOfUse
	Link string
}

// templates returns the templates. Their forms have the application of the request.
func (r *request) templates() templateList {
	link := func(template string) string {
		u := url.Values{"template": {template}}
		if app := r.query("app"); app != "" {
			u.Set("app", app)
		}
		return "/new?" + u.Encode()
	}

	b := templateList{Nothing: link(fromNothing)}
	for _, k := range kindsOfUse() {
		b.Kinds = append(b.Kinds, kindLink{k, link(k.Name)})
	}
	return b
}

// newDraft returns what the form of a new policy begins with, and what the program has to do for
// it.
func (r *request) newDraft() (d draft, needs string, err error) {
	// A copy begins in shadow, as every new policy does, whatever the mode of its original is.
	if from := r.query("from"); from != "" {
		p, err := r.Service.Policy(r.req.Context(), r.actor, from)
		if err != nil {
			return d, "", err
		}
		p.Name, p.Version, p.Mode = copyName(p.Name), 0, policy.Shadow
		d = draftFrom(p)
	} else if k, ok := kindNamed(r.query("template")); ok {
		d, needs = draftFrom(k.Policy), k.Needs
	} else if r.query("template") == fromNothing {
		return blank(), "", nil
	} else {
		return d, "", service.ErrNotFound
	}

	// The name of the original, or of the template, is often taken, and then gets a number.
	d.Name, err = r.Service.FreeName(r.req.Context(), r.actor, d.Name)
	return d, needs, err
}

// ownApps returns the names of the applications that the actor owns.
func (r *request) ownApps() (names []string, err error) {
	apps, err := r.Service.Apps(r.req.Context(), r.actor)
	for _, a := range apps {
		if a.Role == service.Owner {
			names = append(names, a.Name)
		}
	}
	return names, err
}

// copyName returns a name for a copy that is not too long.
func copyName(name string) string {
	const end = "-copy"
	return name[:min(len(name), policy.MaxName-len(end))] + end
}

func create(r *request) error {
	d := draftOf(r.req.PostForm)
	p, m := d.policy()

	// A preview shows mistakes, too, and is not a failure.
	if r.field("do") == "preview" {
		return r.reshow(d, m, true, http.StatusOK)
	}
	if len(m) > 0 {
		return r.reshow(d, m, true, http.StatusUnprocessableEntity)
	}

	saved, err := r.Service.CreatePolicy(r.req.Context(), r.saying(), p)
	var conflict *service.ConflictError
	if errors.As(err, &conflict) {
		m.add("name", "there is a policy of that name; choose another")
		return r.reshow(d, m, true, http.StatusConflict)
	}
	if err != nil {
		return r.showRefusal(err, d, true)
	}
	return r.seeOther(policyPath(saved.Name), "created")
}

func editPage(r *request) error {
	p, err := r.Service.PolicyToEdit(r.req.Context(), r.actor, "policy.update", r.req.PathValue("name"))
	if err != nil {
		return err
	}
	f, err := r.form(draftFrom(p), nil, false)
	if err != nil {
		return err
	}
	return r.show(http.StatusOK, "form", "Edit "+p.Name, f)
}

func update(r *request) error {
	d := draftOf(r.req.PostForm)
	d.Name = r.req.PathValue("name")
	p, m := d.policy()

	if r.field("do") == "preview" {
		return r.reshow(d, m, false, http.StatusOK)
	}
	if len(m) > 0 {
		return r.reshow(d, m, false, http.StatusUnprocessableEntity)
	}

	// An edit may turn the policy off among other things, which is asked about as if it were all.
	off, err := r.turnsOff(p)
	if err != nil {
		return err
	}
	if off && !r.confirmed() {
		return r.confirmOff(p, "now on", policyPath(p.Name)+"/edit", r.sent())
	}
	if asked, err := r.confirmMore(p, policyPath(p.Name)+"/edit"); asked || err != nil {
		return err
	}

	saved, err := r.Service.UpdatePolicy(r.req.Context(), r.saying(), p)
	if err != nil {
		return r.showRefusal(err, d, false)
	}
	return r.seeOther(policyPath(saved.Name), "saved")
}

// turnsOff reports whether an edit turns a policy off that the actor may change. The service
// refuses other edits.
func (r *request) turnsOff(p policy.Policy) (bool, error) {
	if p.Mode != policy.Off {
		return false, nil
	}
	now, err := r.Service.Policy(r.req.Context(), r.actor, p.Name)
	if errors.Is(err, service.ErrNotFound) {
		return false, nil
	}
	if err != nil || now.Mode == policy.Off || now.Version != p.Version {
		return false, err
	}
	return r.access.CanEdit(now.Apps) && r.access.CanEdit(p.Apps), nil
}

// showRefusal shows why the service did not save a policy.
func (r *request) showRefusal(err error, d draft, isNew bool) error {
	var invalid *service.InvalidError
	if errors.As(err, &invalid) {
		m := mistakes{}
		m.addFaults(invalid.Faults)
		return r.reshow(d, m, isNew, http.StatusUnprocessableEntity)
	}
	return r.conflictOr(err)
}

// reshow shows the form as it was sent, with the mistakes in it.
func (r *request) reshow(d draft, m mistakes, isNew bool, status int) error {
	f, err := r.form(d, m, isNew)
	if err != nil {
		return err
	}

	f.Checked = true

	title := "New policy"
	if !isNew {
		title = "Edit " + d.Name
	}
	return r.show(status, "form", title, f)
}
