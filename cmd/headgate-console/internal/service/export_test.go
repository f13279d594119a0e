package service

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/policyyaml"
)

func TestExportOfOneApplication(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	w.create(sample("one", "a"))
	w.create(sample("two", "a", "b"))
	w.create(sample("three", "b"))

	names := func(a Actor, app string) (list []string) {
		data := must(w.Export(t.Context(), a, YAML, app))
		set := must(policyyaml.Decode(data))
		for _, p := range set {
			list = append(list, p.Name)
		}
		return list
	}

	viewer := w.person("viewer", map[string]Role{"a": Viewer})

	// A policy of two applications is in the export of each. A viewer has what they see.
	for _, row := range []struct {
		actor Actor
		app   string
		want  int
	}{{w.admin, "", 3}, {w.admin, "a", 2}, {w.admin, "b", 2}, {w.admin, "c", 0}, {viewer, "", 2}, {viewer, "a", 2}} {
		if got := names(row.actor, row.app); len(got) != row.want {
			t.Errorf("%s exports %q for %q, want %d", row.actor.User(), got, row.app, row.want)
		}
	}

	for _, app := range []string{"b", "none", "'; --"} {
		wantErr(t, "the export of "+app, errOf(w.Export(t.Context(), viewer, YAML, app)), ErrNotFound)
	}
}

// The largest set that there may be is exported, and restores an empty console. YAML holds less,
// and the error says what to do.
func TestExportOfTheMostPoliciesImportsAgain(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	ctx := t.Context()

	var set policy.Set
	for i := range policy.MaxPolicies {
		p := sample(fmt.Sprint("policy-", i), []string{"a", "b"}[i%2])
		p.Priority = i % 7
		set = append(set, p)
	}

	must(w.Import(ctx, w.admin, importOf(t, set...)))

	data := must(w.Export(ctx, w.admin, JSON, ""))

	// The other console has not even the applications.
	empty := newWorld(t, sqliteURL(t))
	for _, app := range []string{"a", "b", "c"} {
		w.must(empty.DeleteApp(ctx, empty.admin, app))
	}

	plan := must(empty.Import(ctx, empty.admin, Import{Data: data, Format: JSON}))
	if got := plan.Counts(); got[created] != policy.MaxPolicies || len(got) != 1 || len(plan.Apps) != 2 {
		t.Errorf("the import did %v, with the applications %q", got, plan.Apps)
	}

	// It is the same to the byte.
	again, err := empty.Export(ctx, empty.admin, JSON, "")
	if w.must(err); string(again) != string(data) {
		t.Errorf("the restored console exports %d other bytes than the %d of the first", len(again), len(data))
	}

	_, err = w.Export(ctx, w.admin, YAML, "")
	wantFault(t, "a set that YAML does not hold", err, "format")
	if err == nil || !strings.Contains(err.Error(), "export them as json") {
		t.Errorf("the error is %v", err)
	}

	// 2000 policies are few enough for YAML, and go around in it, too.
	few, err := w.Import(ctx, w.admin, Import{Data: encodedAs(t, YAML, set[:2000]), Format: YAML,
		Missing: RemoveMissing})
	if w.must(err); few.Counts()[keep] != 2000 {
		t.Errorf("the import did %v", few.Counts())
	}

	data = must(w.Export(ctx, w.admin, YAML, ""))
	plan, err = w.Import(ctx, w.admin, Import{Data: data, Format: YAML})
	if w.must(err); plan.Counts()[keep] != 2000 {
		t.Errorf("the import of the export did %v", plan.Counts())
	}
}

func encodedAs(t *testing.T, f Format, set policy.Set) []byte {
	t.Helper()
	data := must(encoded(set, f))
	return data
}
