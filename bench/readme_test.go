package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const testPage = `# Benchmarks

### One

| | a | b |
|---|---:|---:|
| headgate | 5 | 12k |
| peer | 9.50 | failed |

### Two

| | b | a |
|---|---:|---:|
| headgate | 1 | – |
`

// Each figure of README.md is the one of docs/benchmarks.md.
func TestREADMEHasTheFiguresOfTheBenchmarks(t *testing.T) {
	page, err := os.ReadFile("../docs/benchmarks.md")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}

	want, err := readmeTable(string(page))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), "\n"+want+"\n") {
		t.Errorf("README.md has not this table:\n%s", want)
	}
}

func TestCellOfReadsOneTable(t *testing.T) {
	for _, c := range []struct{ title, row, column, want string }{
		{"One", "headgate", "a", "5"},
		{"One", "headgate", "b", "12k"},
		{"One", "peer", "a", "9.50"},
		{"One", "peer", "b", ""}, // failed
		{"Two", "headgate", "b", "1"},
		{"Two", "headgate", "a", ""}, // not measured
		{"Two", "peer", "a", ""},
		{"One", "headgate", "c", ""},
		{"On", "headgate", "a", ""},
	} {
		if got, err := cellOf(testPage, c.title, c.row, c.column); got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%+v: %q, %v", c, got, err)
		}
	}
}

func TestREADMETableIsWrittenInItsPlace(t *testing.T) {
	defer func(rows []readmeRow) { readmeRows = rows }(readmeRows)
	readmeRows = []readmeRow{
		{"less", "One", "a", "headgate", "peer", false},
		{"more", "One", "a", "headgate", "peer", true},
		{"equal", "One", "a", "peer", "peer", true},
	}

	file := filepath.Join(t.TempDir(), "README.md")
	if err := os.WriteFile(file, []byte("before\n\n"+readmeHeading+"| old |\n\nafter\n\nend\n"), 0o644); err != nil {
		t.Fatal(err)
	}

	if err := writeReadme(file, testPage); err != nil {
		t.Fatal(err)
	}

	want := "before\n\n" + readmeHeading + "| less | **5** | 9.50 (peer) |\n| more | 5 | **9.50** (peer) |\n" +
		"| equal | 9.50 | 9.50 (peer) |\n\nafter\n\nend\n"
	if got, err := os.ReadFile(file); err != nil || string(got) != want {
		t.Errorf("%s, %v", got, err)
	}
}
