package service

import "context"

// Deleted returns the revisions that deleted policies, the newest first, of the policies that
// do not exist any more and that the actor saw. [Service.Rollback] to the version before
// restores one. page counts from 1, and its revisions that the actor may not see are left
// out; more reports whether there are further pages. perPage has the meaning of
// Query.PerPage.
func (s *Service) Deleted(ctx context.Context, a Actor, page, pageSize int) (list []Revision, more bool, err error) {
	limit := perPage(pageSize)
	err = s.ask(ctx, a, "policy.list", "policies", func(d *action) error {
		// One row more than the page has shows whether there are further pages.
		rows, err := d.Tx.Deleted((min(max(page, 1), maxPage)-1)*limit, limit+1)
		if err != nil {
			return err
		}
		if more = len(rows) > limit; more {
			rows = rows[:limit]
		}

		// What the actor may not see is left out, so that a page may be shorter.
		list, err = d.revisions(rows)
		return err
	})
	return list, more, err
}
