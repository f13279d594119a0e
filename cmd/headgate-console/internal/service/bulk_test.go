package service

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/stats"
)

func bulkOf(mode policy.Mode, list ...PolicyVersion) Bulk {
	return Bulk{Policies: list, Mode: &mode}
}

// versions returns the versions of policies that exist.
func (w *world) versions(names ...string) (list []PolicyVersion) {
	w.t.Helper()
	for _, name := range names {
		p, err := w.Policy(w.t.Context(), w.admin, name)
		w.must(err)
		list = append(list, PolicyVersion{name, p.Version})
	}
	return list
}

func TestBulkChangesAllWithARevisionAndAnAuditRowEach(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		for _, name := range []string{"one", "two", "three", "four"} {
			w.create(sample(name, "a"))
		}

		// Four that are on and one that is off already. The policy four is not in the list.
		already := w.create(policy.Policy{Name: "five", Apps: []string{"a"}, Limit: sample("x").Limit, Key: "ip",
			Mode: policy.Off})

		before := len(w.entries(AuditQuery{Action: "policy.update"}))
		plan, err := w.PlanBulk(ctx, w.admin, bulkOf(policy.Off, w.versions("one", "two", "three", "five")...))
		if err != nil || len(plan.Steps) != 3 || !slices.Equal(plan.Unchanged, []string{"five"}) {
			t.Fatalf("the plan is %+v (%v)", plan, err)
		}
		if n := len(w.entries(AuditQuery{Action: "policy.update"})); n != before {
			t.Errorf("a plan wrote %d rows into the audit log", n-before)
		}

		b := bulkOf(policy.Off, w.versions("one", "two", "three", "five")...)
		done, err := w.ChangePolicies(ctx, w.admin, b)
		w.must(err)
		if len(done.Steps) != 3 || !slices.Equal(done.Unchanged, []string{"five"}) {
			t.Errorf("changed were %+v", done)
		}

		for _, name := range []string{"one", "two", "three"} {
			w.wantOneOfThree(name)
		}

		for name, version := range map[string]int64{"four": 1, "five": already.Version} {
			if p, err := w.Policy(ctx, w.admin, name); err != nil || p.Version != version {
				t.Errorf("%s has version %d, want %d (%v)", name, p.Version, version, err)
			}
		}

		// A form that is sent twice finds all as it is wished, and that is no conflict.
		again, err := w.ChangePolicies(ctx, w.admin, b) // with versions that are old by now
		if err != nil || len(again.Steps) != 0 || len(again.Unchanged) != 4 {
			t.Errorf("a repeated change did %+v (%v)", again, err)
		}
	})
}

// wantOneOfThree checks that a policy was turned off by a bulk change of three.
func (w *world) wantOneOfThree(name string) {
	w.t.Helper()
	p, err := w.Policy(w.t.Context(), w.admin, name)
	w.must(err)
	if p.Mode != policy.Off || p.Version != 2 || p.UpdatedBy != FirstUser {
		w.t.Errorf("%s is %+v", name, p)
	}

	history, err := w.History(w.t.Context(), w.admin, name, 0, 0)
	w.must(err)
	if len(history) != 2 || history[0].Note != "one of 3 policies that were changed together" ||
		history[0].Action != "update" {
		w.t.Errorf("%s has the history %+v", name, history)
	}

	if rows := w.entries(AuditQuery{Action: "policy.update", Object: "policy:" + name}); len(rows) != 1 ||
		rows[0].Outcome != Done {
		w.t.Errorf("%s has %d rows in the audit log, want 1", name, len(rows))
	}
}

func TestBulkChangesApplications(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.create(sample("one", "a"))
		w.create(sample("two", "a", "b"))

		apps := func() (list [][]string) {
			for _, name := range []string{"one", "two"} {
				p, err := w.Policy(ctx, w.admin, name)
				w.must(err)
				list = append(list, p.Apps)
			}
			return list
		}

		// The second lists b already.
		_, err := w.ChangePolicies(ctx, w.admin, Bulk{Policies: w.versions("one", "two"), AddApp: "b"})
		w.must(err)
		if got, want := apps(), [][]string{{"a", "b"}, {"a", "b"}}; !reflect.DeepEqual(got, want) {
			t.Errorf("the applications are %v, want %v", got, want)
		}

		// To add and to remove at once is a move.
		_, err = w.ChangePolicies(ctx, w.admin, Bulk{Policies: w.versions("one", "two"), AddApp: "c", RemoveApp: "a"})
		w.must(err)
		if got, want := apps(), [][]string{{"b", "c"}, {"b", "c"}}; !reflect.DeepEqual(got, want) {
			t.Errorf("the applications are %v, want %v", got, want)
		}

		// The list by application follows.
		page, err := w.Policies(ctx, w.admin, Query{App: "c"})
		if err != nil || page.Total != 2 {
			t.Errorf("c has %d policies (%v)", page.Total, err)
		}

		// A policy has to list an application: the mistake names the policy that would not, and no
		// other is changed.
		w.create(sample("three", "b"))
		_, err = w.ChangePolicies(ctx, w.admin, Bulk{Policies: w.versions("one", "three"), RemoveApp: "b"})
		wantFault(t, "the last application", err, "apps")
		if text := err.Error(); !strings.Contains(text, `policy "three": apps: "b" is its only application`) ||
			strings.Contains(text, "one") {
			t.Errorf("the mistake is %q", text)
		}

		if got := apps(); !reflect.DeepEqual(got, [][]string{{"b", "c"}, {"b", "c"}}) {
			t.Errorf("a change that failed left %v", got)
		}

		_, err = w.ChangePolicies(ctx, w.admin, Bulk{Policies: w.versions("one"), AddApp: "nowhere"})
		wantFault(t, "an application that does not exist", err, "apps")
	})
}

func TestBulkNeverGoesOverAnothersChange(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		for _, name := range []string{"one", "two", "three"} {
			w.create(sample(name, "a"))
		}

		// After the list was read, one of its policies is edited and another is deleted.
		old := w.versions("one", "two", "three")
		p := sample("two", "a")
		p.Version, p.Priority = 1, 9
		_, err := w.UpdatePolicy(ctx, w.admin, p)
		w.must(err)
		w.must(w.DeletePolicy(ctx, w.admin, "three", 1))

		_, err = w.ChangePolicies(ctx, w.admin, bulkOf(policy.Shadow, old...))
		var conflicts *ConflictsError
		if !errors.As(err, &conflicts) || len(conflicts.Conflicts) != 2 {
			t.Fatalf("the error is %v", err)
		}

		// Both are named at once, with what is there now.
		if c := conflicts.Conflicts[0]; c.Mine.Name != "two" || c.Mine.Version != 1 || c.Theirs.Version != 2 ||
			c.Theirs.Priority != 9 {
			t.Errorf("the first conflict is %+v", c)
		}
		if c := conflicts.Conflicts[1]; c.Mine.Name != "three" || !c.Deleted {
			t.Errorf("the second conflict is %+v", c)
		}

		// All or nothing: the policy without a conflict keeps its mode, too.
		if p, err := w.Policy(ctx, w.admin, "one"); err != nil || p.Version != 1 || p.Mode != policy.Enforce {
			t.Errorf("the policy without a conflict became %+v (%v)", p, err)
		}
	})
}

// Of two changes of the same policies at the same time one is made as a whole, and the other
// not at all.
func TestBulkRacesAreAllOrNothing(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		var names []string
		for i := range 12 {
			names = append(names, fmt.Sprintf("p%02d", i))
			w.create(sample(names[i], "a"))
		}

		rivals := []*Service{w.Service, w.another()}
		for round := range 6 {
			// The second list has 8 of the 12 in the opposite order, in which locks that are taken
			// one by one would meet in a deadlock.
			base := w.versions(names...)
			reversed := slices.Clone(base)
			slices.Reverse(reversed)

			modes := []policy.Mode{policy.Shadow, policy.Off}
			var errs [2]error
			var group sync.WaitGroup
			for i, list := range [][]PolicyVersion{base, reversed[:8]} {
				group.Go(func() { _, errs[i] = rivals[i].ChangePolicies(ctx, w.admin, bulkOf(modes[i], list...)) })
			}

			group.Wait()
			var lost *ConflictsError
			won := slices.IndexFunc(errs[:], func(err error) bool { return err == nil })
			if won < 0 || !errors.As(errs[1-won], &lost) {
				t.Fatalf("round %d: the errors are %v", round, errs)
			}

			// The winner has changed all of its list, and the loser is told of the 8 that are in
			// both.
			changed := map[int]int{0: 12, 1: 8}[won]
			if n := len(lost.Conflicts); n != 8 {
				t.Errorf("round %d: %d policies are in conflict, want 8", round, n)
			}

			got := 0
			for i, v := range w.versions(names...) {
				if v.Version != base[i].Version {
					got++
				}
			}
			if got != changed {
				t.Errorf("round %d: %d policies were changed, want %d", round, got, changed)
			}

			w.mustChange(names)
		}
	})
}

// mustChange brings policies to the mode enforce again.
func (w *world) mustChange(names []string) {
	w.t.Helper()
	_, err := w.ChangePolicies(w.t.Context(), w.admin, bulkOf(policy.Enforce, w.versions(names...)...))
	w.must(err)
}

func TestBulkIsRefusedForOnePolicyThatIsNotTheirs(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.create(sample("mine", "a"))
		w.create(sample("shared", "a", "b"))
		w.create(sample("theirs", "b"))

		// The owner of a alone: shared is theirs in part, theirs not at all, and c they only view.
		owner := w.person("owner", map[string]Role{"a": Owner, "c": Viewer})

		for name, row := range map[string]struct {
			b      Bulk
			want   error
			object string
		}{
			"a policy that is partly theirs": {bulkOf(policy.Off, PolicyVersion{"mine", 1}, PolicyVersion{"shared", 1}),
				ErrDenied, "policy:shared"},
			"a policy that is hidden": {bulkOf(policy.Off, PolicyVersion{"mine", 1}, PolicyVersion{"theirs", 1}),
				ErrNotFound, "policy:theirs"},
			"an application that they view": {Bulk{Policies: w.versions("mine"), AddApp: "c"}, ErrDenied,
				"policy:mine"},
			"an application of others": {Bulk{Policies: w.versions("mine"), AddApp: "b", RemoveApp: "a"},
				ErrDenied, "policy:mine"},
		} {
			before := w.refusals()
			_, err := w.ChangePolicies(ctx, owner, row.b)
			wantErr(t, name, err, row.want)
			if n := w.refusals() - before; n != 1 {
				t.Errorf("%s: the audit log has %d refusals, want 1", name, n)
			}

			if rows := w.entries(AuditQuery{Outcome: Refused, Object: row.object}); len(rows) == 0 ||
				rows[0].Actor != "owner" || rows[0].Action != "policy.update" {
				t.Errorf("%s: the refusal is not of %s", name, row.object)
			}
		}

		// What never was is refused like what is hidden.
		if _, err := w.ChangePolicies(ctx, owner,
			bulkOf(policy.Off, PolicyVersion{"mine", 1}, PolicyVersion{"never-was", 1})); !errors.Is(err, ErrNotFound) {
			t.Errorf("a policy that never was: %v", err)
		}

		for _, v := range w.versions("mine", "shared", "theirs") {
			if v.Version != 1 {
				t.Errorf("%s was changed", v.Name)
			}
		}
	})
}

func TestBulkRefusesBadInput(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	w.create(sample("p", "a"))
	one := []PolicyVersion{{"p", 1}}

	var many []PolicyVersion
	for i := range MaxBulk + 1 {
		many = append(many, PolicyVersion{fmt.Sprintf("p%d", i), 1})
	}

	// A plan has the mistakes of the change, so that a person sees them before.
	for name, row := range map[string]struct {
		b     Bulk
		field string
	}{
		"no policy":                 {bulkOf(policy.Off), "policies"},
		"too many":                  {bulkOf(policy.Off, many...), "policies"},
		"one twice":                 {bulkOf(policy.Off, one[0], one[0]), "policies"},
		"nothing to change":         {Bulk{Policies: one}, ""},
		"no name of an application": {Bulk{Policies: one, AddApp: "'"}, "add_app"},
		"the same added and taken":  {Bulk{Policies: one, AddApp: "b", RemoveApp: "b"}, "remove_app"},
	} {
		_, err := w.ChangePolicies(t.Context(), w.admin, row.b)
		wantFault(t, name, err, row.field)
		_, err = w.PlanBulk(t.Context(), w.admin, row.b)
		wantFault(t, name, err, row.field)
	}
}

func TestBulkPlanSaysWhatLosesProtection(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.create(sample("p", "a", "b"))

		// A policy in shadow mode protects nothing, so there is nothing to lose.
		shadow := sample("q", "a")
		shadow.Mode = policy.Shadow
		w.create(shadow)

		// Of the last day's decisions, refused and banned ones are protection: 7 + 2. What failed
		// closed is not the policy's doing.
		at := w.clock.now().Add(-2 * time.Hour)
		c := stats.Counts{events.Allowed: 5, events.Refused: 7, events.Banned: 2, events.FailedClosed: 3}
		w.must(w.Ledger().Record(ctx, "a", stats.Minute{Start: at, Policies: map[string]stats.Counts{"p": c, "q": c}}))

		off := policy.Off
		for name, row := range map[string]struct {
			b       Bulk
			refused int64
			lose    int
		}{
			"to off":                 {Bulk{Mode: &off}, 9, 1},
			"without an application": {Bulk{RemoveApp: "b"}, 9, 1},
			"with one more":          {Bulk{AddApp: "c"}, 0, 0},
		} {
			row.b.Policies = w.versions("p", "q")
			plan, err := w.PlanBulk(ctx, w.admin, row.b)
			w.must(err)

			lose := 0
			for _, step := range plan.Steps {
				if step.Unprotects() {
					lose++
				}
			}

			if lose != row.lose || plan.Refused != row.refused {
				t.Errorf("%s: %d lose protection and have refused %d, want %d and %d", name, lose, plan.Refused,
					row.lose, row.refused)
			}
		}
	})
}
