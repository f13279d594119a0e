package service

import (
	"context"
	"errors"
)

// Deleted returns the revisions that deleted policies, the newest first, of the policies that
// do not exist any more and that the actor saw. [Service.Rollback] to the version before
// restores one. page counts from 1, and its revisions that the actor may not see are left
// out; more reports whether there are further pages. perPage has the meaning of
// Query.PerPage.
func (s *Service) Deleted(ctx context.Context, a Actor, page, pageSize int) (list []Revision, more bool, err error) {
	limit := perPage(pageSize)
	err = s.ask(ctx, a, "policy.list", "policies", func(d *action) error {
		list, more = nil, false
		// One row more than the page has shows whether there are further pages.
		rows, err := d.Tx.Deleted((min(max(page, 1), maxPage)-1)*limit, limit+1)
		if err != nil {
			return err
		}
		if more = len(rows) > limit; more {
			rows = rows[:limit]
		}

		for _, row := range rows {
			r, err := d.revision(row)
			// What the actor may not see is left out, so that a page may be shorter.
			if errors.Is(err, ErrNotFound) {
				continue
			}
			if err != nil {
				return err
			}
			list = append(list, r)
		}
		return nil
	})
	return list, more, err
}
