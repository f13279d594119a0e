package api

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
)

func TestBackupIsDownloadedByAToken(t *testing.T) {
	w := newWorld(t)
	a := w.ask("backup token", "POST", "/api/backup", nil).want(200)
	const name = "attachment; filename=headgate-console-20260301-1200.db"
	if got := a.header.Get("Content-Disposition"); got != name {
		t.Errorf("the file is %q, want %q", got, name)
	}

	file := filepath.Join(t.TempDir(), "backup")
	if err := os.WriteFile(file, []byte(a.text), 0o600); err != nil {
		t.Fatal(err)
	}
	url := "sqlite://" + filepath.Join(t.TempDir(), "console.db")
	if err := store.Restore(t.Context(), url, file, false); err != nil {
		t.Error(err)
	}
	if rows := w.audit(service.AuditQuery{Action: "database.backup"}); len(rows) != 1 || rows[0].Actor != "admin" {
		t.Errorf("the audit log has %+v", rows)
	}
}
