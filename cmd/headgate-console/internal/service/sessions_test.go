package service

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/auth"
	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
)

func TestProxyNamesExistingUsers(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.person("owner", map[string]Role{"a": Owner})
		w.person("gone", nil)
		w.must(w.DisableUser(ctx, w.admin, "gone"))
		must(w.CreateUser(ctx, w.admin, "new"))

		// The name is compared as it is: a proxy that sends another one signs no user in.
		for _, name := range []string{"", "none", "gone", "Owner", "owner ", "owner,new", "\x00", "' OR 1=1 --"} {
			wantErr(t, name, errOf(w.AuthenticateByProxy(ctx, name, Meta{})), ErrNotLoggedIn)
		}

		a := must(w.AuthenticateByProxy(ctx, "owner", Meta{Address: "192.0.2.9"}))

		must(w.CreatePolicy(ctx, a, sample("p", "a")))

		if rows := w.entries(AuditQuery{Action: "policy.create"}); len(rows) != 1 || rows[0].Via != "proxy" ||
			rows[0].Actor != "owner" || rows[0].Address != "192.0.2.9" {
			t.Errorf("the audit log has %+v", rows)
		}

		// Who is signed in by a proxy needs no password, and cannot change it without a session.
		newcomer := must(w.AuthenticateByProxy(ctx, "new", Meta{}))
		if access, err := w.Access(ctx, newcomer); err != nil || access.MustChangePassword {
			t.Errorf("the user must change the password: %+v %v", access, err)
		}

		_, err := w.ChangePassword(ctx, a, userPassword, "seven green canals")
		wantErr(t, "a password change without a session", err, ErrNotLoggedIn)

		w.must(w.DisableUser(ctx, w.admin, "owner"))
		wantErr(t, "a user who was disabled since", errOf(w.Policy(ctx, a, "p")), ErrNotLoggedIn)
	})
}

func TestProxyNeedsTheDatabase(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	w.must(w.db.Close())
	if _, err := w.AuthenticateByProxy(t.Context(), FirstUser, Meta{}); err == nil || errors.Is(err, ErrNotLoggedIn) {
		t.Errorf("the error is %v", err)
	}
}

func TestSessionIsNotKeptByItsPage(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.must(w.SaveSettings(ctx, w.admin, Settings{SessionIdle: 5 * time.Minute, SessionLife: time.Hour}))
		polled, used := w.session(FirstUser, adminPassword), w.session(FirstUser, adminPassword)

		// Each minute one page asks by itself, and a person uses the other one.
		for range 4 {
			w.clock.pass(time.Minute)
			must(w.Authenticate(ctx, polled.Token, Meta{Poll: true}))
			must(w.Authenticate(ctx, used.Token, Meta{}))
		}

		w.clock.pass(time.Minute)
		_, err := w.Authenticate(ctx, polled.Token, Meta{Poll: true})
		wantErr(t, "a page that asks by itself", err, ErrNotLoggedIn)
		must(w.Authenticate(ctx, used.Token, Meta{Poll: true}))
	})
}

func TestLogInEndsTheSessionBeforeInTheSameBrowser(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.person("x", nil)
		mine, others := w.session(FirstUser, adminPassword), w.session("x", userPassword)

		// A failed attempt ends nothing.
		wantErr(t, "a wrong password", errOf(w.Login(ctx, "x", "wrong", Meta{Session: mine.Token})), ErrCredentials)
		w.actor(mine)

		next := must(w.Login(ctx, "x", userPassword, Meta{Session: mine.Token}))
		wantErr(t, "the session before", errOf(w.Authenticate(ctx, mine.Token, Meta{})), ErrNotLoggedIn)
		w.actor(next)
		w.actor(others)

		rows := w.entries(AuditQuery{Action: "session.logout"})
		if len(rows) != 1 || rows[0].Object != "user:"+FirstUser ||
			rows[0].Note != "another log-in in the same browser" {
			t.Errorf("the audit log has %+v", rows)
		}

		// One that has ended, or that never was, is no hindrance.
		for _, token := range []string{mine.Token, "none"} {
			must(w.Login(ctx, "x", userPassword, Meta{Session: token}))
		}
	})
}

// session logs a user in.
func (w *world) session(user, password string) Session {
	w.t.Helper()
	s := must(w.Login(w.t.Context(), user, password, Meta{Address: "192.0.2.7:1"}))
	return s
}

// A log-in succeeds although another transaction ends the session before meanwhile.
func TestLoginWhileTheSessionBeforeEnds(t *testing.T) {
	w := newWorld(t, maria.Server(t).Database(t))
	w.person("x", nil)
	before := must(w.Login(t.Context(), "x", userPassword, Meta{}))
	actor := w.actor(before)

	// The transaction goes on to see what it saw when it began.
	once := sync.OnceFunc(func() { w.must(w.Logout(t.Context(), actor)) })
	w.must(w.db.Update(t.Context(), func(tx *store.Tx) error {
		if _, err := tx.Session(auth.Digest(before.Token)); err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		once()
		return w.endBefore(tx, Meta{Session: before.Token}, w.now())
	}))

	rows := w.entries(AuditQuery{Action: "session.logout"})
	if len(rows) != 1 || rows[0].Note != "" {
		t.Errorf("the audit log has %+v", rows)
	}
}

// The last use of a session is not worth a page that could be read.
func TestUseIsForgottenWhileNothingCanBeWritten(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	for _, cause := range []error{ErrUnavailable, ErrFull} {
		w.must(w.touch(t.Context(), func(*store.Tx) error { return cause }))
	}
	wantErr(t, "another mistake", w.touch(t.Context(), func(*store.Tx) error { return ErrNotFound }), ErrNotFound)
}
