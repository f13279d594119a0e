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
	data, err := policyyaml.Encode(set)
	if err != nil {
		t.Fatal(err)
	}
	return Import{Data: data, Format: YAML}
}

func TestImportRestoresAnExport(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.create(full("p"))
		w.create(sample("q", "c"))
		for _, format := range []Format{YAML, JSON} {
			data, err := w.Export(ctx, w.admin, format)
			w.must(err)
			plan, err := w.Import(ctx, w.admin, Import{Data: data, Format: format, Missing: RemoveMissing})
			w.must(err)
			if got := plan.Counts(); !reflect.DeepEqual(got, map[string]int{keep: 2}) {
				t.Errorf("the import of an unchanged export did %v", got)
			}
		}
		data, err := w.Export(ctx, w.admin, YAML)
		w.must(err)
		edited := strings.ReplaceAll(string(data), "limit: 100/1m", "limit: 200/1m")
		plan, err := w.Import(ctx, w.admin, Import{Data: []byte(edited), Format: YAML})
		w.must(err)
		if got := plan.Counts(); !reflect.DeepEqual(got, map[string]int{keep: 1, updated: 1}) {
			t.Errorf("the import did %v", got)
		}
		_, err = w.Import(ctx, w.admin, Import{Data: data, Format: YAML})
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
		plan, err := w.PlanImport(ctx, w.admin, in)
		w.must(err)
		var got []string
		for _, s := range plan.Steps {
			got = append(got, s.Name+" "+s.Action+" "+fmt.Sprint(len(s.Changes)))
		}
		if want := []string{"changes update 1", "goes delete 6", "new create 6", "stays keep 0"}; !reflect.DeepEqual(got, want) {
			t.Errorf("the plan is %v, want %v", got, want)
		}
		if _, err := w.Policy(ctx, w.admin, "new"); !errors.Is(err, ErrNotFound) {
			t.Errorf("a plan created a policy: %v", err)
		}

		in.Base = &plan.Base
		stale, before := in, plan.Base-1
		stale.Base = &before
		_, err = w.Import(ctx, w.admin, stale)
		wantErr(t, "an import on another base", err, ErrMoved)
		done, err := w.Import(ctx, w.admin, in)
		w.must(err)
		if !reflect.DeepEqual(done, plan) {
			t.Errorf("the import did %+v, want %+v", done, plan)
		}
		set, _, err := w.Outbox().Snapshot(ctx)
		w.must(err)
		if len(set) != 3 || set[0].Name != "changes" || set[0].Priority != 4 || set[1].Name != "new" || set[2].Name != "stays" {
			t.Errorf("%+v", set)
		}
		if n := len(w.entries(AuditQuery{Action: "policy.import", Outcome: Done})); n != 3 {
			t.Errorf("%d rows in the audit log, want 3", n)
		}
	})
}

func TestPlanImportEmptyDatabaseHasABase(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		in := importOf(t, sample("new", "a"))
		plan, err := w.PlanImport(t.Context(), w.admin, in)
		w.must(err)
		if plan.Base != 0 {
			t.Fatalf("the base is %d", plan.Base)
		}
		w.create(sample("other", "a"))
		in.Base = &plan.Base
		_, err = w.Import(t.Context(), w.admin, in)
		wantErr(t, "an import after a change", err, ErrMoved)
		in.Base = nil
		_, err = w.Import(t.Context(), w.admin, in)
		w.must(err)
	})
}

func TestImportReportsEveryMistake(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.create(sample("p", "a"))
		w.create(sample("foreign", "b"))
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
		_, err = w.Import(ctx, w.admin, importOf(t, sample("x1", "nowhere"), sample("x2", "nowhere"), sample("x3", "a")))
		wantFault(t, "no application", err, "apps")
		set, version, err := w.Outbox().Snapshot(ctx)
		w.must(err)
		if len(set) != 2 || version != 2 {
			t.Errorf("%d policies in version %d, want 2 in 2", len(set), version)
		}
		text := "policies:\n- {name: A, apps: [a], limit: x, key: ip}\n- {name: b, apps: [], limit: 1/1s, key: '?'}\n"
		_, err = w.Import(ctx, w.admin, Import{Data: []byte(text), Format: YAML})
		if !errors.As(err, &invalid) || len(invalid.Faults) != 4 {
			t.Errorf("the mistakes are %v, want four", err)
		}
		for _, in := range []Import{{Format: "xml"}, {Format: YAML, Missing: "perhaps"}, {Format: YAML}, {Format: JSON, Data: []byte("{}")}} {
			if _, err := w.Import(ctx, w.admin, in); !errors.As(err, &invalid) {
				t.Errorf("%+v: %v", in, err)
			}
		}
	})
}

func TestImportRemovesNoHiddenPolicy(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	w.create(sample("mine", "a"))
	w.create(sample("foreign", "b"))
	a := w.person("x", map[string]Role{"a": Owner})
	in := importOf(t, sample("new", "a"))
	in.Missing = RemoveMissing
	plan, err := w.Import(t.Context(), a, in)
	w.must(err)
	if got := plan.Counts(); !reflect.DeepEqual(got, map[string]int{created: 1, deleted: 1}) {
		t.Errorf("the import did %v", got)
	}
	if _, err := w.Policy(t.Context(), w.admin, "foreign"); err != nil {
		t.Error(err)
	}
}
