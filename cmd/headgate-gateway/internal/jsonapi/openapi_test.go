package jsonapi

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
)

var tokens = regexp.MustCompile(`hg1_[A-Za-z0-9_-]+`)

func described(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(description)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestDescriptionIsValid(t *testing.T) {
	if err := described(t).Validate(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestDescriptionIsServed(t *testing.T) {
	w := httptest.NewRecorder()
	inMemory(t).h.ServeHTTP(w, httptest.NewRequest("GET", "/v1/openapi.yaml", nil))
	if w.Code != 200 || w.Header().Get("Content-Type") != "application/yaml" ||
		!bytes.Equal(w.Body.Bytes(), description) {
		t.Errorf("%d, %s, %d bytes", w.Code, w.Header(), w.Body.Len())
	}
}

// Each example of a body is answered by the example of the same name, and by one whose
// schema and status are described.
func TestDescriptionHasTrueExamples(t *testing.T) {
	doc, played := described(t), 0
	for path, item := range doc.Paths.Map() {
		op := item.Post
		if op == nil {
			continue
		}

		for name, example := range op.RequestBody.Value.Content["application/json"].Examples {
			played++
			t.Run(path+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { play(t, op, path[len(Prefix):], name, example.Value.Value) })
			})
		}
	}

	// As many as there are now: examples that are no longer found would not be missed otherwise.
	if played < 12 {
		t.Errorf("%d examples were played", played)
	}
}

func play(t *testing.T, op *openapi3.Operation, path, name string, value any) {
	a := inMemory(t)
	body, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}

	switch {
	// Some examples need what was before: a count that is used up, or a token to give back.
	case name == "refused":
		a.take(`{"key":"ann","cost":3}`)
		time.Sleep(500 * time.Millisecond)
	case tokens.Match(body):
		body = tokens.ReplaceAll(body, []byte(a.take(`{"key":"ann","cost":3}`)))
	}

	got := a.call(path, string(body), nil)
	response := op.Responses.Value(strconv.Itoa(got.status))
	if response == nil {
		t.Fatalf("the status %d is not described: %s", got.status, got.body)
	}

	content := response.Value.Content[got.header.Get("Content-Type")]
	if content == nil || content.Examples[name] == nil {
		t.Fatalf("%d, %s: the answer has no example: %s", got.status, got.header.Get("Content-Type"), got.body)
	}

	wantExample(t, got, content, name)
	if name == "refused" && got.header.Get("Retry-After") != "60" {
		t.Errorf("Retry-After: %q", got.header.Get("Retry-After"))
	}
	if got.header.Get("Cache-Control") != "no-store" || got.status == http.StatusOK &&
		got.header.Get("Content-Type") != "application/json" {
		t.Errorf("the headers are %v", got.header)
	}
}

// wantExample checks that an answer is as its schema and its example say.
func wantExample(t *testing.T, got reply, content *openapi3.MediaType, name string) {
	t.Helper()
	var have, want any
	text := tokens.ReplaceAllString(got.body, "hg1_AAAA")
	if err := json.Unmarshal([]byte(text), &have); err != nil {
		t.Fatal(err)
	}
	if err := content.Schema.Value.VisitJSON(have, openapi3.EnableJSONSchema2020()); err != nil {
		t.Errorf("the answer is not as described: %v", err)
	}
	example, err := json.Marshal(content.Examples[name].Value.Value)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(example, &want); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(have, want) {
		t.Errorf("the answer is\n%s, and the example\n%s", text, example)
	}
}
