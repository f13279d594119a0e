package web

import "github.com/headgate/headgate/policy"

func deletePage(r *request) error {
	p, err := r.Service.PolicyToEdit(r.req.Context(), r.actor, "policy.delete", r.req.PathValue("name"))
	if err != nil {
		return err
	}
	return r.confirmDeletion(p, p.Version, nil)
}

// confirmDeletion asks before a policy goes.
func (r *request) confirmDeletion(p policy.Policy, version int64, m mistakes) error {
	lastHour, err := r.lastHour(p)
	if err != nil {
		return err
	}

	return r.confirm(confirmation{
		Title: "Delete the policy " + p.Name + "?",
		Consequences: []string{p.Describe() + ".",
			"Within seconds " + inForce(p) + " do not apply it any more. " + lastHour,
			"It goes to the deleted policies with its history, and can be restored from there."},
		Action: policyPath(p.Name) + "/delete", Fields: []hidden{{"version", number(version)}},
		Button: "Delete the policy", Danger: true, Back: policyPath(p.Name), Comment: true, Mistakes: m,
	})
}

func remove(r *request) error {
	name, version := r.req.PathValue("name"), r.version("version")
	if !r.confirmed() {
		p, err := r.Service.PolicyToEdit(r.req.Context(), r.actor, "policy.delete", name)
		if err != nil {
			return err
		}
		return r.confirmDeletion(p, version, nil)
	}

	err := r.Service.DeletePolicy(r.req.Context(), r.saying(), name, version)
	if m := commentMistake(err); m != nil {
		p, err := r.Service.Policy(r.req.Context(), r.actor, name)
		if err != nil {
			return err
		}
		return r.confirmDeletion(p, version, m)
	}
	if err != nil {
		return r.conflictOr(err)
	}
	return r.seeOther("/policies", "deleted&"+undoOf(name))
}
