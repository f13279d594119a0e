package web

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
)

// history is the page with the changes of a policy.
type history struct {
	Current int64 // the newest version
	Steps   []step
	Older   int64 // the version before which there is more, or 0
	Live    bool  // the policy is there

	comparison // of the newest version with the one before
}

// comparison is the form for comparing two versions, and what differs between them.
type comparison struct {
	Name     string
	From, To string
	Changes  []service.Change
	Mistakes mistakes
}

// step is a change, and whether the actor may go back to its version.
type step struct {
	service.Revision
	Fields  []service.Change
	CanBack bool
}

// perHistory is how many changes are on a page.
const perHistory = 25

func historyPage(v *request) error {
	name := v.req.PathValue("name")
	before, err := strconv.ParseInt(v.query("before"), 10, 64)
	if err != nil {
		before = 0
	}

	// The newest change says what the policy is now, whichever page of the history is shown.
	newest, err := v.Service.History(v.req.Context(), v.actor, name, 0, 1)
	if err != nil {
		return err
	}
	if len(newest) == 0 {
		return service.ErrNotFound
	}

	list, err := v.Service.History(v.req.Context(), v.actor, name, before, perHistory)
	if err != nil {
		return err
	}

	h := history{Current: newest[0].Version, Live: newest[0].After != nil}
	h.comparison = comparison{Name: name, From: strconv.FormatInt(max(0, h.Current-1), 10), To: number(h.Current)}

	h.Steps = v.steps(list, h.Current)
	if len(list) == perHistory {
		h.Older = list[len(list)-1].Version
	}

	return v.show(http.StatusOK, "history", "History of "+name, h)
}

// steps returns changes of a policy, whose newest version is current, with what the actor may do.
func (r *request) steps(list []service.Revision, current int64) (steps []step) {
	for _, v := range list {
		back := v.After != nil && v.Version != current && r.access.CanEdit(v.After.Apps)
		steps = append(steps, step{v, v.Changes(), back})
	}
	return steps
}

// comparePage shows what differs between two versions of a policy. Version 0 is empty.
func comparePage(r *request) error {
	c := comparison{Name: r.req.PathValue("name"), From: r.query("from"), To: r.query("to"), Mistakes: mistakes{}}
	if c.From == "" && c.To == "" {
		// Without a choice the newest version is compared with the one before.
		newest, err := r.Service.History(r.req.Context(), r.actor, c.Name, 0, 1)
		if err != nil {
			return err
		}
		c.To = number(newest[0].Version)
		c.From = strconv.FormatInt(max(0, newest[0].Version-1), 10)
	}

	from, to := readVersion(c.Mistakes, "from", c.From), readVersion(c.Mistakes, "to", c.To)
	changes, err := r.Service.Compare(r.req.Context(), r.actor, c.Name, from, to)
	if err != nil {
		return err
	}

	c.Changes = changes
	return r.show(statusOf(c.Mistakes), "diff", "Compare versions of "+c.Name, c)
}

// readVersion reads a version, and adds a mistake.
func readVersion(m mistakes, field, text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		m.add(field, fmt.Sprintf("%q is not the number of a version", clip(text)))
		return 0
	}
	return n
}

// rollback saves an earlier version of a policy as the newest one, or restores a policy that was
// deleted. It asks for a confirmation first.
func rollback(r *request) error {
	name, to, base := r.req.PathValue("name"), r.version("to"), r.version("version")
	return r.decide(func() (confirmation, error) { return r.askRollback(name, to, base) },
		func() error {
			_, err := r.Service.Rollback(r.req.Context(), r.saying(), name, to, base)
			return err
		},
		r.to(policyPath(name), "rolledback"))
}

// askRollback returns the question before a policy gets the content of the version to again, where
// base is the newest one.
func (r *request) askRollback(name string, to, base int64) (c confirmation, err error) {
	revision, err := r.Service.Revision(r.req.Context(), r.actor, name, to)
	if err != nil {
		return c, err
	}
	if revision.After == nil {
		return c, mistake("version", "the policy was deleted in this version")
	}

	if !r.access.CanEdit(revision.After.Apps) {
		return c, r.Service.Refuse(r.req.Context(), r.actor, "policy.rollback", "policy:"+name,
			"it takes the owner of every application that the policy lists")
	}

	newest, err := r.Service.Revision(r.req.Context(), r.actor, name, base)
	if err != nil {
		return c, err
	}

	// A policy that does not exist has nothing that could change: the page describes what comes
	// back.
	fields := []hidden{{"to", number(to)}, {"version", number(base)}}
	if newest.After == nil {
		c = r.asks("restore", name, policyPath(name)+"/history", fields...)
		c.Consequences = []string{revision.After.Describe() + ".",
			fmt.Sprintf("It comes back as it was in version %d, with its history. "+
				"Within seconds %s follow it. It is %s.",
				to, inForce(*revision.After), service.ModeWords(revision.After.Mode))}
		return c, nil
	}

	c = r.asks("roll back", name, policyPath(name)+"/history", fields...)
	c.Title, c.Button = fmt.Sprintf("%s to version %d?", c.Title, to), fmt.Sprintf("%s %d", c.Button, to)
	c.Consequences = []string{fmt.Sprintf("The content of version %d, by %s, becomes the newest version. "+
		"The versions since stay in the history.", to, revision.Actor)}

	if c.Changes, err = r.Service.Compare(r.req.Context(), r.actor, name, base, to); err != nil {
		return c, err
	}
	if len(c.Changes) == 0 {
		c.Consequences = append(c.Consequences, "Nothing differs from the newest version.")
	}

	w, err := r.Service.WouldRefuse(r.req.Context(), r.actor, *revision.After)
	if w != nil {
		c.Consequences = append(c.Consequences, w.Sentence())
	}
	return c, err
}

// deletedList is the page of the policies that do not exist any more.
type deletedList struct {
	Deleted []deletedPolicy
	Next    int // the next page, or 0
}

// deletedPolicy is a policy that was deleted, and whether the actor may restore it.
type deletedPolicy struct {
	service.Revision
	Last    int64 // the version to restore
	CanBack bool
}

func deletedPage(v *request) error {
	page := max(1, pageIn(v.req.URL.Query()))
	list, more, err := v.Service.Deleted(v.req.Context(), v.actor, page, 0)
	if err != nil {
		return err
	}

	b := deletedList{}
	for _, r := range list {
		can := r.Before != nil && v.access.CanEdit(r.Before.Apps)
		b.Deleted = append(b.Deleted, deletedPolicy{r, r.Version - 1, can})
	}

	if more {
		b.Next = page + 1
	}
	return v.show(http.StatusOK, "deleted", "Deleted policies", b)
}

func deletePage(r *request) error {
	c, err := r.askDeletion(0)
	if err != nil {
		return err
	}
	return r.confirm(c)
}

// askDeletion returns the question before a policy goes: of a version, or 0 for that of now.
func (r *request) askDeletion(version int64) (confirmation, error) {
	p, err := r.Service.PolicyToEdit(r.req.Context(), r.actor, "policy.delete", r.req.PathValue("name"))
	if err != nil {
		return confirmation{}, err
	}
	lastHour, err := r.lastHour(p)
	if err != nil {
		return confirmation{}, err
	}

	c := confirmationOf("delete", p.Name)
	c.Consequences = append([]string{p.Describe() + ".",
		"Within seconds " + inForce(p) + " do not apply it any more. " + lastHour}, c.Consequences...)
	c.Action, c.Back = policyPath(p.Name)+"/delete", policyPath(p.Name)
	c.Fields = []hidden{{"version", number(cmp.Or(version, p.Version))}}
	return c, nil
}

func remove(r *request) error {
	name, version := r.req.PathValue("name"), r.version("version")
	return r.decide(func() (confirmation, error) { return r.askDeletion(version) },
		func() error { return r.Service.DeletePolicy(r.req.Context(), r.saying(), name, version) },
		r.to("/policies", "deleted&"+undoOf(name)))
}

// undo is a change of a policy that may be taken back.
type undo struct {
	Name    string
	Action  string // where the form is sent
	Version int64  // that the change made

	At string // of a change of several: the instant in µs; Name is then their number
}

// undoFor is for how long after a change a page offers to take it back. The history offers it
// later.
const undoFor = 10 * time.Minute

// undoOf returns the parameter of a page that offers to take back the newest change of a policy.
// The page of a policy needs none.
func undoOf(name string) string { return "of=" + url.QueryEscape(name) }

// undoable returns the newest change of the policy that a notice is about, if the actor has made
// it lately and may take it back, or nil. Whether it is still the newest is decided by its version
// when the form is sent.
func (r *request) undoable() (*undo, error) {
	if r.query("at") != "" {
		return r.undoableTogether()
	}

	name := r.req.PathValue("name")
	if r.query("of") != "" {
		name = r.query("of")
	}
	if name == "" || !isPolicyChange(r.query("done")) {
		return nil, nil
	}

	list, err := r.Service.History(r.req.Context(), r.actor, name, 0, 1)
	if err != nil || len(list) == 0 {
		return nil, err
	}

	revision := list[0]
	if revision.Actor != r.actor.User() || r.Clock().Sub(revision.At) > undoFor {
		return nil, nil
	}

	// The applications before and after the change both matter, as for the change itself.
	if revision.Before != nil && !r.access.CanEdit(revision.Before.Apps) ||
		revision.After != nil && !r.access.CanEdit(revision.After.Apps) {
		return nil, nil
	}

	return &undo{Name: name, Action: policyPath(name) + "/undo", Version: revision.Version}, nil
}

// undoableTogether is undoable for the policies that were changed together at the instant of the
// request.
func (r *request) undoableTogether() (*undo, error) {
	us, err := strconv.ParseInt(r.query("at"), 10, 64)
	at := time.UnixMicro(us)
	if err != nil || r.query("done") != "bulk" || r.Clock().Sub(at) > undoFor {
		return nil, nil
	}

	n, err := r.Service.SwitchedAt(r.req.Context(), r.actor, at)
	if err != nil || n == 0 {
		return nil, err
	}
	return &undo{Name: policiesWords(n), Action: "/policies/undo", At: number(us)}, nil
}

// isPolicyChange reports whether a notice is about a change of a policy that can be taken back.
func isPolicyChange(done string) bool {
	switch done {
	case "saved", "deleted", "rolledback", "mode", "undone", "removed", "until", "allowed", "ownlimit", "nolimit":
		return true
	}
	return false
}

// takeBack takes back the newest change of a policy.
func takeBack(r *request) error {
	name := r.req.PathValue("name")
	saved, err := r.Service.Undo(r.req.Context(), r.saying(), name, r.version("version"))
	if err != nil {
		return err
	}
	if saved.Name == "" {
		return r.seeOther("/policies", "removed&"+undoOf(name))
	}
	return r.seeOther(policyPath(name), "undone")
}

// offerUndo adds to a frame what may be taken back. Without an answer of the service there is
// nothing.
func (r *request) offerUndo(f *frame) {
	u, err := r.undoable()
	if err != nil && !errors.Is(err, service.ErrNotFound) {
		r.Logger.WarnContext(r.req.Context(), "a page cannot offer to undo", "error", err)
	}
	f.Undo = u
}
