package tally

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSum(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tally")
	t.Setenv("HEADGATE_TALLY", path)

	// Amounts of one name are added up, and equal sums stand in the order of their names.
	for _, n := range []int64{1_000_000, 0, 234_567} {
		Add(t, "requests", n)
	}
	Add(t, "addresses", 12)
	Add(t, "keys", 12)

	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()

	got, err := Table(file)
	want := "| tried | of |\n|--:|---|\n| 1,234,567 | requests |\n| 12 | addresses |\n| 12 | keys |\n"
	if err != nil || got != want {
		t.Errorf("%v, %s, want %s", err, got, want)
	}
}

func TestAddWithoutFile(t *testing.T) {
	t.Setenv("HEADGATE_TALLY", "")
	Add(t, "requests", 1)
}

func TestSumInvalidLine(t *testing.T) {
	for _, text := range []string{"x", "x\ty", "1 y"} {
		if _, err := Table(strings.NewReader("1\ta\n" + text + "\n")); err == nil ||
			!strings.Contains(err.Error(), "line 2") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
