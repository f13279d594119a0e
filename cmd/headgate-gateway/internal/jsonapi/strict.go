// This file reads bodies: JSON in which nothing is repeated, unknown or of another type.

package jsonapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/strictjson"
)

const (
	// maxDepth is that of the deepest valid body: lists two objects deep in the claims of an item.
	maxDepth = 8

	// maxFaults is how many mistakes are listed.
	maxFaults = 50

	// maxInteger is the largest integer that every program reads exactly.
	maxInteger = 1<<53 - 1
)

// fault is a mistake in a body.
type fault struct {
	Pointer string `json:"pointer"` // RFC 6901
	Detail  string `json:"detail"`
}

// faults collects the mistakes in a body.
type faults struct {
	list []fault
	more bool
}

func (f *faults) add(pointer, detail string) {
	if len(f.list) == maxFaults {
		f.more = true
		return
	}
	f.list = append(f.list, fault{pointer, detail})
}

// parse reads one JSON value into maps, slices, texts, json.Numbers, truth values and nil.
// The error is about a body that is no JSON, or nested too deeply.
func parse(b []byte, f *faults) (v any, err error) {
	err = strictjson.Check("the body", b, maxDepth, func(path []strictjson.Step, repeated bool) error {
		if repeated {
			f.add(pointerTo(path), "it is repeated")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}

	// encoding/json takes the last of two fields without a word, so the check has come first.
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	err = d.Decode(&v)
	return v, err
}

// pointerTo returns the path as a JSON pointer.
func pointerTo(path []strictjson.Step) (pointer string) {
	for _, step := range path {
		if step.Index < 0 {
			pointer += "/" + escape(step.Name)
		} else {
			pointer += "/" + strconv.Itoa(step.Index)
		}
	}
	return pointer
}

// escape returns the name as a part of a JSON pointer.
func escape(name string) string {
	const longest = 100
	if len(name) > longest {
		name = strings.ToValidUTF8(name[:longest], "") + "…"
	}
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}

// object is a JSON object that is being read.
type object struct {
	fields map[string]any
	at     string // its pointer
	f      *faults
	known  []string
}

// readObject returns v as an object. It is empty if v is none.
func readObject(v any, at string, f *faults) *object {
	fields, ok := v.(map[string]any)
	if !ok {
		f.add(at, "it is not an object")
	}
	return &object{fields: fields, at: at, f: f}
}

// get returns a field, and reports whether it is there.
func (o *object) get(name string) (v any, at string, ok bool) {
	o.known = append(o.known, name)
	v, ok = o.fields[name]
	return v, o.at + "/" + escape(name), ok
}

// has reports whether the field is there.
func (o *object) has(name string) bool {
	_, ok := o.fields[name]
	return ok
}

// text returns a text of at most max bytes, or "" if it is missing.
func (o *object) text(name string, max int) string {
	v, at, ok := o.get(name)
	if !ok {
		return ""
	}
	return readText(v, at, max, o.f)
}

func readText(v any, at string, max int, f *faults) string {
	s, ok := v.(string)
	switch {
	case !ok:
		f.add(at, "it is not a text")
	case len(s) > max:
		f.add(at, fmt.Sprintf("it is longer than %d bytes", max))
	case strings.ContainsRune(s, utf8.RuneError): // which encoding/json puts in place of half a character
		f.add(at, "it has half a character, or U+FFFD")
	default:
		return s
	}
	return ""
}

// integer returns a whole number from 0 on, or missing if it is not there.
func (o *object) integer(name string, missing int64) int64 {
	v, at, ok := o.get(name)
	if !ok {
		return missing
	}
	return readInteger(v, at, o.f)
}

// requiredText is text for a field that must be there.
func (o *object) requiredText(name string, max int) string {
	o.require(name)
	return o.text(name, max)
}

// requiredInteger is integer for a field that must be there.
func (o *object) requiredInteger(name string) int64 {
	o.require(name)
	return o.integer(name, 0)
}

// require lists the field as a mistake if it is missing.
func (o *object) require(name string) {
	if !o.has(name) {
		o.f.add(o.at+"/"+escape(name), "it is missing")
	}
}

func readInteger(v any, at string, f *faults) int64 {
	n, ok := v.(json.Number)
	if ok {
		if i, err := strconv.ParseInt(n.String(), 10, 64); err == nil && i >= 0 && i <= maxInteger {
			return i
		}
	}
	f.add(at, "it is not a whole number from 0 to 2^53 - 1")
	return 0
}

// unusedFields lists the fields that nothing has asked for.
func (o *object) unusedFields() {
	for _, name := range slices.Sorted(maps.Keys(o.fields)) {
		if !slices.Contains(o.known, name) {
			o.f.add(o.at+"/"+escape(name), "it is not known")
		}
	}
}
