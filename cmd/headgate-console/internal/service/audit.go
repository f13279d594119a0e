package service

import (
	"context"
	"encoding/json"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/internal/textform"
)

// The outcomes of actions.
const (
	Done    = "done"
	Refused = "refused"
)

// Entry is a row of the audit log. Its Action is such as "policy.update", and its Object such as
// "policy:login".
type Entry = store.Audit

// AuditQuery selects a page of the audit log. Its Limit is at most MaxPerPage; 0 means 50.
type AuditQuery = store.AuditQuery

// Audit returns a page of the audit log. It requires an administrator.
func (s *Service) Audit(ctx context.Context, a Actor, q AuditQuery) ([]Entry, error) {
	if err := checkAudit(q); err != nil {
		return nil, err
	}

	return answer(ctx, s, a, "audit.read", "audit", func(d *action) ([]Entry, error) {
		if err := d.manage(); err != nil {
			return nil, err
		}

		q.Limit = perPage(q.Limit)
		return d.FindAudit(q)
	})
}

func checkAudit(q AuditQuery) error {
	var f faults
	f.add("actor", textform.Check(q.Actor, MaxSearch))
	f.add("object", textform.Check(q.Object, MaxSearch))
	f.add("action", textform.Check(q.Action, MaxSearch))
	f.add("outcome", textform.Check(q.Outcome, MaxSearch))
	return f.err()
}

// maxObject is the largest number of bytes of an object's name in the audit log.
const maxObject = 160

// auditRow returns a row of the audit log of an action that was done.
func (a Actor) auditRow(at int64, verb, object string) store.Audit {
	via := a.via
	if a.pause {
		via = viaPause
	}
	return store.Audit{
		At: instant(at), Actor: a.user, Via: via, Action: verb, Object: sanitize(object, maxObject), Outcome: Done,
		RequestID: a.meta.RequestID, Address: a.meta.Address,
	}
}

// text returns the form of a value in the audit log, which is JSON. The value must
// hold no secret.
func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(b)
}
