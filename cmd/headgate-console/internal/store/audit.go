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
	var c conditions
	c.addIf(q.Actor != "", "actor = ?", q.Actor)
	c.addIf(q.Object != "", "object = ?", q.Object)
	c.addIf(q.Outcome != "", "outcome = ?", q.Outcome)

	// A group of actions is a range, so that the index of the column serves it. The range ends
	// before "/", which is the character after ".".
	group, isGroup := strings.CutSuffix(q.Action, ".")
	c.addIf(isGroup, "action >= ? AND action < ?", q.Action, group+"/")
	c.addIf(!isGroup && q.Action != "", "action = ?", q.Action)

	c.addIf(!q.Since.IsZero(), "at >= ?", Micros(q.Since))
	c.addIf(!q.Until.IsZero(), "at < ?", Micros(q.Until))
	c.addIf(q.Before != 0, "id < ?", q.Before)
	return auditRows.all(t, c.where()+" ORDER BY id DESC LIMIT ?", append(c.args, q.Limit)...)
}
