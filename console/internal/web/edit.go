package web

import (
	"errors"
	"net/http"

	"github.com/headgate/headgate/console/internal/service"
	"github.com/headgate/headgate/policy"
)

// newPage shows the form of a new policy, or of a copy of one.
func newPage(v *request) error {
	d := blank()
	if from := v.query("from"); from != "" {
		p, err := v.Service.Policy(v.r.Context(), v.actor, from)
		if err != nil {
			return err
		}
		d = draftFrom(p)
		d.Version, d.Name = 0, copyName(p.Name)
	}
	f, err := v.form(d, nil, true)
	if err != nil {
		return err
	}
	if len(f.OwnApps) == 0 {
		return v.Service.Refuse(v.r.Context(), v.actor, "policy.create", "policies", "it takes the owner of an application")
	}
	if len(d.Apps) == 0 && len(f.OwnApps) == 1 {
		f.OwnApps[0].Checked = true
	}
	return v.show(http.StatusOK, "form", "New policy", f)
}

// copyName returns a name for a copy that is not too long.
func copyName(name string) string {
	const end = "-copy"
	return name[:min(len(name), policy.MaxName-len(end))] + end
}

func create(v *request) error {
	d := draftOf(v.r.PostForm)
	p, m := d.policy()
	if v.field("do") == "preview" {
		return v.reshow(d, m, true, http.StatusOK)
	}
	if len(m) > 0 {
		return v.reshow(d, m, true, http.StatusUnprocessableEntity)
	}
	saved, err := v.Service.CreatePolicy(v.r.Context(), v.actor, p)
	var conflict *service.ConflictError
	if errors.As(err, &conflict) {
		m.add("name", "there is a policy of that name; choose another")
		return v.reshow(d, m, true, http.StatusConflict)
	}
	if err != nil {
		return v.refused(err, d, true)
	}
	return v.seeOther(policyPath(saved.Name), "created")
}

func editPage(v *request) error {
	p, err := v.Service.PolicyToEdit(v.r.Context(), v.actor, "policy.update", v.r.PathValue("name"))
	if err != nil {
		return err
	}
	f, err := v.form(draftFrom(p), nil, false)
	if err != nil {
		return err
	}
	return v.show(http.StatusOK, "form", "Edit "+p.Name, f)
}

func update(v *request) error {
	d := draftOf(v.r.PostForm)
	d.Name = v.r.PathValue("name")
	p, m := d.policy()
	if v.field("do") == "preview" {
		return v.reshow(d, m, false, http.StatusOK)
	}
	if len(m) > 0 {
		return v.reshow(d, m, false, http.StatusUnprocessableEntity)
	}
	saved, err := v.Service.UpdatePolicy(v.r.Context(), v.actor, p)
	if err != nil {
		return v.refused(err, d, false)
	}
	return v.seeOther(policyPath(saved.Name), "saved")
}

// refused shows why the service did not save a policy.
func (v *request) refused(err error, d draft, isNew bool) error {
	var invalid *service.InvalidError
	if errors.As(err, &invalid) {
		m := mistakes{}
		m.addFaults(invalid.Faults)
		return v.reshow(d, m, isNew, http.StatusUnprocessableEntity)
	}
	return v.conflictOr(err)
}

// reshow shows the form as it was sent, with the mistakes in it.
func (v *request) reshow(d draft, m mistakes, isNew bool, status int) error {
	f, err := v.form(d, m, isNew)
	if err != nil {
		return err
	}
	f.Checked = true
	title := "New policy"
	if !isNew {
		title = "Edit " + d.Name
	}
	return v.show(status, "form", title, f)
}
