// This file has the tables of a match: of headers, of parameters of the query, and of claims.

package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/textform"
)

const (
	// MaxNames is the maximum number of names in each of Match.Headers, Match.Query and
	// Match.Claims.
	MaxNames = 8

	// maxValues is the maximum number of Values, and maxMatchText the maximum length in bytes of
	// one, and of a name.
	maxValues    = 16
	maxMatchText = 256

	// anyValue stands for all values.
	anyValue = "*"
)

// Values are the texts of which a request must have one; "*" alone stands for any. In JSON and YAML
// they are a text, or a list of texts. A number and a boolean are read as their text.
type Values []string

// MarshalJSON writes a single value as a text, and others as a list.
func (v Values) MarshalJSON() ([]byte, error) { return json.Marshal(v.written()) }

// MarshalYAML returns a text or a list, for encoders of YAML.
func (v Values) MarshalYAML() (any, error) { return v.written(), nil }

func (v Values) written() any {
	if len(v) == 1 {
		return v[0]
	}
	return []string(v)
}

// UnmarshalJSON reads a text or a list. The values are not checked; see [Policy.Validate].
func (v *Values) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var value any
	if err := d.Decode(&value); err != nil {
		return err
	}
	return v.read(value)
}

// UnmarshalYAML reads a text or a list, for decoders of YAML.
func (v *Values) UnmarshalYAML(decode func(any) error) error {
	var value any
	if err := decode(&value); err != nil {
		return err
	}
	return v.read(value)
}

// read reads a decoded text or list.
func (v *Values) read(value any) error {
	list, isList := value.([]any)
	if !isList {
		list = []any{value}
	}

	// A number of JSON is its text, and so is a number of YAML.
	*v = make(Values, 0, len(list))
	for _, one := range list {
		switch one.(type) {
		case nil, []any, map[string]any:
			kind := map[bool]string{true: "null", false: "list or object"}[one == nil]
			return &json.UnmarshalTypeError{Value: kind, Type: reflect.TypeFor[string]()}
		}
		*v = append(*v, fmt.Sprint(one))
	}
	return nil
}

// String returns the values as text, such as "csv or xlsx".
func (v Values) String() string {
	if len(v) == 0 {
		return ""
	}
	return list(v, "or")
}

// isAny reports whether every value is meant.
func (v Values) isAny() bool { return len(v) == 1 && v[0] == anyValue }

// tableWords returns, say, "the header X-Plan: free or trial", for each name of a table.
func tableWords(noun string, table map[string]Values, spelled func(string) string) (words []string) {
	for _, name := range slices.Sorted(maps.Keys(table)) {
		word := noun + " " + spelled(name)
		if values := table[name]; !values.isAny() {
			word += ": " + values.String()
		}
		words = append(words, word)
	}
	return words
}

// asIs is the spelling of names whose case matters.
func asIs(name string) string { return name }

// checkTable checks a table of a match. spelled returns the only spelling of a name, and nouns is
// what the names are called.
func checkTable(table map[string]Values, nouns string, spelled func(string) string, check func(string) error) error {
	if len(table) > MaxNames {
		return fmt.Errorf("%d %s are more than %d", len(table), nouns, MaxNames)
	}

	var errs []error
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		if err := check(name); err != nil {
			errs = append(errs, err)
			continue
		}

		one := spelled(name)
		if seen[one] {
			errs = append(errs, fmt.Errorf("the %s %s is named twice", strings.TrimSuffix(nouns, "s"), one))
		}
		seen[one] = true
		errs = append(errs, table[name].check(textform.Clip(one)))
	}
	return errors.Join(errs...)
}

// check returns everything that is wrong with the values of a name.
func (v Values) check(name string) error {
	if len(v) == 0 {
		return fmt.Errorf("%s has no value; write %q for any", name, anyValue)
	}
	if len(v) > maxValues {
		return fmt.Errorf("the %d values of %s are more than %d", len(v), name, maxValues)
	}

	var errs []error
	for i, value := range v {
		switch err := textform.Check(value, maxMatchText); {
		case err != nil:
			errs = append(errs, fmt.Errorf("the value of %s: %w", name, err))
		case value == "":
			errs = append(errs, fmt.Errorf("the value of %s is empty; write %q for any", name, anyValue))
		case !isPlain(value):
			errs = append(errs, fmt.Errorf("the value of %s has space at an end, or a line break or tab", name))
		case slices.Contains(v[:i], value):
			errs = append(errs, fmt.Errorf("the value %q of %s is named twice", textform.Clip(value), name))
		case value == anyValue && len(v) > 1:
			errs = append(errs, fmt.Errorf("%q of %s stands for any value; leave the others out", anyValue, name))
		}
	}
	return errors.Join(errs...)
}

// isPlain reports whether a text has no space at an end, and no line break or tab.
func isPlain(text string) bool {
	return strings.TrimSpace(text) == text && !strings.ContainsAny(text, "\r\n\t")
}

// checkTableName checks a name that may be any text.
func checkTableName(noun string) func(string) error {
	return func(name string) error {
		switch err := textform.Check(name, maxMatchText); {
		case err != nil:
			return fmt.Errorf("the name of a %s: %w", noun, err)
		case name == "":
			return fmt.Errorf("the name of a %s is empty", noun)
		case !isPlain(name):
			return fmt.Errorf("the name %q of a %s has space at an end, or a line break or tab",
				textform.Clip(name), noun)
		}
		return nil
	}
}
