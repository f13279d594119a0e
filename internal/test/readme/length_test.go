package readme

import (
	"path"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

// index lists all pages. Its headings say which are of the path and which of the reference.
const index = "docs/README.md"

// The most words that each part of the documentation may have.
const (
	mostOfREADME    = 900    // that of the repository, with its programs
	mostOfPath      = 9_000  // fifteen minutes, with what is skipped
	mostOfReference = 15_000 // under all headings that begin with this word
)

// words returns how many words a page has in its text and its tables, without blocks of code.
func (p *page) words() int {
	count := 0
	for word := range strings.FieldsSeq(p.prose) {
		if strings.ContainsFunc(word, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) {
			count++
		}
	}
	return count
}

var (
	part   = regexp.MustCompile(`^## (The path|Reference)?`)
	listed = regexp.MustCompile(`^- \[[^\]]*\]\(([^)]*)\)`)
)

// listedPages returns the pages that the index lists, by "The path", "Reference" or "".
func listedPages(t *testing.T) map[string][]*page {
	t.Helper()
	lists, under := map[string][]*page{}, ""
	for line := range strings.Lines(read(t, index)) {
		if m := part.FindStringSubmatch(line); m != nil {
			under = m[1]
		}
		if m := listed.FindStringSubmatch(line); m != nil && strings.HasSuffix(m[1], ".md") {
			name := path.Join(path.Dir(index), m[1])
			lists[under] = append(lists[under], newPage(name, read(t, name)))
		}
	}
	return lists
}

func TestPagesAreShort(t *testing.T) {
	if words := len(strings.Fields(read(t, "README.md"))); words > mostOfREADME {
		t.Errorf("README.md has %d words, more than %d", words, mostOfREADME)
	}

	for under, most := range map[string]int{"The path": mostOfPath, "Reference": mostOfReference} {
		all := 0
		list := listedPages(t)[under]
		for _, p := range list {
			all += p.words()
			t.Logf("%s: %s: %d words", under, p.path, p.words())
		}
		if t.Logf("%s: %d words", under, all); all > most || len(list) < 10 {
			t.Errorf("%s has %d words on %d pages; at most %d, and not less than 10 pages", under, all, len(list), most)
		}
	}
}

// withoutReaders returns what is wrong with the first line after the title of a page, which says
// for whom it is, or "".
func (p *page) withoutReaders() string {
	lines := strings.Split(p.prose, "\n")
	if !strings.HasPrefix(lines[0], "# ") {
		return ":1: the first line is no title"
	}
	if len(lines) < 3 || !strings.HasPrefix(lines[2], "For ") {
		return `:3: it does not say first for whom it is, with a sentence that begins with "For"`
	}
	return ""
}

func TestPagesSayForWhomTheyAre(t *testing.T) {
	pages := 0
	for _, list := range listedPages(t) {
		for _, p := range list {
			// The README of the repository is for all, and begins with what headgate is.
			if pages++; p.path == "README.md" {
				continue
			}
			if wrong := p.withoutReaders(); wrong != "" {
				t.Errorf("%s%s", p.path, wrong)
			}
		}
	}
	if pages < 40 {
		t.Errorf("the index lists %d pages, and there are more", pages)
	}

	for text, want := range map[string]string{
		"# A\n\nFor those who try it.\n": "",
		"# A\n\nIt is for all.\n":        ":3: it does not say",
		"# A\n":                          ":3: it does not say",
		"For all.\n":                     ":1: the first line",
		"# A\n\n    For all.\n":          ":3: it does not say",
	} {
		if got := newPage("a.md", text).withoutReaders(); (want == "") != (got == "") || !strings.HasPrefix(got, want) {
			t.Errorf("%q: %q", text, got)
		}
	}
}
