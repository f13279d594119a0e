// This file reads files of policies, and finds the place of every mistake.

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/policyyaml"
)

// finding is a mistake in a file of policies, or a part of it that no request may ever meet.
type finding struct {
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
	Kind   string `json:"kind"` // mistake or never
	Text   string `json:"text"`
}

// The kinds of findings.
const (
	mistake = "mistake"
	never   = "never"
)

// policyFile is a file of policies that has been read.
type policyFile struct {
	name     string
	data     []byte
	json     bool
	set      policy.Set
	lines    *policyyaml.Lines
	findings []finding
}

// readPolicies reads a file of policies, "-" for the standard input. The error says that it cannot
// be read at all; mistakes in it are findings.
func (e *env) readPolicies(name string) (*policyFile, error) {
	p := &policyFile{name: name, json: strings.EqualFold(filepath.Ext(name), ".json")}

	// The standard input is YAML, which JSON nearly always is too.
	in := e.in
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}

	// More than this is a mistake that the decoder reports.
	var err error
	if p.data, err = io.ReadAll(io.LimitReader(in, policy.MaxBytes+1)); err != nil {
		return nil, err
	}

	// Findings of several readers come in the order of the text.
	p.decode()
	slices.SortStableFunc(p.findings, func(a, b finding) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return p, nil
}

// decode finds the policies, and all that is wrong with them.
func (p *policyFile) decode() {
	text := p.data
	if p.json {
		// A tab is a space in JSON, and a mistake in YAML, which finds the places of both.
		text = bytes.ReplaceAll(p.data, []byte("\t"), []byte(" "))
		_, err := policy.DecodeJSON(p.data)
		var syntax *json.SyntaxError
		if located := err == nil || p.located(text); !located || errors.As(err, &syntax) {
			p.addSyntax(err)
			if !located {
				return
			}
		}
	}

	// The reader of YAML knows the place of every mistake.
	var err error
	if p.set, p.lines, err = policyyaml.DecodeLines(text); err != nil {
		p.addAll(err)
		return
	}

	// YAML reads what JSON does not, such as a comma at the end of a list.
	if p.count(mistake) > 0 {
		p.set = nil
		return
	}

	// What only the policies together show, and what is valid and yet meets no request.
	if _, err := policy.NewIndex(p.set); err != nil {
		p.addFields(mistake, err)
	}
	for i := range p.set {
		for _, doubt := range p.set[i].Doubts() {
			p.addFields(never, doubt)
		}
	}
}

// located reports whether the mistakes of a text in JSON are found by the reader that knows lines.
func (p *policyFile) located(text []byte) bool {
	_, lines, err := policyyaml.DecodeLines(text)
	return err != nil && len(lines.Names()) > 0
}

// addSyntax adds the mistake of a text that is no JSON.
func (p *policyFile) addSyntax(err error) {
	line, column := 1, 1
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		before := p.data[:min(max(0, int(syntax.Offset)-1), len(p.data))]
		line += bytes.Count(before, []byte("\n"))
		column = len([]rune(string(before[bytes.LastIndexByte(before, '\n')+1:]))) + 1
	}
	p.add(mistake, line, column, err)
}

// addAll adds the mistakes that DecodeLines has found.
func (p *policyFile) addAll(err error) {
	for _, err := range joined(err) {
		var at *policyyaml.LineError
		if errors.As(err, &at) {
			p.add(mistake, at.Line, max(1, at.Column), at.Err)
		} else {
			p.add(mistake, 1, 1, err)
		}
	}
}

// addFields adds findings that name a policy and its field.
func (p *policyFile) addFields(kind string, err error) {
	for _, err := range joined(err) {
		line, column := 1, 1
		var field *policy.FieldError
		if errors.As(err, &field) {
			if i := slices.Index(p.lines.Names(), field.Policy); i >= 0 {
				line, column = p.lines.Line(i, field.Field), p.lines.Column(i, field.Field)
			}
		}
		p.add(kind, line, column, err)
	}
}

func (p *policyFile) add(kind string, line, column int, err error) {
	text := strings.TrimPrefix(textform.Line(err), "policy: ")
	p.findings = append(p.findings, finding{p.name, line, column, kind, text})
}

// joined returns the errors that err joins, or err alone.
func joined(err error) []error {
	if list, ok := err.(interface{ Unwrap() []error }); ok {
		return list.Unwrap()
	}
	return []error{err}
}

// count returns how many findings are of the kind.
func (p *policyFile) count(kind string) (n int) {
	for i := range p.findings {
		if p.findings[i].Kind == kind {
			n++
		}
	}
	return n
}
