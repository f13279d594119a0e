package web

import (
	"fmt"
	"net/http"
	"strconv"

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
	if !r.confirmed() {
		return r.confirmRollback(name, to, base, nil)
	}

	_, err := r.Service.Rollback(r.req.Context(), r.saying(), name, to, base)
	if m := commentMistake(err); m != nil {
		return r.confirmRollback(name, to, base, m)
	}
	if err != nil {
		return r.conflictOr(err)
	}
	return r.seeOther(policyPath(name), "rolledback")
}

func (r *request) confirmRollback(name string, to, base int64, m mistakes) error {
	revision, err := r.Service.Revision(r.req.Context(), r.actor, name, to)
	if err != nil {
		return err
	}

	if revision.After == nil {
		return mistake("version", "the policy was deleted in this version")
	}
	if !r.access.CanEdit(revision.After.Apps) {
		return r.Service.Refuse(r.req.Context(), r.actor, "policy.rollback", "policy:"+name,
			"it takes the owner of every application that the policy lists")
	}

	newest, err := r.Service.Revision(r.req.Context(), r.actor, name, base)
	if err != nil {
		return err
	}

	c := confirmation{
		Title: fmt.Sprintf("Roll back %s to version %d?", name, to), Button: fmt.Sprintf("Roll back to version %d", to),
		Consequences: []string{fmt.Sprintf("The content of version %d, by %s, becomes the newest version. "+
			"The versions since stay in the history.", to, revision.Actor)},
		Action: policyPath(name) + "/rollback", Fields: []hidden{{"to", number(to)}, {"version", number(base)}},
		Back: policyPath(name) + "/history", Comment: true, Mistakes: m,
	}

	// A policy that does not exist has nothing that could change: the page describes what comes
	// back.
	if newest.After == nil {
		c.Title, c.Button = "Restore the policy "+name+"?", "Restore the policy"
		c.Consequences = []string{revision.After.Describe() + ".",
			fmt.Sprintf("It comes back as it was in version %d, with its history. "+
				"Within seconds %s follow it. It is %s.",
				to, inForce(*revision.After), service.ModeWords(revision.After.Mode))}
		return r.confirm(c)
	}

	if c.Changes, err = r.Service.Compare(r.req.Context(), r.actor, name, base, to); err != nil {
		return err
	}
	if len(c.Changes) == 0 {
		c.Consequences = append(c.Consequences, "Nothing differs from the newest version.")
	}
	w, err := r.Service.WouldRefuse(r.req.Context(), r.actor, *revision.After)
	if err != nil {
		return err
	}
	if w != nil {
		c.Consequences = append(c.Consequences, w.Sentence())
	}

	return r.confirm(c)
}
