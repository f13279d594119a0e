package layers

import (
	"bytes"
	"go/ast"
	"go/scanner"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// A text is what the bodies of a package's longer functions are made of.
type text struct{ lines, blank, comments int }

// dense lists the packages whose functions do not read as texts yet, or whose lines are too wide.
// It may only become shorter.
var dense = strings.Fields(`
bench
`)

// TestParagraphs holds that a function longer than a dozen lines reads as a text: of the lines
// of such bodies at least 8 in 100 are blank and 4 in 100 are comments, in each package. With
// -v it prints the figures.
func TestParagraphs(t *testing.T) {
	texts := map[string]*text{}
	walkAll(t, func(dir, file string, f *ast.File) {
		if texts[dir] == nil {
			texts[dir] = &text{}
		}
		texts[dir].read(f, kindsOfLines(sourceOf(t, file)))
	})

	for _, dir := range slices.Sorted(maps.Keys(texts)) {
		x := texts[dir]
		if x.lines == 0 {
			continue
		}
		t.Logf("%5d lines, %3d blank, %3d comments of 1000: %s", x.lines, 1000*x.blank/x.lines, 1000*x.comments/x.lines, dir)
		reads := x.blank*100 >= x.lines*8 && x.comments*100 >= x.lines*4
		if !reads && !slices.Contains(dense, dir) {
			t.Errorf("%s: of %d lines %d are blank and %d comments", dir, x.lines, x.blank, x.comments)
		}
	}
}

// read adds the bodies of a file's functions that have more than a dozen lines.
func (x *text) read(f *ast.File, kinds []kindOfLine) {
	for _, d := range f.Decls {
		d, ok := d.(*ast.FuncDecl)
		if !ok || d.Body == nil {
			continue
		}
		// The lines between those of the braces.
		first, end := fset.Position(d.Body.Lbrace).Line, fset.Position(d.Body.Rbrace).Line-1
		if end-first <= 12 {
			continue
		}

		x.lines += end - first
		for _, kind := range kinds[first:end] {
			switch kind {
			case blankLine:
				x.blank++
			case commentLine:
				x.comments++
			}
		}
	}
}

// TestColumns holds that code has at most 120 columns and a comment that stands alone 100, a tab
// counted as four.
func TestColumns(t *testing.T) {
	walkAll(t, func(dir, file string, _ *ast.File) {
		if slices.Contains(dense, dir) {
			return
		}
		source := sourceOf(t, file)
		kinds := kindsOfLines(source)
		for i, line := range strings.Split(string(source), "\n") {
			most := 120
			if kinds[i] == commentLine {
				most = 100
			}
			if n := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    ")); n > most {
				t.Errorf("%s:%d: %d columns, want at most %d", file, i+1, n, most)
			}
		}
	})
}

func sourceOf(t *testing.T, file string) []byte {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	return source
}

type kindOfLine int

const (
	blankLine kindOfLine = iota
	commentLine
	codeLine
)

// kindsOfLines returns what each line of a file is. A line of code with a comment behind it is
// code.
func kindsOfLines(source []byte) []kindOfLine {
	var s scanner.Scanner
	set := token.NewFileSet()
	file := set.AddFile("", -1, len(source))
	s.Init(file, source, nil, scanner.ScanComments)
	kinds := make([]kindOfLine, 1+bytes.Count(source, newline))
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			return kinds
		}
		if tok == token.SEMICOLON && literal == "\n" {
			continue
		}
		kind := codeLine
		if tok == token.COMMENT {
			kind = commentLine
		}
		first := file.Line(pos)
		for i := range 1 + strings.Count(literal, "\n") {
			kinds[first-1+i] = max(kinds[first-1+i], kind)
		}
	}
}

var newline = []byte{'\n'}
