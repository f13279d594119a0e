// This file finds the lines of policies and of mistakes in them.

package policyyaml

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"

	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/policy"
)

// LineError is a mistake in a line of a text.
type LineError struct {
	Line   int // from 1
	Column int // from 1, in characters, or 0 if it is not known
	Err    error
}

// Error is the line and the mistake.
func (e *LineError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, textform.Line(e.Err)) }

// Unwrap returns Err.
func (e *LineError) Unwrap() error { return e.Err }

// Lines has the lines of the policies of a text, and of their fields. The zero value has
// none.
type Lines struct {
	policies []place
	list     int // the line that opens the list of policies
	plans    place
	tables   map[string]string // the tables of plans that policies name, by policy
}

// place is a policy in a text.
type place struct {
	name   string
	at     spot
	fields map[string]spot // by their paths, such as "match.path"
}

// spot is a line and a column, both from 1.
type spot struct{ line, column int }

// Names returns the names of the policies of the text in its order, one that is repeated
// too, and "" for a policy without a name.
func (l *Lines) Names() []string {
	names := make([]string, len(l.policies))
	for i := range l.policies {
		names[i] = l.policies[i].name
	}
	return names
}

// Line returns the line of a field of the i-th policy, from 0. The field is named as in
// [policy.FieldError]. For a field that is not written it is the line where the policy
// begins.
func (l *Lines) Line(i int, field string) int { return l.spotOf(i, field).line }

// Column is [Lines.Line] for the column, from 1.
func (l *Lines) Column(i int, field string) int { return l.spotOf(i, field).column }

func (l *Lines) spotOf(i int, field string) spot { return l.policies[i].spotOf(field) }

func (p *place) spotOf(field string) spot {
	for path := field; path != ""; path = path[:max(0, strings.LastIndexByte(path, '.'))] {
		if at, ok := p.fields[path]; ok {
			return at
		}
	}
	return p.at
}

// DecodeLines is [Decode] for texts in which people look for mistakes: its error joins a
// [*LineError] for each of them, in the order of the lines. The lines are those of all policies
// that could be found, also if there is an error.
func DecodeLines(data []byte) (policy.Set, *Lines, error) {
	set, err := Decode(data)
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n")) // the parser counts CRLF twice in places
	lines, mistakes := locate(data)
	if err == nil {
		return set, lines, nil
	}

	// The text has no policies to look into, so its mistake is one of the whole: that of Decode.
	// Its position must be one of the text with plain line ends.
	if len(mistakes) == 0 {
		if _, plain := Decode(data); plain != nil {
			err = plain
		}
		mistakes = []error{atLine(err)}
	}

	slices.SortStableFunc(mistakes, func(a, b error) int {
		return a.(*LineError).Line - b.(*LineError).Line
	})
	return nil, lines, errors.Join(mistakes...)
}

// locate finds the policies of a text, and the mistakes in each. It finds no mistake in a
// text that has no list of policies.
func locate(data []byte) (lines *Lines, mistakes []error) {
	lines = &Lines{tables: map[string]string{}}
	if len(data) > MaxBytes || !utf8.Valid(data) {
		return lines, nil
	}

	defer func() {
		if v := recover(); v != nil { // no text may end the program that reads it
			lines, mistakes = &Lines{}, nil
		}
	}()

	// Without a tree nothing can be located, and Decode reports the mistake.
	body, err := parse(strings.TrimPrefix(string(data), "\ufeff"))
	if err != nil {
		return lines, nil
	}

	tables := tablesOf(body)
	lines.plans = tables.place
	for _, pair := range pairsOf(body) {
		list, ok := pair.Value.(*ast.SequenceNode)
		switch name := pair.Key.GetToken().Value; {
		case name == "plans":
			continue
		case name != "policies":
			unknown := fmt.Errorf("the field %q is not known", textform.Clip(name))
			mistakes = append(mistakes, spotOf(pair.Key).mistake(unknown))
			continue
		case !ok:
			continue
		}
		lines.list = spotOf(pair.Key).line

		seen := map[string]bool{}
		for _, node := range list.Values {
			mistakes = append(mistakes, lines.add(node, tables, seen)...)
		}
	}

	// What Decode refuses whatever else is wrong with it: a text without a list, and one that names
	// its tables so often.
	if lines.list == 0 && len(pairsOf(tables.body)) > 0 || tables.room < 0 {
		return lines, nil
	}
	return lines, append(mistakes, tables.mistakes()...)
}

// add adds a policy, and returns the mistakes in it.
func (l *Lines) add(node ast.Node, tables *tables, seen map[string]bool) (mistakes []error) {
	// The token of a mapping is its first colon, so the policy begins at its first key.
	p := place{at: spotOf(node), fields: map[string]spot{}}
	for _, pair := range pairsOf(node) {
		if at := spotOf(pair.Key); at.before(p.at) {
			p.at = at
		}
	}

	p.collect("", node)
	l.policies = append(l.policies, p)
	i := len(l.policies) - 1

	// The policy is decoded as a set of its own, so that its mistakes are not mixed with those of
	// others. It has the table that it names, whose mistakes are not its own.
	head := tables.headFor(node)
	entry, err := appendNode(append(head, `"policies":[`...), node)
	if err != nil {
		return []error{atLine(err)}
	}
	set, err := policy.DecodeJSON(append(entry, "]}"...))
	for _, e := range split(err) {
		if tableField(e) == "" {
			mistakes = append(mistakes, l.mistake(i, e))
		}
	}

	// Only the whole list shows that a name is repeated.
	name := nameOf(node, set)
	if l.tables[name] = tableOf(node); l.tables[name] == "" {
		delete(l.tables, name)
	}
	if l.policies[i].name = name; seen[name] {
		mistakes = append(mistakes, l.spotOf(i, "name").mistake(
			&policy.FieldError{Policy: name, Field: "name", Err: errors.New("another policy has the same name")}))
	}

	seen[name] = name != ""
	return mistakes
}

// unknownField finds the field in the mistakes of package strictjson and of encoding/json.
var unknownField = regexp.MustCompile(
	`unknown field "(.*)"|the field "(.*)" is|^json: (\S+): unexpected|^(\S+): unexpected`)

// mistake returns a mistake in the i-th policy with its line.
func (l *Lines) mistake(i int, err error) error {
	var field *policy.FieldError
	if errors.As(err, &field) {
		return l.spotOf(i, field.Field).mistake(field)
	}

	if inner := errors.Unwrap(err); inner != nil {
		err = inner // without the place in a list of one
	}

	at := l.policies[i].at
	if m := unknownField.FindStringSubmatch(err.Error()); m != nil {
		at = l.spotOf(i, strings.Join(m[1:], ""))
	}
	return at.mistake(errors.New(strings.TrimPrefix(err.Error(), "json: ")))
}

// collect keeps the lines of the fields of a node.
func (p *place) collect(path string, node ast.Node) {
	for _, pair := range pairsOf(node) {
		name := path + pair.Key.GetToken().Value
		p.fields[name] = spotOf(pair.Key)
		p.collect(name+".", pair.Value)
	}
}

// nameOf returns the name of a policy, also of one with mistakes.
func nameOf(node ast.Node, set policy.Set) string {
	if len(set) == 1 {
		return set[0].Name
	}
	for _, pair := range pairsOf(node) {
		if name, ok := pair.Value.(*ast.StringNode); ok && pair.Key.GetToken().Value == "name" {
			return name.Value
		}
	}
	return ""
}

// pairsOf returns the fields of an object, and none of another node.
func pairsOf(node ast.Node) []*ast.MappingValueNode {
	switch n := node.(type) {
	case *ast.MappingNode:
		return n.Values
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}
	}
	return nil
}

func spotOf(node ast.Node) spot {
	at := node.GetToken().Position
	return spot{at.Line, at.Column}
}

// before reports whether s stands before other in the text.
func (s spot) before(other spot) bool {
	return s.line < other.line || s.line == other.line && s.column < other.column
}

// mistake returns a mistake that stands there.
func (s spot) mistake(err error) *LineError { return &LineError{s.line, s.column, err} }

var position = regexp.MustCompile(`^\[(\d+):(\d+)\] `)

// atLine moves the position in the text of an error, or else the first line, to the front.
func atLine(err error) error {
	text := strings.TrimPrefix(err.Error(), "policy: ")
	if m := position.FindStringSubmatch(text); m != nil {
		line, bad := strconv.Atoi(m[1])
		column, bad2 := strconv.Atoi(m[2])
		if bad == nil && bad2 == nil {
			return &LineError{line, column, errors.New(text[len(m[0]):])}
		}
	}
	return &LineError{Line: 1, Err: errors.New(text)}
}

// split returns the errors that err joins, at any depth.
func split(err error) (list []error) {
	joined, ok := err.(interface{ Unwrap() []error })
	switch {
	case err == nil:
		return nil
	case !ok:
		return []error{err}
	}
	for _, e := range joined.Unwrap() {
		list = append(list, split(e)...)
	}
	return list
}
