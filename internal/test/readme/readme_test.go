// Package readme tests the documentation: that what a page names in code is in the code, that its
// links lead to something, and its programs, limits and drawing.
package readme

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../../.."

var goBlock = regexp.MustCompile("(?s)```go\n(.*?)```")

// documents returns the paths of all pages, relative to the root.
func documents(t *testing.T) (names []string) {
	t.Helper()
	for _, p := range pages(t) {
		names = append(names, p.path)
	}
	return names
}

// snippets returns the blocks of Go in a page.
func snippets(t *testing.T, page string) []string {
	t.Helper()
	var all []string
	for _, block := range goBlock.FindAllStringSubmatch(read(t, page), -1) {
		all = append(all, block[1])
	}
	return all
}

func isProgram(snippet string) bool { return strings.HasPrefix(snippet, "package ") }

func TestProgramsCompile(t *testing.T) {
	module := newModule(t)
	for _, page := range documents(t) {
		for i, snippet := range snippets(t, page) {
			if isProgram(snippet) {
				write(t, filepath.Join(module, page, fmt.Sprintf("program%d", i+1), "main.go"), []byte(snippet))
			}
		}
	}

	// One run for all programs: each has a folder of its own.
	vet := exec.Command("go", "vet", "./...")
	vet.Dir = module
	if out, err := vet.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// Each fragment is part of an example of the repository, line for line except for
// the indentation. Examples are compiled with their packages.
func TestFragmentsAreInExamples(t *testing.T) {
	examples := exampleFiles(t)
	for _, page := range documents(t) {
		for _, snippet := range snippets(t, page) {
			if isProgram(snippet) {
				continue
			}

			// Examples may be indented more than the page.
			found := false
			for _, text := range examples {
				found = found || strings.Contains(text, flat(snippet))
			}
			if !found {
				t.Errorf("%s: no example in a test and no program under an examples folder has these lines:\n%s", page, snippet)
			}
		}
	}
}

// exampleFiles returns the texts of all examples without their indentation.
func exampleFiles(t *testing.T) []string {
	t.Helper()
	var texts []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}

		// Only files that readers are sent to count, and not any code that has the line by chance.
		if strings.HasPrefix(d.Name(), "example") || strings.Contains("/"+filepath.ToSlash(rel), "/examples/") {
			texts = append(texts, flat(read(t, rel)))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

// flat returns the lines of a text without their indentation. The text begins with
// a newline, so that a whole first line is found.
func flat(text string) string {
	var b strings.Builder
	b.WriteByte('\n')
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimSpace(line) + "\n")
	}
	return b.String()
}

// newModule returns the folder of a module that requires the modules that the root
// module does, and the root module from this folder.
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

	// The sums are those of the root, so that nothing is downloaded.
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

// read returns the text of a file, whose path is relative to the root.
func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var tableLimit = regexp.MustCompile("(?m)^\\| `([0-9][^`]+)`(?:, `([0-9][^`]+)`)? \\|")

func TestTablesHaveValidLimits(t *testing.T) {
	for page, least := range map[string]int{"README.md": 4, "docs/limits.md": 8} {
		checked := 0

		// A row has a limit in any of its columns.
		for _, m := range tableLimit.FindAllStringSubmatch(read(t, page), -1) {
			for _, limit := range m[1:] {
				if limit != "" {
					checked++
					checkLimit(t, limit)
				}
			}
		}

		// Fewer than the pages have would mean that the expression misses them.
		if checked < least {
			t.Errorf("%s: only %d limits were found", page, checked)
		}
	}
}
