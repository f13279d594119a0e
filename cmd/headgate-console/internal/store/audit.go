package store

import "strings"

// Audit is one row of the audit log. No statement changes or removes one.
type Audit struct {
	ID        int64  `sql:"audit.id"` // set by the database
	At        int64  `db:"at"`        // µs
	Actor     string `db:"actor"`
	Via       string `db:"via"`
	Action    string `db:"action"`
	Object    string `db:"object"`
	Outcome   string `db:"outcome"`
	Before    string `db:"body_before"`
	After     string `db:"body_after"`
	RequestID string `db:"request_id"`
	Address   string `db:"address"`
	Note      string `db:"note"`
}

var auditRows = newRows[Audit]("audit")

// AddAudit writes a row.
func (t *Tx) AddAudit(a Audit) error { return auditRows.insert(t, a) }

// AuditQuery selects rows of the audit log, the newest first. Empty fields select
// all rows.
type AuditQuery struct {
	Actor   string
	Object  string
	Action  string // or the beginning of some, which ends with "."
	Outcome string
	Since   int64 // µs, inclusive; 0 means from the beginning
	Until   int64 // µs, exclusive; 0 means to the end
	Before  int64 // an id; 0 means from the newest
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

	c.addIf(q.Since != 0, "at >= ?", q.Since)
	c.addIf(q.Until != 0, "at < ?", q.Until)
	c.addIf(q.Before != 0, "id < ?", q.Before)
	return auditRows.all(t, c.where()+" ORDER BY id DESC LIMIT ?", append(c.args, q.Limit)...)
}
