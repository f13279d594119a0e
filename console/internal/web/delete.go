package web

import "net/http"

func deletePage(v *request) error {
	p, err := v.Service.PolicyToEdit(v.r.Context(), v.actor, "policy.delete", v.r.PathValue("name"))
	if err != nil {
		return err
	}
	return v.show(http.StatusOK, "delete", "Delete "+p.Name, v.rowOf(p))
}

func remove(v *request) error {
	name := v.r.PathValue("name")
	if err := v.Service.DeletePolicy(v.r.Context(), v.actor, name, v.version("version")); err != nil {
		return v.conflictOr(err)
	}
	return v.seeOther("/policies", "deleted")
}
