package caddymw

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/observe/findings"
)

func TestFindingsNameTheOptionsOfCaddy(t *testing.T) {
	var b bytes.Buffer
	h := slog.NewTextHandler(&b, nil)
	for code, text := range wordings {
		if strings.Contains(text, "keyfuncs") {
			t.Errorf("%s: %s", code, text)
		}
	}

	e := &engine{log: newHandlers(h)}
	e.logger = newLogger(e.log)

	// The same words, by the log that the engine writes to.
	e.logger.Warn("use keyfuncs.ForwardedIP", "code", findings.Unheeded)
	if got := b.String(); !strings.Contains(got, "global option servers") || strings.Contains(got, "keyfuncs") {
		t.Error(got)
	}
}

func TestMisspeltApplicationIsWarnedOf(t *testing.T) {
	file := filepath.Join(t.TempDir(), "limits.yaml")
	if err := os.WriteFile(file, []byte("policies:\n- {name: a, apps: [default, blog], limit: 3/1h, key: ip}\n"),
		0o600); err != nil {
		t.Fatal(err)
	}

	for app, want := range map[string]int{"shopp": 1, "default": 0} {
		var b bytes.Buffer
		e, err := acquire(Config{App: app, Policies: file},
			slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelWarn}))
		if err != nil {
			t.Fatal(err)
		}

		if err := e.release(); err != nil {
			t.Error(err)
		}

		if got := b.String(); strings.Count(got, `code=HG018`) != want ||
			strings.Count(got, `named="blog, default"`) != want {
			t.Errorf("%s: %s", app, got)
		}
	}
}
