// This file reads and writes policies in JSON.

package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/textform"
)

// MaxBytes is the maximum size in bytes of a set of policies in JSON.
const MaxBytes = 4 << 20

// maxDepth is more than the depth of any valid set.
const maxDepth = 8

type document struct {
	Policies []json.RawMessage `json:"policies"`
}

// DecodeJSON reads what [EncodeJSON] writes: an object of "policies", a list of
// [Policy]. It is strict: unknown or repeated fields, repeated names, a missing
// list, bytes after the end, and more than [MaxBytes] or [MaxPolicies] are errors.
// A byte order mark before the text is ignored. Every policy of the result is valid. The
// error joins everything that is wrong, each mistake in a policy as a [*FieldError]
// wherever its field is known.
func DecodeJSON(data []byte) (Set, error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if err := checkJSON(data); err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	var d document
	if err := strictly(data, &d); err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	if d.Policies == nil {
		return nil, errors.New(`policy: there is no list of "policies"; write [] for none`)
	}
	if len(d.Policies) > MaxPolicies {
		return nil, fmt.Errorf("policy: %d policies are more than %d", len(d.Policies), MaxPolicies)
	}
	return readAll(d.Policies)
}

func readAll(raw []json.RawMessage) (Set, error) {
	set := make(Set, 0, len(raw))
	var errs []error
	seen := make(map[string]bool, len(raw))
	for i := range raw {
		var e Written
		if err := strictly(raw[i], &e); err != nil {
			errs = append(errs, fmt.Errorf("policy %d %q: %w", i, textform.Clip(e.Name), err))
			continue
		}
		p, err := e.Policy()
		if err != nil {
			errs = append(errs, err)
		}
		if seen[p.Name] {
			errs = append(errs, &FieldError{p.Name, "name", errSameName})
		}
		seen[p.Name] = true
		set = append(set, p)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return set, nil
}

// strictly decodes JSON whose keys have been checked.
func strictly(data []byte, into any) error {
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

// checkJSON refuses input that encoding/json would accept: a key that is repeated
// in an object or differs in case from its field, bytes that are not UTF-8, and
// anything after the end. It refuses deep nesting too.
func checkJSON(data []byte) error {
	if len(data) > MaxBytes {
		return fmt.Errorf("%d bytes are more than %d", len(data), MaxBytes)
	}
	if !utf8.Valid(data) {
		return errors.New("the text is not UTF-8")
	}
	if !json.Valid(data) {
		return syntaxError(data)
	}
	return checkNames(string(data))
}

// syntaxError returns why data is not JSON.
func syntaxError(data []byte) error {
	var value json.RawMessage
	switch err := json.NewDecoder(bytes.NewReader(data)).Decode(&value); {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the text ends too early")
	case err != nil:
		return err
	}
	return errors.New("there is something after the end")
}

// container is an object or a list.
type container struct {
	names    map[string]bool // of the fields of an object so far; nil for a list
	next     bool            // the next text is the name of a field
	last     string          // the name of the last field
	anyNames bool            // the names of the fields are checked with the policy
}

// checkNames checks the names of all fields, and the depth, of JSON that is valid.
func checkNames(text string) error {
	var path []container // that are open
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '{', '[':
			if len(path) == maxDepth {
				return fmt.Errorf("the nesting is deeper than %d", maxDepth)
			}
			path = opened(path, text[i] == '{')
		case '}', ']':
			path = path[:len(path)-1]
		case ',':
			path[len(path)-1].next = path[len(path)-1].names != nil
		case '"':
			end := quoteAfter(text, i)
			if len(path) > 0 && path[len(path)-1].next {
				if err := path[len(path)-1].name(text[i : end+1]); err != nil {
					return err
				}
			}
			i = end
		}
	}
	return nil
}

// opened adds an object or a list to a path.
func opened(path []container, object bool) []container {
	var c container
	if object {
		c.names, c.next = map[string]bool{}, true
		if n := len(path); n > 0 && !path[n-1].anyNames {
			c.anyNames = path[n-1].last == "plans" || path[n-1].last == "overrides"
		}
	}
	return append(path, c)
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

// name takes the name of the next field, as it is written.
func (c *container) name(quoted string) error {
	c.next, c.last = false, quoted[1:len(quoted)-1]
	if strings.Contains(quoted, `\`) {
		if err := json.Unmarshal([]byte(quoted), &c.last); err != nil {
			return err
		}
	}
	return checkKey(c.last, c.names, c.anyNames)
}

// checkKey checks the name of a field. Those of plans and overridden keys are checked with the policy.
func checkKey(key string, seen map[string]bool, plan bool) error {
	if seen[key] {
		return fmt.Errorf("the field %q is repeated", textform.Clip(key))
	}
	seen[key] = true
	if plan {
		return nil
	}
	for i := range len(key) {
		if (key[i] < 'a' || key[i] > 'z') && key[i] != '_' {
			return fmt.Errorf("the field %q is not known", textform.Clip(key))
		}
	}
	return nil
}

// EncodeJSON writes a valid set as indented JSON, ordered by name, so that equal
// sets have equal texts. [DecodeJSON] reads it.
func EncodeJSON(s Set) ([]byte, error) {
	entries, err := s.entries()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(map[string][]Written{"policies": entries}); err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	if b.Len() > MaxBytes {
		return nil, fmt.Errorf("policy: %d bytes are more than %d", b.Len(), MaxBytes)
	}
	return b.Bytes(), nil
}
