package service

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
)

func TestBackupIsRestored(t *testing.T) {
	everyEngine(t, func(t *testing.T, w *world) {
		w.create(sample("p", "a"))
		f, err := w.Backup(t.Context(), w.admin)
		w.must(err)
		defer f.Close()
		w.create(sample("later", "a"))

		// The file has no name any more.
		if _, err := os.Stat(f.Name()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", f.Name(), err)
		}
		data, err := io.ReadAll(f)
		w.must(err)
		file := filepath.Join(t.TempDir(), "backup")
		w.must(os.WriteFile(file, data, 0o600))

		// The restored one has the users with their passwords, and what there was until then.
		url := sqliteURL(t)
		w.must(store.Restore(t.Context(), url, file, false))
		db, err := store.Open(t.Context(), store.Options{URL: url, Timeout: patience})
		w.must(err)
		defer db.Close()
		s, err := New(Options{DB: db, Clock: w.clock.now, Passwords: cheap})
		w.must(err)
		session, err := s.Login(t.Context(), FirstUser, adminPassword, Meta{Address: "192.0.2.1:1"})
		w.must(err)
		admin, err := s.Authenticate(t.Context(), session.Token, Meta{})
		w.must(err)

		if p, err := s.Policy(t.Context(), admin, "p"); err != nil || p.Version != 1 {
			t.Errorf("%+v %v", p, err)
		}
		_, err = s.Policy(t.Context(), admin, "later")
		wantErr(t, "a policy from after the backup", err, ErrNotFound)
		list, err := s.Audit(t.Context(), admin, AuditQuery{Action: "database.backup"})
		if err != nil || len(list) != 1 || list[0].Actor != FirstUser || list[0].Object != "database" {
			t.Errorf("the audit log in the backup has %+v, %v", list, err)
		}
	})
}
