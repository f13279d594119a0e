// Package readme tests that what the documentation shows is true.
package readme

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

const root = "../.."

var goBlock = regexp.MustCompile("(?s)```go\n(.*?)```")

// documents are the pages with programs in them.
var documents = []string{"README.md"}

func TestEveryProgramInTheDocumentationCompiles(t *testing.T) {
	for _, name := range documents {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		blocks := goBlock.FindAllSubmatch(text, -1)
		if len(blocks) == 0 {
			t.Errorf("%s has no programs", name)
		}
		for i, block := range blocks {
			file := filepath.Join(t.TempDir(), "main.go")
			if err := os.WriteFile(file, block[1], 0o600); err != nil {
				t.Fatal(err)
			}
			vet := exec.Command("go", "vet", file)
			vet.Dir = root
			if out, err := vet.CombinedOutput(); err != nil {
				t.Errorf("%s, program %d: %v\n%s", name, i+1, err, out)
			}
		}
	}
}

func TestTheLimitsInTheReadmeAreValid(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	texts := regexp.MustCompile("(?m)^\\| `([^`]+)`(?:, `([^`]+)`)? \\|").FindAllStringSubmatch(string(text), -1)
	checked := 0
	for _, m := range texts {
		for _, limit := range m[1:] {
			if limit == "" || limit == "core" || limit[0] < '0' || limit[0] > '9' {
				continue
			}
			checked++
			checkLimit(t, limit)
		}
	}
	if checked < 8 {
		t.Errorf("only %d limits were found", checked)
	}
}
