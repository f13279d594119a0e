package web

import (
	"net/http"
	"strconv"

	"github.com/headgate/headgate/console/internal/service"
)

// history is the page with the changes of a policy.
type history struct {
	Name    string
	Current int64 // the newest version
	Steps   []step
	Older   int64 // the version before which there is more, or 0
	Live    bool  // the policy is there
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
	name := v.r.PathValue("name")
	before, err := strconv.ParseInt(v.query("before"), 10, 64)
	if err != nil {
		before = 0
	}
	newest, err := v.Service.History(v.r.Context(), v.actor, name, 0, 1)
	if err != nil {
		return err
	}
	if len(newest) == 0 {
		return service.ErrNotFound
	}
	list, err := v.Service.History(v.r.Context(), v.actor, name, before, perHistory)
	if err != nil {
		return err
	}
	h := history{Name: name, Current: newest[0].Version, Live: newest[0].After != nil}
	for _, r := range list {
		back := r.After != nil && r.Version != h.Current && v.access.CanEdit(r.After.Apps)
		h.Steps = append(h.Steps, step{r, r.Changes(), back})
	}
	if len(list) == perHistory {
		h.Older = list[len(list)-1].Version
	}
	return v.show(http.StatusOK, "history", "History of "+name, h)
}

// rollback saves an earlier version of a policy as the newest one.
func rollback(v *request) error {
	name := v.r.PathValue("name")
	_, err := v.Service.Rollback(v.r.Context(), v.actor, name, v.version("to"), v.version("version"))
	if err != nil {
		return v.conflictOr(err)
	}
	return v.seeOther(policyPath(name), "rolledback")
}
