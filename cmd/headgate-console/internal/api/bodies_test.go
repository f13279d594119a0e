package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/policyyaml"
)

// body is an operation that takes JSON of a schema of its own, as it may be tried.
type body struct {
	pattern, method, path string
	schema                object
}

func bodies() (list []body) {
	c := checker{served()}
	for _, op := range operations() {
		schema := at(op.object, "requestBody", "content", "application/json", "schema")
		name, _ := at(schema, "$ref").(string)
		if name == "" || strings.HasSuffix(name, "/PolicySet") {
			continue
		}
		method, path, _ := strings.Cut(op.pattern, " ")
		path = strings.NewReplacer("{name}", "p", "{app}", "a", "{user}", "spare", "{key}", "192.0.2.1").Replace(path)
		list = append(list, body{op.pattern, method, path, c.resolve(schema)})
	}
	return list
}

func TestBodiesMatchTheDescription(t *testing.T) {
	// The number makes sure that the walk has found them all.
	if n := len(bodies()); n != 17 {
		t.Errorf("%d bodies, want 17", n)
	}

	for _, b := range bodies() {
		example, _ := b.schema["example"].(object)
		if example == nil {
			t.Errorf("%s: there is no example", b.pattern)
			continue
		}
		w := newWorld(t)

		// Each field in turn has a value of the wrong type, so the mistake must be at that field.
		for name, property := range b.schema["properties"].(object) {
			body := object{}
			for k, v := range example {
				body[k] = v
			}
			body[name] = true // not a text, number, list or object
			if at(property, "type") == "boolean" {
				body[name] = 1
			}

			a := w.ask("administrator", b.method, b.path, body, "If-Match", `"1"`)
			if len(property.(object)) == 1 { // a field that is ignored
				if strings.Contains(a.text, "not known") {
					t.Errorf("%s: %s: %s", b.pattern, name, a.text)
				}
				continue
			}

			a.wantField(name)
			if strings.Contains(a.text, "not known") {
				t.Errorf("%s: %s is not known", b.pattern, name)
			}
		}
	}
}

func TestDescriptionExamplesAreAccepted(t *testing.T) {
	for _, b := range bodies() {
		w := newWorld(t, withRedis)

		// The examples are of an application shop, a policy with a ban, and its version 5.
		w.ask("administrator", "PUT", "/api/apps/shop", object{}).want(201)
		if b.pattern == "POST /api/policies/{name}/bans" {
			w.ask("owner", "PUT", "/api/policies/p",
				login(object{"ban": object{"after": "20/1m", "for": "10m", "max": "24h"}, "version": 1})).want(200)
		}

		body := b.schema["example"].(object)
		headers := []string{"If-Match", `"1"`}
		if body["version"] != nil {
			headers = nil
			for i := range 4 {
				w.ask("owner", "PUT", "/api/policies/p", login(object{"priority": i + 1, "version": i + 1})).want(200)
			}
		}

		if a := w.ask("administrator", b.method, b.path, body, headers...); a.status/100 != 2 {
			t.Errorf("%s: %d %s", b.pattern, a.status, a.text)
		}
	}
}

func TestBodyMalformedIsRefused(t *testing.T) {
	// The status tells bodies that are no JSON from those that are none of this operation.
	for _, b := range bodies() {
		w, most := newWorld(t), maxBody
		if b.pattern == "POST /api/policies/{name}/overrides" {
			most = maxOverridesBody
		}

		for name, c := range map[string]struct {
			body   string
			status int
		}{
			"nothing":           {"", 400},
			"no JSON":           {"<xml/>", 400},
			"a half":            {`{"name":`, 400},
			"a half list":       {`{"apps":["a"`, 400},
			"no object":         {`[]`, 422},
			"null":              {`null`, 422},
			"a text":            {`"x"`, 422},
			"trailing":          {`{} {}`, 400},
			"trailing text":     {`{}x`, 400},
			"unknown":           {`{"unknown":1}`, 422},
			"twice":             {`{"name":"x","name":"y"}`, 422},
			"in another case":   {`{"Name":"x","MODE":"off"}`, 422},
			"no UTF-8":          {"{\"name\":\"\xff\"}", 400},
			"half a character":  {`{"name":"\ud800"}`, 400},
			"another half":      {`{"name":"\udc00\ud800"}`, 400},
			"deep":              {strings.Repeat("[", 10) + strings.Repeat("]", 10), 400},
			"deep and endless":  {strings.Repeat(`{"a":`, maxBody/8), 400},
			"oversized":         {`{"name":"` + strings.Repeat("x", most) + `"}`, 413},
			"oversized nothing": {strings.Repeat(" ", most+1), 413},
		} {
			if a := w.ask("administrator", b.method, b.path, c.body, "If-Match", `"1"`); a.status != c.status {
				t.Errorf("%s: %s: %d, want %d\n%s", b.pattern, name, a.status, c.status, a.text)
			}
		}
	}
}

func TestBodyMediaType(t *testing.T) {
	w := newWorld(t)

	// What a form of another site can send without asking must not be taken for JSON.
	for media, status := range map[string]int{
		"":                                  415,
		"text/plain":                        415,
		"application/x-www-form-urlencoded": 415,
		"multipart/form-data; boundary=x":   415,
		"application/json; charset=latin1":  415,
		"application/jsonp":                 415,
		"application/json;":                 200,
		"application/json; charset=UTF-8":   200,
		"Application/JSON":                  200,
	} {
		if a := w.ask("owner", "POST", "/api/validate", login(nil), "Content-Type", media); a.status != status {
			t.Errorf("%q: %d, want %d", media, a.status, status)
		}
	}

	w.ask("owner", "POST", "/api/validate", login(nil), "Content-Encoding", "gzip").
		want(http.StatusUnsupportedMediaType)
	w.ask("owner", "POST", "/api/import", "policies: []", "Content-Type", "text/yaml").want(415)
}

func TestHalfCharacterAcceptsPairs(t *testing.T) {
	w := newWorld(t)
	body := `{"apps":["a"],"limit":"1/1s","key":"ip","description":"\ud83d\ude00 \\ud800 \u00e9"}`
	w.ask("owner", "PUT", "/api/policies/x", body, "If-None-Match", "*").want(201).
		wantValue(`😀 \ud800 é`, "description")
}

func TestBodyErrorsNameEveryField(t *testing.T) {
	w := newWorld(t)
	body := `{"apps":"a","limit":5,"key":null,"match":{"methods":"GET","more":1},"priority":1.5,"version":1e99,"what":1}`
	got := strings.Join(w.ask("owner", "PUT", "/api/policies/p", body).want(422).fields(), " ")
	if want := "apps key limit match.methods match.more priority version what"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestImportMayBeAsLargeAsASet(t *testing.T) {
	w := newWorld(t)
	w.ask("owner", "POST", "/api/import", strings.Repeat(" ", policy.MaxBytes+1)).want(413)
	w.ask("owner", "POST", "/api/import", `{"policies":[]}`+strings.Repeat(" ", policy.MaxBytes-15)).want(200)
	w.ask("owner", "POST", "/api/import", strings.Repeat(" ", policyyaml.MaxBytes+1), "Content-Type",
		"application/yaml").want(422)
}

// A value that has a form of its own in JSON is read in it.
func TestCostIsANumberOrAnObject(t *testing.T) {
	w := newWorld(t)
	for i, cost := range []any{3, object{"header": "X-Cost", "at_most": 5}} {
		body := login(object{"cost": cost, "version": i + 1})
		got := w.ask("owner", "PUT", "/api/policies/p", body).want(200).get("cost")
		if want := fmt.Sprint(cost); fmt.Sprint(got) != want {
			t.Errorf("the cost %s became %v", want, got)
		}
	}
	w.ask("owner", "PUT", "/api/policies/p", login(object{"cost": object{"more": 1}})).wantField("cost")
}
