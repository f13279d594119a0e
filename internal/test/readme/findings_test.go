package readme

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Every code of a finding that the program has has a section on the page of findings, and no other.
func TestFindingsAreExplained(t *testing.T) {
	constant := regexp.MustCompile(`\b[A-Z]\w*\s+(?:string\s+)?= "(HG\d{3})"`)
	codes := map[string]string{}

	// Tests name codes too, but as those that they expect.
	err := filepath.WalkDir("../../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && len(d.Name()) > 2:
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}

		text, err := os.ReadFile(path)
		for _, found := range constant.FindAllSubmatch(text, -1) {
			if string(found[1]) == "HG000" { // which is for the limiter alone, and told to nobody
				continue
			}

			code := string(found[1])
			if other := codes[code]; other != "" {
				t.Errorf("%s is in %s and in %s", code, other, path)
			}
			codes[code] = path
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	// A section explains a code only with some words in it.
	var explained []string
	for _, section := range regexp.MustCompile(`(?m)^## (HG\d{3})\n\n\S.{20,}$`).
		FindAllStringSubmatch(read(t, "docs/findings.md"), -1) {
		explained = append(explained, section[1])
	}

	// At least 20 must be found, or the expression misses them.
	if want := slices.Sorted(maps.Keys(codes)); len(want) < 20 || !slices.Equal(explained, want) {
		t.Errorf("docs/findings.md explains\n%v, and the program has\n%v", explained, want)
	}
}
