package web

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/cmd/headgate-console/internal/store"
)

func TestBackupIsDownloaded(t *testing.T) {
	w := newWorld(t)
	admin := w.as("admin")
	got := admin.submit("/settings", "/settings/backup", nil).want(http.StatusOK)
	const file = "attachment; filename=headgate-console-2026"
	if name := got.header.Get("Content-Disposition"); !strings.HasPrefix(name, file) {
		t.Errorf("the file is %q", name)
	}
	if c := got.header.Get("Cache-Control"); !strings.Contains(c, "no-store") {
		t.Errorf("it may be kept: %q", c)
	}

	backup := filepath.Join(t.TempDir(), "backup")
	w.must(os.WriteFile(backup, []byte(got.text), 0o600))
	w.must(store.Restore(t.Context(), "sqlite://"+filepath.Join(t.TempDir(), "console.db"), backup, false))

	list, err := w.Audit(t.Context(), w.admin, service.AuditQuery{Action: "database.backup"})
	if err != nil || len(list) != 1 || list[0].Outcome != service.Done {
		t.Errorf("the audit log has %v, %v", list, err)
	}
}
