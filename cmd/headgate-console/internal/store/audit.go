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
	where, args := q.where()
	return auditRows.all(t, where+" ORDER BY id DESC LIMIT ?", append(args, q.Limit)...)
}

// where returns the conditions of a, made of constants and placeholders, and the values of the
// placeholders.
func (a *AuditQuery) where() (string, []any) {
	var conditions []string
	var args []any
	for _, c := range []struct {
		condition string
		text      string
	}{
		{"actor = ?", a.Actor}, {"object = ?", a.Object}, {"outcome = ?", a.Outcome},
	} {
		if c.text != "" {
			conditions, args = append(conditions, c.condition), append(args, c.text)
		}
	}

	// A group of actions is a range, so that the index of the column serves it. The range ends
	// before "/", which is the character after ".".
	if group, ok := strings.CutSuffix(a.Action, "."); ok {
		conditions = append(conditions, "action >= ?", "action < ?")
		args = append(args, a.Action, group+"/")
	} else if a.Action != "" {
		conditions, args = append(conditions, "action = ?"), append(args, a.Action)
	}

	for _, c := range []struct {
		condition string
		number    int64
	}{
		{"at >= ?", a.Since}, {"at < ?", a.Until}, {"id < ?", a.Before},
	} {
		if c.number != 0 {
			conditions, args = append(conditions, c.condition), append(args, c.number)
		}
	}

	if len(conditions) == 0 {
		return "", nil
	}
	return " WHERE " + strings.Join(conditions, " AND "), args
}
