package web

import (
	"net/http"
	"net/url"
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
	for _, wrong := range []string{"", "wrong"} {
		form := url.Values{"password": {wrong}}
		if got := admin.submit("/settings", "/settings/backup", form).
			want(http.StatusUnprocessableEntity); got.mistake("password") != "it is not your password" {
			t.Errorf("beside the password %q it says %q", wrong, got.mistake("password"))
		}
	}

	w.pass(0)
	got := admin.submit("/settings", "/settings/backup", url.Values{"password": {password}}).want(http.StatusOK)
	file := "attachment; filename=headgate-console-" + w.now().UTC().Format("20060102-1504") + ".db"
	if name := got.header.Get("Content-Disposition"); name != file {
		t.Errorf("the file is %q, want %q", name, file)
	}
	if c := got.header.Get("Cache-Control"); !strings.Contains(c, "no-store") {
		t.Errorf("it may be kept: %q", c)
	}

	backup := filepath.Join(t.TempDir(), "backup")
	w.must(os.WriteFile(backup, []byte(got.text), 0o600))
	w.must(store.Restore(t.Context(), "sqlite://"+filepath.Join(t.TempDir(), "console.db"), backup, false))

	list, err := w.Audit(t.Context(), w.admin, service.AuditQuery{Action: "database.backup"})
	if err != nil || len(list) != 3 || list[0].Outcome != service.Done {
		t.Errorf("the audit log has %v, %v", list, err)
	}
}

// Where the administrator has a second factor, the form asks for a code.
func TestBackupAsksForACode(t *testing.T) {
	w := newWorld(t)
	admin := w.as("admin")
	if admin.get("/settings").byID("code") != nil {
		t.Error("the form asks for a code without a second factor")
	}
	secret := admin.submit(factorPath, factorPath, url.Values{"password": {password}}).shown()[0]
	admin.post(factorPath+"/confirm", w.codeOf(secret)).want(http.StatusOK)

	form := url.Values{"password": {password}, "code": {"000000"}}
	got := admin.submit("/settings", "/settings/backup", form).want(http.StatusUnprocessableEntity)
	got.legible("the settings after a wrong code")
	if got.mistake("code") == "" || got.mistake("password") != "" {
		t.Error("a wrong code is no mistake of its field")
	}
	form.Set("code", w.codeOf(secret).Get("code"))
	admin.submit("/settings", "/settings/backup", form).want(http.StatusOK)
}

// The page of the account makes a token for backups, with the password.
func TestTokenForBackups(t *testing.T) {
	w := newWorld(t)
	admin := w.as("admin")
	form := url.Values{"label": {"nightly"}, "scope": {"backup"}, "days": {"30"}, "password": {"wrong"}}
	got := admin.submit("/account", "/account/tokens", form).want(http.StatusUnprocessableEntity)
	got.legible("the account after a wrong password")
	if got.mistake("own") != "it is not your password" {
		t.Errorf("beside the password it says %q", got.mistake("own"))
	}

	w.pass(0)
	form.Set("password", password)
	page := admin.submit("/account", "/account/tokens", form).want(http.StatusOK)
	_, secret, _ := strings.Cut(page.text, `<p class="secret"><code>`)
	secret, _, _ = strings.Cut(secret, "<")
	token, err := w.AuthenticateToken(t.Context(), secret, service.Meta{})
	w.must(err)
	f, err := w.BackupByToken(t.Context(), token)
	w.must(err)
	w.must(f.Close())

	// Others have no such choice.
	w.person("x", nil)
	if page := w.as("x").get("/account"); page.byID("own") != nil || strings.Contains(page.text, `value="backup"`) {
		t.Error("the form offers a backup to a user who may make none")
	}
}
