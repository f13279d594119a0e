package service

import (
	"testing"

	"github.com/headgate/headgate/policy"
)

func TestReasonsHidePoliciesOfOthers(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	w.create(sample("mine", "a"))
	w.create(sample("secret-launch", "b"))
	viewer := w.person("viewer", map[string]Role{"a": Viewer})
	const other = "a policy of another application is not valid for this instance"

	// Only the clauses about policies that the viewer does not see are replaced.
	for _, row := range []struct{ text, want string }{
		{"", ""}, {"the file is no JSON", "the file is no JSON"},
		{`policy "mine": limit: too fast; policy "secret-launch": key: "spy" is unknown`,
			`policy "mine": limit: too fast; ` + other},
		{`policy: policy "secret-launch": key: "spy"; policy "secret-launch": mode: x; policy "gone": y`, other},
		{`policy "secret-lau…`, other}, // cut to the length of a report
	} {
		w.fleet.set(func(f *fakeFleet) { f.instances = []policy.Instance{{App: "a", Error: row.text}} })
		if got := must(w.Instances(t.Context(), viewer, ""))[0].Error; got != row.want {
			t.Errorf("%q is shown as %q, want %q", row.text, got, row.want)
		}

		w.fleet.set(func(f *fakeFleet) { f.instances = []policy.Instance{{App: "a", Error: row.text}} })
		equal(t, "an administrator sees of", must(w.Instances(t.Context(), w.admin, ""))[0].Error, row.text)
	}
}

// A user who tries names that hidden policies have learns no more than that, and is seen.
func TestCreatePolicyProbesOfNamesAreInTheAuditLog(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	w.create(sample("secret", "b"))
	owner := w.person("owner", map[string]Role{"a": Owner})
	wantFault(t, "a taken name", errOf(w.CreatePolicy(t.Context(), owner, sample("secret", "a"))), "name")
	_, err := w.PlanImport(t.Context(), owner, importOf(t, sample("secret", "a")))
	wantFault(t, "a taken name in an import", err, "name")
	list := w.entries(AuditQuery{Actor: "owner", Outcome: Refused})
	if len(list) != 2 || list[0].Action != "policy.import" || list[1].Object != "policy:secret" {
		t.Errorf("the refusals are %+v", list)
	}
}
