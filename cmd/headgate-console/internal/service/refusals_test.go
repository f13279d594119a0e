package service

import "github.com/headgate/headgate/cmd/headgate-console/internal/store"

// countRefusals counts without a check of permissions.
func countRefusals(n *int) func(*store.Tx) error {
	return func(t *store.Tx) error {
		rows, err := t.FindAudit(store.AuditQuery{Outcome: Refused, Limit: 1 << 20})
		*n = len(rows)
		return err
	}
}
