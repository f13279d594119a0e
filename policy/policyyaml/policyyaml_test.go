package policyyaml_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/policyyaml"
)

const fullYAML = `policies:
- name: login
  description: "slow\n\u003cdown\u003e: #guessing"
  apps:
  - shop
  - "off"
  - "1e3"
  limit: 5/1m sliding-log
  key: ip+header:X-Tenant
  match:
    methods:
    - POST
    host: "*.example.com"
    path: /login/{step}
  ban: 20/1m for 10m max 24h
  on_store_error: closed
  mode: shadow
  priority: -7
  version: 3
  created_by: ann
  created_at: "2026-01-02T03:04:05.000006Z"
  updated_by: bob
  updated_at: "2026-02-02T03:04:05Z"
`

func TestEncodeWritesEveryField(t *testing.T) {
	set, err := policyyaml.Decode([]byte(fullYAML))
	if err != nil {
		t.Fatal(err)
	}
	if text, err := policyyaml.Encode(set); err != nil || string(text) != fullYAML {
		t.Errorf("%v\n%s\nwant\n%s", err, text, fullYAML)
	}
}

// Encode does not write what Decode refuses.
func TestEncodeIsBounded(t *testing.T) {
	set, err := policyyaml.Decode([]byte(fullYAML))
	if err != nil {
		t.Fatal(err)
	}

	text, err := policyyaml.Encode(set)
	if err != nil {
		t.Fatal(err)
	}

	// All policies take the same number of bytes, so the number that fits can be computed.
	const head = len("policies:\n")
	each := len(text) - head
	fits := (policyyaml.MaxBytes - head) / each

	var many policy.Set
	for i := range fits + 1 {
		p := set[0]
		p.Name = fmt.Sprintf("p%04d", i) // as long as "login"
		many = append(many, p)
	}

	if text, err = policyyaml.Encode(many[:fits]); err != nil || len(text) != head+fits*each {
		t.Errorf("%d bytes, want %d; %v", len(text), head+fits*each, err)
	}

	// One more policy than fits is refused whole, and no part of it is written.
	const want = "policy: they take more than 1048576 bytes"
	if text, err := policyyaml.Encode(many); text != nil || err == nil || err.Error() != want {
		t.Errorf("%d bytes, %v, want %s", len(text), err, want)
	}
}

// Some editors put a byte order mark before the text.
func TestDecodeByteOrderMark(t *testing.T) {
	want, err := policyyaml.Decode([]byte(fullYAML))
	if err != nil {
		t.Fatal(err)
	}

	// One mark is skipped. A second one is no mark but a character, and no field begins with it.
	if got, err := policyyaml.Decode([]byte("\ufeff" + fullYAML)); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}

	if _, err := policyyaml.Decode([]byte("\ufeff\ufeff" + fullYAML)); err == nil {
		t.Error("two marks are accepted")
	}

	// JSON from the same editors has the mark too.
	text, err := policy.EncodeJSON(want)
	if err != nil {
		t.Fatal(err)
	}

	if got, err := policy.DecodeJSON(append([]byte("\ufeff"), text...)); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("JSON: %v, %v", got, err)
	}
}

func TestDecodeNamesMistakes(t *testing.T) {
	const a = "policies:\n- name: a\n  apps: [shop]\n  limit: 1/1s\n  key: ip\n"

	for _, c := range [][2]string{
		// Nothing at all, and more than one document.
		{"", "policy: there is nothing in it"},
		{"# nothing\n", "policy: there is nothing in it"},
		{"policies:\n", `policy: there is no list of "policies"; write [] for none`},
		{a + "---\n" + a, `policy: [6:1] "---" is not understood here`},

		{a + "...\njunk", `policy: [6:1] "..." is not understood here`},

		{a + "  key: user\n", `policy: [6:3] mapping key "key" already defined at [5:3]`},
		{a + "  limits: 2/1s\n", `policy 0 "a": json: unknown field "limits"`},
		{a + "  Key: ip\n", `policy: the field "Key" is not known`},
		{a + "  priority: 5.5\n", `policy 0 "a": priority: unexpected number 5.5`},
		{a + "  priority: 99999999999999999999\n", `policy 0 "a": priority: unexpected string`},
		{a + "  description: 5\n", `policy 0 "a": description: unexpected number`},

		// What YAML has beyond values: anchors, aliases, tags and complex keys. None of it is
		// understood, so none of it can hide a field.
		{a + "  description: &x y\n", `policy: [6:16] "&" is not understood here`},
		{a + "  description: *x\n", `policy: [6:16] "*" is not understood here`},
		{a + "  description: !!str y\n", `policy: [6:16] "!!str" is not understood here`},
		{a + "  <<: {}\n", `policy: [6:3] "<<" is not understood here`},
		{a + "? key\n: v\n", `policy: [6:1] "?" is not understood here`},
		{"policies: [*a]\n", `policy: [1:12] "*" is not understood here`},
		{"%YAML 1.2\n---\n" + a, `policy: [1:1] "%" is not understood here`},
		{"5: []\n", `policy: [1:1] the field "5" is not known`},
		{"policies:\n\t- name: a\n", "policy: [2:1] found character '\t' that cannot start any token"},

		// Texts that make a reader work much for few bytes end at a bound: depth, entries, fields,
		// size.
		{"policies: " + strings.Repeat("[", 100), "policy: [1:19] the nesting is deeper than 8"},
		{strings.Repeat("- ", 100), "policy: [1:3] an entry of a list is empty or is itself a list"},
		{"policies:\n- # none\n- name: a", "policy: [3:1] an entry of a list is empty or is itself a list"},
		{strings.Repeat("-\n", policyyaml.MaxBytes/2), "policy: [2:1] an entry of a list is empty or is itself a list"},
		{strings.Repeat("a: b\n", 201), "policy: [201:2] there are more than 200 fields"},
		{"policies:\n- a: b\n" + strings.Repeat("  c: {d: e}\n", 200), "policy: [202:4] there are more than 200 fields"},
		{"policies:\n- a: b\n" + strings.Repeat("  c:\n  - d: e\n    f: g\n", 200),
			"policy: [600:4] there are more than 200 fields"},
		{"policies:\n- a: b\n" + strings.Repeat("  c:\n    d: e\n", 200), "policy: [401:4] there are more than 200 fields"},
		{"policies: [{" + strings.Repeat("a: {b: c}, ", 101), "policy: [1:1114] there are more than 200 fields"},
		{strings.Repeat("a: ", 9), "policy: [1:26] the nesting is deeper than 8"},
		{"policies: [{name: }]\n", "policy: [1:19] the field before has no value"},
		{"policies: [{name: a, apps}]\n", "policy: [1:26] the field before has no value"},
		{"policies: [{name, apps: [shop]}]\n", "policy: [1:17] the field before has no value"},
		{"policies: [{}]\n", `policy "": limit: limit "": it is empty; write, say, "100/1m"`},
		{"policies:\nmore:\n", "policy: [2:1] the field before has no value"},
		{a + "  match:\n- name: b\n", "policy: [7:1] the field before has no value"},
		{"policies:\n" + strings.Repeat(" ", 101) + "- a", "policy: [2:102] the nesting is deeper than 8"},
		{"\xff\xfe", "policy: the text is not UTF-8"},
		{strings.Repeat(" ", policyyaml.MaxBytes+1), "policy: 1048577 bytes are more than 1048576"},
	} {
		// Of several mistakes the first is compared.
		_, err := policyyaml.Decode([]byte(c[0]))
		if err == nil || err.Error() != c[1] && !strings.HasPrefix(err.Error(), c[1]+"\n") {
			t.Errorf("%.120q:\n%v\nwant\n%s", c[0], err, c[1])
		}
	}
}

func TestDecodeReadsWhatPeopleWrite(t *testing.T) {
	set, err := policyyaml.Decode([]byte(`---
# what the shop allows
policies:
  - name: login
    apps: [shop, "x"]
    limit: 5/1m sliding-log   # no more
    key: ip+route
    match:
      methods:
      # only these
      - POST
      path: /login/{step}
    mode: off
    description: |
      slow down
      guessing
`))

	// Comments, quotes, document marks and block texts are what people use, and all of them are
	// read.
	want := policy.Set{{Name: "login", Apps: []string{"shop", "x"},
		Limit: core.MustParseLimit("5/1m sliding-log"), Key: "ip+route",
		Match: policy.Match{Methods: []string{"POST"}, Path: "/login/{step}"}, Mode: policy.Off,
		Description: "slow down\nguessing\n"}}
	if err != nil || !reflect.DeepEqual(set, want) {
		t.Errorf("%v\n%+v", err, set)
	}
}

// A list without callers is as none.
func TestEncodeLeavesOutEmptyLists(t *testing.T) {
	s := policy.Set{{
		Name: "p", Apps: []string{"a"}, Limit: core.MustParseLimit("5/1m"), Key: "ip",
		Access: policy.Access{Deny: policy.Callers{Networks: []string{}}, DenyOthers: true,
			Allow: policy.Callers{Networks: []string{"10.0.0.0/8"}}},
	}}
	text, err := policyyaml.Encode(s)
	s[0].Access.Deny = policy.Callers{}
	without, again := policyyaml.Encode(s)
	if err != nil || again != nil || string(text) != string(without) || strings.Contains(string(text), "deny:") {
		t.Errorf("%v, %v:\n%s\nwithout:\n%s", err, again, text, without)
	}
}
