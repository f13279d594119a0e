package service

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/policyyaml"
)

// importOf is an import of policies as they are.
func importOf(t testing.TB, set ...policy.Policy) Import {
	t.Helper()
	data := must(policyyaml.Encode(set))
	return Import{Data: data, Format: YAML}
}

func TestImportRestoresAnExport(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.create(full("p"))
		w.create(sample("q", "c"))

		// An export that is imported at once changes nothing, though it would remove what is
		// missing.
		for _, format := range []Format{YAML, JSON} {
			data := must(w.Export(ctx, w.admin, format, ""))

			plan := must(w.Import(ctx, w.admin, Import{Data: data, Format: format, Missing: RemoveMissing}))
			equal(t, "the import of an unchanged export did", plan.Counts(), map[string]int{keep: 2})
		}

		// One of the two has this limit, and it alone is changed.
		data := must(w.Export(ctx, w.admin, YAML, ""))
		edited := strings.ReplaceAll(string(data), "limit: 100/1m", "limit: 200/1m")

		plan := must(w.Import(ctx, w.admin, Import{Data: []byte(edited), Format: YAML}))
		equal(t, "what the import did", plan.Counts(), map[string]int{keep: 1, updated: 1})

		// The export from before has the old version of it: an import goes over no newer change.
		_, err := w.Import(ctx, w.admin, Import{Data: data, Format: YAML})
		wantFault(t, "an import of a stale version", err, "version")

		if p, err := w.Policy(ctx, w.admin, "q"); err != nil || p.Version != 2 || p.Limit.Quota != 200 {
			t.Errorf("%+v %v", p, err)
		}
	})
}

func TestPlanImportPredictsImport(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		for _, name := range []string{"changes", "goes", "stays"} {
			w.create(sample(name, "a"))
		}

		changes := sample("changes", "a")
		changes.Priority = 4

		in := importOf(t, changes, sample("new", "b"), sample("stays", "a"))
		in.Missing = RemoveMissing

		plan := must(w.PlanImport(ctx, w.admin, in))

		// A created and a deleted policy differ in all six fields that it has.
		var got []string
		for _, s := range plan.Steps {
			got = append(got, s.Name+" "+s.Action+" "+fmt.Sprint(len(s.Changes)))
		}
		if want := []string{"changes update 1", "goes delete 6", "new create 6",
			"stays keep 0"}; !reflect.DeepEqual(got, want) {
			t.Errorf("the plan is %v, want %v", got, want)
		}

		wantErr(t, "the policy of a plan", errOf(w.Policy(ctx, w.admin, "new")), ErrNotFound)

		in.Base = &plan.Base

		// An import is of the plan that a person has seen: on another state it is refused, on this
		// one it does the same.
		stale, before := in, plan.Base-1
		stale.Base = &before
		wantErr(t, "an import on another base", errOf(w.Import(ctx, w.admin, stale)), ErrMoved)

		done := must(w.Import(ctx, w.admin, in))
		equal(t, "what the import did", done, plan)

		set, _, err := w.Outbox().Snapshot(ctx)
		w.must(err)
		if len(set) != 3 || set[0].Name != "changes" || set[0].Priority != 4 || set[1].Name != "new" ||
			set[2].Name != "stays" {
			t.Errorf("%+v", set)
		}

		// One row for each policy that changed.
		if n := len(w.entries(AuditQuery{Action: "policy.import", Outcome: Done})); n != 3 {
			t.Errorf("%d rows in the audit log, want 3", n)
		}
	})
}

func TestPlanImportEmptyDatabaseHasABase(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		in := importOf(t, sample("new", "a"))

		// 0 is a base like another, not the absence of one.
		plan := must(w.PlanImport(t.Context(), w.admin, in))
		if plan.Base != 0 {
			t.Fatalf("the base is %d", plan.Base)
		}

		w.create(sample("other", "a"))
		in.Base = &plan.Base
		wantErr(t, "an import after a change", errOf(w.Import(t.Context(), w.admin, in)), ErrMoved)

		// Without a base the import is of whatever is there.
		in.Base = nil
		must(w.Import(t.Context(), w.admin, in))
	})
}

func TestImportReportsEveryMistake(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.create(sample("p", "a"))
		w.create(sample("foreign", "b"))

		// A stale version, an application of others, a hidden policy of the name, and one that is
		// right.
		a := w.person("x", map[string]Role{"a": Owner})
		p, q, foreign := sample("p", "a"), sample("q", "a", "b"), sample("foreign", "a")
		p.Version, p.Priority = 7, 1
		_, err := w.Import(ctx, a, importOf(t, p, q, foreign, sample("fine", "a")))

		var invalid *InvalidError
		if !errors.As(err, &invalid) || !errors.Is(err, ErrDenied) {
			t.Fatal(err)
		}

		got := map[string]string{}
		for _, f := range invalid.Faults {
			got[f.Policy] = f.Field
		}
		if want := map[string]string{"p": "version", "q": "apps", "foreign": "name"}; !reflect.DeepEqual(got, want) {
			t.Errorf("the mistakes are in %v, want %v", got, want)
		}

		_, err = w.Import(ctx, w.admin, importOf(t, sample("x1", "nowhere"), sample("x2", "nowhere"),
			sample("x3", "a")))
		wantFault(t, "no application", err, "apps")

		// The right ones were not imported either.
		set, version, err := w.Outbox().Snapshot(ctx)
		w.must(err)
		if len(set) != 2 || version != 2 {
			t.Errorf("%d policies in version %d, want 2 in 2", len(set), version)
		}

		// What cannot be read as a policy: a name, a limit, no applications and a key.
		text := "policies:\n- {name: A, apps: [a], limit: x, key: ip}\n- {name: b, apps: [], limit: 1/1s, key: '?'}\n"
		_, err = w.Import(ctx, w.admin, Import{Data: []byte(text), Format: YAML})
		if !errors.As(err, &invalid) || len(invalid.Faults) != 4 {
			t.Errorf("the mistakes are %v, want four", err)
		}

		for _, in := range []Import{{Format: "xml"}, {Format: YAML, Missing: "perhaps"}, {Format: YAML},
			{Format: JSON, Data: []byte("{}")}} {
			if _, err := w.Import(ctx, w.admin, in); !errors.As(err, &invalid) {
				t.Errorf("%+v: %v", in, err)
			}
		}
	})
}

// A table of plans becomes that of each policy which names it, and an export has it so.
func TestImportReadsTablesOfPlans(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	const text = `
plans: {tiers: {pro: 500/1h}}
policies:
- {name: p, apps: [a], limit: 10/1h, key: user, plans: tiers, plan_by: user}
- {name: q, apps: [a], limit: 20/1h, key: user, plans: tiers, plan_by: user}
`
	must(w.Import(t.Context(), w.admin, Import{Data: []byte(text), Format: YAML}))
	data := must(w.Export(t.Context(), w.admin, YAML, ""))
	const own = "\n  plans:\n    pro: 500/1h\n"
	if text := string(data); strings.Count(text, own) != 2 || strings.HasPrefix(text, "plans") {
		t.Errorf("want a table in each policy:\n%s", data)
	}

	// One change of the table changes both.
	for _, format := range []Format{YAML, JSON} {
		text, limit := strings.Replace(text, "500", "600", 1), "600/1h"
		if format == JSON {
			text, limit = `{"plans": {"t": {"pro": "700/1h"}}, "policies": [
				{"name": "p", "apps": ["a"], "limit": "10/1h", "key": "user", "plans": "t", "plan_by": "user"},
				{"name": "q", "apps": ["a"], "limit": "20/1h", "key": "user", "plans": "t", "plan_by": "user"}]}`, "700/1h"
		}
		plan := must(w.Import(t.Context(), w.admin, Import{Data: []byte(text), Format: format}))
		for _, step := range plan.Steps {
			if step.Action != updated || step.After.Plans["pro"].String() != limit {
				t.Errorf("%s: %s %s has %v", format, step.Action, step.Name, step.After.Plans)
			}
		}
		equal(t, "steps", len(plan.Steps), 2)
	}

	wrong := []byte(strings.Replace(text, "500/1h", "x", 1))
	_, err := w.Import(t.Context(), w.admin, Import{Data: wrong, Format: YAML})
	var invalid *InvalidError
	if !errors.As(err, &invalid) || len(invalid.Faults) != 1 || invalid.Faults[0].Field != "plans.tiers.pro" ||
		invalid.Faults[0].Policy != "" {
		t.Errorf("%+v", err)
	}
}

func TestImportRemovesNoHiddenPolicy(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	w.create(sample("mine", "a"))
	w.create(sample("foreign", "b"))
	a := w.person("x", map[string]Role{"a": Owner})

	// To the person mine is missing in the file. They do not see foreign, so it is not missing.
	in := importOf(t, sample("new", "a"))
	in.Missing = RemoveMissing
	plan := must(w.Import(t.Context(), a, in))

	equal(t, "what the import did", plan.Counts(), map[string]int{created: 1, deleted: 1})

	must(w.Policy(t.Context(), w.admin, "foreign"))
}

func TestImportRemovesOnlyWithinTheApplications(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		for name, apps := range map[string][]string{"in-a": {"a"}, "in-b": {"b"}, "in-ab": {"a", "b"},
			"in-abc": {"a", "b", "c"}, "in-c": {"c"}, "stays": {"a"}} {
			w.create(sample(name, apps...))
		}

		steps := func(plan Plan) (list []string) {
			for _, s := range plan.Steps {
				list = append(list, s.Name+" "+s.Action)
			}
			return list
		}

		// What is missing goes if all of its applications are among these. What lists another as
		// well is left, and named.
		in := importOf(t, sample("stays", "a"))
		in.Missing, in.Apps = RemoveMissing, []string{"a"}
		plan := must(w.PlanImport(ctx, w.admin, in))
		if got := fmt.Sprint(steps(plan), plan.LeftAlone); got != "[in-a delete stays keep] [in-ab in-abc]" {
			t.Errorf("for a the plan is %s", got)
		}

		in.Apps = []string{"b", "a"}
		plan = must(w.Import(ctx, w.admin, in))
		if got := fmt.Sprint(steps(plan), plan.LeftAlone); got !=
			"[in-a delete in-ab delete in-b delete stays keep] [in-abc]" {
			t.Errorf("for a and b the import did %s", got)
		}

		set, _, err := w.Outbox().Snapshot(ctx)
		w.must(err)
		equal(t, "policies are left", len(set), 3)

		owner := w.person("x", map[string]Role{"a": Owner})

		// A person may name their own applications, or none, which means those that they own.
		for _, apps := range [][]string{{"a", "nowhere"}, {"b"}, {}} {
			in.Apps = apps
			if _, err := w.PlanImport(ctx, owner, in); len(apps) > 0 {
				wantFault(t, fmt.Sprint(apps), err, "apps")
			} else if err != nil {
				t.Error(err)
			}
		}

		in.Missing, in.Apps = KeepMissing, []string{"a"}
		wantFault(t, "applications without a removal", errOf(w.PlanImport(ctx, w.admin, in)), "apps")
	})
}

func TestImportCommentsAreInHistoryAndAuditLog(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	ctx := t.Context()
	w.create(sample("changes", "a"))
	w.create(sample("goes", "a"))

	changes := sample("changes", "a")
	changes.Priority = 4
	in := importOf(t, changes, sample("new", "b"))
	in.Missing = RemoveMissing

	// One comment for all: the file's commit, for example.
	const comment = "commit 0a1b2c"
	must(w.Import(ctx, w.admin.Saying(comment), in))

	for _, name := range []string{"changes", "goes", "new"} {
		if list, err := w.History(ctx, w.admin, name, 0, 1); err != nil || list[0].Comment != comment ||
			list[0].Action != imported {
			t.Errorf("%s: %+v %v", name, list, err)
		}
	}

	if list := w.entries(AuditQuery{Action: "policy.import", Outcome: Done}); len(list) != 3 ||
		list[0].Note != comment || list[2].Note != comment {
		t.Errorf("the audit log has %+v", list)
	}

	// A plan refuses what the import would refuse.
	for _, wrong := range []string{strings.Repeat("x", MaxComment+1), "a\x00", "\xff"} {
		wantFault(t, "a comment", errOf(w.Import(ctx, w.admin.Saying(wrong), in)), "comment")
		wantFault(t, "the comment of a plan", errOf(w.PlanImport(ctx, w.admin.Saying(wrong), in)), "comment")
	}
}

func TestPlanImportComparesForReaders(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	ctx := t.Context()
	w.create(sample("changes", "a", "b"))
	w.create(sample("goes", "a"))
	w.create(sample("hidden", "c"))

	// A reader may compare a file with what is there, also one that names applications that they
	// do not see.
	viewer := w.person("x", map[string]Role{"a": Viewer})

	changes := sample("changes", "a", "b")
	changes.Priority = 4
	in := importOf(t, changes, sample("new", "a", "secret"))
	in.Missing, in.Compare = RemoveMissing, true

	plan := must(w.PlanImport(ctx, viewer, in))
	equal(t, "what the comparison finds", plan.Counts(), map[string]int{created: 1, updated: 1, deleted: 1})

	// To plan an import is for those who may import, and a comparison is not imported.
	wantErr(t, "a plan", errOf(w.PlanImport(ctx, viewer, importOf(t, changes))), ErrDenied)
	wantFault(t, "an import", errOf(w.Import(ctx, viewer, in)), "compare")

	// A comparison reveals neither a hidden policy nor a hidden application.
	for _, p := range []policy.Policy{sample("hidden", "a"), sample("new", "c"), sample("new", "nowhere")} {
		in := importOf(t, p)
		in.Compare = true
		if _, err := w.PlanImport(ctx, viewer, in); err == nil {
			t.Errorf("%s of %q is compared", p.Name, p.Apps)
		}
	}

	in = importOf(t, sample("new", "a", "nowhere"))
	in.Compare = true
	wantFault(t, "an application that does not exist", errOf(w.PlanImport(ctx, w.admin, in)), "apps")
}
