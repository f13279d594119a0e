package policyyaml_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/policy/policyyaml"
)

// lineErrors returns the mistakes in a text, and fails the test if one has no line.
func lineErrors(t testing.TB, err error) (list []string) {
	t.Helper()
	if err == nil {
		return nil
	}
	for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
		var line *policyyaml.LineError
		if !errors.As(e, &line) || line.Line < 1 {
			t.Errorf("%v has no line", e)
		}
		list = append(list, e.Error())
	}
	return list
}

func TestDecodeLinesNamesTheLineOfEveryMistake(t *testing.T) {
	const text = `# limits of the shop
policies:
- name: login   # guessing
  apps: [shop]
  limit: fast
  key: ip
  match:
    path: login

- key: ip
  name: Search
  apps:
  - shop
  - "?"
  limit: 1/1s
  limits: 2/1s

- {name: login, apps: [shop], limit: 1/1s, key: ip}
- name: plans
  description: |
    one
    two
  apps: [shop]
  limit: 1/1s
  plans:
    free: 1/1s
    pro.max: x
  key: ip
  priority: 1.5
- name: plans2
  apps: [shop]
  limit: 1/1s
  plans:
    free: 1/1s
    pro.max: x
  mode: on
  key: ip
more: 5
`

	// Lines are those of the editor, so neither the line ends nor a byte order mark may move them.
	for name, text := range map[string]string{"LF": text, "CRLF": strings.ReplaceAll(text, "\n", "\r\n"),
		"a mark": "\ufeff" + text} {
		t.Run(name, func(t *testing.T) {
			set, lines, err := policyyaml.DecodeLines([]byte(text))

			got := lineErrors(t, err)
			want := []string{
				// The first four are found by different readers: the limit's, the policy's, the
				// format's and the set's.
				`line 5: policy "login": limit: limit "fast": quota "fast" is not a whole number; "fast" has no period; write, say, "100/1m"`,
				`line 8: policy "login": match.path: "login" does not begin with a slash`,
				`line 16: unknown field "limits"`,
				`line 18: policy "login": name: another policy has the same name`,
				// A field whose name holds a dot is not the end of a path, and a text of several
				// lines counts as so many.
				`line 29: priority: unexpected number 1.5`,
				`line 30: policy "plans2": plan_by: it is empty; it has to name the function in Bindings.Plans that knows the plan of a caller`,
				`line 35: policy "plans2": plans.pro.max: limit "x": quota "x" is not a whole number; "x" has no period; write, say, "100/1m"`,
				`line 36: policy "plans2": mode: "on" is not enforce, shadow or off`,
				`line 38: the field "more" is not known`,
			}

			if !reflect.DeepEqual(got, want) || set != nil {
				t.Errorf("the mistakes are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}

			// The names are known in spite of the mistakes, so that an editor can list them.
			if names := fmt.Sprint(lines.Names()); names != "[login Search login plans plans2]" {
				t.Errorf("the names are %s", names)
			}
		})
	}
}

func TestDecodeLinesFindsFieldsWithoutMistakes(t *testing.T) {
	set, lines, err := policyyaml.DecodeLines([]byte(fullYAML))
	if err != nil || len(set) != 1 {
		t.Fatal(set, err)
	}

	// A field that the text leaves out has the line of the nearest one around it, at last that of
	// the policy.
	for field, want := range map[string]int{
		"": 2, "name": 2, "description": 3, "apps": 4, "limit": 8, "match": 10, "match.methods": 11,
		"match.host": 13, "match.path": 14,
		"ban": 15, "ban.more": 15, "mode": 17, "updated_at": 23, "access": 2, "access.deny": 2, "..": 2, ".": 2,
	} {
		if got := lines.Line(0, field); got != want {
			t.Errorf("%q is in line %d, want %d", field, got, want)
		}
	}
}

func TestDecodeLinesWithoutAListOfPolicies(t *testing.T) {
	// Wherever there is no field to point at, the first line or that of the entry before stands for
	// it.
	for _, c := range [][2]string{
		{"", "line 1: there is nothing in it"},
		{"5", "line 1: unexpected number"},
		{"a: b\n", `line 1: the field "a" is not known`},
		{"\n\npolicies: 7\n", "line 1: policies: unexpected number"},
		{"\xff", "line 1: the text is not UTF-8"},

		// What the format leaves out, and what YAML itself refuses.
		{"policies:\n\n- &a {}\n", `line 3: "&" is not understood here`},
		{"policies:\n- name: a\n\tapps: x\n", "line 3: found character '\t' that cannot start any token"},
		{"policies:\n- name: a\n- 5\n", `line 2: policy "a": apps: no application is named`},
		{strings.Repeat(" ", policyyaml.MaxBytes+1), "line 1: 1048577 bytes are more than 1048576"},
	} {
		_, _, err := policyyaml.DecodeLines([]byte(c[0]))
		if got := lineErrors(t, err); len(got) == 0 || !slices.Contains(got, c[1]) {
			t.Errorf("%.50q: %q\nwant %q", c[0], got, c[1])
		}
	}
}

// DecodeLines accepts what Decode accepts, and has a line for everything else.
func FuzzDecodeLines(f *testing.F) {
	// Seeds with names that look like paths, and with a repeated list.
	f.Add(fullYAML)
	f.Add("policies: [{name: a, apps: [b], limit: 1/1s, key: ip}, {name: a}]")
	f.Add("policies:\n- name: a\n  a.b: c\n  a:\n    b: c\n")
	f.Add("policies: []\npolicies: []\n")
	f.Add("plans: {t: {x: 2/1h}}\npolicies: [{name: a, apps: [b], limit: 1/1s, key: ip, plans: t, plan_by: c}]")
	f.Add("policies:\n- name: a\n  plans: u\nplans:\n  t:\n    x: 2\n  u.v: {w: {}}\n")

	f.Fuzz(func(t *testing.T, text string) {
		want, wantErr := policyyaml.Decode([]byte(text))
		set, lines, err := policyyaml.DecodeLines([]byte(text))
		if !reflect.DeepEqual(set, want) || (err == nil) != (wantErr == nil) {
			t.Fatalf("%v %v, want %v %v", set, err, want, wantErr)
		}

		lineErrors(t, err)
		if err == nil && len(lines.Names()) != len(set) {
			t.Errorf("the names are %q of %d policies", lines.Names(), len(set))
		}

		// Names and lines exist even for what could not be decoded.
		for i, name := range lines.Names() {
			if lines.Line(i, "name") < 1 || lines.Line(i, "match.path") < 1 || err == nil && name != set[i].Name {
				t.Errorf("policy %d is %q", i, name)
			}
		}
	})
}
