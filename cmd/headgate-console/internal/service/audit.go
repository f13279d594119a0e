package service

import (
	"context"
	"encoding/json"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
	"github.com/headgate/headgate/internal/textform"
)

// Outcome is the outcome of an action.
type Outcome string

// The outcomes.
const (
	Done    Outcome = "done"
	Refused Outcome = "refused"
)

// Entry is a row of the audit log. It is never changed, and holds no secret.
type Entry struct {
	// Actor is a user, or "" for the program itself or an unknown user, Via is "session", "oidc",
	// "token:" and its id, "pause", "proxy" or "console", Action is such as "policy.update", Object
	// such as "policy:login", Before and After are JSON or "", and Note is such as the reason of a
	// refusal.
	store.Audit

	At      time.Time
	Outcome Outcome
}

// AuditQuery selects a page of the audit log, the newest entries first. Empty
// fields select all entries.
type AuditQuery struct {
	Actor   string
	Object  string
	Action  string // such as "policy.update", or "session." for all that begin with it
	Outcome Outcome
	Since   time.Time // inclusive
	Until   time.Time // exclusive

	// Before is the ID of the last entry of the page before, or 0.
	Before int64

	// PerPage is the number of entries, at most MaxPerPage; 0 means 50.
	PerPage int
}

// Audit returns a page of the audit log. It requires an administrator.
func (s *Service) Audit(ctx context.Context, a Actor, q AuditQuery) ([]Entry, error) {
	if err := q.check(); err != nil {
		return nil, err
	}

	return answer(ctx, s, a, "audit.read", "audit", func(d *action) ([]Entry, error) {
		if err := d.manage(); err != nil {
			return nil, err
		}

		rows, err := d.FindAudit(store.AuditQuery{
			Actor: q.Actor, Object: q.Object, Action: q.Action, Outcome: string(q.Outcome),
			Since: microseconds(q.Since), Until: microseconds(q.Until), Before: q.Before, Limit: perPage(q.PerPage),
		})
		return entriesOf(rows), err
	})
}

func (a *AuditQuery) check() error {
	var f faults
	f.add("actor", textform.Check(a.Actor, MaxSearch))
	f.add("object", textform.Check(a.Object, MaxSearch))
	f.add("action", textform.Check(a.Action, MaxSearch))
	f.add("outcome", textform.Check(string(a.Outcome), MaxSearch))
	return f.err()
}

func microseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func entriesOf(rows []store.Audit) []Entry {
	list := make([]Entry, len(rows))
	for i, r := range rows {
		list[i] = Entry{Audit: r, At: instant(r.At), Outcome: Outcome(r.Outcome)}
	}
	return list
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
		At: at, Actor: a.user, Via: via, Action: verb, Object: sanitize(object, maxObject), Outcome: string(Done),
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
