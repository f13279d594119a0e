package service

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/policy"
)

func TestUndoTakesBackTheNewestChange(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		p := w.create(full("p"))

		off := p
		off.Mode, off.Priority = policy.Off, 9
		must(w.UpdatePolicy(ctx, w.admin, off))

		// The policy is as it was in every field, as a version of its own.
		back, err := w.Undo(ctx, w.admin.Saying("too early"), "p", 2)
		if err != nil || back.Version != 3 || len(Diff(back, p)) != 0 {
			t.Fatalf("%+v %v", back, err)
		}

		r := must(w.Revision(ctx, w.admin, "p", 3))
		if r.Action != "undo" || r.Note != "of version 2" || r.Comment != "too early" {
			t.Errorf("%+v", r)
		}

		if list := w.entries(AuditQuery{Action: "policy.undo"}); len(list) != 1 ||
			list[0].Note != "of version 2: too early" {
			t.Errorf("%+v", list)
		}

		// An undo is a change, and can be undone.
		back, err = w.Undo(ctx, w.admin, "p", 3) // the undo
		if err != nil || back.Version != 4 || back.Mode != policy.Off || back.Priority != 9 {
			t.Errorf("%+v %v", back, err)
		}
	})
}

func TestUndoTakesBackADeletion(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		p := w.create(full("p"))

		// Three changes of the mode, so that the policy that comes back is not the one that was
		// created.
		for version, mode := range []policy.Mode{policy.Off, policy.Shadow, policy.Off} {
			p.Mode, p.Version = mode, int64(version+1)
			must(w.UpdatePolicy(ctx, w.admin, p))
		}

		w.must(w.DeletePolicy(ctx, w.admin, "p", 4))
		back, err := w.Undo(ctx, w.admin, "p", 5) // a deletion
		if err != nil || back.Version != 6 || back.Mode != policy.Off {
			t.Fatalf("%+v %v", back, err)
		}

		// To undo the restoration deletes it again, without a policy to return.
		gone, err := w.Undo(ctx, w.admin, "p", 6) // a restored policy
		if err != nil || gone.Name != "" {
			t.Errorf("%+v %v", gone, err)
		}
		wantErr(t, "the policy", errOf(w.Policy(ctx, w.admin, "p")), ErrNotFound)

		list, _, err := w.Deleted(ctx, w.admin, 1, 0)
		if err != nil || len(list) != 1 || list[0].Version != 7 || list[0].Action != "undo" {
			t.Errorf("%+v %v", list, err)
		}

		back, err = w.Undo(ctx, w.admin, "p", 7)
		if err != nil || back.Version != 8 {
			t.Errorf("%+v %v", back, err)
		}
	})
}

func TestUndoNeverTakesBackAChangeOfAnother(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		p := w.create(sample("p", "a"))
		p.Mode = policy.Off
		p = must(w.UpdatePolicy(ctx, w.admin, p))

		// Another person's edit comes after the change that is to be undone.
		p.Priority = 3
		must(w.UpdatePolicy(ctx, w.person("owner", map[string]Role{"a": Owner}), p))

		_, err := w.Undo(ctx, w.admin, "p", 2)
		if c := wantConflict(t, "an edit", err, 2, 3); c.Mine.Mode != policy.Enforce || c.Theirs.UpdatedBy != "owner" {
			t.Errorf("%+v", c)
		}

		_, err = w.Undo(ctx, w.admin, "p", 1)
		wantConflict(t, "the creation", err, 1, 3)

		// A deletion by another is a conflict, too, and the restoration after it.
		w.must(w.DeletePolicy(ctx, w.admin, "p", 3))
		_, err = w.Undo(ctx, w.admin, "p", 3)
		if c := wantConflict(t, "after a deletion", err, 3, 4); !c.Deleted {
			t.Errorf("%+v", c)
		}

		must(w.Rollback(ctx, w.admin, "p", 2, 4))
		_, err = w.Undo(ctx, w.admin, "p", 4)
		wantConflict(t, "a deletion, after it was restored", err, 4, 5)

		for _, version := range []int64{-1, 0, 9} {
			wantErr(t, "no such version", errOf(w.Undo(ctx, w.admin, "p", version)), ErrNotFound)
		}
		wantErr(t, "an unknown policy", errOf(w.Undo(ctx, w.admin, "never", 1)), ErrNotFound)

		// Nothing was written since the restoration.
		if got := w.current("p"); got.Version != 5 {
			t.Errorf("%+v", got)
		}
	})
}

func TestUndoNeedsThePermissionsOfTheChange(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	ctx := t.Context()
	p := w.create(sample("p", "b"))
	p.Apps = []string{"a"}
	must(w.UpdatePolicy(ctx, w.admin, p))
	_, err := w.Undo(ctx, w.person("owner", map[string]Role{"a": Owner}), "p", 2)
	wantErr(t, "what was before is hidden", err, ErrNotFound)
	_, err = w.Undo(ctx, w.person("halfway", map[string]Role{"a": Owner, "b": Viewer}), "p", 2)
	wantErr(t, "what was before is not theirs", err, ErrDenied)
}

func TestCompareAnyTwoVersions(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		p := w.create(sample("p", "a"))

		p.Priority = 1
		p = must(w.UpdatePolicy(ctx, w.admin, p))

		p.Priority, p.Mode = 2, policy.Off
		p = must(w.UpdatePolicy(ctx, w.admin, p))
		w.must(w.DeletePolicy(ctx, w.admin, "p", 3))

		// Version 0 is before the creation, and 4 is the deletion: both are a policy without
		// anything.
		for _, c := range []struct {
			from, to int64
			want     []Change
		}{
			{1, 3, []Change{{"mode", "enforce", "off"}, {"priority", "0", "2"}}},
			{3, 1, []Change{{"mode", "off", "enforce"}, {"priority", "2", "0"}}},
			{2, 2, nil},
			{0, 1, Diff(policy.Policy{}, sample("p", "a"))},
			{3, 4, Diff(p, policy.Policy{})},
		} {
			got, err := w.Compare(ctx, w.admin, "p", c.from, c.to)
			if err != nil || !slices.Equal(got, c.want) {
				t.Errorf("%d to %d: %+v %v", c.from, c.to, got, err)
			}
		}

		wantErr(t, "no such version", errOf(w.Compare(ctx, w.admin, "p", 1, 5)), ErrNotFound)
		wantErr(t, "a stranger", errOf(w.Compare(ctx, w.person("stranger", nil), "p", 1, 2)), ErrNotFound)
	})
}

func TestCommentIsKeptWithEachChange(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()

		// Each way to change a policy takes a comment, and the text is kept as it was typed.
		const hostile = "<script>alert(1)</script> '; DROP TABLE policies; -- {{.}} 😀"
		p := must(w.CreatePolicy(ctx, w.admin.Saying(hostile), sample("p", "a")))

		// At the bound in bytes, with letters of two bytes.
		p.Priority = 1
		must(w.UpdatePolicy(ctx, w.admin.Saying(strings.Repeat("ä", MaxComment/2)), p))

		w.clock.pass(time.Minute)
		w.must(w.DeletePolicy(ctx, w.admin.Saying("\n gone \t"), "p", 2))

		must(w.Rollback(ctx, w.admin.Saying("back"), "p", 1, 3))

		must(w.Import(ctx, w.admin.Saying("from a file"), importOf(t, sample("q", "a"))))

		// The newest comes first, and white space around a comment is not kept.
		list := must(w.History(ctx, w.admin, "p", 0, 0))
		var comments []string
		for _, r := range list {
			comments = append(comments, r.Comment)
		}
		if want := []string{"back", "gone", strings.Repeat("ä", MaxComment/2), hostile}; !slices.Equal(comments, want) {
			t.Errorf("%q, want %q", comments, want)
		}

		if r, err := w.Revision(ctx, w.admin, "q", 1); err != nil || r.Comment != "from a file" {
			t.Errorf("%+v %v", r, err)
		}

		// A change whose comment cannot be kept is not made.
		for _, bad := range []string{strings.Repeat("x", MaxComment+1), "a\x00b", "\xff"} {
			wantFault(t, bad, errOf(w.CreatePolicy(ctx, w.admin.Saying(bad), sample("r", "a"))), "comment")
		}

		wantErr(t, "a policy with a wrong comment", errOf(w.Policy(ctx, w.admin, "r")), ErrNotFound)
	})
}

// wantVersions fails unless the policies have these versions.
func (w *world) wantVersions(want map[string]int64) {
	w.t.Helper()
	for name, version := range want {
		if p, err := w.Policy(w.t.Context(), w.admin, name); err != nil || p.Version != version {
			w.t.Errorf("%s has version %d, want %d (%v)", name, p.Version, version, err)
		}
	}
}

func TestUndoSwitchTakesAllBackOrNone(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		for _, name := range []string{"one", "two", "three"} {
			w.create(sample(name, "a"))
		}

		x := w.person("x", map[string]Role{"a": Owner})
		w.clock.pass(time.Second)
		plan, err := w.SwitchPolicies(ctx, x.Saying("for the fair"), w.versions("one", "two", "three"), policy.Off)
		w.must(err)

		// What was changed together is found by its instant and its author, and by nothing else.
		w.wantSwitched(x, plan.At, 3)
		w.wantSwitched(w.admin, plan.At, 0)
		w.wantSwitched(x, plan.At.Add(time.Microsecond), 0)
		wantErr(t, "another's", w.UndoSwitch(ctx, w.admin, plan.At), ErrNotFound)

		// Another's edit of one policy keeps all three from being taken back.
		w.clock.pass(time.Second)
		w.edit("two", func(p *policy.Policy) { p.Priority = 9 })
		var conflicts *ConflictsError
		if err = w.UndoSwitch(ctx, x, plan.At); !errors.As(err, &conflicts) || len(conflicts.Conflicts) != 1 ||
			conflicts.Conflicts[0].Theirs.Name != "two" {
			t.Errorf("with a change of another: %v", err)
		}
		w.wantVersions(map[string]int64{"one": 2, "two": 3, "three": 2})

		// Without it they are taken back.
		w.clock.pass(time.Second)
		plan = must(w.SwitchPolicies(ctx, x, w.versions("one", "two"), policy.Shadow))
		w.clock.pass(time.Second)
		w.must(w.UndoSwitch(ctx, x.Saying("it is over"), plan.At))
		w.wantVersions(map[string]int64{"one": 4, "two": 5, "three": 2})
		list, err := w.History(ctx, x, "two", 0, 1)
		if err != nil || list[0].Action != "undo" || list[0].Comment != "it is over" ||
			list[0].Note != "of version 4" || list[0].After.Mode != policy.Off || list[0].After.Priority != 9 {
			t.Errorf("%+v %v", list, err)
		}
		if err = w.UndoSwitch(ctx, x, plan.At); !errors.As(err, &conflicts) || len(conflicts.Conflicts) != 2 {
			t.Errorf("again: %v", err)
		}

		// The offer is for those who may: x may not any more.
		w.clock.pass(time.Second)
		plan = must(w.SwitchPolicies(ctx, x, w.versions("one", "two"), policy.Enforce))
		w.must(w.SetRole(ctx, w.admin, "x", "a", Viewer))
		w.wantSwitched(x, plan.At, 0)
		wantErr(t, "a viewer", w.UndoSwitch(ctx, x, plan.At), ErrDenied)
		w.must(w.SetRole(ctx, w.admin, "x", "a", NoRole))
		wantErr(t, "a stranger", w.UndoSwitch(ctx, x, plan.At), ErrNotFound)
	})
}

// wantSwitched fails unless an actor is offered to take back n policies.
func (w *world) wantSwitched(a Actor, at time.Time, want int) {
	w.t.Helper()
	if n, err := w.SwitchedAt(w.t.Context(), a, at); err != nil || n != want {
		w.t.Errorf("%s may take back %d, want %d (%v)", a.User(), n, want, err)
	}
}
