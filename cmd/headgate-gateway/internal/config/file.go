// This file reads the settings of a YAML file.

package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// readFile gives the settings of the file to those that have no value yet. The error
// names every mistake by its line.
func (g *given) readFile(path string, byName map[string]*setting) error {
	values, err := g.parseFile(path)
	if err != nil {
		return fmt.Errorf("-config: %s: %w", path, err)
	}

	file := filepath.Base(path)
	var errs []error
	seen := map[string]bool{}

	for _, v := range values {
		name := v.Key.GetToken().Value
		where := fmt.Sprintf("%s:%d: %s", file, v.Key.GetToken().Position.Line, clip(name))
		s := byName[name]
		switch {
		case s == nil:
			errs = append(errs, fmt.Errorf("%s: there is no such setting", where))
			continue
		case s.flagOnly:
			errs = append(errs, fmt.Errorf("%s: this is a flag alone", where))
			continue
		case seen[name]:
			errs = append(errs, fmt.Errorf("%s: it is there twice", where))
			continue
		}

		// The value is read even if a flag or the environment has precedence: a mistake in it would
		// show only on the day on which they are gone.
		seen[name] = true
		if s.setList != nil {
			l, err := listOf(v.Value, file, name)
			errs = append(errs, err)
			if err == nil {
				s.list = &l
			}
			continue
		}

		texts, err := s.texts(v.Value)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", where, err))
			continue
		}

		if len(s.given) == 0 {
			s.given, s.from = texts, where
		}
	}
	return errors.Join(errs...)
}

// parseFile returns the names and values of a file.
func (g *given) parseFile(path string) (values []*ast.MappingValueNode, err error) {
	text, err := g.read("config", path)
	if err != nil {
		return nil, err
	}

	defer func() {
		if v := recover(); v != nil { // no text may end the program that reads it
			err = errors.New("it cannot be read as YAML")
		}
	}()

	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return nil, errors.New(strings.TrimSpace(yaml.FormatError(err, false, false)))
	}
	if len(file.Docs) > 1 {
		return nil, errors.New("it has more than one document")
	}

	// A file that is empty, or has nothing but comments, is a file without settings.
	if len(file.Docs) == 0 || file.Docs[0].Body == nil {
		return nil, nil
	}

	switch n := file.Docs[0].Body.(type) {
	case *ast.MappingNode:
		return n.Values, nil
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, nil
	case *ast.CommentGroupNode:
		return nil, nil
	}
	return nil, errors.New("it is not a list of names and values")
}

// texts returns the texts of a value: one, or any number if the setting may be repeated.
func (s *setting) texts(n ast.Node) ([]string, error) {
	list, isList := n.(*ast.SequenceNode)
	if !isList {
		text, err := scalar(n)
		return []string{text}, err
	}
	if !s.isList {
		return nil, errors.New("it takes one value, not a list")
	}

	texts := []string{}
	var errs []error
	for _, v := range list.Values {
		text, err := scalar(v)
		texts, errs = append(texts, text), append(errs, err)
	}
	return texts, errors.Join(errs...)
}

// scalar returns the text of a value.
func scalar(n ast.Node) (string, error) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, nil
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, nil
	case *ast.LiteralNode:
		return strings.TrimSpace(n.Value.Value), nil
	case *ast.NullNode:
		return "", errors.New("it has no value")
	}
	return "", errors.New("it is not a text, a number, true or false")
}
