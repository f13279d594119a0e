// Package strictjson checks what encoding/json lets pass: fields that are repeated or unknown,
// bytes that are not UTF-8, deep nesting, and anything after the end. [Check] checks a text, and
// [Decode] decodes one that was checked.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Step is a part of the path to a value: the name of a field, or the index in a list.
type Step struct {
	Name  string
	Index int // from 0, or -1 for a field
}

// Check returns an error about the subject, such as "the body", unless data is one JSON value in
// UTF-8 in which at most depth objects and lists are nested. It calls field, with the path of
// each field of each object, in the order of the text, and says whether a field before it in
// the same object has the same name. field must not keep the path; its error ends the check.
func Check(subject string, data []byte, depth int, field func(path []Step, repeated bool) error) error {
	if !utf8.Valid(data) {
		return errors.New(subject + " is not UTF-8")
	}
	if !json.Valid(data) {
		return syntaxError(subject, data)
	}
	w := walker{subject: subject, depth: depth, field: field}
	return w.walk(string(data))
}

// syntaxError returns why data is not JSON.
func syntaxError(subject string, data []byte) error {
	var value json.RawMessage
	switch err := json.NewDecoder(bytes.NewReader(data)).Decode(&value); {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New(subject + " ends too early")
	case err != nil:
		return fmt.Errorf("%s is not JSON: %w", subject, err)
	}
	return errors.New(subject + " goes on after its JSON value")
}

// walker finds the fields of JSON that is valid.
type walker struct {
	subject string
	depth   int
	field   func(path []Step, repeated bool) error

	open []container // the objects and lists that are open
	path []Step      // in each of them
}

// container is an object or a list.
type container struct {
	names map[string]bool // of the fields of an object so far; nil for a list
	next  bool            // the next text is the name of a field
}

func (w *walker) walk(text string) error {
	// The text is valid, so every sign has its counterpart and no index is out of range.
	for i := 0; i < len(text); i++ {
		last := len(w.open) - 1 // -1 outside of the whole value

		switch text[i] {
		case '{', '[':
			if len(w.open) == w.depth {
				return fmt.Errorf("%s is nested deeper than %d", w.subject, w.depth)
			}
			w.push(text[i] == '{')
		case '}', ']':
			w.open, w.path = w.open[:last], w.path[:last]
		case ',':
			if w.open[last].names == nil {
				w.path[last].Index++
			} else {
				w.open[last].next = true
			}
		case '"':
			// A text is the name of a field or a value. Either may hold any of the signs above, so
			// it is skipped as a whole.
			end := quoteAfter(text, i)
			if last >= 0 && w.open[last].next {
				if err := w.name(text[i : end+1]); err != nil {
					return err
				}
			}
			i = end
		}
	}

	return nil
}

// push opens an object or a list.
func (w *walker) push(object bool) {
	if object {
		w.open = append(w.open, container{map[string]bool{}, true})
		w.path = append(w.path, Step{Index: -1})
		return
	}
	w.open, w.path = append(w.open, container{}), append(w.path, Step{})
}

// name takes the name of the next field, as it is written.
func (w *walker) name(quoted string) error {
	name := quoted[1 : len(quoted)-1]

	// Two spellings of one name are one name, as for encoding/json.
	if strings.Contains(quoted, `\`) {
		var plain string // of its own, so that other names need no memory
		if err := json.Unmarshal([]byte(quoted), &plain); err != nil {
			return err
		}
		name = plain
	}

	last := len(w.open) - 1
	c := &w.open[last]
	repeated := c.names[name]
	c.next, c.names[name], w.path[last].Name = false, true, name
	return w.field(w.path, repeated)
}

// quoteAfter returns where the text ends that begins with the quote at i.
func quoteAfter(text string, i int) int {
	for i++; text[i] != '"'; i++ {
		if text[i] == '\\' {
			i++
		}
	}
	return i
}

// Decode decodes one JSON value, whose names have been checked, and refuses fields that the
// destination does not have. Its error names the place.
func Decode(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	err := d.Decode(into)

	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &kind) && kind.Field == "":
		return fmt.Errorf("unexpected %s", kind.Value)
	case kind != nil:
		return fmt.Errorf("%s: unexpected %s", kind.Field, kind.Value)
	}
	return err
}
