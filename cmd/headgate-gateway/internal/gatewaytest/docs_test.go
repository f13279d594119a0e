//go:build linux

package gatewaytest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var fragment = regexp.MustCompile("(?s)```(nginx|caddyfile|haproxy)\n(.*?)```")

// Each fragment of a configuration in the pages of the faces is part of an example, line for line
// except for the indentation, so it has been tried.
func TestDocumentationShowsTheExamples(t *testing.T) {
	pages, err := filepath.Glob("../../../../docs/gateway/*.md")
	if err != nil {
		t.Fatal(err)
	}

	var all [][]string
	for _, name := range pages {
		page, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, fragment.FindAllStringSubmatch(string(page), -1)...)
	}

	// Fewer would mean that the expression, or the folder, misses them.
	if len(all) < 4 {
		t.Errorf("only %d fragments were found", len(all))
	}

	for _, m := range all {
		file := map[string]string{"nginx": "nginx.conf", "caddyfile": "Caddyfile", "haproxy": "haproxy.cfg"}[m[1]]
		text, err := os.ReadFile(examples(file))
		if err != nil {
			t.Fatal(err)
		}

		// The page shows parts of the files, indented as the part needs it.
		if !strings.Contains(flat(string(text)), flat(m[2])) {
			t.Errorf("%s has no lines as these:\n%s", file, m[2])
		}
	}
}

// flat returns the lines of a text without their indentation.
func flat(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimSpace(line) + "\n")
	}
	return b.String()
}
