package web

import "cmp"

func deletePage(r *request) error {
	c, err := r.askDeletion(0)
	if err != nil {
		return err
	}
	return r.confirm(c)
}

// askDeletion returns the question before a policy goes: of a version, or 0 for that of now.
func (r *request) askDeletion(version int64) (confirmation, error) {
	p, err := r.Service.PolicyToEdit(r.req.Context(), r.actor, "policy.delete", r.req.PathValue("name"))
	if err != nil {
		return confirmation{}, err
	}
	lastHour, err := r.lastHour(p)
	if err != nil {
		return confirmation{}, err
	}

	c := confirmationOf("delete", p.Name)
	c.Consequences = append([]string{p.Describe() + ".",
		"Within seconds " + inForce(p) + " do not apply it any more. " + lastHour}, c.Consequences...)
	c.Action, c.Back = policyPath(p.Name)+"/delete", policyPath(p.Name)
	c.Fields = []hidden{{"version", number(cmp.Or(version, p.Version))}}
	return c, nil
}

func remove(r *request) error {
	name, version := r.req.PathValue("name"), r.version("version")
	return r.decide(func() (confirmation, error) { return r.askDeletion(version) },
		func() error { return r.Service.DeletePolicy(r.req.Context(), r.saying(), name, version) },
		r.to("/policies", "deleted&"+undoOf(name)))
}
