package store

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestFindAuditReadsFewRows checks the index by which SQLite finds rows. Nearly all of them are of
// what was done, so that an index of that would read the whole log.
func TestFindAuditReadsFewRows(t *testing.T) {
	db := open(t, "sqlite://"+filepath.Join(t.TempDir(), "console.db"))
	for want, q := range map[string]AuditQuery{
		"audit_by_act (object=? AND action=?)":              {Object: "policy:p", Action: "ban.impose", Outcome: "done"},
		"audit_by_act (object=? AND action>? AND action<?)": {Object: "policy:p", Action: "override.", Outcome: "done"},
		"audit_by_object (object=?)":                        {Object: "policy:p", Outcome: "done"},
		"audit_by_actor (actor=?)":                          {Actor: "eve", Outcome: "done"},
		"audit_by_action (action=?)":                        {Action: "ban.impose", Outcome: "done"},
		"audit_by_outcome (outcome=?)":                      {Outcome: "refused"},
	} {
		c := q.conditions()
		var got string
		update(t, db, func(tx *Tx) error {
			text := "EXPLAIN QUERY PLAN SELECT * FROM audit" + c.where() + " ORDER BY id DESC LIMIT 50"
			var skipped any
			return tx.tx.QueryRowContext(tx.ctx, text, c.args...).Scan(&skipped, &skipped, &skipped, &got)
		})
		if !strings.Contains(got, want) {
			t.Errorf("%+v reads by %q, want %q", q, got, want)
		}
	}
}
