package strictjson

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
)

// fieldsOf returns the paths of all fields, with a "!" behind those that are repeated.
func fieldsOf(text string, depth int) (list []string, err error) {
	err = Check("the text", []byte(text), depth, func(path []Step, repeated bool) error {
		// The form is that of a JSON pointer: "/a/0/b".
		at := ""
		for _, s := range path {
			if s.Index < 0 {
				at += "/" + s.Name
			} else {
				at += fmt.Sprintf("/%d", s.Index)
			}
		}
		if repeated {
			at += "!"
		}

		list = append(list, at)
		return nil
	})
	return list, err
}

func TestCheckFindsFields(t *testing.T) {
	// What looks like a field inside of a string is none, and an escaped name is the name that it
	// stands for.
	for text, want := range map[string][]string{
		`7`:    nil,
		`"a,"`: nil,
		// Texts without a field.
		`[]`: nil,
		`{}`: nil,

		// The same name again is a repeat only in the same object, and however it is escaped.
		`{"a":1,"b":{"a":"}","c":[1,{"a":[]},{"a":0,"a":{}}]},"a":2}`: {"/a", "/b", "/b/a", "/b/c", "/b/c/1/a", "/b/c/2/a", "/b/c/2/a!", "/a!"},
		"{\"a\" : \"\\\"\", \"\\u0061\":\"\\\\\",\"\":0}":             {"/a", "/a!", "/"},
		`[[{"a":0}],{"a":0}]`: {"/0/0/a", "/1/a"},
	} {
		if got, err := fieldsOf(text, 5); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v, want %q", text, got, err, want)
		}
	}
}

func TestCheckRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":      "the text ends too early",
		`{"a":`: "the text ends too early",

		// What follows the value, and what is no JSON at all.
		`{} 5`:      "the text goes on after its JSON value",
		`{"a":tru}`: "the text is not JSON: invalid character '}' in literal true (expecting 'e')",
		"\"\xff\"":  "the text is not UTF-8",

		// Lists and objects are levels alike.
		`[[[0]]]`:    "the text is nested deeper than 2",
		`{"a":[{}]}`: "the text is nested deeper than 2",
	} {
		if _, err := fieldsOf(text, 2); fmt.Sprint(err) != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}

	// The caller's own error ends the reading and arrives unchanged.
	wrong := errors.New("wrong")
	if err := Check("the text", []byte(`{"a":0}`), 1, func([]Step, bool) error { return wrong }); err != wrong {
		t.Errorf("%v", err)
	}
}

func TestDecodeNamesThePlace(t *testing.T) {
	var v struct {
		A struct {
			B int `json:"b"`
		} `json:"a"`
	}
	// An error names the place in the text of the user, who does not know the types of Go.
	for text, want := range map[string]string{
		`{"a":{"b":"x"}}`: "a.b: unexpected string",
		`{"a":{"b":1.5}}`: "a.b: unexpected number 1.5",
		`{"a":{"b":1e3}}`: "a.b: unexpected number 1e3",

		// The package json names an unknown field itself.
		`{"a":{"c":0}}`: `json: unknown field "c"`,
		`[]`:            "unexpected array",
	} {
		if err := Decode([]byte(text), &v); fmt.Sprint(err) != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}

	// The same types accept what is right.
	if err := Decode([]byte(`{"a":{"b":7}}`), &v); err != nil || v.A.B != 7 {
		t.Errorf("%+v, %v", v, err)
	}
}

// Check takes what encoding/json takes, if it is not too deep, and never panics.
func FuzzCheck(f *testing.F) {
	for _, text := range []string{`{"a":[1,{"b":"\""}],"a":null}`, `[]`, `{} {}`, "\"\xff\""} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := Check("it", text, 10_000, func([]Step, bool) error { return nil }); err == nil && !json.Valid(text) {
			t.Errorf("%q is no JSON", text)
		}
	})
}
