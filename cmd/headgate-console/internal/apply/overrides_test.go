package apply

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/internal/test"
	"github.com/headgate/headgate/policy"
)

const byUser = "name: api, apps: [a], limit: 1000/1h, key: user"

// overrides returns those of a policy as "key=text".
func (w *world) overrides(name string) string {
	w.t.Helper()
	page, err := w.s.Overrides(w.t.Context(), w.admin, name, service.OverridesQuery{PerPage: service.MaxPerPage})
	w.must(err)
	var list []string
	for _, o := range page.Overrides {
		list = append(list, o.Key+"="+o.String())
	}
	return strings.Join(list, " ")
}

func (w *world) override(name, key, limit string) {
	w.t.Helper()
	_, err := w.s.SetOverride(w.t.Context(), w.admin, name, service.OverrideChange{Key: key, Limit: limit})
	w.must(err)
}

// Overrides are compared and written with their policies, and by themselves.
func TestApplyWritesOverrides(t *testing.T) {
	w := newWorld(t)
	w.write("api.yaml", byUser)
	w.raw("api.overrides.json",
		`{"overrides": {"api": {"a*": "5/1h", "b": {"limit": "6/1h", "until": "2099-01-02T03:04:05Z"}}}}`)

	// The policy does not exist yet, and a dry run writes nothing.
	const later = "overrides of api: compared once the policy is written\n"
	code, out, bad := w.run("apply", "-dry-run")
	if code != same || !strings.Contains(out, later) || bad != "" || w.version("api") != 0 {
		t.Errorf("%d %s%s", code, out, bad)
	}
	if code, out, _ = w.run("diff"); code != differ || !strings.Contains(out, later) {
		t.Errorf("%d %s", code, out)
	}
	code, out, bad = w.run("apply", "-comment", "commit 0a1b")
	if code != same || !strings.HasSuffix(out, "created    api\noverrides  api: 2 set, 0 removed\n") || bad != "" ||
		w.overrides("api") != "a*=5/1h b=6/1h until 2099-01-02T03:04:05Z" {
		t.Errorf("%d %s%s %s", code, out, bad, w.overrides("api"))
	}

	unchanged := "To create: 0, to change: 0, to delete: 0, unchanged: 1.\nunchanged  api\nNothing to change.\n"
	w.want(same, "", "", "diff")
	w.want(same, unchanged, "", "apply")

	// What only the console has stays, unless it is to go.
	w.must(os.Remove(w.dir + "/api.yaml"))
	w.override("api", "a*", "7/1h")
	w.override("api", "mine", "8/1h")
	changes := "overrides of api: 1 to set, 0 to remove, 1 unchanged, 1 in the console alone, 0 ended\n" +
		"  - a*: 7/1h\n  + a*: 5/1h\n"
	w.want(differ, changes, "", "diff")
	w.want(same, changes, "", "apply", "-dry-run")
	w.want(same, changes+"overrides  api: 1 set, 0 removed\n", "", "apply")
	w.want(same, "", "", "diff")
	gone := "overrides of api: 0 to set, 1 to remove, 2 unchanged, 0 in the console alone, 0 ended\n  - mine: 8/1h\n"
	w.want(differ, gone, "", "diff", "-prune-overrides")
	w.want(same, gone+"overrides  api: 0 set, 1 removed\n", "", "apply", "-prune-overrides")
	w.want(same, "Nothing to change.\n", "", "apply", "-prune-overrides")

	// One that has ended is no mistake, and is not set again.
	w.raw("api.overrides.json", `{"overrides": {"api": {"x": {"limit": "6/1h", "until": "2020-01-02T03:04:05Z"}}}}`)
	w.want(same, "Nothing to change.\n", "", "apply")
}

// A ban that is in force in the console outlives an old export, and both commands say so. What a
// ban may not be is told before anything is written.
func TestApplyEndsNoBan(t *testing.T) {
	w := newWorld(t)
	w.create("api", "a")
	end := time.Now().Add(24 * time.Hour).UTC().Truncate(time.Second)
	ban := func(key string, until time.Time) string {
		return `{"overrides": {"api": {"` + key + `": {"banned_until": "` + until.Format(time.RFC3339) + `"}}}}`
	}

	// The console has no ban yet, so the file imposes it.
	w.raw("overrides.json", ban("192.0.2.1", end))
	code, _, bad := w.run("apply")
	if code != same || bad != "" {
		t.Fatalf("%d %s", code, bad)
	}

	const stays = "overrides of api: 1 that stay banned, though the files have no ban or a shorter one\n"
	w.raw("overrides.json", ban("192.0.2.1", end.Add(-time.Hour)))
	w.want(same, stays, "", "diff")
	w.want(same, stays+"Nothing to change.\n", "", "apply")
	if got := w.overrides("api"); got != "192.0.2.1=banned until "+end.Format(time.RFC3339) {
		t.Error(got)
	}

	// A prefix cannot be banned, and the policy is not written without it.
	w.write("new.yaml", "name: new, apps: [a], limit: 1/1h, key: user")
	w.raw("overrides.json", strings.Replace(ban("1*", end), "api", "new", 1))
	code, _, bad = w.run("apply")
	if code != failed || w.version("new") != 0 || !strings.Contains(bad, `overrides.1*: the ban: it is spelled`) {
		t.Errorf("%d %s", code, bad)
	}
}

func TestApplyNamesTheMistakesInOverrides(t *testing.T) {
	w := newWorld(t)
	w.write("api.yaml", byUser)
	w.raw("api.overrides.json", `{"overrides": {"api": {"a": "5", "b": "6/1h fixed-window"}, "none": {"k": "1/1h"}}}`)
	w.raw("more/overrides.json", `{"overrides": {"api": {}}}`)
	w.raw("bad.overrides.json", `{"overrides": {"x": {"k": {"limt": "1/1h"}}}}`)

	w.want(failed, "", `apply: DIR/bad.overrides.json: json: unknown field "limt"
apply: DIR/more/overrides.json: policy "api" has overrides in DIR/api.overrides.json too
`, "apply")

	// Before the policy is written the files alone are looked at, and then the console does.
	w.must(os.RemoveAll(w.dir + "/more"))
	w.must(os.Remove(w.dir + "/bad.overrides.json"))
	code, out, bad := w.run("apply")
	for _, want := range []string{`DIR/api.overrides.json: policy "api": overrides.a: limit "5"`,
		`DIR/api.overrides.json: policy "api": overrides.b: its algorithm is fixed-window`} {
		if !strings.Contains(bad, want) {
			t.Errorf("%s\nwant %s", bad, want)
		}
	}
	if code != failed || out != "" || w.version("api") != 0 {
		t.Errorf("%d %s", code, out)
	}

	w.create("api", "a")
	w.must(os.Remove(w.dir + "/api.yaml"))
	code, _, bad = w.run("diff")
	if code != failed || !strings.Contains(bad, `DIR/api.overrides.json: policy "none": it does not exist`) ||
		!strings.Contains(bad, `policy "api": overrides.a: `) {
		t.Errorf("%d %s", code, bad)
	}
}

// A change between the plan and the writing is told, and nothing is written.
func TestApplyTellsConflictsOfOverrides(t *testing.T) {
	w := newWorld(t)
	w.write("api.yaml", byUser)
	w.run("apply")
	w.must(os.Remove(w.dir + "/api.yaml"))
	w.raw("overrides.json", `{"overrides": {"api": {"a": "5/1h", "b": "6/1h"}}}`)
	w.before = func(r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/api/overrides") {
			w.override("api", "a", "9/1h")
		}
	}
	code, _, bad := w.run("apply")
	if code != failed || bad != "apply: "+errOverridesConflict.Error()+"\n" || w.overrides("api") != "a=9/1h" {
		t.Errorf("%d %s, and has %s", code, bad, w.overrides("api"))
	}
}

// The worked example of the documentation.
func TestApplyOfTheDocumentedFile(t *testing.T) {
	data, err := os.ReadFile("../../../../docs/console.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(data), "```json\n{\"overrides\"")
	file, _, ends := strings.Cut(rest, "```")
	if !found || !ends {
		t.Fatal("docs/console.md has no file of overrides")
	}

	w := newWorld(t)
	w.write("api.yaml", byUser)
	w.raw("overrides.json", "{\"overrides\""+file)
	if code, out, bad := w.run("apply"); code != same || bad != "" {
		t.Fatalf("%d %s%s", code, out, bad)
	}
	want := "acme:*=5000/1h acme:batch=20000/1h globex=9000/1h until 2099-12-04T17:00:00Z"
	if got := w.overrides("api"); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A hundred thousand are written, and the output has a hundred of them.
func TestApplyOfManyOverrides(t *testing.T) {
	test.Long(t, "it writes 100,000 overrides")
	w := newWorld(t)
	w.write("api.yaml", byUser)
	w.run("apply")
	w.must(os.Remove(w.dir + "/api.yaml"))
	var b strings.Builder
	b.WriteString(`{"overrides": {"api": {"first": "1/1h"`)
	for i := range policy.MaxOverridesBeside - 1 {
		fmt.Fprintf(&b, ",\n\"tenant-%06d\": {\"limit\": \"%d/1h\", \"until\": \"2099-01-02T03:04:05Z\"}", i, 1+i%50)
	}
	w.raw("overrides.json", b.String()+"}}}\n")
	begin := time.Now()
	code, out, bad := w.run("apply")
	if lines := strings.Count(out, "\n"); code != same || bad != "" || lines != 103 ||
		!strings.Contains(out, "  and 99900 more\noverrides  api: 100000 set, 0 removed\n") {
		t.Errorf("%d, %d lines, %s", code, lines, bad)
	}
	t.Logf("applied in %s", time.Since(begin))
	begin = time.Now()
	w.want(same, "", "", "diff")
	t.Logf("compared in %s", time.Since(begin))
}
