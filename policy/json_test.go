package policy_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/policy"
)

// namesByTokens returns the first mistake in the names of fields or in the nesting of valid JSON,
// as the decoder's tokens show it.
func namesByTokens(text string) error {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	return valueByTokens(d, 0, 0)
}

// valueByTokens checks the next value. In so many levels from it on objects have any names.
func valueByTokens(d *json.Decoder, depth, free int) error {
	token, err := d.Token()
	if err != nil {
		return err
	}

	// Only objects and arrays can hold names; a plain value is done.
	delim, ok := token.(json.Delim)
	if !ok {
		return nil
	}

	if depth == policy.MaxDepth {
		return fmt.Errorf("the text is nested deeper than %d", depth)
	}

	var seen []string
	for d.More() {
		key := ""

		// The names of plans and of overridden keys are the caller's own, so below those fields any
		// name is allowed.
		if delim == '{' {
			token, err := d.Token()
			if err != nil {
				return err
			}

			key = token.(string)
			if slices.Contains(seen, key) {
				return fmt.Errorf("the field %q is repeated", key)
			}
			if strings.Trim(key, "abcdefghijklmnopqrstuvwxyz_") != "" && free == 0 {
				return fmt.Errorf("the field %q is not known", key)
			}
			seen = append(seen, key)
		}

		// The freedom lasts for one level: the fields of a plan are named by the format again.
		tables := []string{"plans", "overrides", "headers", "query", "claims", "prices"}
		below := max(0, free-1)
		switch {
		case depth == 0 && key == "plans":
			below = 2 // the tables that policies share, and the plans of each
		case free == 0 && slices.Contains(tables, key):
			below = 1
		}
		if err := valueByTokens(d, depth+1, below); err != nil {
			return err
		}
	}

	// The closing delimiter is still in the decoder.
	_, err = d.Token()
	return err
}

// The names of fields are found in the text without the decoder. The decoder finds the same.
func FuzzNamesOfFields(f *testing.F) {
	// Each group of seeds is near a rule: repeated and unknown names, names that are free, escapes
	// in names, nesting, and text after the end.
	for _, seed := range []string{
		fullJSON, ``, `1`, `"a"`, `{"a":1,"a":2}`, `{"A":1}`, `{"a":[{"b":1},{"b":1,"c":[],"b":2}]}`,
		`{"plans":{"A":1,"B":{"C":1}}}`, `{"plans":{"plans":{"A":1}}}`, `{"plans":[{"A":1}]}`,
		`{"plans":{"a":{"b":{"C":1}}}}`, `{"plans":{"a":{"b":{"headers":{"C":1}}}}}`, `{"plans":{"a":{"headers":{"C":1}}}}`,
		`[{"plans":{"A":1,"B":{"C":1}}}]`, `{"a":{"plans":{"A":1,"B":{"C":1}}}}`, `{"a":{"plans":{"plans":{"C":1}}}}`,
		`{"plans":"a","b":{"C":1}}`, `{"match":{"headers":{"X-A":"b","X-A":"c"}}}`, `{"Headers":{"A":1}}`,
		`{"match":{"query":{"A":[1]},"claims":{"B":{"C":1}}}}`,
		`{"overrides":{"a":1,"a":2}}`, `{"\u0061":1,"a":2}`, `{"plan\u0073":{"A":1}}`, `{"a\"b":1}`,
		`{"a\\":{"b\\\"":1}}`,
		`{"a":"{\"b\":[","c":",\"a\":"}`, `[[[[[[[[1]]]]]]]]`, `[[[[[[[[[]]]]]]]]]`,
		`{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{}}}}}}}}}`,
		` [ { "a" : 1 , "b" : [ 2 , 3 ] } , "a" ] `, `{"a":1}x`, `{"a":1`, `{"a"}`, `{"":1,"":2}`, `{"\ud800":1}`,
	} {
		f.Add(seed)
	}

	f.Fuzz(func(t *testing.T, text string) {
		err := policy.CheckJSON([]byte(text))

		// What is no JSON must be refused, whatever the message.
		if !json.Valid([]byte(text)) {
			if err == nil {
				t.Error("it is not JSON")
			}
			return
		}

		// The size and the encoding are checked before names, so their messages are others.
		if strings.ToValidUTF8(text, "") != text || len(text) > policy.MaxBytes {
			return
		}

		want := namesByTokens(text)
		switch {
		case err == nil && want == nil:
		case err == nil, want == nil, !same(err.Error(), want.Error()):
			t.Errorf("%v, want %v", err, want)
		}
	})
}

// same reports whether a message is the other, but for long names that it leaves out.
func same(message, whole string) bool {
	return message == whole || len(whole) > 40 && message[:20] == whole[:20]
}

// A text that ends too early does so at every byte.
func TestDecodeJSONOfPartOfAText(t *testing.T) {
	text := strings.TrimSpace(fullJSON)
	for i := range len(text) {
		if _, err := policy.DecodeJSON([]byte(text[:i])); err == nil ||
			err.Error() != "policy: the text ends too early" {
			t.Fatalf("%d bytes: %v", i, err)
		}
	}
}

// BenchmarkDecodeJSON decodes as many policies as there may be.
func BenchmarkDecodeJSON(b *testing.B) {
	set := make(policy.Set, policy.MaxPolicies)
	for i := range set {
		set[i] = valid(b, fmt.Sprintf("p%05d", i))
	}

	text, err := policy.EncodeJSON(set)
	if err != nil {
		b.Fatal(err)
	}

	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := policy.DecodeJSON(text); err != nil {
			b.Fatal(err)
		}
	}
}
