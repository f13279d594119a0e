package api

import (
	"encoding/json"
	"maps"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// operation is a route of the description.
type operation struct {
	pattern string
	object
}

// operations returns the operations of the description.
func operations() (list []operation) {
	paths := served()["paths"].(object)
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		for method, op := range paths[path].(object) {
			list = append(list, operation{strings.ToUpper(method) + " " + path, op.(object)})
		}
	}
	return list
}

// finder finds the operation of a request.
var finder = sync.OnceValue(func() func(*http.Request) (operation, bool) {
	mux, byPattern := http.NewServeMux(), map[string]operation{}
	for _, op := range operations() {
		mux.Handle(op.pattern, http.NotFoundHandler())
		byPattern[op.pattern] = op
	}
	return func(r *http.Request) (operation, bool) {
		_, pattern := mux.Handler(r)
		op, ok := byPattern[pattern]
		clean := r.URL.EscapedPath() == path.Clean(r.URL.EscapedPath())
		return op, ok && clean
	}
})

// conforms checks that an answer is as the description says.
func (a answer) conforms(r *http.Request) {
	a.t.Helper()

	// These headers are of every answer, with whatever status.
	for name, want := range map[string]string{"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff",
		"Cross-Origin-Resource-Policy": "same-origin"} {
		if got := a.header.Get(name); got != want {
			a.t.Errorf("%s: %s is %q, want %q", a.what, name, got, want)
		}
	}

	if a.header.Get("X-Request-Id") == "" {
		a.t.Errorf("%s: there is no X-Request-Id", a.what)
	}

	// A path that the description does not have gets a problem.
	c := checker{served()}
	op, ok := finder()(r)
	if !ok {
		a.report(c.check(object{"$ref": "#/components/schemas/Problem"}, a.json, "problem"))
		return
	}

	// Each status of an error is the default.
	response := c.resolve(at(op.object, "responses", strconv.Itoa(a.status)))
	if response == nil && a.status >= 400 {
		response = c.resolve(at(op.object, "responses", "default"))
	}
	if response == nil {
		a.t.Errorf("%s: the status %d is not described\n%s", a.what, a.status, a.text)
		return
	}

	// A status without content has no body.
	content, _ := response["content"].(object)
	if content == nil {
		if a.text != "" {
			a.t.Errorf("%s: %d has a body: %s", a.what, a.status, a.text)
		}
		return
	}

	media, _, _ := strings.Cut(a.header.Get("Content-Type"), ";")
	kind, ok := content[media].(object)
	if !ok {
		a.t.Errorf("%s: the media type %q is not described", a.what, media)
		return
	}

	if a.json != nil {
		a.report(c.check(kind["schema"], a.json, "body"))
	}
}

func (a answer) report(mistakes []string) {
	a.t.Helper()
	for _, m := range mistakes {
		a.t.Errorf("%s: %s", a.what, m)
	}
}

func TestDescriptionHasExactlyTheRoutes(t *testing.T) {
	var have, want []string
	for _, route := range routes() {
		have = append(have, route.pattern)
	}
	for _, op := range operations() {
		want = append(want, op.pattern)
	}
	slices.Sort(have)
	slices.Sort(want)
	if !slices.Equal(have, want) {
		t.Errorf("the routes are\n%s\nand the description has\n%s", strings.Join(have, "\n"), strings.Join(want, "\n"))
	}
}

// The description has the parts that OpenAPI 3.1 requires.
func TestDescriptionIsOpenAPI(t *testing.T) {
	root := served()
	for _, keys := range [][]string{{"info", "title"}, {"info", "version"}, {"components", "securitySchemes", "token"},
		{"components", "responses", "Problem", "description"}} {
		if at(root, keys...) == nil {
			t.Errorf("there is no %q", keys)
		}
	}
	if root["openapi"] != "3.1.0" {
		t.Errorf("it is OpenAPI %v", root["openapi"])
	}

	for _, op := range operations() {
		responses, _ := op.object["responses"].(object)
		if op.object["operationId"] == "" || op.object["summary"] == "" || responses["default"] == nil ||
			len(responses) < 2 {
			t.Errorf("%s: %v", op.pattern, op.object)
		}
		for status, r := range responses {
			if r := (checker{root}).resolve(r); r["description"] == nil {
				t.Errorf("%s: %s has no description", op.pattern, status)
			}
		}
	}
}

// The wildcards of a path are its parameters, and every parameter has a schema.
func TestDescriptionHasEveryParameter(t *testing.T) {
	for _, op := range operations() {
		var path []string
		for _, p := range op.object["parameters"].([]any) {
			if at(p, "schema") == nil || at(p, "name") == "" {
				t.Errorf("%s: %v", op.pattern, p)
			}
			if at(p, "in") == "path" && at(p, "required") == true {
				path = append(path, "{"+at(p, "name").(string)+"}")
			}
		}
		if want := wildcard.FindAllString(op.pattern, -1); !slices.Equal(path, want) {
			t.Errorf("%s: the path has the parameters %q", op.pattern, path)
		}
	}
}

// everyObject calls f for every object of the description.
func everyObject(v any, f func(object)) {
	switch v := v.(type) {
	case object:
		f(v)
		for _, inner := range v {
			everyObject(inner, f)
		}
	case []any:
		for _, inner := range v {
			everyObject(inner, f)
		}
	}
}

func TestDescriptionReferencesExamplesAndNames(t *testing.T) {
	root := served()
	c := checker{root}
	references, examples, ids := 0, 0, map[any]bool{}

	// One walk through the description looks at references, examples and names of operations.
	everyObject(root, func(o object) {
		if to, ok := o["$ref"]; ok {
			references++
			if c.resolve(o) == nil {
				t.Errorf("the reference %v has no target", to)
			}
		}

		if example, ok := o["example"]; ok && o["type"] != nil {
			examples++
			for _, m := range c.check(o, example, "example") {
				t.Errorf("%v: %s", o["description"], m)
			}
		}

		if id, ok := o["operationId"]; ok {
			if ids[id] {
				t.Errorf("two operations are called %v", id)
			}
			ids[id] = true
		}
	})

	// A walk that finds nothing would find no mistake either.
	if references < 100 || examples < 9 || len(ids) != len(routes()) {
		t.Errorf("%d references, %d examples and %d operations were looked at", references, examples, len(ids))
	}
}

func TestDescriptionUsesEverySchemaAndResponse(t *testing.T) {
	root := served()

	used := map[string]bool{}
	everyObject(root, func(o object) {
		if to, ok := o["$ref"].(string); ok {
			used[to] = true
		}
	})

	// What nothing refers to was forgotten when its operation went.
	for _, kind := range []string{"schemas", "responses"} {
		for name := range at(root, "components", kind).(object) {
			if !used["#/components/"+kind+"/"+name] {
				t.Errorf("nothing refers to %s/%s", kind, name)
			}
		}
	}
}

func TestDescriptionNeedsNoCredentials(t *testing.T) {
	w := newWorld(t)
	a := w.ask("nobody", "GET", "/api/openapi.json", nil).want(200)
	if a.get("openapi") != "3.1.0" {
		t.Errorf("%.100s", a.text)
	}
}

func TestCheckerFindsMistakes(t *testing.T) {
	c := checker{served()}

	good := object{"name": "p", "apps": []any{"a"}, "limit": "5/1m", "key": "ip", "mode": "off",
		"created_at": noon, "priority": 1.0, "match": object{"methods": []any{}, "path": "/"}}

	// Each row spoils the example of a policy in another way.
	for name, spoil := range map[string]func(object){
		"missing":  func(o object) { delete(o, "limit") },
		"unknown":  func(o object) { o["more"] = 1.0 },
		"type":     func(o object) { o["priority"] = "1" },
		"fraction": func(o object) { o["priority"] = 1.5 },
		"inner":    func(o object) { o["match"] = object{"methods": []any{}, "host": "", "path": "", "x": ""} },
		"item":     func(o object) { o["apps"] = []any{1.0} },
		"date":     func(o object) { o["created_at"] = "yesterday" },
		"null":     func(o object) { o["limit"] = nil },
	} {
		// The example is copied and checked, so the mistake found later is the one of the row.
		text, _ := json.Marshal(good)
		var o object
		json.Unmarshal(text, &o)
		ref := object{"$ref": "#/components/schemas/Policy"}
		if m := c.check(ref, o, "policy"); len(m) > 0 {
			t.Fatal(m)
		}
		if spoil(o); len(c.check(ref, o, "policy")) == 0 {
			t.Errorf("%s: the checker finds no mistake", name)
		}
	}
}
