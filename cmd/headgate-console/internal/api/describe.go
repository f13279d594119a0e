// This file makes the OpenAPI description from the routes and the types of what they read and
// answer. Tags of fields say what the types do not: "doc" what a field is, "enum" its values, and
// "example" one of them, as text or as JSON.

package api

import (
	"encoding"
	"encoding/json"
	"net/http"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/headgate/headgate/policy"
)

// object is a JSON object.
type object = map[string]any

// describer collects the schemas of types.
type describer struct{ schemas object }

// describe returns the OpenAPI description of routes.
func describe(routes []route) object {
	d := &describer{object{}}
	paths := object{}
	for _, r := range routes {
		method, path, _ := strings.Cut(r.pattern, " ")
		if paths[path] == nil {
			paths[path] = object{}
		}
		paths[path].(object)[strings.ToLower(method)] = d.operation(r, method, path)
	}

	fails := object{"description": "A problem of RFC 9457.", "content": object{
		"application/problem+json": object{"schema": d.schema(reflect.TypeFor[problem]())},
	}}
	return object{
		"openapi": "3.1.0",
		"info": object{
			"title": "headgate console", "version": "1",
			"description": "The console of headgate for programs. A change of a policy names the version that it is " +
				"based on, by If-Match or by a field: a request with neither gets a 428, and one that is based on " +
				"another version a 412 or a 409 with both. Every error is a problem whose member code is its kind.",
		},
		"servers":  []any{object{"url": "/"}},
		"security": []any{object{"token": []any{}}, object{"session": []any{}}},
		"paths":    paths,
		"components": object{
			"schemas": d.schemas, "responses": object{"Problem": fails},
			"securitySchemes": object{
				"token": object{"type": "http", "scheme": "bearer", "description": "A token of the console."},
				"session": object{
					"type": "apiKey", "in": "cookie", "name": "headgate",
					"description": "The session of a page, or __Host-headgate with TLS. A change comes from the same origin.",
				},
			},
		},
	}
}

var wildcard = regexp.MustCompile(`\{(\w+)\}`)

func (d *describer) operation(r route, method, path string) object {
	params := []any{}
	param := func(in, name, doc string, required bool, schema any) {
		params = append(params,
			object{"in": in, "name": name, "description": doc, "required": required, "schema": schema})
	}

	words := []string{strings.ToLower(method)}
	for part := range strings.SplitSeq(strings.TrimPrefix(path, "/api/"), "/") {
		if m := wildcard.FindStringSubmatch(part); m != nil {
			param("path", m[1], "", true, object{"type": "string"})
			part = "by-" + m[1]
		}
		words = append(words, part)
	}

	versioned := false
	for _, f := range reflect.VisibleFields(r.in) {
		name, required := nameOf(f)
		if name != "" && r.queries() {
			param("query", name, f.Tag.Get("doc"), required, d.field(f))
		}
		versioned = versioned || name == "version"
	}
	if versioned && method != http.MethodGet {
		param("header", "If-Match", "The ETag of the version that the change is based on.", false, object{"type": "string"})
	}

	op := object{
		"operationId": strings.Join(words, "-"), "summary": r.does, "tags": words[1:2], "parameters": params,
		"responses": d.responses(r, method),
	}

	switch {
	case len(r.takes) > 0:
		op["requestBody"] = object{"required": true, "content": contentOf(r.takes...)}
	case !r.queries() && r.in.NumField() > 0:
		content := object{mediaJSON: object{"schema": d.schema(r.in)}}
		op["requestBody"] = object{"required": true, "content": content}
	}
	if r.open {
		op["security"] = []any{}
	}
	return op
}

// contentOf returns the content of media types whose schema is not told.
func contentOf(types ...string) object {
	content := object{}
	for _, t := range types {
		content[t] = object{"schema": object{}}
	}
	return content
}

func (d *describer) responses(r route, method string) object {
	all := object{"default": object{"$ref": "#/components/responses/Problem"}}
	empty := object{"description": "It is done."}
	if r.out == nil {
		all["200"] = object{"description": "The file.", "content": contentOf(r.gives...)}
		return all
	}

	if r.out.Implements(reflect.TypeFor[interface{ empty() bool }]()) {
		all["204"] = empty
	}
	if r.out.NumField() == 0 {
		return all
	}

	answer := object{"description": "The answer.", "content": object{mediaJSON: object{"schema": d.schema(r.out)}}}
	all["200"] = answer
	if r.creates {
		all["201"] = answer
	}
	if method == http.MethodGet {
		all["304"] = object{"description": "The client has the answer, under the ETag that If-None-Match names."}
	}
	return all
}

// nameOf returns the name of a field in JSON, or "" if it has none, and whether it is always there.
func nameOf(f reflect.StructField) (name string, required bool) {
	name, rest, _ := strings.Cut(f.Tag.Get("json"), ",")
	if f.Anonymous || !f.IsExported() || name == "-" {
		return "", false
	}
	return name, !strings.Contains(rest, "omit")
}

// field returns the schema of a field.
func (d *describer) field(f reflect.StructField) any {
	s := d.schema(f.Type)
	if enum := f.Tag.Get("enum"); enum != "" {
		s["enum"] = strings.Split(enum, ",")
	}
	if doc := f.Tag.Get("doc"); doc != "" && s["$ref"] == nil {
		s["description"] = doc
	}
	return s
}

// schema returns the schema of a type, or a reference to the one of a struct with a name.
func (d *describer) schema(t reflect.Type) object {
	if s := special(t); s != nil {
		return s
	}
	if t.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return object{"type": "string"}
	}

	// A pointer stands for a value that may be null, and one to an int64 for a version.
	switch t.Kind() {
	case reflect.Pointer:
		if t.Elem().Kind() == reflect.Int64 {
			return d.schema(t.Elem())
		}
		return object{"anyOf": []any{d.schema(t.Elem()), object{"type": "null"}}}
	case reflect.Slice:
		return object{"type": "array", "items": d.schema(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": d.schema(t.Elem())}
	case reflect.Struct:
		return d.structure(t)
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int, reflect.Int64:
		return object{"type": "integer"}
	}
	return object{} // anything
}

// structure returns a reference to the schema of a struct.
func (d *describer) structure(t reflect.Type) object {
	name := strings.ToUpper(t.Name()[:1]) + t.Name()[1:]
	ref := object{"$ref": "#/components/schemas/" + name}
	if d.schemas[name] != nil {
		return ref
	}

	properties, required, example := object{}, []string{}, object{}
	s := object{"type": "object", "properties": properties, "additionalProperties": false}
	d.schemas[name] = s

	for _, f := range reflect.VisibleFields(t) {
		name, always := nameOf(f)
		if name == "" {
			continue
		}
		properties[name] = d.field(f)
		if always {
			required = append(required, name)
		}
		if text := f.Tag.Get("example"); text != "" && f.Type.Kind() == reflect.String {
			example[name] = text
		} else if text != "" {
			example[name] = json.RawMessage(text)
		}
	}

	s["required"] = required
	if t == reflect.TypeFor[draft]() {
		example = draftExample
	}
	if len(example) > 0 {
		s["example"] = example
	}

	if t == reflect.TypeFor[policy.Cost]() {
		d.schemas[name] = either("How many units a request takes, or where the number stands.",
			object{"type": "integer", "minimum": 0}, s)
	}
	return ref
}

var draftExample = object{
	"apps": []string{"shop"}, "limit": "5/1m sliding-log", "key": "ip",
	"match": object{"methods": []string{"POST"}, "path": "/login"},
}

func either(doc string, schemas ...any) object { return object{"description": doc, "anyOf": schemas} }

// special returns the schema of a type that JSON has in a form of its own, or nil.
func special(t reflect.Type) object {
	text, whole := object{"type": "string"}, object{"type": "integer", "minimum": 0}
	switch t {
	case reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case reflect.TypeFor[json.RawMessage]():
		return object{}
	case reflect.TypeFor[policy.Amount]():
		return object{"type": "number"}
	case reflect.TypeFor[policy.Values]():
		return either("A text, or those of which a request has one.", text, object{"type": "array", "items": text})
	case reflect.TypeFor[policy.Statuses]():
		return object{"type": "array", "items": either("A status such as 304, or a class such as 5xx.", whole, text)}
	case reflect.TypeFor[policy.BanText]():
		parts := object{"after": text, "for": text, "max": text}
		return either("Such as 20/1m for 10m max 24h.", text, object{"type": "object", "properties": parts})
	case reflect.TypeFor[policy.OverrideText](), reflect.TypeFor[policy.Override]():
		parts := object{"limit": text, "until": text, "banned_until": text}
		return either("A limit, one with an end, or a ban.", text, object{"type": "object", "properties": parts})
	}
	return nil
}

// openAPI answers with the description.
func (c *call) openAPI(*none) error {
	c.w.Header().Set("Content-Type", mediaJSON)
	c.w.Write(c.description)
	return nil
}
