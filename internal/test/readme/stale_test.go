package readme

import (
	"slices"
	"strings"
	"testing"
)

// Each kind of name is found where it is not one of the code, and by its line.
func TestStaleNamesAreFound(t *testing.T) {
	c := survey(t)
	here := map[string]map[string]bool{"docs/fake.md": {"here": true}, "docs/keys.md": {"findings": true}}
	fence := func(kind, text string) string { return "```" + kind + "\n" + text + "\n```\n" }

	for _, row := range []struct{ is, text, want string }{
		{"a name of a package", "`limiter.New`, limiter.PerIP", ""},
		{"a stale one", "\n`limiter.Never`", "3: no name of package limiter: limiter.Never"},
		{"a call of a stale one", "`r.Use(ginmw.Wrap(l))`", "2: no name of package ginmw: ginmw.Wrap"},
		{"a stale one in prose", "as core.Nothing does", "2: no name of package core: core.Nothing"},
		{"a field with its package", "`limiter.Config.Rules`", ""},
		{"a stale one with its package", "`limiter.Config.Rulers`", "2: no name of package limiter: limiter.Config.Rulers"},
		{"a method, and a field", "`Limiter.SetRules`, `Rule.Cost`", ""},
		{"a stale method", "`Limiter.SetRulers`", "2: no method or field: Limiter.SetRulers"},
		{"a field of a field", "`Rule.Limit.Nowhere`", "2: no method or field: Rule.Limit.Nowhere"},
		{"a type of a package that the page does not name", "`Event.Outcome`", "2: no method or field: Event.Outcome"},
		{"a type of one that it names", "`transport`: `Event.Outcome`", ""},
		{"a bare name", "`TakeWithin`, `TestLimitDrawing`", ""},
		{"a stale bare name", "`TakeWithout`", "2: no name: TakeWithout"},

		{"flags", "`headgate-gateway -top-keys 5`, `-webhook-allow`, `headgate plan -json`", ""},
		{"a stale flag", "`-webhook-forbid`", "2: no flag: -webhook-forbid"},
		{"a flag of another program", "`headgate-gateway -webhook-allow`",
			"2: no flag of headgate-gateway: -webhook-allow"},
		{"a flag of another command", "\n    headgate check -units 5 x", "3: no flag of headgate: -units"},
		{"a stale command", "\n    headgate foresee x", "3: no command: headgate foresee"},
		{"a command of two lines", fence("sh", "headgate-console \\\n  -nowhere"),
			"3: no flag of headgate-console: -nowhere"},
		{"a program from its source", "\n    go -C cmd/headgate-gateway run . -nowhere", "3: no flag of headgate-gateway: -nowhere"},
		{"a folder without a program", "`go run ./examples/nowhere`", "2: no folder: examples/nowhere"},
		{"a stale test", "\n    go test -run 'LimitDrawing|Nevermore' .", "3: no test: Nevermore"},
		{"a stale benchmark", "\n    go test -bench Nowhere .", "3: no benchmark: Nowhere"},

		{"fields", "`match.headers`, `on_limit: wait 1s`, `plan_by`", ""},
		{"a stale field", "`match.heads`", "2: no field of a policy: match.heads"},
		{"a stale field alone", "`plan_for`", "2: no field: plan_for"},
		{"a stale field with a value", "`upon_limit: wait`", "2: no field: upon_limit"},
		{"a stale field of a policy", fence("yaml", "policies:\n- name: a\n  apps: [b]\n  limits: 1/1s\n  key: ip"),
			"3: no policies"},
		{"a table of plans that no policy names", fence("yaml", "plans: {tiers: {pro: 1/1s}}\npolicies: []"),
			"3: no policies"},
		{"a stale setting", fence("yaml", "listen: 127.0.0.1:1\nlisten-nowhere: x"), "4: no field: listen-nowhere"},

		{"metrics", "`headgate.requests`, `headgate_request_time_in_queue_seconds_bucket`", ""},
		{"a stale metric", "`headgate.wishes`", "2: no metric: headgate.wishes"},
		{"a stale metric of Prometheus", fence("", "rate(headgate_wishes_total[1m])"), "3: no metric: headgate_wishes_total"},
		{"a stale code", "HG001 and HG999", "2: no code of a finding: HG999"},
		{"a stale variable", "HEADGATE_GATEWAY_LISTEN, `HEADGATE_" + "NOWHERE=1`",
			"2: no variable: HEADGATE_" + "NOWHERE"},

		{"files", "`store/memstore`, `docs/keys.md`, `keys.md`, `application/json`", ""},
		{"a stale folder", "`store/nowhere`", "2: no file: store/nowhere"},
		{"a stale file", "`nowhere.go`", "2: no file: nowhere.go"},
		{"links", "[a](keys.md#findings) [b](#here) [c](https://127.0.0.1/x)", ""},
		{"a link to no file", "[a](nowhere.md)", "2: no file: nowhere.md"},
		{"a link to no heading", "[a](keys.md#nowhere)", "2: no heading: keys.md#nowhere"},
		{"a link to no heading of the page", "[a](#nowhere)", "2: no heading: #nowhere"},

		{"Go in parts", fence("go", "l := limiter.New()") + fence("go", "A: []int{1},"), ""},
		{"no Go", fence("go", "l := := 1"), "3: no Go"},
		{"a name of others", "`HostnameLookups Off`", ""},
	} {
		p := newPage("docs/fake.md", "# Here\n"+row.text+"\n")

		var got []string
		for _, f := range c.check(p, here) {
			got = append(got, f.String())
		}

		// What a parser says of a mistake is its own.
		text := strings.Join(got, "\n")
		if len(got) > 1 || !strings.HasPrefix(text, row.want) || (row.want == "") != (text == "") {
			t.Errorf("%s: %q, want %q", row.is, text, row.want)
		}
	}
}

// A name of others that no page has needs no exception.
func TestForeignNamesAreOnPages(t *testing.T) {
	var said []string
	for _, p := range pages(t) {
		for _, s := range p.spans {
			said = append(said, strings.Fields(s.text)...)
		}
	}

	for of, names := range foreign {
		for name := range strings.FieldsSeq(names) {
			if !slices.Contains(said, name) {
				t.Errorf("no page has %s of %s", name, of)
			}
		}
	}
}

// Headings get the anchors that GitHub gives them.
func TestAnchors(t *testing.T) {
	p := newPage("x.md", "# A b\n## `Take`, and [more](x.md)!\n## A b\n### Redis: µs, 50 % -- far_off\n```sh\n# none\n```\n")
	for _, want := range []string{"a-b", "take-and-more", "a-b-1", "redis-µs-50-----far_off"} {
		if got := p.anchors(); !got[want] || len(got) != 4 {
			t.Errorf("%v lacks %s", got, want)
		}
	}
}
