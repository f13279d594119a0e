package policy_test

import (
	"context"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/policyyaml"
)

// full returns a policy with something in every field.
func full(t testing.TB) policy.Policy {
	return policy.Policy{
		Name: "login", Description: "slow\n<down>: #guessing", Apps: []string{"shop", "off", "1e3"},
		Limit: limit(t, "5/1m sliding-log"), Key: "ip+header:X-Tenant",
		Plans: map[string]core.Limit{"pro": limit(t, "9/1m sliding-log")}, PlanBy: "claim",
		Overrides: map[string]policy.Override{"carol": {Limit: limit(t, "7/1m sliding-log")},
			"dave": {Limit: limit(t, "8/1m sliding-log"), Until: time.Date(2026, 12, 4, 17, 0, 0, 0, time.UTC)}},
		Access: policy.Access{
			Allow:      policy.Callers{Networks: []string{"192.0.2.7"}, Keys: []string{"carol"}},
			Deny:       policy.Callers{Networks: []string{"192.0.2.0/24"}, Keys: []string{"mallory"}},
			DenyOthers: true, DenyStatus: 429,
		},
		Match: policy.Match{Methods: []string{"POST"}, Host: "*.example.com", Path: "/login/{step}",
			Except: []string{"/login/help"}, Headers: map[string]policy.Values{"X-Plan": {"free"}},
			Query:  map[string]policy.Values{"Export": {"csv", "1e3"}},
			Claims: map[string]policy.Values{"realm.roles": {"*"}}},
		Cost: policy.Cost{Units: 2}, Refund: policy.Statuses{"304", "5xx"},
		OnLimit: "reject", Enforce: 1250, Warn: 8000, Ban: core.MustParseBan("20/1m for 10m max 24h"),
		OnStoreError: "closed",
		Mode:         policy.Shadow, Priority: -7, Version: 3,
		CreatedBy: "ann", CreatedAt: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC),
		UpdatedBy: "bob", UpdatedAt: time.Date(2026, 2, 2, 3, 4, 5, 0, time.UTC),
	}
}

// plansOfFull has the function that full needs.
var plansOfFull = map[string]policy.PlanFunc{"claim": func(context.Context, string) (string, error) { return "", nil }}

// noneOfFull has the claims that full needs.
func noneOfFull(core.Request) map[string]any { return nil }

func TestFullPolicyHasEveryField(t *testing.T) {
	// A new field of Policy that full leaves zero would be left out of every test of encoding.
	var walk func(v reflect.Value, name string)
	walk = func(v reflect.Value, name string) {
		for i := range v.NumField() {
			f, name := v.Field(i), name+"."+v.Type().Field(i).Name
			if f.Kind() == reflect.Struct && f.Type().PkgPath() == v.Type().PkgPath() &&
				f.Type() != reflect.TypeFor[core.Limit]() {
				walk(f, name)
			} else if f.IsZero() && name != "Policy.CountOnly" && // a policy has it or Refund
				!strings.HasPrefix(name, "Policy.Cost.") { // TestCostsAreReadAsTheyAreWritten has tables
				t.Errorf("%s is zero", name)
			}
		}
	}

	walk(reflect.ValueOf(full(t)), "Policy")
}

const fullJSON = `{
  "policies": [
    {
      "name": "login",
      "description": "slow\n<down>: #guessing",
      "apps": [
        "shop",
        "off",
        "1e3"
      ],
      "limit": "5/1m sliding-log",
      "plans": {
        "pro": "9/1m sliding-log"
      },
      "plan_by": "claim",
      "overrides": {
        "carol": "7/1m sliding-log",
        "dave": {
          "limit": "8/1m sliding-log",
          "until": "2026-12-04T17:00:00Z"
        }
      },
      "cost": 2,
      "refund": [
        304,
        "5xx"
      ],
      "key": "ip+header:X-Tenant",
      "match": {
        "methods": [
          "POST"
        ],
        "host": "*.example.com",
        "path": "/login/{step}",
        "except": [
          "/login/help"
        ],
        "headers": {
          "X-Plan": "free"
        },
        "query": {
          "Export": [
            "csv",
            "1e3"
          ]
        },
        "claims": {
          "realm.roles": "*"
        }
      },
      "access": {
        "allow": {
          "networks": [
            "192.0.2.7"
          ],
          "keys": [
            "carol"
          ]
        },
        "deny": {
          "networks": [
            "192.0.2.0/24"
          ],
          "keys": [
            "mallory"
          ]
        },
        "deny_others": true,
        "deny_status": 429
      },
      "on_limit": "reject",
      "enforce": "12.5%",
      "warn": "80%",
      "ban": "20/1m for 10m max 24h",
      "on_store_error": "closed",
      "mode": "shadow",
      "priority": -7,
      "version": 3,
      "created_by": "ann",
      "created_at": "2026-01-02T03:04:05.000006Z",
      "updated_by": "bob",
      "updated_at": "2026-02-02T03:04:05Z"
    }
  ]
}
`

func TestEncodeWritesASetInOneWay(t *testing.T) {
	text, err := policy.EncodeJSON(policy.Set{full(t)})
	if err != nil || string(text) != fullJSON {
		t.Errorf("%v\n%s\nwant\n%s", err, text, fullJSON)
	}

	// The order of a set means nothing, so two programs that write the same set write the same
	// bytes.
	a, b := valid(t, "a"), full(t)
	for _, f := range formats {
		one, err1 := f.encode(policy.Set{b, a})
		other, err2 := f.encode(policy.Set{a, b})
		if err1 != nil || err2 != nil || string(one) != string(other) {
			t.Errorf("%s: the order shows: %v, %v\n%s\n%s", f.name, err1, err2, one, other)
		}

		back, err := f.decode(one)
		if err != nil || !reflect.DeepEqual(back, policy.Set{a, b}) {
			t.Errorf("%s: %v\n%+v\n%s", f.name, err, back, one)
		}
	}
}

// A Policy has the same fields in and out of a Set.
func TestEncodeWritesASinglePolicyAsInASet(t *testing.T) {
	for _, p := range []policy.Policy{full(t), valid(t, "a")} {
		// A Policy that a program puts into a document of its own must read as one of a set.
		alone, err := json.Marshal(map[string]any{"policies": []policy.Policy{p}})
		if err != nil {
			t.Fatal(err)
		}
		set, err := policy.EncodeJSON(policy.Set{p})
		if err != nil {
			t.Fatal(err)
		}

		var one, other any
		if json.Unmarshal(alone, &one) != nil || json.Unmarshal(set, &other) != nil || !reflect.DeepEqual(one, other) {
			t.Errorf("%s\n%s", alone, set)
		}

		yamlAlone, err := yaml.Marshal(map[string]any{"policies": []policy.Policy{p}})
		if err != nil {
			t.Fatal(err)
		}
		if back, err := policyyaml.Decode(yamlAlone); err != nil || !reflect.DeepEqual(back, policy.Set{p}) {
			t.Errorf("%v\n%s", err, yamlAlone)
		}
	}
}

var formats = []struct {
	name   string
	encode func(policy.Set) ([]byte, error)
	decode func([]byte) (policy.Set, error)
}{
	{"JSON", policy.EncodeJSON, policy.DecodeJSON},
	{"YAML", policyyaml.Encode, policyyaml.Decode},
}

const entry = `"name":"a","apps":["shop"],"limit":"1/1s","key":"ip"`

func TestDecodeJSONNamesMistakes(t *testing.T) {
	for _, c := range [][2]string{
		// Texts that are no set at all, or end in the middle.
		{``, "policy: the text ends too early"},
		{`null`, `policy: there is no list of "policies"; write [] for none`},
		{`[]`, "policy: unexpected array"},
		{`{}`, `policy: there is no list of "policies"; write [] for none`},
		{`{"policies":null}`, `policy: there is no list of "policies"; write [] for none`},
		{`{"policies":[]} x`, "policy: the text goes on after its JSON value"},
		{`{"policies":[]}{"policies":[]}`, "policy: the text goes on after its JSON value"},
		{`{"policies":[`, "policy: the text ends too early"},
		{`{"policies":[{`, "policy: the text ends too early"},
		{`{"policies":[{"name"`, "policy: the text ends too early"},
		// Names are compared exactly, and each may come once: two readers must not see different
		// policies.
		{`{"policies":[],"policies":[]}`, `policy: the field "policies" is repeated`},
		{`{"Policies":[]}`, `policy: the field "Policies" is not known`},
		{`{"policies":[],"more":1}`, `policy: json: unknown field "more"`},
		{`{"policies":[{` + entry + `,"limits":"2/1s"}]}`, `policy 0 "a": json: unknown field "limits"`},
		{`{"policies":[{` + entry + `,"key":"user"}]}`, `policy: the field "key" is repeated`},
		{`{"policies":[{` + entry + `,"KEY":"user"}]}`, `policy: the field "KEY" is not known`},
		{`{"policies":[{` + entry + `,"priority":1.5}]}`, `policy 0 "a": priority: unexpected number 1.5`},
		{`{"policies":[{` + entry + `,"match":{"methods":"GET"}}]}`, `policy 0 "a": match.methods: unexpected string`},
		{`{"policies":[{` + entry + `},{` + entry + `}]}`, `policy "a": name: another policy has the same name`},
		{`{"policies":[{` + entry + `,"mode":"on"}]}`, `policy "a": mode: "on" is not enforce, shadow or off`},
		// Values of the right kind that mean nothing: the message names the policy, and not its
		// place.
		{`{"policies":[{` + entry + `,"created_at":"today"}]}`,
			`policy "a": created_at: "today" is not a time such as 2026-01-31T12:00:00Z`},
		{`{"policies":[{"name":"b","apps":["shop"],"limit":"5","key":"ip"}]}`,
			`policy "b": limit: limit "5": "5" has no period; write, say, "100/1m"`},
		// The ceilings on depth, size and number are each exceeded by one.
		{`[[[[[[[[[]]]]]]]]]`, "policy: the text is nested deeper than 8"},
		{"{\"policies\":[{\"name\":\"\xff\"}]}", "policy: the text is not UTF-8"},
		{strings.Repeat(" ", policy.MaxBytes+1), "policy: 4194305 bytes are more than 4194304"},
		{`{"policies":[` + strings.Repeat(`{},`, policy.MaxPolicies) + `{}]}`,
			"policy: 10001 policies are more than 10000"},
	} {
		_, err := policy.DecodeJSON([]byte(c[0]))
		if err == nil || err.Error() != c[1] {
			t.Errorf("%.80s:\n%v\nwant\n%s", c[0], err, c[1])
		}
	}
}

func TestEncodeRefusesInvalidPolicies(t *testing.T) {
	for _, f := range formats {
		_, err := f.encode(policy.Set{{Name: "a", Apps: []string{"shop"},
			Limit: core.Limit{Quota: 1, Period: time.Second}}})
		wantError(t, err, `policy "a": key: it is empty; write, say, "ip", or "global" for one count for all`)
	}
}

func policies() *rapid.Generator[policy.Policy] {
	// The text has what YAML treats specially: indicators, quotes, line ends, and a letter outside
	// ASCII.
	text := rapid.StringOfN(rapid.RuneFrom([]rune("ab:#'\"-{}[]&*!|>%@` \n\té0~\\?,")), 0, 40, -1)
	return rapid.Custom(func(t *rapid.T) policy.Policy {
		return policy.Policy{
			Name:        rapid.StringMatching(`[a-z][a-z0-9_.-]{0,20}`).Draw(t, "name"),
			Description: text.Draw(t, "description"),
			Apps:        []string{rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9_./-]{0,10}`).Draw(t, "app")},
			Limit: core.Limit{Quota: rapid.Int64Range(1, 1000).Draw(t, "quota"),
				Period: time.Duration(rapid.Int64Range(1, 1e6).Draw(t, "ms")) * time.Millisecond,
				Debt:   rapid.Int64Range(0, 1000).Draw(t, "debt")},
			Key:       rapid.SampledFrom([]string{"ip", "ip/56", "user+route", "cookie:s%d", "global"}).Draw(t, "key"),
			Mode:      policy.Mode(rapid.IntRange(0, 2).Draw(t, "mode")),
			Priority:  rapid.IntRange(-1000, 1000).Draw(t, "priority"),
			UpdatedBy: text.Draw(t, "by"),
			UpdatedAt: time.Unix(rapid.Int64Range(0, 1e10).Draw(t, "at"), 0).UTC(),
		}
	})
}

func TestDecodeReadsTheOutputOfEncode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set := policy.Set{policies().Draw(t, "policy")}

		// Some of the drawn texts hold control characters, which no policy may.
		if set.Validate() != nil {
			t.Skip("no policy that may be written")
		}

		for _, f := range formats {
			text, err := f.encode(set)
			if err != nil {
				t.Fatal(err)
			}

			back, err := f.decode(text)
			if err != nil || !reflect.DeepEqual(back, set) {
				t.Fatalf("%s: %v\n%+v\n%+v\n%s", f.name, err, back, set, text)
			}
		}
	})
}

func FuzzDecode(f *testing.F) {
	yamlText, err := policyyaml.Encode(policy.Set{full(f)})
	if err != nil {
		f.Fatal(err)
	}

	for _, seed := range []string{fullJSON, string(yamlText),
		"policies: [{name: a, apps: [b], key: user, limit: 1/1s, overrides: {'user:42': 1000/1m, \"2001:db8::/64\": 2/1s}}]",
		"policies: []", bannedYAML, `{"policies":[{` + entry + `}]}`,
		`{"policies":[{"name":"a","apps":["b"],"key":"user","limit":"1000/month tz=Europe/Berlin start=15","plans":{"pro":"100000/year start=04-06 debt=7"},"plan_by":"claim"}]}`,
		"policies:\n- name: a\n  apps: [b]\n  key: user\n  limit: 5/week start=7 tz=Asia/Kathmandu\n",
		`{"plans":{"t":{"x":"2/1h"}},"policies":[{` + entry + `,"plans":"t","plan_by":"claim"}]}`,
		"plans: {t: {x: 2/1h}, u: {}}\npolicies:\n- {name: a, apps: [b], key: ip, limit: 1/1s, plans: t, plan_by: c}\n",
		"- - -", "a: |\n b\n", "[{?: *a}]"} {
		f.Add([]byte(seed))
	}

	f.Fuzz(func(t *testing.T, data []byte) {
		// Whatever is read can be written, and what is written reads back to the same text:
		// otherwise a tool that loads and saves a set would change it.
		for _, form := range formats {
			set, err := form.decode(data)
			if err != nil {
				continue
			}

			text, err := form.encode(set)
			if err != nil {
				t.Fatalf("%s was read as %+v, which is not written: %v", form.name, set, err)
			}

			again, err := form.decode(text)
			if err != nil || len(again) != len(set) {
				t.Fatalf("%s: %v\n%s", form.name, err, text)
			}
			if second, err := form.encode(again); err != nil || string(second) != string(text) {
				t.Fatalf("%s is written in two ways: %v\n%s\n%s", form.name, err, text, second)
			}
		}
	})
}
