package policyyaml_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/policyyaml"
)

const misplaced = `policies:
- name: a
  apps: [shop]
  limit: 1/1h
  key: user
  plans: tiers
  plan_by: user
- name: log
  apps: [shop]
  limit: 1/1h sliding-log
  key: user
  plans: tiers
  plan_by: user
- {name: b, apps: [shop], limit: x, key: user, plans: other, plan_by: user}
- {name: c, apps: [shop], limit: 1/1h, key: user, plans: other, plan_by: user}
- {name: d, apps: [shop], limit: 1/1h, key: user, plans: none, plan_by: user}
- {apps: [shop], limit: 1/1h, key: user, plans: {free: x}, plan_by: user}

plans:
  tiers:
    free: 2/1h
    pro.max: 3/1h
  other: {free: 2/1h,
    Pro: 3/1h, max: fast}
  more: {free: 1/1h}
`

func TestDecodeLinesNamesTheLineOfATableOfPlans(t *testing.T) {
	want := []string{
		`line 12: policy "log": plans: the plan "free" of the table "tiers": its algorithm is gcra, and that of the limit ` +
			`sliding-log: only under one algorithm does an upgrade keep what was used; the plan "pro.max" of the table ` +
			`"tiers": its algorithm is gcra, and that of the limit sliding-log: only under one algorithm does an upgrade ` +
			`keep what was used`,
		`line 14: policy "b": limit: limit "x": quota "x" is not a whole number; "x" has no period; write, say, "100/1m"`,
		`line 16: policy "d": plans: the document has no table of plans "none"`,
		`line 17: policy "": plans.free: limit "x": quota "x" is not a whole number; "x" has no period; write, say, "100/1m"`,
		`line 17: policy "": name: it is not 1 to 64 of a-z, 0-9, _, . and -, a letter first`,
		`line 24: plans.other.Pro: it is not 1 to 64 of a-z, 0-9, _, . and -, a letter first`,
		`line 24: plans.other.max: limit "fast": quota "fast" is not a whole number; ` +
			`"fast" has no period; write, say, "100/1m"`,
		`line 25: plans.more: no policy names the table`,
	}

	set, _, err := policyyaml.DecodeLines([]byte(misplaced))
	got := lineErrors(t, err)
	if set != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("the mistakes are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// What Decode refuses as a whole is one mistake.
func TestDecodeLinesOfTablesWithoutRoomOrPolicies(t *testing.T) {
	const table = "{a: 1/1h}"
	wide := "{"
	for i := range policy.MaxPlans {
		wide += fmt.Sprintf("p%02d%s: 1/1h, ", i, strings.Repeat("x", 60))
	}
	wide = wide[:len(wide)-2] + "}"

	// Only the bytes of the tables tell the two texts apart.
	text := func(table string) string {
		text := "plans: {t: " + table + "}\npolicies:\n"
		for i := range 1000 {
			text += fmt.Sprintf("- {name: p%d, apps: [shop], limit: 1/1h, key: user, plans: t, plan_by: user}\n", i)
		}
		return text
	}

	for text, want := range map[string][]string{
		text(table): nil,
		text(wide): {
			"line 1: with a table of plans for each policy that names one, the text has more than 4194304 bytes"},
		"plans: {t: {a: x}}\n":               {`line 1: there is no list of "policies"; write [] for none`},
		"plans: {t: {a: x}}\npolicies: no\n": {"line 1: policies: unexpected string"},
		"plans: no\npolicies: []\n":          {"line 1: plans: unexpected string"},
		"\n\nplans: {t: {a: x}}\npolicies: []\n": {
			`line 3: plans.t.a: limit "x": quota "x" is not a whole number; "x" has no period; write, say, "100/1m"`,
			"line 3: plans.t: no policy names the table"},
	} {
		if _, _, err := policyyaml.DecodeLines([]byte(text)); !reflect.DeepEqual(lineErrors(t, err), want) {
			t.Errorf("%.100s\n%v\nwant\n%s", text, err, strings.Join(want, "\n"))
		}
	}
}

const shared = `# the shop
plans: # all
  # tiers of the shop
  tiers: {pro: 100000/1h, free: 1000/60m} # one
  other:
    # a
    a: 1/1h # one unit
# the policies
policies: # list
- name: search   # se
  apps: [a]
  limit: 10/1m
  # which
  plans: tiers # t
  plan_by: user
  key: user
- {name: own, apps: [a], key: user, limit: 10/1m, plans: {free: 1000/1h}, plan_by: user}
- {name: log, description: "\"plans\": {", apps: [plans], key: user, limit: 10/1m, plans: tiers, plan_by: user}
- {name: o, apps: [a], key: user, limit: 10/1m, plans: other, plan_by: user}
# end
`

const formatted = `# the shop
plans: # all
  other:
    # a
    a: 1/1h # one unit
  # tiers of the shop
  tiers:
    free: 1000/1h # one
    pro: 100000/1h
# the policies
policies: # list
- name: log
  description: "\"plans\": {"
  apps:
  - plans
  limit: 10/1m
  plans: tiers
  plan_by: user
  key: user
- name: o
  apps:
  - a
  limit: 10/1m
  plans: other
  plan_by: user
  key: user
- name: own
  apps:
  - a
  limit: 10/1m
  plans:
    free: 1000/1h
  plan_by: user
  key: user
- name: search # se
  apps:
  - a
  limit: 10/1m
  # which
  plans: tiers # t
  plan_by: user
  key: user
# end
`

// The tables stay beside the policies, and so do their comments.
func TestFormatKeepsTablesOfPlans(t *testing.T) {
	for _, text := range []string{shared, formatted} {
		if got, err := policyyaml.Format([]byte(text)); err != nil || string(got) != formatted {
			t.Errorf("%v\n%s\nwant\n%s", err, got, formatted)
		}
	}

	// Tables behind the policies come first.
	const behind = "# one\npolicies:\n- {name: a, apps: [a], key: user, limit: 1/1m, plans: t, plan_by: user}\n" +
		"# two\nplans:\n  t: {a: 1/1m}\n"
	const first = "# one\n# two\nplans:\n  t:\n    a: 1/1m\npolicies:\n- name: a\n  apps:\n  - a\n  limit: 1/1m\n" +
		"  plans: t\n  plan_by: user\n  key: user\n"

	if got, err := policyyaml.Format([]byte(behind)); err != nil || string(got) != first {
		t.Errorf("%v\n%s\nwant\n%s", err, got, first)
	}
}

const sharedJSON = `{"policies": [
		{"name": "b", "apps": ["a"], "limit": "1/1m", "plans": "t", "plan_by": "user", "key": "user",
		 "overrides": {"plans": "1/1m"}},
		{"name": "a", "description": "<\"plans\": {", "apps": ["a"], "limit": "1/1m", "plans": {"x": "2/60m"},
		 "plan_by": "user", "key": "user"}], "plans": {"t": {"x": "2/60m"}}}`

const formattedJSON = `{
  "plans": {
    "t": {
      "x": "2/1h"
    }
  },
  "policies": [
    {
      "name": "a",
      "description": "<\"plans\": {",
      "apps": [
        "a"
      ],
      "limit": "1/1m",
      "plans": {
        "x": "2/1h"
      },
      "plan_by": "user",
      "key": "user"
    },
    {
      "name": "b",
      "apps": [
        "a"
      ],
      "limit": "1/1m",
      "plans": "t",
      "plan_by": "user",
      "overrides": {
        "plans": "1/1m"
      },
      "key": "user"
    }
  ]
}
`

func TestEncodeJSONOfLinesKeepsTablesOfPlans(t *testing.T) {
	set, lines, err := policyyaml.DecodeLines([]byte(strings.ReplaceAll(sharedJSON, "\t", " ")))
	if err != nil {
		t.Fatal(err)
	}

	if got, err := lines.EncodeJSON(set); err != nil || string(got) != formattedJSON {
		t.Errorf("%v\n%s\nwant\n%s", err, got, formattedJSON)
	}
	if back, err := policy.DecodeJSON([]byte(formattedJSON)); err != nil || len(back) != 2 {
		t.Errorf("%+v, %v", back, err)
	}
}
