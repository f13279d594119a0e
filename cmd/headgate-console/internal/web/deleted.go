package web

import (
	"net/http"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
)

// deletedList is the page of the policies that do not exist any more.
type deletedList struct {
	Deleted []deletedPolicy
	Next    int // the next page, or 0
}

// deletedPolicy is a policy that was deleted, and whether the actor may restore it.
type deletedPolicy struct {
	service.Revision
	Last    int64 // the version to restore
	CanBack bool
}

func deletedPage(v *request) error {
	page := max(1, pageIn(v.req.URL.Query()))
	list, more, err := v.Service.Deleted(v.req.Context(), v.actor, page, 0)
	if err != nil {
		return err
	}

	b := deletedList{}
	for _, r := range list {
		can := r.Before != nil && v.access.CanEdit(r.Before.Apps)
		b.Deleted = append(b.Deleted, deletedPolicy{r, r.Version - 1, can})
	}

	if more {
		b.Next = page + 1
	}
	return v.show(http.StatusOK, "deleted", "Deleted policies", b)
}
