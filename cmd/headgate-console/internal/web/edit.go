package web

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/policy"
)

// newPage shows the form of a new policy: from nothing, with a start, or as a copy of another
// policy.
func newPage(r *request) error {
	apps := r.ownApps()

	// A manager can add the application that is missing. Others have to be given one.
	if len(apps) == 0 && r.access.CanManage() {
		return r.show(http.StatusOK, "noapps", "New policy", nil)
	}
	if len(apps) == 0 {
		return r.Service.Refuse(r.req.Context(), r.actor, "policy.create", "policies",
			"it takes the owner of an application")
	}

	d, err := r.newDraft()
	if err != nil {
		return err
	}
	if len(d["apps"]) == 0 {
		d["apps"] = appsToBegin(apps, r.query("app"))
	}

	return r.showForm(http.StatusOK, d, nil)
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

// newDraft returns what the form of a new policy begins with.
func (r *request) newDraft() (d draft, err error) {
	var p policy.Policy
	from, template := r.query("from"), r.query("template")
	at := startAt(template)

	switch {
	case from != "":
		// A copy begins in shadow, as every new policy does, whatever the mode of its original is.
		if p, err = r.Service.Policy(r.req.Context(), r.actor, from); err != nil {
			return nil, err
		}
		p.Name, p.Version, p.Mode = copyName(p.Name), 0, policy.Shadow
	case template == "":
		return blank(), nil
	case at < 0:
		return nil, service.ErrNotFound
	default:
		p = vocabulary.Starts[at].Policy
	}

	// The name of the original, or of the start, is often taken, and then gets a number.
	p.Name, err = r.Service.FreeName(r.req.Context(), r.actor, p.Name)
	return draftFrom(p), err
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
	if r.field("do") == "preview" || len(m) > 0 {
		return r.reshow(d, m)
	}

	saved, err := r.Service.CreatePolicy(r.req.Context(), r.saying(), p)
	var conflict *service.ConflictError
	if errors.As(err, &conflict) {
		m.add("name", "there is a policy of that name; choose another")
		return r.showForm(http.StatusConflict, d, m)
	}
	if err != nil {
		return r.showRefusal(err, d)
	}
	return r.seeOther(policyPath(saved.Name), "created")
}

func editPage(r *request) error {
	p, err := r.Service.PolicyToEdit(r.req.Context(), r.actor, "policy.update", r.req.PathValue("name"))
	if err != nil {
		return err
	}
	return r.showForm(http.StatusOK, draftFrom(p), nil)
}

// update saves an edit, after the questions that it takes.
func update(r *request) error {
	d := draftOf(r.req.PostForm)
	d.set("name", r.req.PathValue("name"))
	p, m := d.policy()
	if r.field("do") == "preview" || len(m) > 0 {
		return r.reshow(d, m)
	}

	// An edit may turn the policy off among other things, which is asked about as if it were all.
	off, err := r.turnsOff(p)
	if err != nil {
		return err
	}
	if off && !r.confirmed() {
		return r.confirmOff(p, "now on")
	}
	if asked, err := r.confirmMore(p); asked || err != nil {
		return err
	}

	saved, err := r.Service.UpdatePolicy(r.req.Context(), r.saying(), p)
	if err != nil {
		return r.showRefusal(err, d)
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
func (r *request) showRefusal(err error, d draft) error {
	var invalid *service.InvalidError
	if errors.As(err, &invalid) {
		m := mistakes{}
		for _, f := range invalid.Faults {
			m.add(d.place(f.Field, f.Message))
		}
		return r.showForm(http.StatusUnprocessableEntity, d, m)
	}
	return err
}

// reshow shows the form as it was sent. A preview shows mistakes, too, and is not a failure.
func (r *request) reshow(d draft, m mistakes) error {
	if r.field("do") == "preview" {
		return r.showForm(http.StatusOK, d, m)
	}
	return r.showForm(http.StatusUnprocessableEntity, d, m)
}

// conflict is the page of a change that came after another one.
type conflict struct {
	Name     string
	Theirs   policy.Policy
	Deleted  bool
	Deletion bool // the user wanted to delete it
	Base     int64
	Rows     []difference
	Save     string // the address for saving mine on top
	Edit     []hidden
	HasBase  bool
}

// difference is a field in both versions.
type difference struct {
	Field, Before, Mine, Theirs string

	IChanged, TheyChanged bool
}

// Clash reports whether both changed the field, to different values.
func (d difference) Clash() bool { return d.IChanged && d.TheyChanged && d.Mine != d.Theirs }

// showConflict shows both versions.
func (r *request) showConflict(e *service.ConflictError) error {
	c := conflict{
		Name: e.Mine.Name, Theirs: e.Theirs, Deleted: e.Deleted, Base: e.Mine.Version,
		Deletion: e.Mine.Limit.Quota == 0,
	}

	// A deletion has no version of its own to compare. Its policy comes without a limit.
	if c.Deletion && !c.Deleted {
		return r.show(http.StatusConflict, "conflict", "Changed in the meantime", c)
	}

	base, ok := r.base(e.Mine)
	c.HasBase = ok
	c.Rows = differences(base, e.Mine, e.Theirs, ok)

	// Mine is saved on top of theirs, so the form has their version. A policy that was deleted is
	// made anew.
	d := draftFrom(e.Mine)
	d.set("version", strconv.FormatInt(e.Theirs.Version, 10))
	c.Save = policyPath(e.Mine.Name) + "/edit"
	if e.Deleted {
		d.set("version", "0")
		c.Save = "/new"
	}

	d.set("comment", r.field("comment"))
	c.Edit = hiddenOf(url.Values(d))
	return r.show(http.StatusConflict, "conflict", "Changed in the meantime", c)
}

// base returns the version that mine is based on, if the history has it.
func (r *request) base(mine policy.Policy) (policy.Policy, bool) {
	revision, err := r.Service.Revision(r.req.Context(), r.actor, mine.Name, mine.Version)
	if err != nil || revision.After == nil {
		return policy.Policy{}, false
	}
	return *revision.After, true
}

// differences lists the fields in which an edit and what was saved meanwhile differ.
func differences(base, mine, theirs policy.Policy, hasBase bool) []difference {
	was, a, b := textsOf(base), textsOf(mine), textsOf(theirs)
	var list []difference
	for _, f := range vocabulary.Fields {
		list = append(list, difference{
			Field: f, Before: was[f], Mine: a[f], Theirs: b[f],
			IChanged: hasBase && a[f] != was[f], TheyChanged: hasBase && b[f] != was[f],
		})
	}
	return list
}
