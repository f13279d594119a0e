package main

import (
	"os"
	"strings"
	"testing"
)

const sharedPlans = `policies:
- {name: a, apps: [shop], limit: 10/1m fixed-window, key: ip, plans: tiers, plan_by: user}
- {name: b, apps: [shop], limit: 20/1m fixed-window, key: ip, plans: tiers, plan_by: user}
plans:
  tiers: {free: 30/1m fixed-window}
`

// Every command that reads policies reads tables of plans beside them.
func TestPoliciesShareTablesOfPlans(t *testing.T) {
	call(t, sharedPlans, "check", "-").want(t, fine, "2 policies, no mistakes")
	path := file(t, "limits.yaml", sharedPlans)
	call(t, combined(15, "192.0.2.1"), "plan", "-policies", path, "-").want(t, fine,
		"a needs the plan of a caller", "b needs the plan of a caller")

	// One mistake in the table is one, where it stands.
	got := call(t, strings.Replace(sharedPlans, "30/1m", "often", 1), "check", "-").
		want(t, findings, "-:5:11: mistake: plans.tiers.free: ", "1 mistake")
	if strings.Count(got.out, "mistake: ") != 1 {
		t.Error(got.out)
	}
	const text = "{\"policies\": [\n{\"name\": \"a\", \"apps\": [\"x\"], \"limit\": \"1/1m\", \"key\": \"ip\"}],\n" +
		"\"plans\": {\"tiers\": {\"free\": \"1/1m\"}}}"
	call(t, "", "check", file(t, "limits.json", text)).want(t, findings,
		":3:11: mistake: plans.tiers: no policy names the table", "1 mistake")
}

// The form keeps the tables, in YAML and in JSON.
func TestFmtKeepsTablesOfPlans(t *testing.T) {
	path := file(t, "limits.yaml", sharedPlans)
	call(t, "", "fmt", "-w", path).want(t, fine)
	text, err := os.ReadFile(path)
	const head = "plans:\n  tiers:\n    free: 30/1m fixed-window\npolicies:\n- name: a\n"
	if err != nil || !strings.HasPrefix(string(text), head) || strings.Count(string(text), "  plans: tiers\n") != 2 {
		t.Errorf("%v\n%s", err, text)
	}

	path = file(t, "limits.json", `{"policies": [{"name": "a", "apps": ["x"], "limit": "1/1m", "key": "ip", "plans": "t",
 "plan_by": "user"}], "plans": {"t": {"x": "2/1m"}}}`)
	call(t, "", "fmt", "-w", path).want(t, fine)
	text, err = os.ReadFile(path)
	if err != nil || !strings.HasPrefix(string(text), "{\n  \"plans\": {\n    \"t\": {\n      \"x\": \"2/1m\"\n") ||
		!strings.Contains(string(text), `      "plans": "t",`) {
		t.Errorf("%v\n%s", err, text)
	}
}
