package readme

import (
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// A page is a file of Markdown, cut into what is code in it and what is not.
type page struct {
	path  string // relative to the root
	text  string
	prose string // the text with spaces in place of its blocks, so that positions stay

	spans  []span // of inline code
	blocks []span // of whole lines
}

// A span is a part of a page.
type span struct {
	line int    // its first one, from 1
	kind string // of a fence, such as "go"; "" for other blocks and inline code
	text string
}

// A finding is something that a page says and that is not so.
type finding struct {
	line int
	what string // such as "no method or field: Rule.Never"
}

func (f finding) String() string { return fmt.Sprintf("%d: %s", f.line, f.what) }

// filesOf returns the files of the repository, without those of git and of npm.
func filesOf(t *testing.T) (names []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(file string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.Name() == ".git" || e.Name() == "node_modules":
			if e.IsDir() {
				return fs.SkipDir
			}
		case !e.IsDir():
			name, err := filepath.Rel(root, file)
			names = append(names, filepath.ToSlash(name))
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// pages returns all files of Markdown that are for readers.
func pages(t *testing.T) (list []*page) {
	t.Helper()
	for _, name := range filesOf(t) {
		if path.Ext(name) == ".md" && !strings.Contains(name, "/testdata/") {
			list = append(list, newPage(name, read(t, name)))
		}
	}

	// There are more than 40, or the list misses them.
	if len(list) < 40 {
		t.Fatalf("only %d pages", len(list))
	}
	return list
}

var inlineCode = regexp.MustCompile("`([^`]+)`")

func newPage(name, text string) *page {
	p := &page{path: name, text: text}
	p.cut()

	for _, at := range inlineCode.FindAllStringSubmatchIndex(p.prose, -1) {
		// A span may run over the end of a line.
		code := strings.Join(strings.Fields(p.prose[at[2]:at[3]]), " ")
		p.spans = append(p.spans, span{p.lineOf(at[2]), "", code})
	}
	return p
}

// lineOf returns the line at a position in the text or the prose.
func (p *page) lineOf(at int) int { return 1 + strings.Count(p.text[:at], "\n") }

// usual are the packages whose types pages name by themselves.
var usual = []string{"core", "limiter", "events", "redisstore"}

// speaksOf reports whether the page has the name of a package, in code or in a link, or need not
// have it.
func (p *page) speaksOf(name string) bool {
	named := regexp.MustCompile("[`/.\"\\s]" + name + "[`/.\"\\s]")
	return slices.Contains(usual, name) || named.MatchString(p.text)
}

// cut separates the blocks of code, between fences or indented by four, from the prose.
func (p *page) cut() {
	var prose strings.Builder
	fenced, before, number := false, "", 0

	for line := range strings.Lines(p.text) {
		number++

		// What is indented after a line of prose belongs to that.
		bare := strings.TrimSpace(line)
		fence := strings.HasPrefix(bare, "```")
		indented := strings.HasPrefix(line, "    ") && bare != ""

		switch {
		case fence:
			if fenced = !fenced; fenced {
				p.blocks = append(p.blocks, span{number + 1, strings.TrimPrefix(bare, "```"), ""})
			}
		case fenced:
			p.blocks[len(p.blocks)-1].text += line
		case indented && before == "code":
			p.blocks[len(p.blocks)-1].text += line
		case indented && before == "":
			p.blocks = append(p.blocks, span{number, "", line})
		default:
			prose.WriteString(line)
			before = bare
			continue
		}

		before = "code"
		prose.WriteString(strings.Repeat(" ", len(line)-1) + "\n")
	}
	p.prose = prose.String()
}

var (
	heading  = regexp.MustCompile(`(?m)^#{1,6} +(.+)$`)
	anyLink  = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	linkText = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// anchors returns the anchors that GitHub gives to the headings of a page.
func (p *page) anchors() map[string]bool {
	all := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(p.prose, -1) {
		text := linkText.ReplaceAllString(strings.TrimSpace(m[1]), "$1")
		anchor := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
				return unicode.ToLower(r)
			}
			return -1
		}, text)

		// The second of two equal ones gets a number.
		free := anchor
		for n := 1; all[free]; n++ {
			free = anchor + "-" + string(rune('0'+n))
		}
		all[free] = true
	}
	return all
}
