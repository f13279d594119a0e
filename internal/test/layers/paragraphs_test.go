package layers

import (
	"bytes"
	"go/ast"
	"go/scanner"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// A text is what the bodies of a package's longer functions are made of.
type text struct{ lines, blank, comments int }

// TestParagraphs holds that a function longer than a dozen lines reads as a text: of the lines
// of such bodies at least 8 in 100 are blank and 4 in 100 are comments, in each package and in the
// tests of each. With -v it prints the figures.
func TestParagraphs(t *testing.T) {
	texts := map[string]*text{}
	walkRooms(t, func(room, file string, f *ast.File) {
		if texts[room] == nil {
			texts[room] = &text{}
		}
		texts[room].read(f, kindsOfLines(sourceOf(t, file)))
	})

	for _, room := range slices.Sorted(maps.Keys(texts)) {
		x := texts[room]
		if x.lines == 0 {
			continue
		}

		t.Logf("%5d lines, %3d blank, %3d comments of 1000: %s",
			x.lines, 1000*x.blank/x.lines, 1000*x.comments/x.lines, room)
		if x.blank*100 < x.lines*8 || x.comments*100 < x.lines*4 {
			t.Errorf("%s: of %d lines %d are blank and %d comments", room, x.lines, x.blank, x.comments)
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

// longLiteral is a text that leaves a line of 120 columns no room for what is around it.
var longLiteral = regexp.MustCompile("\"[^\"]{80,}\"|`[^`]{80,}|[\"`].{100,}[\"`]")

// TestColumns holds that code has at most 120 columns and a comment that stands alone 100, a tab
// counted as four. A text that is as wide by itself may be wider.
func TestColumns(t *testing.T) {
	walkRooms(t, func(_, file string, _ *ast.File) {
		source := sourceOf(t, file)
		kinds := kindsOfLines(source)
		for i, line := range strings.Split(string(source), "\n") {
			most := 120
			switch kinds[i] {
			case commentLine:
				most = 100
			case textLine:
				continue
			}
			if isForTools(file, line) {
				continue
			}

			n := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    "))
			if n > most && !longLiteral.MatchString(line) {
				t.Errorf("%s:%d: %d columns, want at most %d", file, i+1, n, most)
			}
		}
	})
}

// isForTools reports whether a line is one that a tool reads: a directive, or perhaps the output of
// an example.
func isForTools(file, line string) bool {
	comment, is := strings.CutPrefix(strings.TrimSpace(line), "//")
	return is && (strings.HasPrefix(path.Base(file), "example") || strings.HasPrefix(comment, "go:"))
}

// walkRooms calls f for every Go file. The room of tests has the name of the package and
// "/_test.go" behind it.
func walkRooms(t *testing.T, f func(room, file string, syntax *ast.File)) {
	t.Helper()
	all := func(string) bool { return false }
	walkFiles(t, all, withTests, func(dir, file string, syntax *ast.File) {
		if strings.HasSuffix(file, "_test.go") {
			dir = path.Join(dir, "_test.go")
		}
		f(dir, file, syntax)
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
	textLine // inside of a text of several lines
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

		first, breaks := file.Line(pos), strings.Count(literal, "\n")
		for i := range 1 + breaks {
			if tok == token.STRING && 0 < i && i < breaks {
				kind = textLine
			}
			kinds[first-1+i] = max(kinds[first-1+i], kind)
		}
	}
}

var newline = []byte{'\n'}
