package config

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/policyyaml"
)

// fence is a block of YAML in a page.
var fence = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// Each block of YAML in the pages about policies and the gateway is read by what it is for.
func TestDocumentationHasNoMistakes(t *testing.T) {
	folder := t.TempDir()
	page := filepath.Join(folder, "slow.html")
	if err := os.WriteFile(page, []byte("slow"), 0o600); err != nil {
		t.Fatal(err)
	}

	read := map[string]int{}
	for _, name := range []string{"policies.md", "tokens.md", "gateway.md", "gateway/proxy.md"} {
		docs, err := os.ReadFile("../../../../docs/" + name)
		if err != nil {
			t.Fatal(err)
		}

		for _, m := range fence.FindAllStringSubmatch(string(docs), -1) {
			kind, _, _ := strings.Cut(m[1], ":")
			read[kind]++
			if kind == "policies" || kind == "plans" {
				checkPolicies(t, name, m[1])
				continue
			}

			// All else is of the file of settings.
			file := filepath.Join(folder, "gateway.yaml")
			text := strings.ReplaceAll(m[1], "/etc/headgate/slow.html", page)
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			args := []string{"-config", file}
			if kind != "upstreams" {
				args = append(args, "-upstream", "http://127.0.0.1:3000")
			}
			if _, err := Parse(args, nil, new(strings.Builder)); err != nil {
				t.Errorf("docs/%s: %v\n%s", name, err, m[1])
			}
		}
	}

	// Fewer would mean that the expression misses them.
	if read["policies"] < 8 || read["plans"] != 1 || read["upstreams"] != 1 || read["refusals"] != 1 {
		t.Errorf("%v were found", read)
	}
}

// checkPolicies fails the test unless the policies are valid, and meant as they are written.
func checkPolicies(t *testing.T, name, text string) {
	set, err := policyyaml.Decode([]byte(text))
	if err != nil {
		t.Errorf("docs/%s: %v\n%s", name, err, text)
	}
	for i := range set {
		for _, doubt := range set[i].Doubts() {
			t.Errorf("docs/%s: %v", name, doubt)
		}
		if _, err := policy.NewIndex(set[i : i+1]); err != nil {
			t.Errorf("docs/%s: %v", name, err)
		}
	}
}
