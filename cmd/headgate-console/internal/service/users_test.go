package service

import (
	"errors"
	"slices"
	"sync"
	"testing"
)

func TestDemoteRefusesTheLastAdministrator(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		wantFault(t, "demoting the last one", w.Demote(ctx, w.admin, FirstUser), "name")
		wantFault(t, "disabling the last one", w.DisableUser(ctx, w.admin, FirstUser), "name")

		// An administrator who is disabled is none who could help.
		w.person("second", nil)
		w.must(w.Promote(ctx, w.admin, "second"))
		w.must(w.DisableUser(ctx, w.admin, "second"))
		wantFault(t, "demoting the last one who is not disabled", w.Demote(ctx, w.admin, FirstUser), "name")

		w.must(w.EnableUser(ctx, w.admin, "second"))
		w.must(w.Demote(ctx, w.admin, FirstUser))
		wantErr(t, "a demoted administrator", w.Promote(ctx, w.admin, FirstUser), ErrDenied)
	})
}

func TestDemoteKeepsOneAdministrator(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		second := w.person("second", nil)

		// Two administrators demote each other at the same time, on two consoles. Both would leave
		// none.
		for range 5 {
			w.must(w.Promote(ctx, w.admin, "second"))
			errs := make([]error, 2)

			var group sync.WaitGroup
			group.Go(func() { errs[0] = w.another().Demote(ctx, w.admin, "second") })
			group.Go(func() { errs[1] = w.another().Demote(ctx, second, FirstUser) })
			group.Wait()

			if (errs[0] == nil) == (errs[1] == nil) {
				t.Fatalf("%v and %v", errs[0], errs[1])
			}

			if errs[0] != nil { // the other one won
				w.must(w.Promote(ctx, second, FirstUser))
			}
		}
	})
}

func TestUsersAreDisabledAtOnce(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		x := w.person("x", map[string]Role{"a": Owner})
		token := w.token(x, Read)

		// Neither the session nor the token that they hold works on.
		w.must(w.DisableUser(ctx, w.admin, "x"))
		for _, a := range []Actor{x, token} {
			wantErr(t, "a disabled user", errOf(w.Policies(ctx, a, Query{})), ErrNotLoggedIn)
		}

		wantErr(t, "a log-in", errOf(w.Login(ctx, "x", userPassword, Meta{})), ErrCredentials)

		// Enabled again they log in anew: the old session has ended for good.
		w.must(w.EnableUser(ctx, w.admin, "x"))
		must(w.Login(ctx, "x", userPassword, Meta{}))

		if list, err := w.Sessions(ctx, x); err != nil || len(list) != 1 || list[0].Current {
			t.Errorf("the sessions are %+v, want only the new one: %v", list, err)
		}

		if _, err := w.AuthenticateToken(ctx, "hgt_x", Meta{}); !errors.Is(err, ErrNotLoggedIn) {
			t.Error(err)
		}
	})
}

func TestUsersListNamesAndRoles(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.person("Bob", map[string]Role{"a": Owner, "b": Viewer})

		// Names that differ by case alone are of two people.
		w.person("bob", nil)
		wantFault(t, "a second bob", errOf(w.CreateUser(ctx, w.admin, "bob")), "name")

		wantFault(t, "an unknown role", w.SetRole(ctx, w.admin, "bob", "a", "king"), "role")
		wantFault(t, "a role in no application", w.SetRole(ctx, w.admin, "bob", "x", Owner), "app")
		wantErr(t, "a role of an unknown user", w.SetRole(ctx, w.admin, "x", "a", Owner), ErrNotFound)

		list, err := w.Users(ctx, w.admin)
		if err != nil || len(list) != 3 || list[0].Name != "Bob" || list[1].Name != "admin" || list[2].Name != "bob" {
			t.Fatalf("%+v %v", list, err)
		}

		if r := list[0].Roles; len(r) != 2 || r["a"] != Owner || r["b"] != Viewer || len(list[2].Roles) != 0 {
			t.Errorf("%+v", list)
		}
	})
}

func TestAuditHasEachRoleChange(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		w.person("Bob", map[string]Role{"a": Owner, "b": Viewer})
		if u, err := w.User(t.Context(), w.admin, "Bob"); err != nil || len(u.Roles) != 2 || u.MustChangePassword ||
			u.CreatedBy != "admin" {
			t.Errorf("%+v %v", u, err)
		}

		var roles []string
		for _, row := range w.entries(AuditQuery{Object: "user:Bob", Action: "user.role"}) {
			roles = append(roles, row.After)
		}
		slices.Sort(roles)
		if want := []string{`{"app":"a","role":"owner"}`, `{"app":"b","role":"viewer"}`}; !slices.Equal(roles, want) {
			t.Errorf("the audit log has the roles %s, want %s", roles, want)
		}
	})
}

func TestDeleteAppRefusesAnAppInUse(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		p := w.create(sample("p", "a"))
		x := w.person("x", map[string]Role{"a": Owner, "b": Viewer})

		wantFault(t, "an application in use", w.DeleteApp(ctx, w.admin, "a"), "name")
		wantFault(t, "an application twice", w.CreateApp(ctx, w.admin, "a", ""), "name")
		w.must(w.CreateApp(ctx, w.admin, "A", "another"))
		w.must(w.DescribeApp(ctx, w.admin, "a", "the first\n"))

		// A person sees their applications with what is theirs to know of each.
		list, err := w.Apps(ctx, x)
		if err != nil || len(list) != 2 || list[0].Name != "a" || list[0].Policies != 1 || list[0].Role != Owner ||
			list[0].Description != "the first\n" || list[1].Name != "b" || list[1].Role != Viewer {
			t.Errorf("%+v %v", list, err)
		}

		// The last policy gone, the application goes, and the roles in it.
		w.must(w.DeletePolicy(ctx, w.admin, "p", p.Version))
		w.must(w.DeleteApp(ctx, w.admin, "a"))
		wantErr(t, "an application that is gone", w.DeleteApp(ctx, w.admin, "a"), ErrNotFound)
		if list, err = w.Apps(ctx, x); err != nil || len(list) != 1 {
			t.Errorf("%+v %v", list, err)
		}
	})
}
