package store

import "strings"

// Audit is one row of the audit log. No statement changes or removes one.
type Audit struct {
	ID        int64 // set by the database
	At        int64 // µs
	Actor     string
	Via       string
	Action    string
	Object    string
	Outcome   string
	Before    string
	After     string
	RequestID string
	Address   string
	Note      string
}

const auditColumns = "SELECT id, at, actor, via, action, object, outcome, body_before, body_after, " +
	"request_id, address, note FROM audit"

func scanAudit(s scanner) (a Audit, err error) {
	return a, s.Scan(&a.ID, &a.At, &a.Actor, &a.Via, &a.Action, &a.Object, &a.Outcome,
		&a.Before, &a.After, &a.RequestID, &a.Address, &a.Note)
}

// AddAudit writes a row.
func (t *Tx) AddAudit(a Audit) error {
	const q = "INSERT INTO audit " +
		"(at, actor, via, action, object, outcome, body_before, body_after, request_id, address, note) " +
		"VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
	_, err := t.exec(q, a.At, a.Actor, a.Via, a.Action, a.Object, a.Outcome,
		a.Before, a.After, a.RequestID, a.Address, a.Note)
	return err
}

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
	return readAll(t, scanAudit, auditColumns+where+" ORDER BY id DESC LIMIT ?", append(args, q.Limit)...)
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
