package apply

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/cmd/headgate-console/internal/service"
	"github.com/headgate/headgate/internal/test/freeport"
)

const (
	login  = "name: login, apps: [a], limit: 5/1m, key: ip"
	search = "name: search, apps: [a, b], limit: 10/1s, key: user"
)

const createdBoth = `To create: 2, to change: 0, to delete: 0, unchanged: 0.
create login
  + name: login
  + apps: a
  + limit: 5/1m
  + key: ip
  + mode: enforce
  + priority: 0
create search
  + name: search
  + apps: a, b
  + limit: 10/1s
  + key: user
  + mode: enforce
  + priority: 0
`

func TestApplyIsIdempotent(t *testing.T) {
	w := newWorld(t)
	w.write("login.yaml", login)
	w.write("more/search.yml", search)

	w.want(same, createdBoth+"created    login (dry run)\ncreated    search (dry run)\n", "", "apply", "-dry-run")
	if w.version("login") != 0 {
		t.Error("a dry run writes")
	}

	w.want(same, createdBoth+"created    login\ncreated    search\n", "", "apply", "-comment", "commit 0a1b")

	unchanged := "To create: 0, to change: 0, to delete: 0, unchanged: 2.\nunchanged  login\nunchanged  search\nNothing to change.\n"

	// Programs run apply at every commit, so again and again it must change nothing.
	for range 2 {
		w.want(same, unchanged, "", "apply")
		w.want(same, "", "", "diff")
	}

	if w.version("login") != 1 || w.version("search") != 1 {
		t.Errorf("the versions are %d and %d", w.version("login"), w.version("search"))
	}

	list, err := w.s.History(t.Context(), w.admin, "login", 0, 1)
	if err != nil || list[0].Comment != "commit 0a1b" {
		t.Errorf("%+v %v", list, err)
	}

	// A difference has its own exit code, by which a program asks before it applies.
	w.write("login.yaml", strings.Replace(login, "5/1m", "7/1m", 1)+", mode: shadow")
	changed := "update login\n  - limit: 5/1m\n  + limit: 7/1m\n  - mode: enforce\n  + mode: shadow\n"

	w.want(differ, changed, "", "diff")
	w.want(same, "To create: 0, to change: 1, to delete: 0, unchanged: 1.\n"+changed+"changed    login\nunchanged  search\n", "", "apply")
	w.want(same, unchanged, "", "apply")

	// Only what the files change gets a new version.
	if w.version("login") != 2 || w.version("search") != 1 {
		t.Errorf("the versions are %d and %d", w.version("login"), w.version("search"))
	}
}

// The files are the source of truth: an old export in them changes no versions back.
func TestApplyIgnoresVersionsAuthorsAndTimesOfAnExport(t *testing.T) {
	w := newWorld(t)
	w.create("login", "a")
	w.create("gone", "a")

	data, err := w.s.Export(t.Context(), w.admin, service.YAML, "")
	w.must(err)
	w.raw("export.yaml", string(data))

	// The export is older now: login was changed, and gone was deleted.
	p, err := w.s.Policy(t.Context(), w.admin, "login")
	w.must(err)
	p.Priority = 9
	_, err = w.s.UpdatePolicy(t.Context(), w.admin, p)
	w.must(err)
	w.must(w.s.DeletePolicy(t.Context(), w.admin, "gone", 1))

	if code, _, bad := w.run("apply"); code != same {
		t.Fatal(bad)
	}

	// Both take the next version instead of that in the file.
	if w.version("login") != 3 || w.version("gone") != 3 {
		t.Errorf("the versions are %d and %d", w.version("login"), w.version("gone"))
	}
	w.want(same, "", "", "diff", "-prune")
}

func TestApplyPrunesOnlyWithinTheApplications(t *testing.T) {
	w := newWorld(t)
	w.create("old", "a")
	w.create("shared", "a", "c")
	w.create("others", "c")
	w.write("login.yaml", login)

	// Without -prune nothing is deleted that the files do not have.
	w.want(differ, "create login\n  + name: login\n  + apps: a\n  + limit: 5/1m\n  + key: ip\n  + mode: enforce\n  + priority: 0\n", "", "diff")
	if code, _, bad := w.run("apply"); code != same || w.version("old") != 1 {
		t.Fatalf("without -prune old has version %d: %s", w.version("old"), bad)
	}

	deletion := "delete old\n  - name: old\n  - apps: a\n  - limit: 100/1m\n  - key: ip\n  - mode: enforce\n  - priority: 0\n"
	w.want(differ, deletion, "", "diff", "-prune")
	w.want(same, "To create: 0, to change: 0, to delete: 1, unchanged: 1.\n"+deletion+
		"unchanged  login\ndeleted    old\nleft       shared, which is of other applications too\n", "", "apply", "-prune")

	if w.version("old") != 0 || w.version("shared") != 1 || w.version("others") != 1 {
		t.Error("-prune did not delete old alone")
	}
	w.want(same, "", "", "diff", "-prune")

	// -app names applications that may have no policy in the files any more.
	w.want(failed, "", "apply: no policy in the files is of c\n", "apply", "-prune", "-app", "c")

	if code, _, bad := w.run("apply", "-prune", "-app", "c", "-app", "a"); code != same || w.version("shared") != 0 ||
		w.version("others") != 0 || w.version("login") != 1 {
		t.Errorf("with two applications: %s", bad)
	}

	// Files without a policy are more likely a mistake than a wish to delete all.
	w.raw("login.yaml", "policies: []\n")
	w.want(failed, "", "apply: there is no policy in the files, and -prune would delete all\n", "apply", "-prune")
	if w.version("login") != 1 {
		t.Error("an empty directory deletes")
	}

	w.must(os.Remove(filepath.Join(w.dir, "login.yaml")))
	w.want(failed, "", "apply: there is no .yaml, .yml or overrides.json file in "+w.dir+"\n", "apply")
}

func TestApplyOfOneApplicationLeavesOthers(t *testing.T) {
	w := newWorld(t)
	w.write("all.yaml", login, search, "name: third, apps: [c], limit: 1/1s, key: ip")
	if code, _, bad := w.run("apply", "-app", "b"); code != same {
		t.Fatal(bad)
	}
	if w.version("login") != 0 || w.version("search") != 1 || w.version("third") != 0 {
		t.Error("-app b did not write search alone")
	}
}

func TestApplyReportsEveryMistakeOfAllFiles(t *testing.T) {
	w := newWorld(t)

	// One mistake of each kind, all of which are reported at once.
	w.write("a.yaml", "name: login, apps: [a], limit: fast, key: ip", "name: search, apps: [a], limit: 1/1s, key: '?'")
	w.raw("b.yaml", "policies:\n- name: third\n  apps: [a]\n  limit: 1/1s\n  key: ip\n\n- name: login\n  apps: [a]\n  limit: 1/1s\n  key: ip\n")
	w.raw("sub/c.yml", "policies:\n\t- x\n")
	w.raw("secret.yaml", "policies:\n- name: keys\n  apps: [a]\n  limit: 1/1s\n  key: api-key\n  access:\n    deny:\n      keys: [sk_live_0123456789]\n")

	// Hidden files and other texts are passed over; JSON, which might be taken for read, is
	// reported.
	w.raw(".git/d.yaml", "?")
	w.raw(".hidden.yaml", "?")
	w.raw("notes.txt", "?")
	w.raw("more.json", "{}")

	w.must(os.Symlink(w.dir, filepath.Join(w.dir, "loop")))
	w.must(os.Symlink("/nowhere/at/all", filepath.Join(w.dir, "z.yaml")))

	code, out, bad := w.run("apply")
	want := []string{
		"apply: DIR/more.json is not read: policies are kept in .yaml or .yml files",
		`apply: DIR/a.yaml:2: policy "login": limit: limit "fast": quota "fast" is not a whole number; "fast" has no period; write, say, "100/1m"`,
		`apply: DIR/a.yaml:3: policy "search": key: the recipe "?" is not known`,
		`apply: DIR/b.yaml:7: policy "login": name: the policy of DIR/a.yaml:2 has the same name`,
		`apply: DIR/loop is a link to a directory; name that by -f`,
		`apply: DIR/secret.yaml:6: policy "keys": access: deny.keys[0] is not a digest as keyfuncs.Digest returns it`,
		`apply: DIR/sub/c.yml:2: found character '\t' that cannot start any token`,
		`apply: stat DIR/z.yaml: no such file or directory`,
	}

	lines := strings.Split(strings.TrimSpace(bad), "\n")
	for i, line := range lines {
		if i < len(want) && !strings.HasPrefix(line, want[i]) {
			t.Errorf("line %d is\n%s\nwant\n%s", i, line, want[i])
		}
	}

	if code != failed || out != "" || len(lines) != len(want) {
		t.Errorf("%d %s%s", code, out, bad)
	}
}

// The console finds mistakes that the files alone do not show, and their places are known.
func TestApplyPlacesTheMistakesThatTheConsoleFinds(t *testing.T) {
	w := newWorld(t)
	w.create("foreign", "b")
	w.token = w.tokenOf(w.person("owner", "a", service.Owner), service.Write)

	w.raw("x.yaml", `policies:
- name: foreign
  apps: [a]
  limit: 1/1s
  key: ip
- name: mine
  limit: 1/1s
  key: ip
  apps: [a, b]
`)
	w.want(failed, "", `apply: not permitted: the import writes policies that are not the actor's
apply: DIR/x.yaml:2: policy "foreign": name: it cannot be used; choose another
apply: DIR/x.yaml:9: policy "mine": apps: not permitted: it takes the owner of every application that the policy is to list
`, "apply")

	w.raw("x.yaml", "policies:\n- name: mine\n  limit: 1/1s\n  key: ip\n  apps: [a]\n")
	w.want(failed, "", "apply: the request has mistakes\napply: apps: \"b\" is not an application of yours\n", "apply",
		"-prune", "-app", "a", "-app", "b")
}

func TestDiffNeedsATokenThatReads(t *testing.T) {
	w := newWorld(t)
	owner := w.person("owner", "a", service.Owner)
	w.token = w.tokenOf(owner, service.Read)
	w.write("login.yaml", login)
	if code, _, bad := w.run("diff"); code != differ {
		t.Errorf("%d %s", code, bad)
	}
	if code, _, bad := w.run("apply"); code != failed || !strings.Contains(bad, "not permitted") ||
		w.version("login") != 0 {
		t.Errorf("%d %s", code, bad)
	}
	w.token = "hgt_unknown"
	w.want(failed, "", "diff: the token is not known, has expired or was revoked\n", "diff")
}

// A change of the same policy between plan and import is a conflict, and one of another
// policy is not.
func TestApplyConflicts(t *testing.T) {
	for _, row := range []struct {
		name string
		act  func(w *world)
		ok   bool
	}{
		{"another policy is created", func(w *world) { w.create("other", "c") }, true},
		{"the policy is changed", func(w *world) {
			p, err := w.s.Policy(w.t.Context(), w.admin, "login")
			w.must(err)
			p.Priority = 7
			_, err = w.s.UpdatePolicy(w.t.Context(), w.admin, p)
			w.must(err)
		}, false},
		{"the policy is deleted", func(w *world) {
			w.must(w.s.DeletePolicy(w.t.Context(), w.admin, "login", 1))
		}, false},
		{"the new policy is created", func(w *world) { w.create("search", "b") }, false},
		{"a policy to prune comes", func(w *world) { w.create("old", "a") }, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t)
			w.create("login", "a")
			w.write("login.yaml", login, search)
			imports := 0

			// Only the first import is disturbed; a second one would find what has changed.
			w.before = func(r *http.Request) {
				if r.URL.Path == "/api/import" {
					if imports++; imports == 1 {
						row.act(w)
					}
				}
			}

			code, out, bad := w.run("apply", "-prune")

			// The plan is made again if what changed is none of its own.
			if row.ok {
				if code != same || imports != 2 || w.version("login") != 2 || w.version("search") != 1 ||
					w.version("other") != 1 {
					t.Errorf("%d after %d imports\n%s%s", code, imports, out, bad)
				}
				return
			}

			if code != failed || bad != "apply: "+errConflict.Error()+"\n" ||
				strings.Contains(out, "changed    ") || imports != 1 {
				t.Errorf("%d after %d imports\n%s%s", code, imports, out, bad)
			}
		})
	}
}

// A console whose other policies change all the time is given up.
func TestApplyEndsWhilePoliciesKeepChanging(t *testing.T) {
	w := newWorld(t)
	w.write("login.yaml", login)
	imports := 0
	w.before = func(r *http.Request) {
		if r.URL.Path == "/api/import" {
			imports++
			w.create(fmt.Sprintf("other-%d", imports), "b")
		}
	}
	if code, _, bad := w.run("apply"); code != failed || imports != maxAttempts ||
		!strings.Contains(bad, errConflict.Error()) || w.version("login") != 0 {
		t.Errorf("%d after %d imports: %s", code, imports, bad)
	}
}

func TestApplyWithoutAConsole(t *testing.T) {
	w := newWorld(t)
	w.write("login.yaml", login)
	for _, row := range []struct {
		name   string
		answer http.HandlerFunc
		want   string
	}{
		// A redirect would send the token elsewhere.
		{"a redirect", func(rw http.ResponseWriter, r *http.Request) {
			http.Redirect(rw, r, "https://elsewhere.example/login", http.StatusFound)
		}, `redirects to "https://elsewhere.example/login"; give the URL of the console itself`},
		{"a page", func(rw http.ResponseWriter, r *http.Request) { fmt.Fprint(rw, "<html>") },
			"does not answer as a console does"},
		{"a gateway's error", func(rw http.ResponseWriter, r *http.Request) { rw.WriteHeader(502) },
			`answers "502 Bad Gateway", and not as a console does`},
		{"a hostile detail", func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Content-Type", "application/problem+json")
			rw.WriteHeader(422)
			fmt.Fprint(rw, `{"detail":"\u001b[2J\nboo"}`)
		}, `\x1b[2J`},
		{"a cut answer", func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Content-Length", "100")
			fmt.Fprint(rw, "{")
		}, "ends too early"},
	} {
		t.Run(row.name, func(t *testing.T) {
			console := httptest.NewServer(row.answer)
			defer console.Close()
			code, out, bad := w.run("apply", "-url", console.URL)
			if code != failed || out != "" || !strings.Contains(bad, row.want) {
				t.Errorf("%d %s%s", code, out, bad)
			}
		})
	}

	// Where nothing listens any more, the connection itself is refused.
	code, _, bad := w.run("apply", "-url", "http://"+freeport.Addr(t))
	if code != failed || !strings.Contains(bad, "refused") {
		t.Errorf("%d %s", code, bad)
	}
}

// Without an answer the command says what that means.
func TestApplyWithoutAnAnswerSaysThatItIsUnknown(t *testing.T) {
	w := newWorld(t)
	w.write("login.yaml", login)
	w.before = func(r *http.Request) {
		if r.URL.Path == "/api/import" {
			panic(http.ErrAbortHandler)
		}
	}
	if code, _, bad := w.run("apply"); code != failed ||
		!strings.Contains(bad, "the console has written either all policies or none; apply changes no policy twice, so run it again") {
		t.Errorf("%d %s", code, bad)
	}
}

func TestCommandLineReportsEveryMistakeButNoSecret(t *testing.T) {
	var bad strings.Builder

	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("-----BEGIN s3cret KEY-----\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	args := []string{"apply", "-url", "http://u:s3cret@console.example", "-token-file", file, "-app", "?",
		"-comment", "a\x00", "-timeout", "0s", "more"}
	code := Main(t.Context(), args, func(string) string { return "" }, &bad, &bad)

	for _, want := range []string{"-f: it is missing", "-url: it holds a user", "-token-file: it is not an API token",
		"-app", "-comment", "-timeout", `"more"`} {
		if !strings.Contains(bad.String(), want) {
			t.Errorf("%q is missing in\n%s", want, bad.String())
		}
	}

	if code != failed || strings.Contains(bad.String(), "s3cret") {
		t.Errorf("%d\n%s", code, bad.String())
	}
}

func TestCommandLineSendsNoTokenInTheClear(t *testing.T) {
	env := func(name string) string { return map[string]string{EnvToken: "hgt_x"}[name] }
	for _, row := range []struct {
		args []string
		ok   bool
	}{
		{[]string{"-url", "https://console.example"}, true},
		{[]string{"-url", "https://console.example/below/"}, true},
		{[]string{"-url", "http://127.0.0.1:8080"}, true},
		{[]string{"-url", "http://[::1]:8080"}, true},
		{[]string{"-url", "http://localhost"}, true},
		{[]string{"-url", "http://console.example"}, false},
		{[]string{"-url", "http://localhost.example"}, false},
		{[]string{"-url", "http://console.example", "-insecure-http"}, true},
		{[]string{"-url", "ftp://console.example"}, false},
		{[]string{"-url", "console.example"}, false},
		{[]string{"-url", "https://console.example/?a=b"}, false},
		{[]string{"-url", "https:///x"}, false},
		{nil, false},
	} {
		var usage strings.Builder
		if _, err := parse(append([]string{"diff", "-f", "x"}, row.args...), env, &usage); (err == nil) != row.ok {
			t.Errorf("%q: %v", row.args, err)
		}
	}
}

func TestCommandLineHelp(t *testing.T) {
	for _, command := range []string{"apply", "diff"} {
		var out, bad strings.Builder
		code := Main(t.Context(), []string{command, "-h"}, func(string) string { return "hgt_s3cret" }, &out, &bad)
		usage := bad.String()
		if code != same || !strings.Contains(usage, "Usage: headgate-console "+command) ||
			strings.Contains(usage, "s3cret") || strings.Contains(usage, "-comment") != (command == "apply") {
			t.Errorf("%d %s%s", code, out.String(), usage)
		}
	}
}
