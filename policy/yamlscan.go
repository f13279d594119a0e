package policy

import (
	"errors"
	"fmt"

	"github.com/goccy/go-yaml/token"
	"github.com/headgate/headgate/internal/textform"
)

const (
	// maxIndent is more than anybody indents what nests as little as a set.
	maxIndent = 100

	// maxFields is more than a policy has fields or a list in one line has
	// entries.
	maxFields = 200
)

// checkTokens refuses what a set of policies has no use for, and what could
// exhaust the parser: deep nesting, and many fields of one object or many that
// are empty, of which each takes it the time of all before.
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
		case s.depth > maxDepth || t.Position.IndentNum > maxIndent:
			err = fmt.Errorf("the nesting is deeper than %d", maxDepth)
		}
		if err != nil {
			return at(t, err)
		}
		s.before, s.first = t.Type, false
	}
	return nil
}

// scan is where a check of tokens has come to.
type scan struct {
	first  bool
	before token.Type
	last   *token.Token // whatever it was
	key    *token.Token // what the last colon stands behind
	depth  int          // of brackets
	fields int          // since an object or entry began
	object [maxDepth + 2]bool
	valued [maxDepth + 2]bool // the field of the object has a colon
}

var (
	errNoValue    = errors.New("what stands before has no value")
	errEmptyEntry = errors.New("an entry of a list is empty, or a list itself")
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
		s.depth, s.fields = min(s.depth, maxDepth)+1, 0
		s.object[s.depth], s.valued[s.depth] = t.Type == token.MappingStartType, false
	case token.SequenceEndType, token.MappingEndType:
		s.depth = max(0, s.depth-1)
	case token.CollectEntryType:
		s.valued[s.depth] = false
		s.fields++
	case token.SequenceEntryType:
		if s.before == token.SequenceEntryType {
			return errEmptyEntry
		}
		s.fields = 0
	case token.MappingValueType:
		s.key, s.valued[s.depth] = s.last, true
		s.fields++
	}
	s.last = t
	return nil
}

// endsEmpty tells that t ends a field that has no value.
func (s *scan) endsEmpty(t *token.Token) bool {
	switch t.Type {
	case token.InvalidType:
		return false
	case token.MappingEndType, token.CollectEntryType:
		return s.before == token.MappingValueType ||
			s.object[s.depth] && !s.valued[s.depth] && s.before != token.MappingStartType
	}
	if s.before != token.MappingValueType || s.key == nil || t.Position.Line == s.key.Position.Line {
		return false
	}
	list := t.Type == token.SequenceEntryType
	return t.Position.Column < s.key.Position.Column || t.Position.Column == s.key.Position.Column && !list
}
