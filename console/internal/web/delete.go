package web

import (
	"net/http"

	"github.com/headgate/headgate/console/internal/service"
)

func deletePage(v *visit) error {
	p, err := v.Service.Policy(v.r.Context(), v.actor, v.r.PathValue("name"))
	if err != nil {
		return err
	}
	if !v.access.CanEdit(p.Apps) {
		return &service.DeniedError{Action: "policy.delete", Object: "policy:" + p.Name, Reason: "it takes the owner of every application that the policy lists"}
	}
	return v.show(http.StatusOK, "delete", "Delete "+p.Name, v.rowOf(p))
}

func remove(v *visit) error {
	name := v.r.PathValue("name")
	if err := v.Service.DeletePolicy(v.r.Context(), v.actor, name, v.version("version")); err != nil {
		return v.conflictOr(err)
	}
	return v.seeOther("/policies", "deleted")
}
