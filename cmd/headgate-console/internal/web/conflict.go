package web

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/policy"
)

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

// ChangedBy names the authors of the change.
func (d difference) ChangedBy() string {
	switch {
	case d.Clash():
		return "both of you"
	case d.IChanged && d.TheyChanged:
		return "both, alike"
	case d.IChanged:
		return "you"
	case d.TheyChanged:
		return "the other"
	}
	return ""
}

// conflictOr shows both versions if the error is a conflict, or returns the error.
func (r *request) conflictOr(err error) error {
	var e *service.ConflictError
	if !errors.As(err, &e) {
		return err
	}

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
	for _, f := range policyFields() {
		list = append(list, difference{
			Field: f, Before: was[f], Mine: a[f], Theirs: b[f],
			IChanged: hasBase && a[f] != was[f], TheyChanged: hasBase && b[f] != was[f],
		})
	}
	return list
}
