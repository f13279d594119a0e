// This file reads the input of a route into a struct: the query, or a JSON body.
//
// A body is one JSON object of bounded length. Unlike encoding/json this refuses fields that are
// unknown, repeated or in another case, bytes that are not UTF-8, and anything after the end. It
// lists every wrong field. The same holds of the parameters of a query.

package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"mime"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/internal/strictjson"
)

const (
	maxBody  = 64 << 10 // bytes of a body, unless its type says otherwise
	maxDepth = 8        // more than that of any valid body

	maxItems  = service.MaxOverrideChanges // of a list of objects
	maxFaults = 100                        // that an error lists

	mediaJSON = "application/json"
	mediaYAML = "application/yaml"
)

// read fills the struct that into points to.
func (c *call) read(into any) error {
	v := reflect.ValueOf(into).Elem()
	values, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		return malformed("the query cannot be read")
	}

	fields := map[string]field{}
	if c.route.queries() {
		fields = fieldsOf(v)
	}

	var list []fault
	for _, name := range sortedKeys(values) {
		f, known := fields[name]
		message := "the parameter is not known"
		if known {
			message = f.set(values[name])
		}
		if message != "" {
			list = append(list, fault{Field: clip(name), Message: message})
		}
	}
	if len(list) > 0 {
		return invalid(list...)
	}

	if c.route.queries() || v.NumField() == 0 {
		return nil
	}

	most := int64(maxBody)
	if m, ok := into.(interface{ maxBytes() int64 }); ok {
		// A large body is not read of an actor who may not use the API at all.
		if _, err := c.access(); err != nil {
			return err
		}
		most = m.maxBytes()
	}
	b, _, err := c.body(most, mediaJSON)
	if err != nil {
		return err
	}
	return decodeStrictly(b, v)
}

// field is a field of a struct.
type field struct {
	reflect.Value
	tag reflect.StructTag
}

// fieldsOf returns the fields of a struct by their names in JSON.
func fieldsOf(v reflect.Value) map[string]field {
	fields := map[string]field{}
	for _, f := range reflect.VisibleFields(v.Type()) {
		if name, _ := nameOf(f); name != "" {
			fields[name] = field{v.FieldByIndex(f.Index), f.Tag}
		}
	}
	return fields
}

// nullable reports whether null is a value of the field: it is a pointer, or the field is ignored.
func (f field) nullable() bool {
	return f.Kind() == reflect.Pointer || f.Type() == reflect.TypeFor[ignored]()
}

// set sets the field to a parameter of a query, and returns the mistake in it.
func (f field) set(texts []string) (mistake string) {
	enum := f.tag.Get("enum")
	switch text := texts[0]; {
	case len(texts) > 1:
		return "it is repeated"
	case text == "" && f.tag.Get("empty") == "no":
		return "it is empty"
	case text == "":
		return ""
	case !utf8.ValidString(text):
		return "it is not UTF-8"
	case enum != "" && !slices.Contains(strings.Split(enum, ","), text):
		return "it is none of " + strings.ReplaceAll(enum, ",", ", ")
	}

	// A parameter is read as its value in JSON would be.
	raw := []byte(texts[0])
	switch f.Kind() {
	case reflect.String, reflect.Struct:
		raw, _ = json.Marshal(texts[0])
	case reflect.Slice:
		raw, _ = json.Marshal(strings.Split(texts[0], ","))
	}
	err := json.Unmarshal(raw, f.Addr().Interface())

	at, dated := f.Interface().(time.Time)
	switch {
	case err != nil, string(raw) == "null", dated && at.Year() < 1970,
		f.CanInt() && f.Int() < 0, f.Kind() == reflect.Int && f.Int() > math.MaxInt32:
		return "it is not " + kindOf(f.Type())
	}
	return ""
}

// body reads a body of one of the media types, and returns it with its type.
func (c *call) body(maxBytes int64, types ...string) ([]byte, string, error) {
	media, parameters, err := mime.ParseMediaType(c.r.Header.Get("Content-Type"))
	charset, named := parameters["charset"]
	if err != nil || !slices.Contains(types, media) || named && !strings.EqualFold(charset, "utf-8") {
		return nil, "", newProblem(http.StatusUnsupportedMediaType, "media-type",
			"the Content-Type of the body has to be "+strings.Join(types, " or ")+", in UTF-8")
	}

	// A small body could become a large one when it is unpacked.
	if encoding := c.r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return nil, "", newProblem(http.StatusUnsupportedMediaType, "media-type", "the body must not be compressed")
	}

	// A body that is cut off is refused, even if what has arrived could be read.
	b, err := io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, maxBytes))
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return nil, "", newProblem(http.StatusRequestEntityTooLarge, "too-large",
			fmt.Sprintf("the body has more than %d bytes", maxBytes))
	}
	if err != nil {
		return nil, "", malformed("the body ends too early")
	}
	return b, media, nil
}

// decodeStrictly reads one JSON object into a struct.
func decodeStrictly(b []byte, into reflect.Value) error {
	return decodeBounded(b, into, func([]strictjson.Step) error { return nil })
}

// decodeBounded is decodeStrictly that ends with the first error of add, which it calls for each
// field before any value is read.
func decodeBounded(b []byte, into reflect.Value, add func(path []strictjson.Step) error) error {
	if halfCharacter(b) {
		return malformed("the body is not UTF-8")
	}

	// Fields that are repeated are collected here: encoding/json would take the last one.
	var list mistakes
	err := strictjson.Check("the body", b, maxDepth, func(path []strictjson.Step, again bool) error {
		if again {
			list.add(fieldAt(path), "it is repeated")
		}
		return add(path)
	})
	switch {
	case faultsOf(err) != nil:
		return err
	case err != nil:
		return malformed(err.Error())
	}

	if fill(b, into, "", &list); len(list) > 0 {
		return invalid(list...)
	}
	return nil
}

// mistakes are the first mistakes in a body. A last one without a field stands for all others.
type mistakes []fault

func (m *mistakes) add(field, message string) {
	switch n := len(*m); {
	case n < maxFaults:
		*m = append(*m, fault{Field: clip(field), Message: message})
	case n == maxFaults:
		*m = append(*m, fault{Message: "and more"})
	}
}

// halves finds the escapes of JSON for halves of UTF-16 pairs: whole pairs, which have 12 bytes,
// and single halves, which have 6. Of two backslashes the second begins no escape.
var halves = regexp.MustCompile(
	`\\\\|\\u[dD](?:[89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|[89a-fA-F][0-9a-fA-F]{2})`)

// halfCharacter reports whether a text of JSON escapes one half of a UTF-16 pair
// without the other, which encoding/json would replace.
func halfCharacter(b []byte) bool {
	// There may be millions of whole ones, so they are not collected.
	for at := halves.FindIndex(b); at != nil; at = halves.FindIndex(b) {
		if at[1]-at[0] == len(`\ud800`) {
			return true
		}
		b = b[at[1]:]
	}
	return false
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

// fill decodes an object into a struct, and adds the mistakes in its fields to the list.
func fill(b []byte, into reflect.Value, prefix string, list *mistakes) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(b, &object); err != nil || object == nil {
		list.add(prefix, "it is not a JSON object")
		return
	}

	fields := fieldsOf(into)
	for _, key := range sortedKeys(object) {
		// An object within is read in the same strict way, unless its type has a way of its own.
		name, f := join(prefix, key), fields[key]
		switch {
		case !f.IsValid():
			list.add(name, "the field is not known")
		case f.Kind() == reflect.Struct && !f.Addr().Type().Implements(reflect.TypeFor[json.Unmarshaler]()):
			fill(object[key], f.Value, name, list)
		case f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.Struct:
			fillList(object[key], f.Value, name, list)
		case string(object[key]) == "null" && !f.nullable():
			list.add(name, "it is null")
		default:
			if err := json.Unmarshal(object[key], f.Addr().Interface()); err != nil {
				list.add(name, "it is not "+kindOf(f.Type()))
			}
		}
	}
}

// fillList decodes a list of objects, and adds the mistakes in their fields to the list.
func fillList(b []byte, into reflect.Value, name string, list *mistakes) {
	d := json.NewDecoder(bytes.NewReader(b))
	if open, err := d.Token(); err != nil || open != json.Delim('[') {
		list.add(name, "it is not a list")
		return
	}

	// The items are counted as they are read: a list of short ones would take much memory.
	var items []json.RawMessage
	for d.More() {
		var item json.RawMessage
		if err := d.Decode(&item); err != nil {
			list.add(name, "it is not a list")
			return
		}
		if items = append(items, item); len(items) > maxItems {
			list.add(name, fmt.Sprintf("it has more than %d items", maxItems))
			return
		}
	}

	into.Set(reflect.MakeSlice(into.Type(), len(items), len(items)))
	for i, item := range items {
		fill(item, into.Index(i), fmt.Sprintf("%s[%d]", name, i), list)
	}
}

// kindOf returns the kind of value that a field takes, in words.
func kindOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a text"
	case reflect.Int, reflect.Int64, reflect.Pointer:
		return "a whole number that fits"
	case reflect.Bool:
		return "true or false"
	}
	if t == reflect.TypeFor[time.Time]() {
		return "a time such as 2026-01-31T12:00:00Z"
	}
	return "of the form that is described"
}

func join(prefix, key string) string {
	if prefix == "" {
		return key
	}
	return prefix + "." + key
}

// clip shortens a text that a client sent, for an error.
func clip(s string) string { return strings.ToValidUTF8(s[:min(len(s), 100)], "") }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
