package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
)

// result is what a call of the program has done.
type result struct {
	code     int
	out, err string
}

// call carries a command out with the text as its standard input.
func call(t *testing.T, in string, args ...string) result {
	t.Helper()
	var out, err bytes.Buffer
	e := &env{in: strings.NewReader(in), out: &out, err: &err}
	code := run(e, args)
	return result{code, out.String(), err.String()}
}

// want fails the test if the call has ended otherwise.
func (r result) want(t *testing.T, code int, parts ...string) result {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d\n%s%s", r.code, code, r.out, r.err)
	}
	for _, part := range parts {
		if !strings.Contains(r.out+r.err, part) {
			t.Errorf("there is no %q in\n%s%s", part, r.out, r.err)
		}
	}
	return r
}

// file writes a file, and returns its path.
func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCallsWithMistakesAreUsage(t *testing.T) {
	for _, args := range [][]string{
		{}, {"nothing"}, {"check"}, {"check", "/does/not/exist"}, {"check", "-x", "f"}, {"explain"},
		{"explain", "often"}, {"explain", "-svg", "1/s", "2/s"}, {"fmt"}, {"fmt", "-w", "-d", "f"},
		{"completion"}, {"completion", "tcsh"},
	} {
		got := call(t, "", args...).want(t, usage)
		if got.err == "" || got.out != "" {
			t.Errorf("%q prints %q and the error %q", args, got.out, got.err)
		}
	}
}

func TestHelpHasEveryFlagAndAnExample(t *testing.T) {
	all := call(t, "", "help").want(t, fine)
	for _, c := range commands() {
		if !strings.Contains(all.out, c.name) {
			t.Errorf("the help does not list %s", c.name)
		}
		help := call(t, "", "help", c.name).want(t, fine, c.examples...)
		for _, f := range c.flagsOf() {
			help.want(t, fine, "-"+f.Name)
		}
	}
}

const someMistakes = `policies:
- name: login
  apps: [shop]
  limit: often
  key: ip+nobody
- {name: api, apps: [shop], limit: 100/m, key: ip, match: {methods: [PSOT]}}
`

func TestCheckNamesTheFileTheLineAndTheColumn(t *testing.T) {
	path := file(t, "limits.yaml", someMistakes)
	got := call(t, "", "check", path).want(t, findings,
		path+":4:3: mistake: policy \"login\": limit: ", path+":5:3: mistake: policy \"login\": key: ", "2 mistakes")
	if strings.Count(got.out, "\n") != 3 {
		t.Errorf("want two mistakes and their count:\n%s", got.out)
	}

	// What can never match shows when the mistakes are gone.
	better := strings.NewReplacer("often", "5/1m", "+nobody", "").Replace(someMistakes)
	call(t, better, "check", "-").want(t, findings, "-:6:60: never matches: policy \"api\": match.methods: ")
	best := strings.Replace(better, "PSOT", "POST", 1)
	call(t, best, "check", "-").want(t, fine, "2 policies, no mistakes")
	call(t, best, "check", "-app", "shop", "-").want(t, fine)
	call(t, best, "check", "-", "-app", "shpo").want(t, findings, `names the application "shpo"`)
}

func TestCheckReadsJSON(t *testing.T) {
	for text, want := range map[string]string{
		"{\"policies\":[\n\t{\"name\":\"x\",\"apps\":[\"a\"],\"limit\":\"5\",\"key\":\"ip\"}\n]}": ":2:27: mistake: policy \"x\": limit: ",
		"{\"policies\":[\n\t{\"name\":\"x\"},\n]}":                                                ":3:1: mistake: ",
		"{\"policies\":[\n  tru\n]}":                                                              ":2:",
	} {
		call(t, "", "check", file(t, "limits.json", text)).want(t, findings, want)
	}

	// In JSON both are there with their places.
	var got struct {
		Policies int
		Findings []finding
	}
	out := call(t, "", "check", "-json", file(t, "limits.yaml", someMistakes)).want(t, findings).out
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Findings) != 2 || got.Findings[0].Line != 4 || got.Findings[0].Kind != mistake {
		t.Errorf("%+v", got)
	}
}

// A text of a user reaches no terminal as it is.
func TestTextsOfUsersAreEscaped(t *testing.T) {
	const text = "policies:\n- name: \"a\\e[31m\"\n  apps: [x]\n  limit: 1/s\n  key: ip\n"
	got := call(t, text, "check", "-").want(t, findings)
	if strings.Contains(got.out, "\x1b") {
		t.Errorf("%q", got.out)
	}
	if got := call(t, "", "check", "/\x1b[2J").want(t, usage); strings.Contains(got.err, "\x1b") {
		t.Errorf("%q", got.err)
	}
}

// JSON has no character that a terminal obeys, and says the same.
func TestJSONIsEscaped(t *testing.T) {
	policies := file(t, "limits.yaml", "policies:\n- {name: api, apps: [shop], limit: 1/1h, key: user}\n")
	const user = "a\u009b2J\x7f\u0085\u009f\u00a0\u007e\u00e4\"<&>\\x"
	line := `{"time":"2026-11-28T07:37:17Z","request":"GET / HTTP/1.1","remote_user":"a\u009b2J\u007f\u0085\u009f` +
		`\u00a0\u007e\u00e4\"<&>\\x"}` + "\n"
	out := call(t, line+line, "plan", "-json", "-user", "-policies", policies, "-").want(t, fine).out
	if i := strings.IndexFunc(out, func(r rune) bool { return r != '\n' && unicode.IsControl(r) }); i >= 0 {
		t.Errorf("there is %q", out[i:i+2])
	}

	var got planResult
	if err := json.Unmarshal([]byte(out), &got); err != nil || len(got.Top) != 1 || got.Top[0].Key != user {
		t.Errorf("%v: %+v, want %q", err, got.Report, user)
	}
}

func TestFmtNamesTheFileWithLoneCR(t *testing.T) {
	path := file(t, "limits.yaml", strings.ReplaceAll(spreadText, "\n", "\r"))
	call(t, "", "fmt", "-w", path).want(t, usage, path+": line 1: a line ends in a carriage return alone")
}

const spreadText = "# why\npolicies:\n- {name: b, apps: [x], limit: 60/m, key: ip}\n"

func TestExplain(t *testing.T) {
	call(t, "", "explain", "100/m burst=20").want(t, fine, "100/1m burst=20\n",
		"100 requests a minute, at most 20 at once",
		"at most 120 in any span of 1m", "after 1m                                        120")
	call(t, "", "explain", "5/1m sliding-log").want(t, fine, "at most 5 in any span of 1m")
	call(t, "", "explain", "9/month").want(t, fine, "at most 18 in any span of one month")
	call(t, "", "explain", "3 concurrent ttl=1m").want(t, fine, "at most 3 at any time")
	call(t, "", "explain", "-svg", "1/s").want(t, fine, "<svg ", "</svg>")

	var list []explanation
	out := call(t, "", "explain", "-json", "1/s", "240/1h sliding-window").want(t, fine).out
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list) != 2 || list[0].Admits[0].Units != 1 {
		t.Errorf("%v %+v", err, list)
	}
}

func TestFmtWritesOneForm(t *testing.T) {
	const before = "policies:\n- {name: b, apps: [x], limit: 60/m, key: ip} # why\n"
	const after = "policies:\n- name: b\n  apps:\n  - x\n  limit: 60/1m\n  key: ip # why\n"
	path := file(t, "limits.yaml", before)

	// Without a flag the file stays as it is.
	if got := call(t, "", "fmt", path).want(t, fine); got.out != after {
		t.Errorf("%s", got.out)
	}
	call(t, "", "fmt", "-d", path).want(t, findings, "@@ -1,2 +1,6 @@\n policies:\n-- {name: b", "\n+  limit: 60/1m\n")
	call(t, "", "fmt", "-json", path).want(t, fine, path)

	if got := call(t, "", "fmt", "-w", path).want(t, fine); got.out != "" {
		t.Errorf("%s", got.out)
	}

	text, err := os.ReadFile(path)
	if err != nil || string(text) != after {
		t.Errorf("%v %s", err, text)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("%v %v", err, info.Mode())
	}
	call(t, "", "fmt", "-d", path).want(t, fine)

	// A file with mistakes stays as it is.
	bad := file(t, "bad.yaml", someMistakes)
	if got := call(t, "", "fmt", "-w", bad).want(t, findings, ":4:3: mistake"); got.out != "" {
		t.Errorf("%s", got.out)
	}
}

func TestHunksHaveThreeLinesAround(t *testing.T) {
	before := "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n13\n14\n"
	after := strings.NewReplacer("\n5\n", "\nfive\n", "\n14\n", "\n14\n15\n").Replace(before)
	list := hunks(before, after)
	if len(list) != 2 {
		t.Fatalf("%+v", list)
	}
	want := []hunk{
		{2, 7, 2, 7, strings.Split(" 2| 3| 4|-5|+five| 6| 7| 8", "|")},
		{12, 3, 12, 4, strings.Split(" 12| 13| 14|+15", "|")},
	}
	for i, h := range list {
		if h.from != want[i].from || h.old != want[i].old || h.to != want[i].to || h.new != want[i].new ||
			strings.Join(h.lines, "|") != strings.Join(want[i].lines, "|") {
			t.Errorf("%+v, want %+v", h, want[i])
		}
	}
}

func TestCompletionIsAScriptOfItsShell(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		script := call(t, "", "completion", shell).want(t, fine, "explain", "svg").out
		program, err := exec.LookPath(shell)
		if err != nil {
			continue // the script is read by a shell where there is one
		}

		check := exec.Command(program, "-n")
		check.Stdin = strings.NewReader(script)
		if out, err := check.CombinedOutput(); err != nil {
			t.Errorf("%s: %v %s", shell, err, out)
		}
	}

	// bash completes the flags of a command.
	script := call(t, "", "completion", "bash").out
	ask := exec.Command("bash", "-c", script+
		"\nCOMP_WORDS=(headgate fmt -j) COMP_CWORD=2; _headgate; echo ${COMPREPLY[@]}")
	if out, err := ask.CombinedOutput(); err == nil && string(out) != "-json\n" {
		t.Errorf("%q", out)
	}
}

func TestColoursAreForTerminals(t *testing.T) {
	var out bytes.Buffer
	e := &env{in: strings.NewReader(someMistakes), out: &out, err: &out, color: true}
	run(e, []string{"check", "-"})
	if !strings.Contains(out.String(), "\x1b[31mmistake\x1b[0m") {
		t.Errorf("%q", out.String())
	}
	if got := call(t, someMistakes, "check", "-"); strings.Contains(got.out, "\x1b") {
		t.Errorf("%q", got.out)
	}
}

// full is a disk that has room for a few bytes.
type full struct{ left int }

var errFull = errors.New("no space left on device")

func (f *full) Write(b []byte) (int, error) {
	if f.left -= len(b); f.left < 0 {
		return 0, errFull
	}
	return len(b), nil
}

func TestOutputThatIsNotWrittenIsAFailure(t *testing.T) {
	policies, log := file(t, "limits.yaml", onePolicy), file(t, "access.log", combined(20, "192.0.2.1"))
	for _, row := range []struct {
		code int
		args []string
	}{
		{usage, []string{"fmt", policies}}, {usage, []string{"fmt", "-d", policies}},
		{usage, []string{"fmt", "-json", policies}}, {usage, []string{"check", policies}},
		{usage, []string{"explain", "1/s"}}, {usage, []string{"explain", "-svg", "1/s"}}, {usage, []string{"help"}},
		{usage, []string{"suggest", log}}, {usage, []string{"suggest", "-json", log}},
		{usage, []string{"plan", "-policies", policies, log}},
		{usage, []string{"plan", "-json", "-policies", policies, log}},
		{tooMany, []string{"plan", "-policies", policies, "-fail-if-denied", "1%", log}},
	} {
		var out bytes.Buffer
		code := run(&env{in: strings.NewReader(""), out: &full{left: 10}, err: &out}, row.args)

		want := "headgate: the output cannot be written: " + errFull.Error() + "\n"
		if code != row.code || out.String() != want {
			t.Errorf("%q: exit code %d, want %d: %s", row.args, code, row.code, out.String())
		}
	}
}
