package policy_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/policyyaml"
)

// sharing returns a document in YAML with the tables of plans, and with a policy for each name of a
// table.
func sharing(tables string, names ...string) string {
	text := "plans:\n" + tables + "policies:\n"
	for i, name := range names {
		text += fmt.Sprintf("- {name: p%d, apps: [shop], limit: 10/1h, key: ip, plans: %s, plan_by: user}\n", i, name)
	}
	return text
}

// A policy that names a table is as one with a table of its own.
func TestTablesOfPlansAreThoseOfThePolicies(t *testing.T) {
	const inYAML = `
plans:
  tiers: {free: 1000/1h, pro.max: 100000/1h burst=20}
  headers:
    free: 5/1h
policies:
- {name: a, apps: [shop], limit: 10/1m, key: ip, plans: tiers, plan_by: user}
- {name: b, apps: [shop], limit: 20/1m, key: ip, plans: tiers, plan_by: tenant}
- {name: c, apps: [shop], limit: 30/1m, key: ip, plans: headers, plan_by: user}
- {name: d, apps: [shop], limit: 40/1m, key: ip, plans: {tiers: 9/1h}, plan_by: user}
`
	const inJSON = `{"policies": [
	{"plans": "tiers", "name": "a", "apps": ["shop"], "limit": "10/1m", "key": "ip", "plan_by": "user"},
	{"name": "b", "apps": ["shop"], "limit": "20/1m", "key": "ip", "plans": "tiers", "plan_by": "tenant"},
	{"name": "c", "apps": ["shop"], "limit": "30/1m", "key": "ip", "plan_by": "user", "plans": "headers"},
	{"name": "d", "apps": ["shop"], "limit": "40/1m", "key": "ip", "plans": {"tiers": "9/1h"}, "plan_by": "user"}],
	"plans": {"headers": {"free": "5/1h"}, "tiers": {"pro.max": "100000/1h burst=20", "free": "1000/1h"}}}`

	tiers := func() map[string]core.Limit {
		return map[string]core.Limit{"free": limit(t, "1000/1h"), "pro.max": limit(t, "100000/1h burst=20")}
	}
	of := func(name, text, by string, plans map[string]core.Limit) policy.Policy {
		p := valid(t, name)
		p.Limit, p.PlanBy, p.Plans = limit(t, text), by, plans
		return p
	}
	want := policy.Set{of("a", "10/1m", "user", tiers()), of("b", "20/1m", "tenant", tiers()),
		of("c", "30/1m", "user", map[string]core.Limit{"free": limit(t, "5/1h")}),
		of("d", "40/1m", "user", map[string]core.Limit{"tiers": limit(t, "9/1h")})}

	for i, text := range []string{inJSON, inYAML} {
		set, err := formats[i].decode([]byte(text))
		if err != nil || !reflect.DeepEqual(set, want) {
			t.Fatalf("%s: %v\n%+v\nwant\n%+v", formats[i].name, err, set, want)
		}

		// What is written has no tables beside the policies.
		for _, f := range formats {
			text, err := f.encode(set)
			back, err2 := f.decode(text)
			if err != nil || err2 != nil || !reflect.DeepEqual(back, want) ||
				strings.Contains(string(text), "headers") || strings.HasPrefix(string(text), "plans") {
				t.Errorf("%s: %v, %v\n%s", f.name, err, err2, text)
			}
		}

		// The table is each policy's own, so a change of one changes no other.
		set[0].Plans["free"] = limit(t, "1/1h")
		if !reflect.DeepEqual(set[1], want[1]) {
			t.Errorf("%s: a change of one policy's plans is in another: %+v", formats[i].name, set[1].Plans)
		}
	}
}

func TestTablesOfPlansNameEveryMistake(t *testing.T) {
	many := ""
	for i := range policy.MaxPlans + 1 {
		many += fmt.Sprintf(", p%d: 1/1h", i)
	}

	for _, c := range []struct {
		text string
		want []string
	}{
		// A mistake in a table is told once, however many policies name it.
		{sharing("  tiers: {free: fast, Pro: 1/1h, top: 5, ok: 2/1h}\n", "tiers", "tiers"), []string{
			"plans.tiers.Pro: it is not 1 to 64 of a-z, 0-9, _, . and -, a letter first",
			`plans.tiers.free: limit "fast": quota "fast" is not a whole number; "fast" has no period; write, say, "100/1m"`,
			"plans.tiers.top: unexpected number",
		}},
		{sharing("  Tiers: {ok: 1/1h}\n  a: {}\n  b: [x]\n  c: {"+many[2:]+"}\n  d:  {ok: 1/1h}\n  e: 7\n  f: {ok: x}\n",
			"Tiers", "a", "b", "c", "e", "d2", `""`, "tiers"), []string{
			"plans.Tiers: it is not 1 to 64 of a-z, 0-9, _, . and -, a letter first",
			"plans.a: the table is empty",
			"plans.b: unexpected array",
			"plans.c: 65 plans are more than 64",
			"plans.d: no policy names the table",
			"plans.e: unexpected number",
			`plans.f.ok: limit "x": quota "x" is not a whole number; "x" has no period; write, say, "100/1m"`,
			"plans.f: no policy names the table",
			`policy "p5": plans: the document has no table of plans "d2"`,
			`policy "p6": plans: the document has no table of plans ""`,
			`policy "p7": plans: the document has no table of plans "tiers"`,
		}},

		// A policy with other mistakes names its table all the same.
		{"plans: {tiers: {free: 1/1h}}\npolicies:\n- {name: a, plans: tiers, limits: 5, apps: [x], limit: 1/1h, key: ip}\n",
			[]string{`policy 0 "a": json: unknown field "limits"`}},
		{"plans: {tiers: {free: 1/1h}}\npolicies:\n- {name: a, plans: tiers, apps: [x], limit: x, key: ip}\n", []string{
			`policy "a": limit: limit "x": quota "x" is not a whole number; "x" has no period; write, say, "100/1m"`,
			`policy "a": plan_by: it is empty; it has to name the function in Bindings.Plans that knows the plan of a caller`}},

		// Plans that a policy cannot have are named with the policy and the table.
		{sharing("  tiers: {free: 1/1h, log: 9/1h sliding-log}\n", "tiers"), []string{
			`policy "p0": plans: the plan "log" of the table "tiers": its algorithm is sliding-log, and that of the ` +
				`limit gcra: only under one algorithm does an upgrade keep what was used`}},

		// What is no table at all, or is there twice.
		{"plans: [a]\npolicies: []\n", []string{"policy: plans: unexpected array"}},
		{"plans: tiers\npolicies: []\n", []string{"policy: plans: unexpected string"}},
		{sharing("  a: {ok: 1/1h}\n  a: {ok: 1/1h}\n", "a"), []string{
			`policy: [3:3] mapping key "a" already defined at [2:3]`}},
		{"plans: {}\n" + sharing("  a: {ok: 1/1h}\n", "a"), []string{
			`policy: [2:1] mapping key "plans" already defined at [1:1]`}},
		{"plans: {a: {ok: 1/1h}}\n", []string{`policy: there is no list of "policies"; write [] for none`}},
	} {
		set, err := policyyaml.Decode([]byte(c.text))
		got := strings.Split(fmt.Sprint(err), "\n")
		if set != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s\n%s\nwant\n%s", c.text, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}

	_, err := policy.DecodeJSON([]byte(`{"plans":{"a":{"x":"1/1h"},"a":{"x":"1/1h"}},"policies":[]}`))
	wantError(t, err, `policy: the field "a" is repeated`)

	// No policies name none of too many tables.
	tables := ""
	for i := range 65 {
		tables += fmt.Sprintf("  t%d: {ok: 1/1h}\n", i)
	}
	_, err = policyyaml.Decode([]byte(sharing(tables)[:len(sharing(tables))-1] + " []\n"))
	if got := strings.Split(fmt.Sprint(err), "\n"); len(got) != 1 || got[0] != "plans: 65 tables are more than 64" {
		t.Errorf("%d mistakes, the first %q", len(got), got[0])
	}
}

// The tables of all policies together are bounded as a text that has each of them.
func TestTablesOfPlansAreBounded(t *testing.T) {
	const plan = `"p":"1/1h"`
	table := `{` + plan + strings.Repeat(" ", 40_000-len(plan)-2) + `}`
	text := func(policies int) []byte {
		var list []string
		for i := range policies {
			list = append(list,
				fmt.Sprintf(`{"name":"p%03d","apps":["shop"],"limit":"1/1h","key":"ip","plans":"t","plan_by":"u"}`, i))
		}
		return []byte(`{"plans":{"t":` + table + `},"policies":[` + strings.Join(list, ",") + `]}`)
	}

	// The first number of policies whose tables do not fit any more.
	over := 1
	for ; len(text(over))+over*len(table) <= policy.MaxBytes; over++ {
	}
	set, err := policy.DecodeJSON(text(over - 1))
	if err != nil || len(set) != over-1 {
		t.Errorf("%d policies, %v", len(set), err)
	}
	set, err = policy.DecodeJSON(text(over))
	if set != nil {
		t.Errorf("%d policies", len(set))
	}
	wantError(t, err, "policy: with a table of plans for each policy that names one, the text has more than 4194304 bytes")
}
