package service

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/stats"
)

// versions returns the versions of policies that exist.
func (w *world) versions(names ...string) (list []PolicyVersion) {
	w.t.Helper()
	for _, name := range names {
		p := must(w.Policy(w.t.Context(), w.admin, name))
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
		plan, err := w.PlanSwitch(ctx, w.admin, w.versions("one", "two", "three", "five"), policy.Off)
		if err != nil || len(plan.Steps) != 3 || !slices.Equal(plan.Unchanged, []string{"five"}) {
			t.Fatalf("the plan is %+v (%v)", plan, err)
		}
		if n := len(w.entries(AuditQuery{Action: "policy.update"})); n != before {
			t.Errorf("a plan wrote %d rows into the audit log", n-before)
		}

		list := w.versions("one", "two", "three", "five")
		done := must(w.SwitchPolicies(ctx, w.admin, list, policy.Off))
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
		again, err := w.SwitchPolicies(ctx, w.admin, list, policy.Off) // with versions that are old by now
		if err != nil || len(again.Steps) != 0 || len(again.Unchanged) != 4 {
			t.Errorf("a repeated change did %+v (%v)", again, err)
		}
	})
}

// wantOneOfThree checks that a policy was turned off by a bulk change of three.
func (w *world) wantOneOfThree(name string) {
	w.t.Helper()
	p := must(w.Policy(w.t.Context(), w.admin, name))
	if p.Mode != policy.Off || p.Version != 2 || p.UpdatedBy != FirstUser {
		w.t.Errorf("%s is %+v", name, p)
	}

	history := must(w.History(w.t.Context(), w.admin, name, 0, 0))
	if len(history) != 2 || history[0].Note != "one of 3 policies that were changed together" ||
		history[0].Action != "update" {
		w.t.Errorf("%s has the history %+v", name, history)
	}

	if rows := w.entries(AuditQuery{Action: "policy.update", Object: "policy:" + name}); len(rows) != 1 ||
		rows[0].Outcome != Done {
		w.t.Errorf("%s has %d rows in the audit log, want 1", name, len(rows))
	}
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
		must(w.UpdatePolicy(ctx, w.admin, p))
		w.must(w.DeletePolicy(ctx, w.admin, "three", 1))

		_, err := w.SwitchPolicies(ctx, w.admin, old, policy.Shadow)
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
				group.Go(func() { _, errs[i] = rivals[i].SwitchPolicies(ctx, w.admin, list, modes[i]) })
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
			equal(t, fmt.Sprintf("round %d: policies in conflict", round), len(lost.Conflicts), 8)

			got := 0
			for i, v := range w.versions(names...) {
				if v.Version != base[i].Version {
					got++
				}
			}
			equal(t, fmt.Sprintf("round %d: policies that were changed", round), got, changed)

			w.mustChange(names)
		}
	})
}

// mustChange brings policies to the mode enforce again.
func (w *world) mustChange(names []string) {
	w.t.Helper()
	must(w.SwitchPolicies(w.t.Context(), w.admin, w.versions(names...), policy.Enforce))
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
			list   []PolicyVersion
			want   error
			object string
		}{
			"a policy that is partly theirs": {[]PolicyVersion{{"mine", 1}, {"shared", 1}}, ErrDenied, "policy:shared"},
			"a policy that is hidden":        {[]PolicyVersion{{"mine", 1}, {"theirs", 1}}, ErrNotFound, "policy:theirs"},
		} {
			before := w.refusals()
			wantErr(t, name, errOf(w.SwitchPolicies(ctx, owner, row.list, policy.Off)), row.want)
			equal(t, fmt.Sprintf("%s: the audit log has refusals", name), w.refusals()-before, 1)

			if rows := w.entries(AuditQuery{Outcome: Refused, Object: row.object}); len(rows) == 0 ||
				rows[0].Actor != "owner" || rows[0].Action != "policy.update" {
				t.Errorf("%s: the refusal is not of %s", name, row.object)
			}
		}

		// What never was is refused like what is hidden.
		if _, err := w.SwitchPolicies(ctx, owner,
			[]PolicyVersion{{"mine", 1}, {"never-was", 1}}, policy.Off); !errors.Is(err, ErrNotFound) {
			t.Errorf("a policy that never was: %v", err)
		}

		for _, v := range w.versions("mine", "shared", "theirs") {
			equal(t, fmt.Sprintf("the version of %s", v.Name), v.Version, 1)
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
		list  []PolicyVersion
		mode  policy.Mode
		field string
	}{
		"no policy": {nil, policy.Off, "policies"},
		"too many":  {many, policy.Off, "policies"},
		"one twice": {[]PolicyVersion{one[0], one[0]}, policy.Off, "policies"},
		"no mode":   {one, 9, "mode"},
	} {
		wantFault(t, name, errOf(w.SwitchPolicies(t.Context(), w.admin, row.list, row.mode)), row.field)
		wantFault(t, name, errOf(w.PlanSwitch(t.Context(), w.admin, row.list, row.mode)), row.field)
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

		for mode, want := range map[policy.Mode]struct {
			refused int64
			lose    int
		}{policy.Off: {9, 1}, policy.Shadow: {9, 1}, policy.Enforce: {0, 0}} {
			plan := must(w.PlanSwitch(ctx, w.admin, w.versions("p", "q"), mode))

			lose := 0
			for _, step := range plan.Steps {
				if step.Unprotects() {
					lose++
				}
			}

			if lose != want.lose || plan.Refused != want.refused {
				t.Errorf("%s: %d lose protection and have refused %d, want %+v", mode, lose, plan.Refused, want)
			}
		}
	})
}
