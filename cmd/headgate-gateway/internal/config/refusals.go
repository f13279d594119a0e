// This file reads the refusals of the configuration.

package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/headgate/headgate/cmd/headgate-gateway/internal/refusal"
)

// writtenRefusal is a refusal as the file has it.
type writtenRefusal struct {
	Policy  string            `yaml:"policy"`
	Status  int               `yaml:"status"`
	Type    string            `yaml:"type"`
	Body    string            `yaml:"body"`
	File    string            `yaml:"file"`
	Headers map[string]string `yaml:"headers"`
}

// types are those of files, by the end of their names.
var types = map[string]string{
	".html": "text/html; charset=utf-8", ".json": "application/json", ".txt": "text/plain; charset=utf-8",
	".xml": "application/xml",
}

// setRefusals checks the refusals of a list and keeps them.
func (g *given) setRefusals(l list) error {
	var errs []error
	var options []refusal.Options
	for i := range l.items {
		var w writtenRefusal
		if err := l.decode(i, &w); err != nil {
			errs = append(errs, err)
			continue
		}

		// A file says its type by its name, unless the type is written beside it.
		o := refusal.Options{Policy: w.Policy, Status: w.Status, Type: w.Type, Body: w.Body, Headers: w.Headers}
		if w.File != "" {
			text, err := g.read(l.name, w.File)
			if w.Body != "" {
				err = errors.Join(err, errors.New("body is there too"))
			}
			if err != nil {
				errs = append(errs, l.at(i, "file", err))
			}
			o.Body = string(text)
			if o.Type == "" {
				o.Type = types[strings.ToLower(filepath.Ext(w.File))]
			}
		}
		options = append(options, o)
	}

	// What cannot be read is not compared with the others.
	if err := errors.Join(errs...); err != nil {
		return err
	}

	book, err := refusal.New(options)
	if err == nil && len(options) > 0 {
		g.Refusals = book
	}

	return placedRefusals(l, err)
}

// placedRefusals returns the errors of refusal.New with their lines.
func placedRefusals(l list, err error) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var errs []error
		for _, e := range joined.Unwrap() {
			errs = append(errs, placedRefusals(l, e))
		}
		return errors.Join(errs...)
	}

	var in *refusal.FieldError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &in):
		return l.at(in.At, in.Field, in.Err)
	}

	return fmt.Errorf("%s: %s: %w", l.from, l.name, err)
}
