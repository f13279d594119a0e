package web

import "github.com/headgate/headgate/policy"

func deletePage(v *request) error {
	p, err := v.Service.PolicyToEdit(v.r.Context(), v.actor, "policy.delete", v.r.PathValue("name"))
	if err != nil {
		return err
	}
	return v.confirmDeletion(p, p.Version, nil)
}

func (v *request) confirmDeletion(p policy.Policy, version int64, m mistakes) error {
	lastHour, err := v.lastHour(p)
	if err != nil {
		return err
	}

	return v.confirm(confirmation{
		Title: "Delete the policy " + p.Name + "?",
		Consequences: []string{p.Describe() + ".",
			"Within seconds " + inForce(p) + " do not apply it any more. " + lastHour,
			"It goes to the deleted policies with its history, and can be restored from there."},
		Action: policyPath(p.Name) + "/delete", Fields: []hidden{{"version", number(version)}},
		Button: "Delete the policy", Danger: true, Back: policyPath(p.Name), Comment: true, Mistakes: m,
	})
}

func remove(v *request) error {
	name, version := v.r.PathValue("name"), v.version("version")
	if !v.confirmed() {
		p, err := v.Service.PolicyToEdit(v.r.Context(), v.actor, "policy.delete", name)
		if err != nil {
			return err
		}
		return v.confirmDeletion(p, version, nil)
	}

	err := v.Service.DeletePolicy(v.r.Context(), v.saying(), name, version)
	if m := commentMistake(err); m != nil {
		p, err := v.Service.Policy(v.r.Context(), v.actor, name)
		if err != nil {
			return err
		}
		return v.confirmDeletion(p, version, m)
	}
	if err != nil {
		return v.conflictOr(err)
	}
	return v.seeOther("/policies", "deleted&"+undoOf(name))
}
