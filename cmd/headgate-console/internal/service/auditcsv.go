package service

import (
	"context"
	"encoding/csv"
	"io"
	"strconv"
	"time"
)

// AuditCSV writes the entries of the audit log that q selects as CSV, the newest first; Before
// and Limit of q are ignored. It requires an administrator. The audit log gets a row before
// anything is written to w; an error that AuditCSV returns later cuts the file short.
func (s *Service) AuditCSV(ctx context.Context, a Actor, q AuditQuery, w io.Writer) error {
	if err := checkAudit(q); err != nil {
		return err
	}

	q.Before, q.Limit = 0, MaxPerPage

	err := s.manage(ctx, a, "audit.export", "audit", func(d *action) error {
		return d.done("", text(map[string]any{
			"actor": q.Actor, "object": q.Object, "action": q.Action, "outcome": q.Outcome,
			"since": q.Since, "until": q.Until,
		}))
	})
	if err != nil {
		return err
	}

	out := csv.NewWriter(w)
	err = out.Write([]string{
		"id", "at", "actor", "via", "action", "object", "outcome",
		"before", "after", "request_id", "address", "note",
	})
	// Each page is read in a transaction that asks for the permission again: an administrator who
	// is demoted meanwhile gets no more.
	for err == nil {
		var page []Entry
		if page, err = s.Audit(ctx, a, q); err != nil {
			break
		}

		for _, e := range page {
			err = out.Write([]string{
				strconv.FormatInt(e.ID, 10), e.At.Format(time.RFC3339Nano), inert(e.Actor), inert(e.Via),
				inert(e.Action), inert(e.Object), e.Outcome,
				inert(e.Before), inert(e.After), inert(e.RequestID), inert(e.Address), inert(e.Note),
			})
			if err != nil {
				return err
			}
			q.Before = e.ID
		}

		if len(page) < q.Limit {
			break
		}
	}

	out.Flush()
	if err != nil {
		return err
	}
	return out.Error()
}
