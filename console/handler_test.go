package main

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/headgate/headgate/console/internal/app"
	"github.com/headgate/headgate/console/internal/config"
)

// answer is a status and a Content-Type.
type answer struct {
	status int
	kind   string
}

func TestPagesAndProgramsAndProbesAreAnswered(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	c := config.Config{DB: "sqlite://" + filepath.Join(t.TempDir(), "console.db")}
	a, err := app.Open(t.Context(), c, quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	h, err := handler(a, c, quiet)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]answer{
		"/healthz":      {200, "text/plain; charset=utf-8"},
		"/login":        {200, "text/html; charset=utf-8"},
		"/api/policies": {401, "application/problem+json"},
		"/nowhere":      {404, "text/html; charset=utf-8"},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		if got := (answer{w.Code, w.Header().Get("Content-Type")}); got != want {
			t.Errorf("%s: it is %v and not %v", path, got, want)
		}
	}
}
