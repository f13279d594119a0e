package api

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
)

// A body of many mistakes gets a short answer.
func TestMistakesOfABodyAreBounded(t *testing.T) {
	w := newWorld(t)
	const changes = "/api/policies/p/overrides"
	list := func(n int) string { return `{"changes":[0` + strings.Repeat(",0", n-1) + "]}" }

	most := w.ask("owner", "POST", changes, list(service.MaxOverrideChanges)).want(422).fields()
	if n := len(most); n != maxFaults+1 || most[99] != "changes[99]" || most[maxFaults] != "" {
		t.Errorf("%d mistakes: %q", n, most)
	}
	more := w.ask("owner", "POST", changes, list(1_000_000)).want(422)
	if !strings.Contains(more.text, "it has more than 1000 items") || len(more.fields()) != 1 {
		t.Errorf("%.300s", more.text)
	}

	// Names that are repeated or unknown are such mistakes too.
	for _, path := range []string{changes, "/api/overrides/plan"} {
		for _, field := range []string{`"overrides":{}`, `"x":0`} {
			body := "{" + strings.Repeat(field+",", 50_000) + field + "}"
			if n := len(w.ask("owner", "POST", path, body).want(422).fields()); n != maxFaults+1 {
				t.Errorf("%s: %s: %d mistakes", path, field, n)
			}
		}
	}
}

// A token for backups is refused before a large body is looked at.
func TestLargeBodyOfABackupTokenIsNotRead(t *testing.T) {
	w := newWorld(t)
	w.ask("backup token", "POST", "/api/policies/p/overrides", `{"changes":[0]}`).want(403)
}
