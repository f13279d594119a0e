package limitfile

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func parse(t testing.TB, texts ...string) *Config {
	t.Helper()
	c, err := Parse(files(texts...))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func files(texts ...string) []File {
	list := make([]File, len(texts))
	for i, text := range texts {
		list[i] = File{fmt.Sprintf("%c.yaml", 'a'+i), []byte(text)}
	}
	return list
}

// entries reads "k=v k2=v2".
func entries(text string) []Entry {
	var list []Entry
	for _, f := range strings.Fields(text) {
		key, value, _ := strings.Cut(f, "=")
		list = append(list, Entry{key, value})
	}
	return list
}

// found describes the limit that the entries lead to, and the key of its count.
func found(d *Domain, text string) string {
	l, key := d.Find(entries(text), nil)
	switch {
	case l == nil:
		return "none"
	case l.Unlimited:
		return "unlimited"
	}
	s := fmt.Sprintf("%d/%s %s", l.Requests, units[l.Unit].name, key)
	if l.Shadow {
		s += " shadow"
	}
	return s
}

const precedence = `
domain: shop
descriptors:
- key: a
  value: "1"
  descriptors:
  - {key: sub, rate_limit: {unit: second, requests_per_unit: 5}}
  - {key: sub, value: x, rate_limit: {unit: SECOND, requests_per_unit: 10}}
- {key: b, rate_limit: {unit: minute, requests_per_unit: 20}}
- {key: b, value: "2", rate_limit: {unit: Minute, requests_per_unit: 30}}
- {key: b, value: free}
- key: c
  rate_limit: {unit: day, requests_per_unit: 15}
  descriptors:
  - {key: sub, value: x, rate_limit: {unit: week, requests_per_unit: 25}, shadow_mode: true}
- {key: d, rate_limit: {unlimited: true}}
- {key: e, value: x*, rate_limit: {unit: month, requests_per_unit: 1}}
- {key: e, value: xy*, rate_limit: {unit: month, requests_per_unit: 2}}
- {key: e, value: xyz, rate_limit: {unit: month, requests_per_unit: 3}}
- {key: e, value: "*end", rate_limit: {unit: month, requests_per_unit: 4}}
- {key: e, value: /a/*/b/*/c, rate_limit: {unit: year, requests_per_unit: 5}}
- {key: e, rate_limit: {unit: hour, requests_per_unit: 6}}
- {key: f, value: up/*, share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 7}}
- key: g
  value: t*p
  share_threshold: true
  descriptors:
  - {key: h, value: r*, rate_limit: {unit: hour, requests_per_unit: 8}}
- {key: i, value: aa*aa, rate_limit: {unit: hour, requests_per_unit: 9}}
- {key: j, value: "*", rate_limit: {unit: hour, requests_per_unit: 11}}
- {key: j, rate_limit: {unit: hour, requests_per_unit: 12}}
`

func TestFind(t *testing.T) {
	d := parse(t, precedence).Domain("shop")
	for _, row := range []struct{ entries, want string }{
		{"", "none"},

		// A descriptor without a limit, and a value without a descriptor, lead to nothing.
		{"a=1", "none"},
		{"a=2", "none"},
		{"a=1 sub=y", "5/second 1|y"},
		{"a=1 sub=x", "10/second 1|x"},

		// Entries lead down the tree as far as they go: one too many leads to nothing.
		{"a=1 sub=x more=1", "none"},
		{"a=2 sub=x", "none"},
		{"sub=x", "none"},
		{"b=1", "20/minute 1"},
		{"b=", "20/minute "},
		{"b=2", "30/minute 2"},

		// "free" is there, and has no limit: it does not take that of its key.
		{"b=free", "none"},
		{"b=2 sub=x", "none"},
		{"B=2", "none"},
		{"c=1", "15/day 1"},
		{"c=1 sub=x", "25/week 1|x shadow"},
		{"c=1 sub=y", "none"}, // which does not fall back to the limit of c
		{"d=1", "unlimited"},
		{"e=xyz", "3/month xyz"}, // the value before any pattern
		{"e=xya", "1/month xya"}, // the first pattern of the file, not the longest
		{"e=x", "1/month x"},
		{"e=theend", "4/month theend"},
		{"e=/a/1/b/2/c", "5/year /a/1/b/2/c"},
		{"e=/a//b//c", "5/year /a//b//c"},
		{"e=/a/b/c", "6/hour /a/b/c"},
		{"e=other", "6/hour other"},

		// A shared threshold has one count for all that its pattern fits.
		{"f=up/1", "7/hour up/*"},
		{"f=up/2", "7/hour up/*"},
		{"f=down", "none"},
		{"g=t1p h=r1", "8/hour t*p|r1"},
		{"g=t2p h=r1", "8/hour t*p|r1"},
		{"g=tp h=r2", "8/hour t*p|r2"},
		{"i=aa", "none"}, // the beginning and the end do not overlap
		{"i=aaa", "none"},
		{"i=aaaa", "9/hour aaaa"},
		{"j=", "11/hour "},
	} {
		if got := found(d, row.entries); got != row.want {
			t.Errorf("%q leads to %q, want %q", row.entries, got, row.want)
		}
	}
}

func TestFindNeverConfusesKeysAndValues(t *testing.T) {
	d := parse(t, `
domain: shop
descriptors:
- {key: a_b, rate_limit: {unit: second, requests_per_unit: 1}}
- key: a
  descriptors: [{key: b, rate_limit: {unit: second, requests_per_unit: 2}}]
`).Domain("shop")

	if got := found(d, "a=b"); got != "none" {
		t.Errorf("a=b leads to %q, want none: a_b is another key", got)
	}

	// A separator within a value must not make one key of two different lists.
	one, _ := d.Find([]Entry{{"a", `x|y`}, {"b", "z"}}, nil)
	_, k1 := d.Find([]Entry{{"a", `x|y`}, {"b", "z"}}, nil)
	_, k2 := d.Find([]Entry{{"a", `x`}, {"b", "y|z"}}, nil)
	_, k3 := d.Find([]Entry{{"a", `x\`}, {"b", "y|z"}}, nil)
	if one == nil || string(k1) == string(k2) || string(k2) == string(k3) || string(k1) == string(k3) {
		t.Errorf("different values have the keys %q, %q and %q", k1, k2, k3)
	}

	k4, k5 := AppendKey(nil, []Entry{{"a", "b|=c"}}), AppendKey(nil, []Entry{{"a", "b"}, {"", "c"}})
	if string(k4) == string(k5) {
		t.Errorf("different entries have the key %q", k4)
	}
}

func TestRulesHaveNamesOfTheirOwn(t *testing.T) {
	c := parse(t, precedence, `
domain: Shop
descriptors:
- {key: b, rate_limit: {unit: minute, requests_per_unit: 20}}
- {key: override, rate_limit: {unit: minute, requests_per_unit: 20}}
- {key: x_y, rate_limit: {unit: minute, requests_per_unit: 1}}
- {key: x, value: y, rate_limit: {unit: minute, requests_per_unit: 2}}
- {key: `+strings.Repeat("k", 100)+`, rate_limit: {unit: minute, requests_per_unit: 3}}
`)

	seen := map[string]bool{}
	for _, name := range c.Domains() {
		d := c.Domain(name)

		// Places are those of the list, by which the server finds the rule of a limit.
		for i, l := range d.Limits {
			if l.Place != i {
				t.Errorf("limit %d of %s is at place %d", i, name, l.Place)
			}
			if seen[l.Rule] || len(l.Rule) > maxRule {
				t.Errorf("the name %q is there twice, or too long", l.Rule)
			}
			seen[l.Rule] = true
		}

		// Limits that requests bring with them are counted beside, under a name that no limit may
		// have.
		if seen[d.OverrideRule()] {
			t.Errorf("a limit has the name %q", d.OverrideRule())
		}
		seen[d.OverrideRule()] = true
	}

	for _, name := range []string{"rls.shop.a_1.sub", "rls.shop.b_2", "rls.shop.override"} {
		if !seen[name] {
			t.Errorf("there is no %q", name)
		}
	}
	if t.Failed() {
		t.Log(seen)
	}
}

func TestWindows(t *testing.T) {
	// Windows of a folder begin with the unit, as those of the service that it replaces.
	for _, row := range []struct{ limit, want string }{
		{"unit: second, requests_per_unit: 3", "3/1s fixed-window aligned"},
		{"unit: minute, requests_per_unit: 3", "3/1m fixed-window aligned"},
		{"unit: hour, requests_per_unit: 3", "3/1h fixed-window aligned"},
		{"unit: day, requests_per_unit: 3", "3/24h fixed-window aligned"},
		{"unit: week, requests_per_unit: 3", "3/168h fixed-window aligned"},
		{"unit: month, requests_per_unit: 3", "3/720h fixed-window aligned"},
		{"unit: year, requests_per_unit: 3", "3/8760h fixed-window aligned"},
		{"unit: minute, requests_per_unit: 3, unit_multiplier: 5", "3/5m fixed-window aligned"},

		// The other algorithms have no windows to align.
		{"unit: minute, requests_per_unit: 3, algorithm: sliding-window", "3/1m sliding-window"},
		{"unit: minute, requests_per_unit: 3, algorithm: gcra", "3/1m"},
		{"unit: minute, requests_per_unit: 4294967295", "4294967295/1m fixed-window aligned"},
		{"unit: minute, requests_per_unit: 0", "1/1m fixed-window aligned"}, // and Requests is 0
	} {
		d := parse(t, "domain: d\ndescriptors: [{key: k, rate_limit: {"+row.limit+"}}]").Domain("d")
		if got := d.Limits[0].Limit.String(); got != row.want {
			t.Errorf("%s: %q, want %q", row.limit, got, row.want)
		}
	}

	if Week.Span() != 168*time.Hour || Unit(0).Span() != 0 || Unit(99).Span() != 0 {
		t.Error("a unit has a wrong length")
	}
}

func TestParseReadsAllFields(t *testing.T) {
	// Anchors, a tag of nothing, a number as a domain: what YAML allows is read as YAML means it.
	c := parse(t, `# comment
domain: &d 7
descriptors: &list
- key: k
  value: 12
  detailed_metric: true
  value_to_metric: yes
  shadow_mode: true
  quota_mode: true
  metadata: {name: one, n: 2, deep: {list: [a, true, null]}}
  rate_limit:
    name: first
    replaces: [{name: second}, {name: third}]
    unit: hour
    requests_per_unit: 1_000
- key: l
  descriptors: []
  rate_limit: null
`, "domain: 7\ndescriptors:\n- {key: l, value: '1', rate_limit: {unlimited: true, unit: , requests_per_unit: 5}}\n")

	d := c.Domain("7")
	if d == nil || len(d.Limits) != 1 {
		t.Fatalf("domains %q", c.Domains())
	}

	l := d.Limits[0]
	if !l.Shadow || !l.QuotaMode || l.Name != "first" || !slices.Equal(l.Replaces, []string{"second", "third"}) ||
		l.Requests != 1000 {
		t.Errorf("read %+v", l)
	}

	if got := fmt.Sprint(l.Metadata); got != "map[deep:map[list:[a true <nil>]] n:2 name:one]" {
		t.Errorf("metadata %s", got)
	}

	if got := found(d, "k=12"); got != "1000/hour 12 shadow" {
		t.Errorf("k=12 leads to %q", got)
	}

	if got := found(d, "l=1"); got != "unlimited" {
		t.Errorf("l=1 leads to %q: a domain may be in two files", got)
	}
}

func TestParseNamesEveryMistake(t *testing.T) {
	limit := func(fields string) string {
		return "domain: d\ndescriptors:\n- key: k\n  rate_limit:\n    " + fields + "\n"
	}
	for _, row := range []struct{ text, want string }{
		// What is no file of limits at all.
		{"", "a.yaml: there is nothing in it"},
		{"\xff", "a.yaml: the text is not UTF-8"},
		{"a: b: c", "a.yaml: yaml: mapping values are not allowed"},
		{"domain: a\n---\ndomain: b", "a.yaml: there is more than one document in it"},
		{"- a", "a.yaml:1: a file is not a mapping of fields"},
		{"descriptors: []", "a.yaml:1: the domain is empty"},
		{"domain: d\nunit: hour", `a.yaml:2: a file has no field "unit"`},
		{"domain: d\ndomain: e", "a.yaml:2: domain is there twice"},

		{"domain: d\ndescriptors: 7", "a.yaml:2: this is not a list"},
		{"domain: d\ndescriptors: [7]", "a.yaml:2: a descriptor is not a mapping of fields"},
		{"domain: d\ndescriptors:\n- value: v", "a.yaml:3: a descriptor has no key"},
		{"domain: d\ndescriptors:\n- {key: k*}", `a.yaml:3: the key "k*" has a "*"`},
		{"domain: d\ndescriptors:\n- {key: [k]}", "a.yaml:3: this is not a text"},
		{"domain: d\ndescriptors:\n- {key: k}\n- {key: k}",
			`a.yaml:4: the descriptor "k" is there already, at a.yaml:3`},
		{"domain: d\ndescriptors:\n- {key: k, value: v}\n- {key: k, value: v}",
			`a.yaml:4: the descriptor "k" with the value "v" is there already`},
		{"domain: d\ndescriptors:\n- {key: k, value: v*}\n- {key: k, value: v*}",
			`a.yaml:4: the descriptor "k" with the value "v*" is there already`},
		{"domain: d\ndescriptors:\n- {key: k, value: v, share_threshold: true}",
			"a.yaml:3: share_threshold means nothing"},
		{"domain: d\ndescriptors:\n- {key: k, shadow_mode: maybe}", `a.yaml:3: "maybe" is not true or false`},
		{"domain: d\ndescriptors:\n- {key: k, rate_limits: {}}", `a.yaml:3: a descriptor has no field "rate_limits"`},
		{"domain: d\ndescriptors:\n- {key: k, metadata: 7}", "a.yaml:3: metadata is not a mapping"},
		{"domain: d\ndescriptors:\n- {key: k, <<: {value: v}}", `a.yaml:3: a descriptor has no field "<<"`},

		// The limits themselves. The line is that of the field which is wrong.
		{limit("unit: fortnight"), `a.yaml:5: the unit "fortnight" is not`},
		{limit("requests_per_unit: 5"), `a.yaml:5: the unit "" is not`},
		{limit("unlimited: true\n    unit: day"), "a.yaml:6: an unlimited rate_limit has no unit"},
		{limit("unit: day\n    requests_per_unit: -1"), `a.yaml:6: "-1" is not a whole number`},
		{limit("unit: day\n    requests_per_unit: 4294967296"), `a.yaml:6: "4294967296" is not a whole number`},
		{limit("unit: day\n    requests_per_unit: 1.5"), `a.yaml:6: "1.5" is not a whole number`},
		{limit("unit: day\n    unit_multiplier: 0"), "a.yaml:5: 0 units of day are not above 0"},
		{limit("unit: year\n    unit_multiplier: 2"), "a.yaml:5: 2 units of year are not above 0 and at most 400 days"},
		{limit("unit: day\n    algorithm: concurrent"), `a.yaml:6: the algorithm "concurrent" is not`},
		{limit("unit: day\n    algorithm: leaky"), `a.yaml:6: the algorithm "leaky" is not`},
		{limit("unit: day\n    requests_per_unit: 2000\n    algorithm: sliding-log"), "a.yaml:5: "},
		{limit("unit: day\n    replaces: [{name: }]"), "a.yaml:6: an element of replaces has no name"},
		{limit("unit: day\n    name: me\n    replaces: [{name: me}]"), `a.yaml:7: the rate_limit "me" replaces itself`},
		{limit("unit: day\n    replaces: [me]"), "a.yaml:6: an element of replaces is not a mapping"},

		// A name, a depth and a number of values that no file of limits needs: aliases make
		// 1,000,000 values of a few lines.
		{"domain: " + strings.Repeat("d", maxName+1), "a.yaml:1: the text has 201 bytes, more than 200"},
		{"domain: d\ndescriptors: " + strings.Repeat("[{key: k, descriptors: ", maxDepth+1) +
			strings.Repeat("}]", maxDepth+1), "nested more than 32 deep"},
		{"domain: d\nx: &x [1,1,1,1,1,1,1,1,1,1]\ny: &y [*x,*x,*x,*x,*x,*x,*x,*x,*x,*x]\nz: &z [*y,*y,*y,*y,*y,*y,*y,*y,*y,*y]\n" +
			"u: &u [*z,*z,*z,*z,*z,*z,*z,*z,*z,*z]\nv: &v [*u,*u,*u,*u,*u,*u,*u,*u,*u,*u]\nw: [*v,*v,*v,*v,*v,*v,*v,*v,*v,*v]", "more than 1000000 values"},
		{"domain: &a d\ndescriptors: &b [*b]", "a.yaml"},
	} {
		_, err := Parse(files(row.text))
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%q: %v, want %q", row.text, err, row.want)
		}
	}

	// All the mistakes of all files are in one error, in the order of the lines.
	_, err := Parse(files(precedence,
		"domain: shop\ndescriptors:\n- {key: b, x: 1}\n- {key: n, rate_limit: {unit: eon}}"))
	want := "b.yaml:3: a descriptor has no field \"x\"; it may have key, value, rate_limit, descriptors, shadow_mode, quota_mode, " +
		"detailed_metric, value_to_metric, share_threshold, metadata\nb.yaml:3: the descriptor \"b\" is there already, at a.yaml:9\n" +
		"b.yaml:4: the unit \"eon\" is not second, minute, hour, day, week, month or year"
	if err == nil || err.Error() != want {
		t.Errorf("%v\nwant\n%s", err, want)
	}

	many := "domain: d\ndescriptors:\n" + strings.Repeat("- {}\n", 50)
	if _, err := Parse(files(many)); err == nil || strings.Count(err.Error(), "\n") != maxErrors ||
		!strings.HasSuffix(err.Error(), "and 30 mistakes more") {
		t.Errorf("50 mistakes: %v", err)
	}
}

// FuzzParse looks for a text that ends the reader, or whose limits are not what they say.
func FuzzParse(f *testing.F) {
	f.Add([]byte(precedence), "a=1 sub=x")
	f.Add([]byte(
		"domain: d\ndescriptors: [{key: k, value: '*', share_threshold: on, rate_limit: {unit: day, requests_per_unit: 0x10}}]"), "k=")
	f.Add([]byte("domain: &a d\ndescriptors: &b [*b]"), "k=v")
	f.Add([]byte("a: &a [*a]\n<<: {}"), "k=v")
	f.Fuzz(func(t *testing.T, data []byte, text string) {
		c, err := Parse([]File{{"f.yaml", data}})
		if err != nil {
			if strings.Contains(err.Error(), "\x00") {
				t.Errorf("the error holds a raw byte of the file: %q", err)
			}
			return
		}

		for _, name := range c.Domains() {
			d := c.Domain(name)
			for i, l := range d.Limits {
				if err := l.Limit.Validate(); err != nil || l.Place != i || l.Rule == "" {
					t.Errorf("limit %d of %q: %+v: %v", i, name, l, err)
				}
			}
			d.Find(entries(text), nil)
		}
	})
}
