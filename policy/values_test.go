package policy_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/policyyaml"
)

func TestValuesAreReadAsTheyAreWritten(t *testing.T) {
	for text, want := range map[string]string{
		`"a"`:                    `"a"`,
		`["a"]`:                  `"a"`,
		`["a","b"]`:              `["a","b"]`,
		`3`:                      `"3"`,
		`12345678901234567890.0`: `"12345678901234567890.0"`,
		`[true,"x",0]`:           `["true","x","0"]`,
	} {
		var v policy.Values
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if got, err := json.Marshal(v); string(got) != want || err != nil {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}

	for text, want := range map[string]string{
		`{"a":1}`: "match.query", `null`: "match.query", `["a",null]`: "match.query", `[["a"]]`: "match.query", `[]`: "no value",
	} {
		_, err := policy.DecodeJSON([]byte(`{"policies":[{"name":"p","apps":["a"],"limit":"1/1m","key":"ip",` +
			`"match":{"query":{"x":` + text + `}}}]}`))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// YAML has numbers and booleans where people mean texts.
func TestValuesInYAML(t *testing.T) {
	set, err := policyyaml.Decode([]byte("policies:\n- name: p\n  apps: [a]\n  limit: 1/1m\n  key: ip\n" +
		"  match:\n    query: {page: 1, debug: true, v: [1.50, x]}\n    claims: {sub: 'null'}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(set[0].Match.Query, set[0].Match.Claims); got !=
		"map[debug:true page:1 v:1.50 or x] map[sub:null]" {
		t.Error(got)
	}

	text, err := policyyaml.Encode(set)
	if again, e := policyyaml.Decode(text); err != nil || e != nil || fmt.Sprint(again) != fmt.Sprint(set) {
		t.Errorf("%v, %v:\n%s", err, e, text)
	}
}
