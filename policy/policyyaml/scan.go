// This file checks tokens before they reach the parser.

package policyyaml

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/goccy/go-yaml/token"

	"github.com/headgate/headgate/internal/textform"
)

const (
	// maxDepth is more than the depth of any valid set.
	maxDepth = 8

	// maxIndent is more than the deepest field of a set needs.
	maxIndent = 100

	// maxFields is more than the fields of a policy, or the entries of a list in
	// one line.
	maxFields = 200
)

// checkTokens refuses syntax that a set of policies does not need, and input that
// could exhaust the parser: deep nesting, and many fields or empty fields in one
// object, on which the parser spends quadratic time.
func checkTokens(tokens token.Tokens) error {
	s := scan{first: true}
	for _, t := range tokens {
		if t.Type == token.CommentType {
			continue
		}

		err := s.take(t)
		switch {
		case err != nil:
		case s.fields > maxFields:
			err = fmt.Errorf("there are more than %d fields", maxFields)
		case s.depth > maxDepth || len(s.blocks) > maxDepth || t.Position.IndentNum > maxIndent:
			err = fmt.Errorf("the nesting is deeper than %d", maxDepth)
		}

		if err != nil {
			return withPosition(t, err)
		}
		s.before, s.first = t.Type, false
	}
	return nil
}

// scan is the state of a check of tokens.
type scan struct {
	first  bool
	before token.Type
	last   *token.Token // of any type
	key    *token.Token // the token before the last colon
	depth  int          // of brackets
	object [maxDepth + 2]bool
	valued [maxDepth + 2]bool // the field of the object has a colon

	// The fields of the object that is open at each depth of brackets, or the entries of a list
	// since the last one in brackets.
	inline [maxDepth + 2]int

	blocks []block // the objects in block style that are open, each within the one before
	fields int     // of the object or list that the token belongs to
}

// block is an object in block style.
type block struct{ column, fields int }

var (
	errNoValue    = errors.New("the field before has no value")
	errEmptyEntry = errors.New("an entry of a list is empty or is itself a list")
)

func (s *scan) take(t *token.Token) error {
	if s.endsEmpty(t) {
		return errNoValue
	}

	switch t.Type {
	case token.DocumentHeaderType:
		if !s.first {
			return fmt.Errorf("%q is not understood here", t.Value)
		}
	case token.AnchorType, token.AliasType, token.MergeKeyType, token.TagType, token.DirectiveType,
		token.MappingKeyType, token.DocumentEndType:
		return fmt.Errorf("%q is not understood here", textform.Clip(t.Value))
	case token.SequenceStartType, token.MappingStartType:
		s.depth = min(s.depth, maxDepth) + 1
		s.inline[s.depth] = 0
		s.object[s.depth], s.valued[s.depth] = t.Type == token.MappingStartType, false
	case token.SequenceEndType, token.MappingEndType:
		s.depth = max(0, s.depth-1)
		if !s.object[s.depth] {
			s.inline[s.depth] = 0
		}
	case token.CollectEntryType:
		s.valued[s.depth] = false
		s.count(t)
	case token.SequenceEntryType:
		if s.before == token.SequenceEntryType {
			return errEmptyEntry
		}
		s.close(t.Position.Column)
	case token.MappingValueType:
		s.key, s.valued[s.depth] = s.last, true
		s.count(cmp.Or(s.last, t))
	}

	s.last = t
	return nil
}

// count counts a field, whose name is t unless it is in brackets, or an entry in brackets.
func (s *scan) count(t *token.Token) {
	if s.depth > 0 {
		s.inline[s.depth]++
		s.fields = s.inline[s.depth]
		return
	}

	column := t.Position.Column
	s.close(column)
	last := len(s.blocks) - 1
	if last < 0 || s.blocks[last].column < column {
		s.blocks = append(s.blocks, block{column: column})
		last++
	}
	s.blocks[last].fields++
	s.fields = s.blocks[last].fields
}

// close ends the objects in block style whose fields stand behind the column.
func (s *scan) close(column int) {
	for len(s.blocks) > 0 && s.blocks[len(s.blocks)-1].column > column {
		s.blocks = s.blocks[:len(s.blocks)-1]
	}
}

// endsEmpty reports whether t ends a field that has no value.
func (s *scan) endsEmpty(t *token.Token) bool {
	switch t.Type {
	case token.InvalidType:
		return false
	case token.MappingEndType, token.CollectEntryType:
		return s.before == token.MappingValueType ||
			s.object[s.depth] && !s.valued[s.depth] && s.before != token.MappingStartType
	}

	// In block style a field is empty if the next token stands in a later line and no deeper.
	if s.before != token.MappingValueType || s.key == nil || t.Position.Line == s.key.Position.Line {
		return false
	}

	// A list may stand at the same column as its field.
	list := t.Type == token.SequenceEntryType
	return t.Position.Column < s.key.Position.Column || t.Position.Column == s.key.Position.Column && !list
}
