package main

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/headgate/headgate/cmd/headgate-console/internal/app"
	"github.com/headgate/headgate/cmd/headgate-console/internal/config"
	"github.com/headgate/headgate/internal/test"
)

// smallDisk returns a directory on a disk of 4 MB.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=4m"); err != nil {
		test.Skip(t, "mounting takes root: "+err.Error())
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fillDisk writes a file until there is no space.
func fillDisk(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 4096); err == nil; {
		_, err = f.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}

func TestFullDiskIsSaid(t *testing.T) {
	dir := smallDisk(t)
	c := config.Config{DB: "sqlite://" + filepath.Join(dir, "console.db")}
	quiet := slog.New(slog.DiscardHandler)
	a, err := app.Open(t.Context(), c, quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	h, err := handler(a, c, quiet)
	if err != nil {
		t.Fatal(err)
	}

	var session string
	send := func(method, path, kind, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
		r.Header.Set("Content-Type", kind)
		r.Header.Set("Cookie", session)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		for _, c := range w.Result().Cookies() {
			if c.Name == "headgate" {
				session = c.Name + "=" + c.Value
			}
		}
		return w
	}
	want := func(w *httptest.ResponseRecorder, status int, text string) {
		t.Helper()
		if w.Code != status || !strings.Contains(w.Body.String(), text) {
			t.Errorf("the answer is %d and not %d with %q: %s", w.Code, status, text, w.Body)
		}
	}
	const form, object = "application/x-www-form-urlencoded", "application/json"
	health := func() *httptest.ResponseRecorder { return send("GET", "/healthz", "", "") }

	const own = "seven green canals"
	send("POST", "/login", form, url.Values{"name": {"admin"}, "password": {a.OneTimePassword}}.Encode())
	send("POST", "/account/password", form,
		url.Values{"old": {a.OneTimePassword}, "password": {own}, "repeat": {own}}.Encode())
	want(send("PUT", "/api/apps/one", object, `{"description": ""}`), http.StatusCreated, "one")

	// Only a write that fails shows that there is no space.
	ballast := filepath.Join(dir, "ballast")
	fillDisk(t, ballast)
	big := `{"description": "` + strings.Repeat("x", 400) + `"}`
	for i := 0; send("PUT", "/api/apps/two"+strings.Repeat("o", i), object, big).Code == http.StatusCreated; i++ {
		if i > 1000 {
			t.Fatal("a thousand writes needed no space")
		}
	}
	want(send("PUT", "/api/apps/three", object, big), http.StatusServiceUnavailable, "the disk is full")
	want(send("POST", "/apps", form, "name=three"), http.StatusServiceUnavailable, "The disk is full")
	want(send("POST", "/login", form, url.Values{"name": {"admin"}, "password": {own}}.Encode()),
		http.StatusServiceUnavailable, "The disk is full")
	want(health(), http.StatusServiceUnavailable, "the disk is full\n")
	want(send("GET", "/apps", "", ""), http.StatusOK, "<strong>The disk is full</strong>")

	// With space again the check of the health finds out.
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	want(health(), http.StatusOK, "ok\n")
	if page := send("GET", "/apps", "", ""); strings.Contains(page.Body.String(), "disk is full") {
		t.Errorf("the banner stays: %s", page.Body)
	}
	want(send("PUT", "/api/apps/three", object, big), http.StatusCreated, "three")
}
