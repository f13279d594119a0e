package service

import (
	"errors"
	"testing"
)

func TestProxyNamesExistingUsers(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.person("owner", map[string]Role{"a": Owner})
		w.person("gone", nil)
		w.must(w.DisableUser(ctx, w.admin, "gone"))
		_, err := w.CreateUser(ctx, w.admin, "new")
		w.must(err)

		// The name is compared as it is: a proxy that sends another one signs no user in.
		for _, name := range []string{"", "none", "gone", "Owner", "owner ", "owner,new", "\x00", "' OR 1=1 --"} {
			_, err := w.AuthenticateByProxy(ctx, name, Meta{})
			wantErr(t, name, err, ErrNotLoggedIn)
		}

		a, err := w.AuthenticateByProxy(ctx, "owner", Meta{Address: "192.0.2.9"})
		w.must(err)

		if _, err := w.CreatePolicy(ctx, a, sample("p", "a")); err != nil {
			t.Error(err)
		}

		if rows := w.entries(AuditQuery{Action: "policy.create"}); len(rows) != 1 || rows[0].Via != "proxy" ||
			rows[0].Actor != "owner" || rows[0].Address != "192.0.2.9" {
			t.Errorf("the audit log has %+v", rows)
		}

		// Who is signed in by a proxy needs no password, and cannot change it without a session.
		newcomer, err := w.AuthenticateByProxy(ctx, "new", Meta{})
		w.must(err)
		if access, err := w.Access(ctx, newcomer); err != nil || access.MustChangePassword {
			t.Errorf("the user must change the password: %+v %v", access, err)
		}

		_, err = w.ChangePassword(ctx, a, userPassword, "seven green canals")
		wantErr(t, "a password change without a session", err, ErrNotLoggedIn)

		w.must(w.DisableUser(ctx, w.admin, "owner"))
		_, err = w.Policy(ctx, a, "p")
		wantErr(t, "a user who was disabled since", err, ErrNotLoggedIn)
	})
}

func TestProxyNeedsTheDatabase(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	w.must(w.db.Close())
	if _, err := w.AuthenticateByProxy(t.Context(), FirstUser, Meta{}); err == nil || errors.Is(err, ErrNotLoggedIn) {
		t.Errorf("the error is %v", err)
	}
}
