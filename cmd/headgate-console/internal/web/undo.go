package web

import (
	"errors"
	"net/url"
	"strconv"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
)

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
		return r.conflictOr(err)
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
