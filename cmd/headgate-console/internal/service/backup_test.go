package service

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
)

func TestBackupIsRestored(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		w.create(sample("p", "a"))
		f := must(w.Backup(t.Context(), w.admin, adminPassword, ""))
		defer f.Close()
		w.create(sample("later", "a"))

		// The file has no name any more.
		wantErr(t, fmt.Sprintf("%s is left", f.Name()), errOf(os.Stat(f.Name())), os.ErrNotExist)
		data := must(io.ReadAll(f))
		file := filepath.Join(t.TempDir(), "backup")
		w.must(os.WriteFile(file, data, 0o600))

		// The restored one has the users with their passwords, and what there was until then.
		url := sqliteURL(t)
		w.must(store.Restore(t.Context(), url, file, false))
		db := must(store.Open(t.Context(), store.Options{URL: url, Timeout: patience}))
		defer db.Close()
		s := must(New(Options{DB: db, Clock: w.clock.now, Passwords: cheap}))
		session := must(s.Login(t.Context(), FirstUser, adminPassword, Meta{Address: "192.0.2.1:1"}))
		admin := must(s.Authenticate(t.Context(), session.Token, Meta{}))

		if p, err := s.Policy(t.Context(), admin, "p"); err != nil || p.Version != 1 {
			t.Errorf("%+v %v", p, err)
		}
		wantErr(t, "a policy from after the backup", errOf(s.Policy(t.Context(), admin, "later")), ErrNotFound)
		list, err := s.Audit(t.Context(), admin, AuditQuery{Action: "database.backup"})
		if err != nil || len(list) != 1 || list[0].Actor != FirstUser || list[0].Object != "database" {
			t.Errorf("the audit log in the backup has %+v, %v", list, err)
		}
	})
}

// A session alone is not enough for a file with all hashes of passwords.
func TestBackupTakesThePasswordAndACode(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	ctx := t.Context()
	secret, recovery := w.enrol(w.admin, adminPassword)
	refused := func(what string, a Actor, password, code string, want error) {
		t.Helper()
		f, err := w.Backup(ctx, a, password, code)
		wantErr(t, what, err, want)
		if f != nil {
			t.Errorf("%s: there is a file", what)
		}
	}

	refused("no password", w.admin, "", "", ErrCredentials)
	refused("a right code without the password", w.admin, "wrong", w.codeAt(secret, 0), ErrCredentials)
	refused("no code", w.admin, adminPassword, "", ErrCode)
	refused("a wrong code", w.admin, adminPassword, "000000", ErrCode)
	proxied := must(w.AuthenticateByProxy(ctx, FirstUser, Meta{}))
	refused("a proxy", proxied, adminPassword, recovery[0], ErrDenied)

	rows := w.entries(AuditQuery{Action: "database.backup"})
	if len(rows) != 5 || rows[1].Note != "the code is wrong" || rows[4].Note != "the password is wrong" {
		t.Errorf("the audit log has %+v", rows)
	}

	f := must(w.Backup(ctx, w.admin, adminPassword, w.codeAt(secret, 0)))
	w.must(f.Close())
	refused("the code again", w.admin, adminPassword, w.codeAt(secret, 0), ErrCode)
}

// A backup that is being downloaded takes as much of the disk as the database, so there is one.
func TestBackupHasItsPlaceUntilItIsClosed(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	f := must(w.Backup(t.Context(), w.admin, adminPassword, ""))
	if len(w.backups) != 1 {
		t.Error("the place is free while the file is open")
	}

	// Another close gives back no place of others.
	w.must(f.Close())
	wantErr(t, "the second close", f.Close(), os.ErrClosed)
	if len(w.backups) != 0 {
		t.Error("the place is not given back")
	}
}

// A token for backups is made like a backup, downloads one and does nothing else.
func TestBackupByToken(t *testing.T) {
	w := newWorld(t, sqliteURL(t))
	ctx := t.Context()
	w.create(sample("p", "a"))
	draft := TokenDraft{Label: "nightly", Scope: Backups, Life: time.Hour, Password: adminPassword}

	// It takes an administrator and the password, and is of no application.
	other := w.person("x", map[string]Role{"a": Owner})
	_, _, err := w.CreateToken(ctx, other, draft)
	wantErr(t, "another user", err, ErrDenied)
	wrong, some := draft, draft
	wrong.Password, some.Apps = "wrong", []string{"a"}
	_, _, err = w.CreateToken(ctx, w.admin, wrong)
	wantErr(t, "a wrong password", err, ErrCredentials)
	_, _, err = w.CreateToken(ctx, w.admin, some)
	wantFault(t, "an application", err, "apps")

	_, secret, err := w.CreateToken(ctx, w.admin, draft)
	w.must(err)
	token := must(w.AuthenticateToken(ctx, secret, Meta{}))
	for _, r := range matrix() {
		if slices.Contains([]string{"BackupByToken", "Access", "Logout"}, r.method) {
			continue
		}
		if err := r.call(call{w, ctx, token}); !errors.Is(err, ErrDenied) && !errors.Is(err, ErrNotLoggedIn) {
			t.Errorf("%s by a token for backups: %v", r.method, err)
		}
	}

	f := must(w.BackupByToken(ctx, token))
	w.must(f.Close())
	if rows := w.entries(AuditQuery{Action: backUpVerb, Outcome: Done}); len(rows) != 1 || rows[0].Via != token.via {
		t.Errorf("the audit log has %+v", rows)
	}

	// Its user has to be an administrator still, and a code is used up like the password's.
	second := w.person("second", nil)
	w.must(w.Promote(ctx, w.admin, "second"))
	w.must(w.Demote(ctx, second, FirstUser))
	wantErr(t, "a token of a user who is no administrator any more", errOf(w.BackupByToken(ctx, token)), ErrDenied)
	_, codes := w.enrol(second, userPassword)
	draft.Password = userPassword
	_, _, err = w.CreateToken(ctx, second, draft)
	wantErr(t, "no code", err, ErrCode)
	draft.Code = codes[0]
	_, _, err = w.CreateToken(ctx, second, draft)
	w.must(err)
}
