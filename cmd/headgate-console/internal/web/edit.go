package web

import (
	"errors"
	"net/http"
	"slices"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/policy"
)

// newPage shows the form of a new policy: from nothing, with a start, or as a copy of another
// policy.
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

	d, needs, err := r.newDraft()
	if err != nil {
		return err
	}
	if len(d["apps"]) == 0 {
		d["apps"] = appsToBegin(apps, r.query("app"))
	}

	f, err := r.form(d, nil, true)
	if err != nil {
		return err
	}
	f.App, f.Start, f.Needs = r.query("app"), r.query("template"), needs
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

// newDraft returns what the form of a new policy begins with, and what the program has to do for
// it.
func (r *request) newDraft() (d draft, needs string, err error) {
	var p policy.Policy
	from, template := r.query("from"), r.query("template")
	at := slices.IndexFunc(vocabulary.Starts, func(s start) bool { return s.Policy.Name == template })
	switch {
	case from != "":
		// A copy begins in shadow, as every new policy does, whatever the mode of its original is.
		if p, err = r.Service.Policy(r.req.Context(), r.actor, from); err != nil {
			return d, "", err
		}
		p.Name, p.Version, p.Mode = copyName(p.Name), 0, policy.Shadow
	case template == "":
		return blank(), "", nil
	case at < 0:
		return d, "", service.ErrNotFound
	default:
		p, needs = vocabulary.Starts[at].Policy, vocabulary.Starts[at].Needs
	}

	// The name of the original, or of the start, is often taken, and then gets a number.
	p.Name, err = r.Service.FreeName(r.req.Context(), r.actor, p.Name)
	return draftFrom(p), needs, err
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

// create saves a new policy, or shows its form with what is wrong.
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

// update saves an edit, after the questions that it takes.
func update(r *request) error {
	d := draftOf(r.req.PostForm)
	d.set("name", r.req.PathValue("name"))
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
		for _, f := range invalid.Faults {
			m.add(d.place(f.Field, f.Message))
		}
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
	title := "New policy"
	if !isNew {
		title = "Edit " + d.Get("name")
	}
	return r.show(status, "form", title, f)
}
