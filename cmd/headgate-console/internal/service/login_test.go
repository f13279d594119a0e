package service

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/auth"
	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
)

func TestBootstrapOnceOfManyPrograms(t *testing.T) {
	for _, engine := range []string{"sqlite", "mariadb"} {
		t.Run(engine, func(t *testing.T) {
			url := sqliteURL(t)
			if engine == "mariadb" {
				url = maria.Server(t).Database(t)
			}

			db := must(store.Open(t.Context(), store.Options{URL: url, Timeout: patience}))
			defer db.Close()

			// Eight programs start on an empty database, and one makes the first user.
			var mu sync.Mutex
			var passwords []string
			var group sync.WaitGroup
			for range 8 {
				group.Go(func() {
					s, err := New(Options{DB: db, Passwords: cheap})
					if err != nil {
						t.Error(err)
						return
					}

					password := must(s.Bootstrap(t.Context()))

					if password != "" {
						mu.Lock()
						defer mu.Unlock()
						passwords = append(passwords, password)
					}
				})
			}

			group.Wait()
			if len(passwords) != 1 {
				t.Fatalf("%d passwords were made, want 1", len(passwords))
			}

			// The password that was printed is the one that counts.
			s := must(New(Options{DB: db, Passwords: cheap}))
			if session, err := s.Login(t.Context(), FirstUser, passwords[0], Meta{}); err != nil ||
				!session.MustChangePassword {
				t.Errorf("%+v %v", session, err)
			}
		})
	}
}

func TestLoginLimitsFailedAttempts(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	w.person("x", nil)

	try := func(user, password, address string) error {
		_, err := w.Login(t.Context(), user, password, Meta{Address: address})
		return err
	}

	for range 20 { // successful attempts are not counted
		w.must(try("x", userPassword, "192.0.2.9:1"))
	}

	// Five failures of a user from an address in five minutes.
	for i := range 5 {
		wantErr(t, fmt.Sprint("failure ", i), try("x", "wrong", "192.0.2.9:2"), ErrCredentials)
	}
	var limited *LimitedError
	if err := try("x", userPassword, "192.0.2.9:3"); !errors.As(err, &limited) || limited.RetryAfter != time.Minute {
		t.Errorf("the sixth attempt: %v %+v", err, limited)
	}

	w.must(try("x", userPassword, "192.0.2.10:1")) // other addresses are not locked out
	w.must(try(FirstUser, adminPassword, "192.0.2.9:1"))

	// One of the five comes back in a minute.
	w.clock.pass(time.Minute)
	w.must(try("x", userPassword, "192.0.2.9:4"))

	for i := range 25 { // 5 failures from this address were 5 of its 30
		if err := try(fmt.Sprintf("nobody%d", i), "wrong", "192.0.2.9:5"); !errors.Is(err, ErrCredentials) {
			t.Errorf("attempt %d: %v", i, err)
		}
	}

	for range 2 { // two came back in the minute
		wantErr(t, "attempt", try("somebody", "wrong", "192.0.2.9:5"), ErrCredentials)
	}
	if err := try("somebody", "wrong", "192.0.2.9:5"); !errors.As(err, &limited) {
		t.Errorf("the 31st failure from an address: %v", err)
	}
}

func TestLoginFloodDoesNotFillTheAuditLog(t *testing.T) {
	w := newWorld(t, sqliteURL(t))

	// Names that no user has are noted 60 times an hour in all.
	before := w.refusals()
	for i := range 300 {
		w.Login(t.Context(), fmt.Sprintf("nobody%d", i), "wrong", Meta{Address: fmt.Sprintf("192.0.2.%d:1", i%256)})
	}

	equal(t, "rows in the audit log", w.refusals()-before, 60)

	// People type passwords into the field for the name.
	for _, e := range w.entries(AuditQuery{Outcome: Refused}) {
		if strings.Contains(fmt.Sprint(e), "nobody") {
			t.Fatalf("the typed name is in the audit log: %+v", e)
		}
	}

	// Guesses at an existing user are noted beyond that: the flood does not hide them.
	for range 3 {
		w.Login(t.Context(), FirstUser, "wrong", Meta{Address: "198.51.100.1"})
	}

	if n := len(w.entries(AuditQuery{Object: "user:admin", Outcome: Refused})); n != 3 {
		t.Errorf("the audit log has %d failures of an existing user, want 3", n)
	}
}

func TestSessionsEndWhenIdleAndWhenOld(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		login := func() string {
			s := must(w.Login(ctx, FirstUser, adminPassword, Meta{}))
			if want := w.clock.now().Add(12 * time.Hour); !s.Expires.Equal(want) {
				t.Errorf("it expires at %s, want %s", s.Expires, want)
			}
			return s.Token
		}

		alive := func(token string) bool {
			_, err := w.Authenticate(ctx, token, Meta{})
			if err != nil && !errors.Is(err, ErrNotLoggedIn) {
				t.Error(err)
			}
			return err == nil
		}

		// An hour without a request ends it, and the first look was a request.
		idle := login()
		w.clock.pass(time.Hour - time.Microsecond)
		if !alive(idle) {
			t.Error("it ended too early")
		}

		w.clock.pass(time.Hour)
		if alive(idle) {
			t.Error("it outlived an idle hour")
		}

		// One that is used every half hour ends after twelve, to the microsecond.
		used := login()
		for range 23 {
			w.clock.pass(30 * time.Minute)
			if !alive(used) {
				t.Fatal("it ended while it was used")
			}
		}

		w.clock.pass(30*time.Minute - time.Microsecond)
		if !alive(used) {
			t.Error("it ended before its twelve hours")
		}

		w.clock.pass(time.Microsecond)
		if alive(used) {
			t.Error("it outlived its twelve hours")
		}

		// Neither a token like it nor its digest, which the database has, is the token.
		for _, token := range []string{"", "x", used + "x", strings.Repeat("x", 1<<20), auth.Digest(used), "\xff\x00"} {
			if alive(token) {
				t.Errorf("the token %.20q is good", token)
			}
		}
	})
}

func TestChangePasswordEndsOtherSessions(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		x := w.person("x", nil)

		// The name of the other browser is no text and too long, which must not keep it out.
		other := must(w.Login(ctx, "x", userPassword, Meta{Agent: "phone\x00\xff" + strings.Repeat("x", 1000)}))

		list, err := w.Sessions(ctx, x)
		if err != nil || len(list) != 2 {
			t.Fatalf("%+v %v", list, err)
		}

		_, err = w.ChangePassword(ctx, x, "wrong password", "seven green canals")
		wantErr(t, "a wrong password", err, ErrCredentials)

		// Too short, the name of the user, the old one, too long, and not text.
		for _, bad := range []string{"", "short", "x", userPassword, strings.Repeat("x", auth.MaxPassword+1),
			"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"} {
			_, err = w.ChangePassword(ctx, x, userPassword, bad)
			wantFault(t, fmt.Sprintf("the password %.20q", bad), err, "password")
		}

		// The session in which it is changed goes on with another token, and all others end.
		now := must(w.ChangePassword(ctx, x, userPassword, "seven green canals"))
		wantErr(t, "another session", errOf(w.Authenticate(ctx, other.Token, Meta{})), ErrNotLoggedIn)

		if list, err = w.Sessions(ctx, w.actor(now)); err != nil || len(list) != 1 || !list[0].Current {
			t.Errorf("%+v %v", list, err)
		}

		wantErr(t, "the old password", errOf(w.Login(ctx, "x", userPassword, Meta{})), ErrCredentials)

		oneTime := must(w.ResetPassword(ctx, w.admin, "x"))
		wantErr(t, "a session from before the reset", errOf(w.Authenticate(ctx, now.Token, Meta{})), ErrNotLoggedIn)
		w.logIn("x", oneTime, "trumpet garden seven")
	})
}

func TestRevokeSessionNeedsItsUser(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	ctx := t.Context()
	x, y := w.person("x", nil), w.person("y", nil)

	list := must(w.Sessions(ctx, x))
	wantErr(t, "another user's session", w.RevokeSession(ctx, y, list[0].ID), ErrNotFound)

	w.must(w.RevokeSession(ctx, x, list[0].ID))
	s := must(w.Login(ctx, "x", userPassword, Meta{}))
	w.must(w.Logout(ctx, w.actor(s)))
	wantErr(t, "after the log-out", errOf(w.Authenticate(ctx, s.Token, Meta{})), ErrNotLoggedIn)
}

func TestRecoverMakesAnAdministrator(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.person("x", nil)
		w.must(w.DisableUser(ctx, w.admin, "x"))

		// A disabled user and a new one: both can do what only administrators can.
		for _, name := range []string{"x", "new"} {
			oneTime := must(w.Recover(ctx, name))
			must(w.Users(ctx, w.logIn(name, oneTime, userPassword+"!")))
		}

		wantFault(t, "no name", errOf(w.Recover(ctx, "'")), "name")
	})
}

func TestSecretsAreNowhereInTheDatabase(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	ctx := t.Context()

	// One secret of each kind.
	oneTime := must(w.CreateUser(ctx, w.admin, "x"))
	x := w.logIn("x", oneTime, userPassword)
	s := must(w.Login(ctx, "x", userPassword, Meta{}))
	_, token, err := w.CreateToken(ctx, x, TokenDraft{Label: "l", Scope: Read, Life: time.Hour})
	w.must(err)

	db := raw(t, w.url)
	defer db.Close()

	// Every value of these tables, as text.
	var dump strings.Builder
	for _, table := range []string{"users", "sessions", "tokens", "audit", "revisions", "settings"} {
		rows := must(db.QueryContext(ctx, "SELECT * FROM "+table))
		columns := must(rows.Columns())

		for rows.Next() {
			values := make([]any, len(columns))
			for i := range values {
				values[i] = new(any)
			}
			w.must(rows.Scan(values...))
			for _, v := range values {
				fmt.Fprintln(&dump, *v.(*any))
			}
		}
		w.must(errors.Join(rows.Err(), rows.Close()))
	}

	for what, secret := range map[string]string{"one-time password": oneTime, "password": userPassword,
		"session": s.Token, "token": token} {
		if strings.Contains(dump.String(), secret) {
			t.Errorf("the %s is in the database", what)
		}
	}

	for _, e := range w.entries(AuditQuery{}) {
		if strings.Contains(e.Before+e.After+e.Note, "argon2") {
			t.Errorf("the hash of a password is in the audit log: %+v", e)
		}
	}
}
