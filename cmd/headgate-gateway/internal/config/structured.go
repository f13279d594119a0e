// This file reads settings that are lists of names and values, such as upstreams.

package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// list is the value of a structured setting, and where it comes from.
type list struct {
	items []ast.Node
	from  string // a file, a variable or a flag
	name  string // of the setting
}

// listOf returns the items of a value.
func listOf(n ast.Node, from, name string) (list, error) {
	l := list{from: from, name: name}
	items, ok := n.(*ast.SequenceNode)
	if !ok {
		return l, fmt.Errorf("%s: it is not a list", l.where(n))
	}
	l.items = items.Values
	return l, nil
}

// parseList returns the items of a text in YAML, which a flag or a variable has.
func parseList(text, from, name string) (l list, err error) {
	defer func() {
		if v := recover(); v != nil { // no text may end the program that reads it
			err = fmt.Errorf("%s: it cannot be read as YAML", from)
		}
	}()

	file, err := parser.ParseBytes([]byte(text), 0)
	switch {
	case err != nil:
		return l, fmt.Errorf("%s: %s", from, strings.TrimSpace(yaml.FormatError(err, false, false)))
	case len(file.Docs) != 1 || file.Docs[0].Body == nil:
		return l, fmt.Errorf("%s: it is not a list", from)
	}

	return listOf(file.Docs[0].Body, from, name)
}

// where names the place of a node.
func (l *list) where(n ast.Node) string {
	where := l.from
	if t := n.GetToken(); t != nil && t.Position != nil {
		where += ":" + strconv.Itoa(t.Position.Line)
	}
	if where == "-"+l.name {
		return where
	}
	return where + ": " + l.name
}

// decode reads an item into a struct that into points to. A name that it does not have is a
// mistake.
func (l *list) decode(at int, into any) (err error) {
	n := l.items[at]
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%s: it cannot be read as YAML", l.where(n))
		}
	}()

	// The library knows the place of most mistakes, but names it in a form of its own.
	err = yaml.NodeToValue(n, into, yaml.Strict())
	var known yaml.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known) && known.GetToken() != nil:
		where := fmt.Sprintf("%s:%d: %s", l.from, known.GetToken().Position.Line, l.name)
		return fmt.Errorf("%s: %s", where, clip(known.GetMessage()))
	}

	return fmt.Errorf("%s: %s", l.where(n), clip(strings.TrimSpace(err.Error())))
}

// at returns an error at a field of an item, such as "health.path" or "addresses[1]", or at the
// item if it has no such field.
func (l *list) at(item int, field string, err error) error {
	n := l.items[item]
	for name := range strings.SplitSeq(field, ".") {
		name, index, isIndex := strings.Cut(strings.TrimSuffix(name, "]"), "[")
		next := child(n, name)
		if next == nil {
			break
		}
		n = next
		if items, ok := n.(*ast.SequenceNode); ok && isIndex {
			if i, err := strconv.Atoi(index); err == nil && i < len(items.Values) {
				n = items.Values[i]
			}
		}
	}

	// The names stand in the message too, as a line may have several.
	if field != "" {
		err = fmt.Errorf("%s: %w", field, err)
	}

	return fmt.Errorf("%s: %w", l.where(n), err)
}

// child returns the value of a name of an object, or nil.
func child(n ast.Node, name string) ast.Node {
	values := []*ast.MappingValueNode{}
	switch n := n.(type) {
	case *ast.MappingNode:
		values = n.Values
	case *ast.MappingValueNode:
		values = append(values, n)
	}

	for _, v := range values {
		if v.Key.GetToken().Value == name {
			return v.Value
		}
	}

	return nil
}
