// This file writes a text of policies in the form of Encode and keeps its comments.

package policyyaml

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/token"
)

// Format returns the text in the form of [Encode], with its comments: one in a line of its own
// stays above the field that follows it, and one behind a field stays behind it. Tables of plans
// beside the policies stay there, and come first. Errors are those of [DecodeLines], and that of a
// text in which a line ends in a carriage return alone.
func Format(data []byte) ([]byte, error) {
	plain, lines, err := uncommented(data)
	if err != nil {
		return nil, err
	}

	// Lines are those between line feeds, and those of the lexer may also end in CR alone.
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	if i := bytes.IndexByte(data, '\r'); i >= 0 {
		return nil, &LineError{Line: 1 + bytes.Count(data[:i], []byte("\n")), Err: errLoneCR}
	}

	comments := commentsOf(string(bytes.TrimPrefix(data, bom)))
	if len(comments) == 0 {
		return plain, nil
	}
	_, placed, err := DecodeLines(plain)
	if err != nil {
		return nil, err
	}
	above, behind := placesOf(comments, lines, placed)
	out := weave(plain, above, behind)

	// A comment must not change what the text means, wherever it stood.
	again, _, err := uncommented(out)
	if err == nil && !bytes.Equal(again, plain) {
		err = errLost
	}

	// None is lost. Several behind one line are one.
	want := len(comments)
	for _, list := range behind {
		want -= len(list) - 1
	}
	if err == nil && len(commentsOf(string(out))) != want {
		err = errLost
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// uncommented returns a text in the form of Encode, and the lines of its policies as they are in
// the text itself.
func uncommented(data []byte) ([]byte, *Lines, error) {
	set, lines, err := DecodeLines(data)
	if err != nil {
		return nil, nil, err
	}
	if len(lines.tables) == 0 {
		plain, err := Encode(set)
		return plain, lines, err
	}

	text, err := lines.EncodeJSON(set)
	if err != nil {
		return nil, nil, err
	}
	plain, err := blocks(text)
	return plain, lines, err
}

var (
	errLoneCR = errors.New("a line ends in a carriage return alone")
	errLost   = errors.New("policy: the comments cannot be kept")
)

var bom = []byte("\ufeff")

// comment is a comment of a text.
type comment struct {
	line   int // from 1
	behind bool
	text   string
}

// commentsOf returns the comments of a text that can be read, in its order. Its lines end in LF.
func commentsOf(text string) (list []comment) {
	lines := strings.Split(text, "\n")
	for _, t := range lexer.Tokenize(text) {
		n := t.Position.Line
		if t.Type != token.CommentType {
			continue
		}

		// A comment of a line that is not known is about the whole text.
		before := ""
		if n >= 1 && n <= len(lines) {
			before, _, _ = strings.Cut(lines[n-1], "#")
		}
		list = append(list, comment{n, strings.TrimSpace(before) != "", "#" + strings.TrimRight(t.Value, " \t\r\n")})
	}
	return list
}

// anchor is a field of a text, of the i-th policy or, for -1, beside the policies.
type anchor struct {
	i     int
	field string
	at    spot
}

// anchors returns all fields in the order of their lines.
func (l *Lines) anchors() (list []anchor) {
	for i := range l.policies {
		p := &l.policies[i]
		for field, at := range p.fields {
			list = append(list, anchor{i, field, at})
		}
	}
	for field, at := range l.plans.fields {
		list = append(list, anchor{-1, field, at})
	}
	if l.plans.fields != nil {
		list = append(list, anchor{-1, "policies", spot{l.list, 1}})
	}
	slices.SortFunc(list, func(a, b anchor) int {
		return cmp.Or(cmp.Compare(a.at.line, b.at.line), cmp.Compare(a.at.column, b.at.column))
	})
	return list
}

// first returns the line of the first field of a text without mistakes.
func (l *Lines) first() int {
	if l.plans.fields == nil {
		return l.list
	}
	return min(l.list, l.plans.at.line)
}

// weave puts comments above and behind the lines of a text.
func weave(plain []byte, above, behind map[int][]string) []byte {
	var b strings.Builder
	n := 0
	for line := range strings.Lines(string(plain)) {
		n++
		indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
		for _, c := range above[n] {
			b.WriteString(indent + c + "\n")
		}
		b.WriteString(strings.TrimSuffix(line, "\n"))
		for _, c := range behind[n] {
			b.WriteString(" " + c)
		}
		b.WriteByte('\n')
	}

	// Line 0 stands for the end of the text.
	for _, c := range above[0] {
		b.WriteString(c + "\n")
	}
	return []byte(b.String())
}

// placesOf returns the comments of a text, whose policies are in the lines from, by the line that
// they stand above or behind in another text of the same policies, which has them in the lines to.
func placesOf(comments []comment, from, to *Lines) (above, behind map[int][]string) {
	places := map[string]int{}
	for i, name := range to.Names() {
		places[name] = i
	}
	names, anchors := from.Names(), from.anchors()
	lineOf := func(a anchor) int {
		switch {
		case a.i >= 0:
			return to.Line(places[names[a.i]], a.field)
		case a.field == "policies":
			return to.list
		}
		return to.plans.spotOf(a.field).line
	}

	above, behind = map[int][]string{}, map[int][]string{}
	for _, c := range comments {
		next := slices.IndexFunc(anchors, func(a anchor) bool { return a.at.line > c.line })
		switch {
		case len(anchors) == 0, c.line < from.first(), c.behind && next == 0:
			above[1] = append(above[1], c.text) // about the whole text
		case c.behind:
			a := anchors[cmp.Or(max(next, 0), len(anchors))-1]
			n := lineOf(a)
			behind[n] = append(behind[n], c.text)
		case next < 0:
			above[0] = append(above[0], c.text)
		default:
			// What stands above the first field is about the policy.
			a := anchors[next]
			if a.i >= 0 && a.at == from.policies[a.i].at {
				a.field = ""
			}
			n := lineOf(a)
			above[n] = append(above[n], c.text)
		}
	}
	return above, behind
}
