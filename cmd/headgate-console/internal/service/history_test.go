package service

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
)

func TestHistoryHasActorTimeAndChanges(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		owner := w.person("owner", map[string]Role{"a": Owner})

		p := w.create(sample("p", "a"))
		began := w.clock.now()

		w.clock.pass(time.Minute)
		p.Limit.Quota, p.Priority = 50, 1
		p = must(w.UpdatePolicy(ctx, owner, p))

		w.clock.pass(time.Minute)
		w.must(w.DeletePolicy(ctx, owner, "p", 2))

		list := must(w.History(ctx, owner, "p", 0, 0))

		// The newest comes first. The first and the last revision differ from nothing in all
		// fields.
		want := []struct {
			version int64
			actor   string
			action  string
			after   time.Duration
			changes []Change
		}{
			{3, "owner", "delete", 2 * time.Minute, Diff(p, policy.Policy{})},
			{2, "owner", "update", time.Minute, []Change{{"limit", "100/1m", "50/1m"}, {"priority", "0", "1"}}},
			{1, "admin", "create", 0, Diff(policy.Policy{}, sample("p", "a"))},
		}
		if len(list) != len(want) {
			t.Fatalf("%d revisions, want %d", len(list), len(want))
		}

		for i, r := range list {
			x := want[i]
			if r.Version != x.version || r.Actor != x.actor || r.Action != x.action ||
				!r.At.Equal(began.Add(x.after)) ||
				r.RequestID != "request-1" || !reflect.DeepEqual(r.Changes(), x.changes) {
				t.Errorf("revision %d is %+v with %v, want %+v", i, r, r.Changes(), x)
			}
		}

		// A page is of the revisions before a version.
		page, err := w.History(ctx, owner, "p", 3, 1)
		if err != nil || len(page) != 1 || page[0].Version != 2 {
			t.Errorf("the second page is %+v %v", page, err)
		}

		one, err := w.Revision(ctx, owner, "p", 2)
		if err != nil || !reflect.DeepEqual(one, list[1]) {
			t.Errorf("%+v %v", one, err)
		}
	})
}

func TestRollbackIsANewVersionWithOldContent(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		first := w.create(full("p"))

		second := first
		second.Description, second.Limit = "", core.Limit{Quota: 1, Period: time.Second}
		must(w.UpdatePolicy(ctx, w.admin, second))

		back := must(w.Rollback(ctx, w.admin, "p", 1, 2))
		if back.Version != 3 || len(Diff(back, first)) != 0 {
			t.Errorf("%+v", back)
		}

		// A deletion has no content to go back to.
		w.must(w.DeletePolicy(ctx, w.admin, "p", 3))
		wantFault(t, "a rollback to the deletion", errOf(w.Rollback(ctx, w.admin, "p", 4, 4)), "version")

		_, err := w.Rollback(ctx, w.admin, "p", 2, 3)
		if c := wantConflict(t, "a rollback from before the deletion", err, 3, 4); !c.Deleted {
			t.Errorf("the conflict is %+v", c)
		}

		// From the deletion it goes back to any version before.
		back = must(w.Rollback(ctx, w.admin, "p", 2, 4))
		if back.Version != 5 || len(Diff(back, second)) != 0 {
			t.Errorf("%+v", back)
		}

		r, err := w.Revision(ctx, w.admin, "p", 5)
		if err != nil || r.Action != "rollback" || r.Note != "to version 2" || r.Before != nil {
			t.Errorf("%+v %v", r, err)
		}

		wantErr(t, "an unknown version", errOf(w.Rollback(ctx, w.admin, "p", 99, 5)), ErrNotFound)
		wantErr(t, "an unknown policy", errOf(w.Rollback(ctx, w.admin, "never", 1, 1)), ErrNotFound)
	})
}

func TestHistoryOmitsHiddenRevisions(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()

		// The policy moves from b to a: who sees a alone must not learn what it was under b.
		p := w.create(sample("p", "b"))
		p.Apps = []string{"a"}
		p = must(w.UpdatePolicy(ctx, w.admin, p))

		viewer := w.person("viewer", map[string]Role{"a": Viewer})
		list, err := w.History(ctx, viewer, "p", 0, 0)
		if err != nil || len(list) != 1 || list[0].Version != 2 || list[0].Before != nil || list[0].After == nil {
			t.Errorf("%+v %v", list, err)
		}

		wantErr(t, "the revision", errOf(w.Revision(ctx, viewer, "p", 1)), ErrNotFound)

		owner := w.person("owner", map[string]Role{"a": Owner})
		wantErr(t, "a rollback", errOf(w.Rollback(ctx, owner, "p", 1, p.Version)), ErrNotFound)
	})
}

// TestDiffSeesEveryField changes every field of a policy by reflection, so that it
// finds fields that are added later.
func TestDiffSeesEveryField(t *testing.T) {
	unseen := map[string]bool{"Version": true, "CreatedBy": true, "CreatedAt": true, "UpdatedBy": true,
		"UpdatedAt": true}

	for _, f := range reflect.VisibleFields(reflect.TypeFor[policy.Policy]()) {
		changed := sample("p", "a")

		// The fields of these are shown one by one, so each is altered alone.
		values := []reflect.Value{reflect.ValueOf(&changed).Elem().FieldByIndex(f.Index)}
		if f.Type == reflect.TypeFor[policy.Match]() || f.Type == reflect.TypeFor[policy.Access]() ||
			f.Type == reflect.TypeFor[core.Ban]() || f.Type == reflect.TypeFor[policy.Cost]() {
			values = values[:0]
			for i := range f.Type.NumField() {
				values = append(values, reflect.ValueOf(&changed).Elem().FieldByIndex(f.Index).Field(i))
			}
		}

		for i := range values {
			changed = sample("p", "a")
			alterValue(t, values[i])
			if got := len(Diff(sample("p", "a"), changed)) == 1; got == unseen[f.Name] {
				t.Errorf("%s %d: seen is %t", f.Name, i, got)
			}
		}
	}
}

// Tables that differ in what stands between their values have other texts.
func TestDiffSeesEveryTable(t *testing.T) {
	tables := []map[string]policy.Values{{"a": {"b", "c"}}, {"a": {"b or c"}}, {"a": {"b, x: c"}},
		{"a": {"b"}, "x": {"c"}}, {"a": {`"b or c"`}}}
	for i, before := range tables {
		for j, after := range tables {
			a, b := sample("p", "a"), sample("p", "a")
			a.Match.Query, b.Match.Query = before, after
			equal(t, fmt.Sprintf("%v and %v differ", before, after), len(Diff(a, b)) == 1, i != j)
		}
	}
}

func alterValue(t *testing.T, v reflect.Value) {
	t.Helper()
	switch x := v.Addr().Interface().(type) {
	case *string:
		*x += "x"
	case *[]string:
		*x = append(*x, "X")
	case *core.Share:
		*x++
	case *policy.Statuses:
		*x = append(*x, "304")
	case *int:
		*x++
	case *int64:
		*x++
	case *policy.Callers:
		x.Networks, x.Keys = append(x.Networks, "192.0.2.1"), append(x.Keys, "x")
	case *bool:
		*x = !*x
	case *core.Limit:
		x.Quota++
	case *policy.Mode:
		*x = policy.Off
	case *time.Duration:
		*x += time.Second
	case *time.Time:
		*x = x.Add(time.Second)
	default:
		alterTable(t, v)
	}
}

func alterTable(t *testing.T, v reflect.Value) {
	t.Helper()
	switch x := v.Addr().Interface().(type) {
	case *map[string]policy.Values:
		*x = map[string]policy.Values{"X-Plan": {"free"}}
	case *map[string]core.Limit:
		*x = map[string]core.Limit{"x": core.MustParseLimit("1/1s")}
	case *map[string]policy.Price:
		*x = map[string]policy.Price{"*": {Input: "1", Output: "2"}}
	case *map[string]policy.Override:
		*x = map[string]policy.Override{"x": {Limit: core.MustParseLimit("1/1s")}}
	default:
		t.Fatalf("a field of the type %T", x)
	}
}
