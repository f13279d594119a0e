package main

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"
)

// A hit is what the search can find: a section of a page.
type hit struct {
	Page    string `json:"page"`
	Section string `json:"section,omitempty"` // "" for the beginning of the page
	URL     string `json:"url"`               // from the folder of the site
	Says    string `json:"says,omitempty"`    // how it begins
	Words   string `json:"words,omitempty"`   // all others, in lower case, once each
}

// search returns all that can be found, in the order of the pages.
func (s *site) search() (all []hit) {
	for _, p := range s.pages {
		for _, section := range p.sections {
			// The title of the page stands for its beginning.
			h := hit{Page: p.title, URL: p.out, Says: shorten(strings.TrimSpace(section.text), 100)}
			if section.Level > 1 {
				h.Section, h.URL = section.Title, p.out+"#"+section.ID
			}

			h.Words = wordsOf(section.text, h.Page+" "+h.Section+" "+h.Says)
			all = append(all, h)
		}
	}
	return all
}

// wordsOf returns the words of a text that another lacks, in order. Figures alone are left out.
func wordsOf(said, besides string) string {
	split := func(s string) []string {
		return strings.FieldsFunc(strings.ToLower(s), func(r rune) bool {
			return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_-.", r)
		})
	}

	known, all := split(besides), []string{}

	for _, w := range split(said) {
		// Short words and figures are everywhere.
		w = strings.Trim(w, "-.")
		if len(w) > 2 && strings.ContainsFunc(w, unicode.IsLetter) && !slices.Contains(known, w) {
			all = append(all, w)
		}
	}

	slices.Sort(all)
	return strings.Join(slices.Compact(all), " ")
}

// about is what the site is, for programs that read llms.txt.
const about = "headgate limits how often callers may use a Go service, or any service behind its gateway."

// writeTexts writes the pages as Markdown, each beside its HTML, an index of them as
// https://llmstxt.org describes, and all of them in one file.
func (s *site) writeTexts(out folder) error {
	var list, full strings.Builder
	fmt.Fprintf(&list, "# headgate\n\n> %s\n\nAll pages in one file: [llms-full.txt](%sllms-full.txt)\n", about, s.base)

	// The index has the groups of the navigation.
	for _, g := range s.groups {
		fmt.Fprintf(&list, "\n## %s\n\n", g.Title)
		for _, e := range g.Entries {
			to := "playground/"
			if e.page != nil {
				to = e.page.path
			}
			fmt.Fprintf(&list, "- [%s](%s%s): %s\n", e.Title, s.base, to, e.Says)
		}
	}

	// Each page stands beside its HTML, and once more in the file of all.
	errs := []error{out.file("llms.txt", []byte(list.String()))}
	for _, p := range s.pages {
		said := s.plain(p)
		errs = append(errs, out.file(p.path, []byte(said)))

		if p.path != index {
			fmt.Fprintf(&full, "<!-- %s%s -->\n\n%s\n", s.base, p.path, strings.TrimSpace(said)+"\n")
		}
	}
	return errors.Join(append(errs, out.file("llms-full.txt", []byte(full.String())))...)
}

// plain returns the Markdown of a page, in which links to what the site lacks lead to the
// repository.
func (s *site) plain(p *page) string {
	var b strings.Builder
	fenced := false

	// A link within a block of code is none.
	for line := range strings.Lines(string(p.text)) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
		}
		if !fenced {
			line = s.plainLine(p, line)
		}
		b.WriteString(line)
	}
	return b.String()
}

func (s *site) plainLine(p *page, line string) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(line, "](")
		to, rest, ends := strings.Cut(after, ")")
		if !found || !ends {
			b.WriteString(line)
			return b.String()
		}

		// Links to pages and pictures stay as they are.
		name, anchor, has := strings.Cut(to, "#")
		full := path.Join(path.Dir(p.path), name)
		switch {
		case full == playground:
			to = rel(p.path, "playground/")
		case name != "" && !strings.Contains(name, ":") && s.byPath[full] == nil && !s.assets[full]:
			to, _ = s.address(full)
			if has {
				to += "#" + anchor
			}
		}

		b.WriteString(before + "](" + to + ")")
		line = rest
	}
}
