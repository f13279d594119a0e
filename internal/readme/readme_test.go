// Package readme tests that what the documentation shows is true.
package readme

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

var goBlock = regexp.MustCompile("(?s)```go\n(.*?)```")

// documents are the pages with programs in them.
var documents = []string{"README.md"}

func TestEveryProgramInTheDocumentationCompiles(t *testing.T) {
	module := newModule(t)
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
			write(t, filepath.Join(module, name, fmt.Sprintf("program%d", i+1), "main.go"), block[1])
		}
	}
	vet := exec.Command("go", "vet", "./...")
	vet.Dir = module
	if out, err := vet.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// newModule returns the folder of a module that requires what the root module
// does, and the root module as it stands here.
func newModule(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	here, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	const path = "github.com/headgate/headgate"
	own := strings.Replace(string(mod), "module "+path+"\n", "module readme\n", 1)
	own += fmt.Sprintf("\nrequire %s v0.0.0\n\nreplace %s => %q\n", path, path, here)
	write(t, filepath.Join(dir, "go.mod"), []byte(own))
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "go.sum"), sum)
	return dir
}

// write writes the file and makes its folder.
func write(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
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
