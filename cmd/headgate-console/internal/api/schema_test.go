package api

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
)

// served returns the description, as it is served.
var served = sync.OnceValue(func() (v object) {
	text, err := json.Marshal(describe(routes()))
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	if err != nil {
		panic(err)
	}
	return v
})

// at returns the value under keys.
func at(v any, keys ...string) any {
	for _, key := range keys {
		o, _ := v.(object)
		v = o[key]
	}
	return v
}

// checker compares values with the schemas of a description. It knows the part of
// JSON Schema that the description uses, and calls any other keyword a mistake.
type checker struct{ root object }

// resolve follows a reference.
func (c checker) resolve(v any) object {
	o, _ := v.(object)
	if to, ok := o["$ref"].(string); ok {
		found, _ := at(c.root, strings.Split(strings.TrimPrefix(to, "#/"), "/")...).(object)
		return found
	}
	return o
}

// check returns the mistakes in a value.
func (c checker) check(schema any, v any, where string) (list []string) {
	s := c.resolve(schema)
	if s == nil {
		return []string{where + ": there is no schema"}
	}

	// A keyword that is not known here would be a rule that is not checked.
	for keyword, want := range s {
		switch keyword {
		case "description", "example":
		case "type":
			list = append(list, c.checkType(want, v, where)...)
		case "enum":
			if !slices.Contains(want.([]any), v) {
				list = append(list, fmt.Sprintf("%s: %v is none of %v", where, v, want))
			}
		case "anyOf":
			list = append(list, c.checkAny(want.([]any), v, where)...)
		case "items":
			list = append(list, c.checkItems(want, v, where)...)
		case "minimum", "maximum":
			list = append(list, c.checkBound(keyword, want, v, where)...)
		case "format":
			list = append(list, c.checkFormat(want, v, where)...)
		case "properties", "required", "additionalProperties":
		default:
			list = append(list, where+": the checker does not know the keyword "+keyword)
		}
	}
	return append(list, c.checkObject(s, v, where)...)
}

func (c checker) checkType(want, v any, where string) []string {
	var is string
	switch v := v.(type) {
	case nil:
		is = "null"
	case string:
		is = "string"
	case bool:
		is = "boolean"
	case object:
		is = "object"
	case []any:
		is = "array"
	case float64:
		is = "number"
		if v == math.Trunc(v) {
			is = "integer"
		}
	}

	if is != want {
		return []string{fmt.Sprintf("%s: it is %s, want %v", where, is, want)}
	}
	return nil
}

func (c checker) checkAny(schemas []any, v any, where string) []string {
	for _, s := range schemas {
		if len(c.check(s, v, where)) == 0 {
			return nil
		}
	}
	return append([]string{where + ": none of the schemas fits"}, c.check(schemas[0], v, where)...)
}

func (c checker) checkItems(schema, v any, where string) (list []string) {
	items, _ := v.([]any)
	for i, item := range items {
		list = append(list, c.check(schema, item, fmt.Sprintf("%s[%d]", where, i))...)
	}
	return list
}

func (c checker) checkBound(keyword string, want, v any, where string) []string {
	n, ok := v.(float64)
	bound := want.(float64)
	if ok && (keyword == "minimum" && n < bound || keyword == "maximum" && n > bound) {
		return []string{fmt.Sprintf("%s: the %s is %v, and it is %v", where, keyword, want, v)}
	}
	return nil
}

func (c checker) checkFormat(want, v any, where string) []string {
	text, _ := v.(string)
	if at, err := time.Parse(time.RFC3339, text); want != "date-time" || err != nil || at.IsZero() {
		return []string{fmt.Sprintf("%s: %q is not of the format %v", where, text, want)}
	}
	return nil
}

func (c checker) checkObject(s object, v any, where string) (list []string) {
	o, ok := v.(object)
	if !ok {
		return nil
	}

	required, _ := s["required"].([]any)
	for _, name := range required {
		if _, ok := o[name.(string)]; !ok {
			list = append(list, fmt.Sprintf("%s: %v is missing", where, name))
		}
	}

	properties, _ := s["properties"].(object)
	for name, value := range o {
		if schema, ok := properties[name]; ok {
			list = append(list, c.check(schema, value, where+"."+name)...)
			continue
		}

		// What is not described is permitted, forbidden or of a schema.
		switch more := s["additionalProperties"].(type) {
		case bool:
			list = append(list, fmt.Sprintf("%s: %s is not described", where, name))
		case object:
			list = append(list, c.check(more, value, where+"."+name)...)
		}
	}
	return list
}
