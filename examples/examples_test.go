// Package examples tests what all example programs have in common.
package examples

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// maxLines fits on a page of a book, and on two screens.
const maxLines = 80

// longer has the programs that need more: one reads the body of a request before it is passed on,
// and one is its own client.
var longer = map[string]int{"llm": 135, "search": 105}

// A reader can copy each example, apart from quickstart, as one file.
func TestEachExampleIsOneShortFile(t *testing.T) {
	files, err := filepath.Glob("*/*.go")
	if err != nil {
		t.Fatal(err)
	}

	// Modules of their own, which a release has not here.
	ofAdapters, err := filepath.Glob("../adapters/*/examples/*/*.go")
	if err != nil {
		t.Fatal(err)
	}

	own := len(files)
	programs := 0
	for i, file := range append(files, ofAdapters...) {
		if strings.HasSuffix(file, "_test.go") || filepath.Dir(file) == "quickstart" {
			continue
		}

		// Those of other modules are not counted: a release has them not.
		if i < own && filepath.Dir(file) != "huma" { // which is one too
			programs++
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}

		// Only what a program outside of the module could do as well.
		if filepath.Base(file) != "main.go" {
			t.Errorf("%s is not main.go", file)
		}
		most := max(maxLines, longer[filepath.Base(filepath.Dir(file))])
		if n := bytes.Count(text, []byte("\n")); n > most {
			t.Errorf("%s has %d lines, more than %d", file, n, most)
		}
		if bytes.Contains(text, []byte("/internal/")) {
			t.Errorf("%s imports an internal package", file)
		}
	}

	// A folder that is not found would pass all checks.
	if programs != 16 {
		t.Errorf("%d programs, want 16", programs)
	}
}
