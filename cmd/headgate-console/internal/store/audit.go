package store

import (
	"strings"
	"time"
)

// Audit is one row of the audit log. No statement changes or removes one, and it holds no secret.
type Audit struct {
	ID        int64     `sql:"audit.id"` // set by the database
	At        time.Time `db:"at"`
	Actor     string    `db:"actor"` // a user, or "" for the program itself or an unknown user
	Via       string    `db:"via"`   // "session", "oidc", "token:" and its id, "pause", "proxy" or "console"
	Action    string    `db:"action"`
	Object    string    `db:"object"`
	Outcome   string    `db:"outcome"`     // "done" or "refused"
	Before    string    `db:"body_before"` // JSON or ""
	After     string    `db:"body_after"`  // JSON or ""
	RequestID string    `db:"request_id"`
	Address   string    `db:"address"`
	Note      string    `db:"note"` // such as the reason of a refusal
}

var auditRows = newRows[Audit]("audit")

// AddAudit writes a row.
func (t *Tx) AddAudit(a Audit) error { return auditRows.insert(t, a) }

// AuditQuery selects rows of the audit log, the newest first. Empty fields select
// all rows.
type AuditQuery struct {
	Actor   string
	Object  string
	Action  string // such as "policy.update", or "session." for all that begin with it
	Outcome string
	Since   time.Time // inclusive
	Until   time.Time // exclusive
	Before  int64     // an id, such as that of the last row of the page before; 0 for the newest rows
	Limit   int
}

// FindAudit returns the rows that q selects.
func (t *Tx) FindAudit(q AuditQuery) ([]Audit, error) {
	c := q.conditions()
	return auditRows.all(t, c.where()+" ORDER BY id DESC LIMIT ?", append(c.args, q.Limit)...)
}

// conditions returns what the rows have to be.
func (a AuditQuery) conditions() (c conditions) {
	c.addIf(a.Actor != "", "actor = ?", a.Actor)
	c.addIf(a.Object != "", "object = ?", a.Object)

	// Nearly all rows are of what was done. No index must be chosen for that.
	c.addIf(a.Outcome == "done", "COALESCE(outcome, '') = ?", a.Outcome)
	c.addIf(a.Outcome != "" && a.Outcome != "done", "outcome = ?", a.Outcome)

	// A group of actions is a range, so that the index of the column serves it. The range ends
	// before "/", which is the character after ".".
	group, isGroup := strings.CutSuffix(a.Action, ".")
	c.addIf(isGroup, "action >= ? AND action < ?", a.Action, group+"/")
	c.addIf(!isGroup && a.Action != "", "action = ?", a.Action)

	c.addIf(!a.Since.IsZero(), "at >= ?", Micros(a.Since))
	c.addIf(!a.Until.IsZero(), "at < ?", Micros(a.Until))
	c.addIf(a.Before != 0, "id < ?", a.Before)
	return c
}
