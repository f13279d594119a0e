// Package policyyaml reads and writes policies in YAML.
//
//	set, err := policyyaml.Decode(text)
//	if err != nil {
//		log.Fatal(err)
//	}
//	set[0].Limit = core.MustParseLimit("10/1m sliding-log")
//	text, err = policyyaml.Encode(set)
//
// Both are about a [policy.Set]. [DecodeLines] also returns [Lines], which say in which lines of
// the text the policies are, and a mistake in the text is a [LineError]. The package is one of its
// own so that package policy does not depend on a parser of YAML.
package policyyaml

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/policy"
)

// MaxBytes is the maximum size in bytes of a set of policies in YAML. It is less than
// [policy.MaxBytes], as the parser needs about a hundred times the memory of the
// text.
const MaxBytes = 1 << 20

// Decode reads the output of [Encode], and YAML that people write: one document,
// without anchors, aliases, tags and directives, with or without a byte order mark.
// It is as strict as [policy.DecodeJSON], and its errors have the same form.
func Decode(data []byte) (policy.Set, error) {
	if len(data) > MaxBytes {
		return nil, fmt.Errorf("policy: %d bytes are more than %d", len(data), MaxBytes)
	}
	if !utf8.Valid(data) {
		return nil, errors.New("policy: the text is not UTF-8")
	}

	value, err := readYAML(strings.TrimPrefix(string(data), "\ufeff"))
	if err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	return policy.DecodeJSON(value)
}

// readYAML turns YAML into JSON. It turns a panic of the parser into an error, as
// no text may end the program that reads it.
func readYAML(text string) (value []byte, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = errors.New("the text cannot be read as YAML")
		}
	}()

	body, err := parse(text)
	if err != nil {
		return nil, err
	}
	return appendNode(nil, body)
}

// parse returns the only document of a text.
func parse(text string) (ast.Node, error) {
	tokens := lexer.Tokenize(text)
	if err := checkTokens(tokens); err != nil {
		return nil, err
	}

	file, err := parser.Parse(tokens, 0)
	if err != nil {
		return nil, errors.New(yaml.FormatError(err, false, false))
	}

	if len(file.Docs) == 0 || file.Docs[0].Body == nil {
		return nil, errors.New("there is nothing in it")
	}
	return file.Docs[0].Body, nil
}

// withPosition puts the position before the error, in the form of the parser's own errors.
func withPosition(t *token.Token, err error) error {
	return fmt.Errorf("[%d:%d] %w", t.Position.Line, t.Position.Column, err)
}

// appendNode writes a node as JSON.
func appendNode(b []byte, n ast.Node) ([]byte, error) {
	switch n := n.(type) {
	case *ast.MappingNode:
		return appendMapping(b, n.Values)
	case *ast.MappingValueNode:
		return appendMapping(b, []*ast.MappingValueNode{n})
	case *ast.SequenceNode:
		return appendSequence(b, n.Values)
	case *ast.StringNode:
		return appendText(b, n.Value)
	case *ast.LiteralNode:
		return appendText(b, n.Value.Value)
	case *ast.IntegerNode:
		return fmt.Append(b, n.Value), nil
	case *ast.BoolNode:
		return fmt.Append(b, n.Value), nil
	case *ast.NullNode:
		return append(b, "null"...), nil
	case *ast.FloatNode:
		return appendFraction(b, n.GetToken().Value)
	}
	return nil, withPosition(n.GetToken(), fmt.Errorf("%q is not understood here", textform.Clip(n.GetToken().Value)))
}

// appendFraction writes a number with a point as it is, as no float could hold each of them. Other
// numbers that YAML knows become texts, which no field takes.
func appendFraction(b []byte, text string) ([]byte, error) {
	if whole, fraction, _ := strings.Cut(text, "."); !isDigits(whole) || !isDigits(fraction) ||
		!json.Valid([]byte(text)) {
		return appendText(b, text)
	}
	return append(b, text...), nil
}

func isDigits(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r < '0' || r > '9' })
}

func appendMapping(b []byte, pairs []*ast.MappingValueNode) (_ []byte, err error) {
	b = append(b, '{')
	for i, pair := range pairs {
		if i > 0 {
			b = append(b, ',')
		}

		// Every field of a policy has a name that YAML reads as a text.
		key, ok := pair.Key.(*ast.StringNode)
		if !ok {
			return nil, withPosition(pair.Key.GetToken(), fmt.Errorf("the field %q is not known",
				textform.Clip(pair.Key.GetToken().Value)))
		}

		if b, err = appendText(b, key.Value); err != nil {
			return nil, err
		}
		if b, err = appendNode(append(b, ':'), pair.Value); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

func appendSequence(b []byte, values []ast.Node) (_ []byte, err error) {
	b = append(b, '[')
	for i, v := range values {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = appendNode(b, v); err != nil {
			return nil, err
		}
	}
	return append(b, ']'), nil
}

func appendText(b []byte, s string) ([]byte, error) {
	text, err := json.Marshal(s)
	return append(b, text...), err
}
