package api

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/policy"
)

// clash holds both versions if another actor changed the policy first.
type clash struct {
	BasedOn int64          `json:"based_on" doc:"The version that the change is based on."`
	Current int64          `json:"current" doc:"The current version."`
	Deleted bool           `json:"deleted"`
	Mine    *policy.Policy `json:"mine" doc:"What was to be saved; null for a deletion."`
	Theirs  *policy.Policy `json:"theirs" doc:"The current version; null if it was deleted."`
}

func conflictProblem(status int, e *service.ConflictError) *problem {
	// A deletion has no policy of its own to show. Its conflict has a name and a version alone.
	c := &clash{BasedOn: e.Mine.Version, Current: e.Theirs.Version, Deleted: e.Deleted}
	if len(e.Mine.Apps) > 0 {
		c.Mine = &e.Mine
	}

	what := "changed"
	if e.Deleted {
		what = "deleted"
	} else {
		c.Theirs = &e.Theirs
	}

	detail := fmt.Sprintf("the policy was %s in the meantime: it has version %d", what, c.Current)
	if c.BasedOn == 0 {
		detail = fmt.Sprintf("there is a policy of that name: it has version %d", c.Current)
	}

	return &problem{Status: status, Code: "stale", Detail: detail, Conflict: c}
}

// acceptRepeat turns a conflict with an identical policy into a success, so that a
// request can be repeated. Any other conflict gets the status of the base.
func acceptRepeat(saved policy.Policy, err error, b base) (policy.Policy, error) {
	var conflict *service.ConflictError
	if !errors.As(err, &conflict) {
		return saved, err
	}
	if !conflict.Deleted && len(conflict.Mine.Apps) > 0 && len(service.Diff(conflict.Mine, conflict.Theirs)) == 0 {
		return conflict.Theirs, nil
	}
	return saved, conflictProblem(b.status(), conflict)
}

// base is the version that a change is based on.
type base struct {
	version int64 // 0 for a new policy
	header  bool  // it came in a header
}

// status returns the status of the answer to an outdated change.
func (b base) status() int {
	if b.header {
		return http.StatusPreconditionFailed
	}
	return http.StatusConflict
}
