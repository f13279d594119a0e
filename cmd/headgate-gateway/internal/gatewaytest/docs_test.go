//go:build linux

package gatewaytest

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

var fragment = regexp.MustCompile("(?s)```(nginx|caddyfile)\n(.*?)```")

// Each fragment of a configuration in docs/gateway.md is part of an example, line for line
// except for the indentation, so it has been tried.
func TestDocumentationShowsTheExamples(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/gateway.md")
	if err != nil {
		t.Fatal(err)
	}

	all := fragment.FindAllStringSubmatch(string(page), -1)
	if len(all) < 3 {
		t.Errorf("only %d fragments were found", len(all))
	}

	for _, m := range all {
		file := map[string]string{"nginx": "nginx.conf", "caddyfile": "Caddyfile"}[m[1]]
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
