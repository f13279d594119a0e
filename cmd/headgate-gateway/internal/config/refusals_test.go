package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/cmd/headgate-gateway/internal/watch"
)

func TestRefusalsOfTheFile(t *testing.T) {
	page := filepath.Join(t.TempDir(), "slow.html")
	if err := os.WriteFile(page, []byte("<p>{{retry_after}}"), 0o600); err != nil {
		t.Fatal(err)
	}

	path := file(t, "refusals:\n- {policy: login, status: 503, file: "+page+"}\n"+
		"- body: slow down\n  headers: {X-A: b}\n")
	c, err := parse(nil, "-config", path)
	if err != nil || c.Refusals == nil || len(c.Origin.Files) != 2 ||
		c.Origin.Files[page] == (watch.Sum{}) {
		t.Errorf("%+v %q %v", c.Refusals, c.Origin.Files, err)
	}

	// A file that vanishes is a mistake at the next reading.
	if err := os.Remove(page); err != nil {
		t.Fatal(err)
	}

	if _, err = parse(nil, "-config", path); err == nil ||
		!strings.Contains(err.Error(), "gateway.yaml:2: refusals: file: open "+page) {
		t.Errorf("without the file: %v", err)
	}

	for text, want := range map[string]string{
		"refusals: {}":                                    "gateway.yaml:1: refusals: it is not a list",
		"refusals:\n- bdy: x\n":                           "gateway.yaml:2: refusals: ",
		"refusals:\n- body: x\n  status: 200\n":           "gateway.yaml:3: refusals: status: 200 is not",
		"refusals:\n- headers:\n    X-A: \"a\\nb\"\n":     "gateway.yaml:3: refusals: headers.X-A: the value has",
		"refusals:\n- body: \"{{x}}\"\n":                  "gateway.yaml:2: refusals: body: {{x is none of",
		"refusals:\n- body: x\n- body: y\n":               "gateway.yaml:3: refusals: policy: another",
		"refusals:\n- body: x\n  file: /does/not/exist\n": "gateway.yaml:3: refusals: file: ",
	} {
		if _, err := parse(nil, "-config", file(t, text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
