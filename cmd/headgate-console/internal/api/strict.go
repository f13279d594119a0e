package api

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/strictjson"
)

// maxDepth is more than the depth of any valid body.
const maxDepth = 8

// decodeStrictly reads one JSON object into the struct that into points to. Unlike
// encoding/json it refuses fields that are unknown, repeated or in another case,
// bytes that are not UTF-8, and anything after the end. It lists every wrong
// field, not only the first.
func decodeStrictly(b []byte, into any) error {
	if halfCharacter(b) {
		return malformed("the body is not UTF-8")
	}

	// Fields that are repeated are collected here: encoding/json would take the last one.
	var repeated []fault
	if err := strictjson.Check("the body", b, maxDepth, func(path []strictjson.Step, again bool) error {
		if again {
			repeated = append(repeated, fault{Field: clip(fieldAt(path)), Message: "it is repeated"})
		}
		return nil
	}); err != nil {
		return malformed(err.Error())
	}

	if list := append(repeated, fill(b, reflect.ValueOf(into).Elem(), "")...); len(list) > 0 {
		return invalid(list...)
	}
	return nil
}

// halfCharacter reports whether a text of JSON escapes one half of a UTF-16 pair
// without the other, which encoding/json would replace.
func halfCharacter(b []byte) bool {
	for i := 0; i+1 < len(b); i++ {
		if b[i] != '\\' {
			continue
		}

		// The character behind a backslash is skipped: of two backslashes the second begins no
		// escape.
		i++
		first := escaped(b[i:])
		if !utf16.IsSurrogate(first) {
			continue
		}

		// The second half has to follow at once, as an escape of its own.
		if i+5 >= len(b) || b[i+5] != '\\' || utf16.DecodeRune(first, escaped(b[i+6:])) == utf8.RuneError {
			return true
		}

		i += 10
	}
	return false
}

// escaped returns the character of "u" and four hexadecimal digits, or 0.
func escaped(b []byte) rune {
	if len(b) < 5 || b[0] != 'u' {
		return 0
	}
	n, err := strconv.ParseUint(string(b[1:5]), 16, 16)
	if err != nil {
		return 0
	}
	return rune(n)
}

// fieldAt returns the name of the field at a path, without the places in lists.
func fieldAt(path []strictjson.Step) (field string) {
	for _, step := range path {
		if step.Index < 0 {
			field = join(field, step.Name)
		}
	}
	return field
}

// fill decodes an object into a struct, and returns the mistakes in its fields.
func fill(b []byte, into reflect.Value, prefix string) (list []fault) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(b, &object); err != nil || object == nil {
		return []fault{{Field: clip(prefix), Message: "it is not a JSON object"}}
	}

	fields := map[string]reflect.Value{}
	for _, f := range reflect.VisibleFields(into.Type()) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); !f.Anonymous {
			fields[name] = into.FieldByIndex(f.Index)
		}
	}

	for _, key := range sortedKeys(object) {
		// An object within is read in the same strict way. Any other value is left to
		// encoding/json.
		name, f := join(prefix, key), fields[key]
		switch {
		case !f.IsValid():
			list = append(list, fault{Field: clip(name), Message: "the field is not known"})
		case f.Kind() == reflect.Struct:
			list = append(list, fill(object[key], f, name)...)
		default:
			if err := json.Unmarshal(object[key], f.Addr().Interface()); err != nil {
				list = append(list, fault{Field: name, Message: "it is not " + kindOf(f.Type())})
			}
		}
	}

	return list
}

// kindOf returns the kind of value that a field takes, in words.
func kindOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a text"
	case reflect.Int, reflect.Int64:
		return "a whole number that fits"
	case reflect.Bool:
		return "true or false"
	case reflect.Map:
		return "an object of texts"
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Struct {
			return "a list of objects as they are described"
		}
	}
	return "a list of texts"
}

func join(prefix, key string) string {
	if prefix == "" {
		return key
	}
	return prefix + "." + key
}
