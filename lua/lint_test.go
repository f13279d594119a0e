package lua_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/lua"
)

// forbidden are the ways in which Lua loses digits, or in which Redis and its
// imitations differ.
var forbidden = map[string]*regexp.Regexp{
	"tostring prints 14 digits":            regexp.MustCompile(`\btostring\b`),
	"a concatenated number has 14 digits":  regexp.MustCompile(`\.\.`),
	"a swap is miscompiled by some":        regexp.MustCompile(`\b(\w+), (\w+) = (\w+), (\w+)\b`),
	"x = f() and x is miscompiled by some": regexp.MustCompile(`\b(\w+) = .+ and (\w+)$`),
	"cjson prints 14 digits":               regexp.MustCompile(`\bcjson\b`),
	"bit has 32 bits":                      regexp.MustCompile(`\bbit\.`),
	"cmsgpack is not everywhere":           regexp.MustCompile(`\bcmsgpack\b`),
	"unpack fails on long lists":           regexp.MustCompile(`(?:^|[^.])\bunpack\([^,)]*(?:,[^,)]*)?\)`),
}

// keysFrom are the only names that may stand where a command takes its key.
var keysFrom = regexp.MustCompile(`redis\.p?call\('(\w+)'(?:, ([^,)]+))?`)

// keysHere is where the list of keys may stand: one, or some, or their number.
var keysHere = regexp.MustCompile(`KEYS\[|#KEYS|unpack\(KEYS`)

func code(t *testing.T) map[string][]string {
	t.Helper()
	// Fewer than ten would mean that the folder is not read.
	names, err := filepath.Glob("*.lua")
	if err != nil || len(names) < 10 {
		t.Fatalf("scripts: %v, %v", names, err)
	}

	lines := map[string][]string{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}

		for _, line := range strings.Split(string(text), "\n") {
			// A comment may name what a script must not use.
			if before, _, _ := strings.Cut(line, "--"); strings.TrimSpace(before) != "" {
				lines[name] = append(lines[name], before)
			}
		}
	}
	return lines
}

func TestScriptsUseNothingThatLosesDigits(t *testing.T) {
	for name, lines := range code(t) {
		for _, line := range lines {
			for why, what := range forbidden {
				m := what.FindStringSubmatch(line)
				if m == nil || len(m) == 5 && (m[1] != m[4] || m[2] != m[3]) || len(m) == 3 && m[1] != m[2] {
					continue
				}
				t.Errorf("%s: %s: %s", name, why, strings.TrimSpace(line))
			}
		}
	}
}

func TestScriptsKeepEverythingLocal(t *testing.T) {
	function := regexp.MustCompile(`^\s*function\b`)
	for name, lines := range code(t) {
		for _, line := range lines {
			if function.MatchString(line) {
				t.Errorf("%s: a global function: %s", name, line)
			}
		}
	}
}

func TestScriptsTouchOnlyTheirKeys(t *testing.T) {
	calls := 0
	// A cluster sends a script to the node of its keys, and a key that it makes up may live on
	// another.
	for name, lines := range code(t) {
		for _, line := range lines {
			for _, m := range keysFrom.FindAllStringSubmatch(line, -1) {
				calls++
				if m[1] != "TIME" && m[2] != "key" && m[2] != "unpack(KEYS" {
					t.Errorf("%s: %s is called on %q", name, m[1], m[2])
				}
			}

			// A name for the list of keys would hide a call from this test.
			if strings.Contains(line, "KEYS") && !keysHere.MatchString(line) {
				t.Errorf("%s: KEYS is passed on: %s", name, line)
			}
		}
	}

	if calls < 6 {
		t.Errorf("only %d calls of Redis were found", calls)
	}
}

// Constants are replaced in the whole script, so a name has one meaning in all files.
func TestConstantsHaveOneValueAndAreReplaced(t *testing.T) {
	// A constant is a name in capitals with a number or a text.
	definition := regexp.MustCompile(`^local ([A-Z]\w*) = (-?\d+|'[^']*')\s*$`)
	values := map[string]string{}
	for name, lines := range code(t) {
		for _, line := range lines {
			found := definition.FindStringSubmatch(line)
			if found == nil {
				continue
			}
			if values[found[1]] != "" {
				t.Errorf("%s: %s is defined twice", name, found[1])
			}

			values[found[1]] = found[2]
		}
	}

	// Two of them with their values, else the expression might find none.
	if values["ROW"] != "64" || values["PAIR"] != "'>dd'" {
		t.Errorf("constants: %v", values)
	}

	// A script with every algorithm and the bans has every constant.
	all := lua.Bans
	for a := range core.Concurrency + 1 {
		all = all.With(a)
	}
	var s lua.Scripts
	text := s.Many(all).Text

	for _, constant := range slices.AppendSeq([]string{"BANS", "BAN", "FIRST"}, maps.Keys(values)) {
		if regexp.MustCompile(`\b` + constant + `\b`).MatchString(text) {
			t.Errorf("%s is in the script", constant)
		}
	}

	// What the values make of three lines.
	for _, line := range []string{"if opcode == 0 then",
		"elseif wait > x or wait ~= 0 and remaining == -2 then\ncode = 2\n", "struct.unpack('>dd', text)"} {
		if !strings.Contains(text, line) {
			t.Errorf("%q is not in the script", line)
		}
	}
}

// A script is assembled without the text after two dashes, so no string may hold them.
func TestScriptsLoseOnlyComments(t *testing.T) {
	for name, lines := range code(t) {
		for _, line := range lines {
			if strings.Count(line, "'")%2 != 0 || strings.Contains(line, `"`) {
				t.Errorf("%s: a text is not closed: %s", name, line)
			}
		}
	}
}

// Above its slow line a script has what calls need that end there.
func TestSlowPartComesLast(t *testing.T) {
	// A call that ends in the quick part never reads past the slow line, so nothing that it needs
	// may stand below.
	var s lua.Scripts
	for text, order := range map[string][]string{
		s.One(lua.Set(0).With(core.GCRA)).Text: {"redis.call('TIME')", "function write(",
			"function gcra_quick(", "local quick = gcra_quick\n", "redis.pcall('GET'",
			"function quarantine(", "function gcra(", "function answer(",
			"local step = voids(gcra, false)\n", "step(text, verb, cost, 0,"},
		s.Many(lua.Set(0).With(core.SlidingLog)).Text: {"function write(", "local quicks = { }\n", "'MGET'",
			"function quarantine(", "function pack(", "function sliding_log(",
			"function answer(", "local steps = { l = voids(sliding_log, false), }\n", "function run_op("},
	} {
		at := 0

		// Each part is searched for behind the one before.
		for _, part := range order {
			i := strings.Index(text[at:], part)
			if i < 0 {
				t.Fatalf("%q is not in its place in\n%s", part, text)
			}
			at += i + len(part)
		}
	}
}

func TestScriptsReadTheClockOnce(t *testing.T) {
	n := 0
	for _, lines := range code(t) {
		n += strings.Count(strings.Join(lines, "\n"), "'TIME'")
	}
	if n != 1 {
		t.Errorf("TIME is called in %d places", n)
	}
}

func TestAlgorithmsHaveTwins(t *testing.T) {
	var s lua.Scripts
	for a := range core.Concurrency + 1 {
		one, many := s.One(lua.Set(0).With(a)), s.Many(lua.Set(0).With(a))
		if len(one.SHA1) != 40 || one.SHA1 == many.SHA1 || strings.Contains(one.Text, "--") {
			t.Errorf("%s: scripts %s and %s", a, one.SHA1, many.SHA1)
		}
		if s.One(lua.Set(0).With(a)) != one {
			t.Errorf("%s is assembled again", a)
		}
	}
}

func TestScriptHoldsOnlyNeededAlgorithms(t *testing.T) {
	var s lua.Scripts
	text := s.Many(lua.Set(0).With(core.GCRA).With(core.FixedWindow)).Text
	for want, has := range map[string]bool{
		"function gcra": true, "function fixed_window": true,
		"function sliding_log": false, "function pack": false, "function guard": false,
	} {
		if strings.Contains(text, want) != has {
			t.Errorf("%q in the script: %v", want, !has)
		}
	}
}

// Scripts of limits without bans do not have ban.lua, and quick calls do not pay for it.
func TestScriptHoldsBansOnlyIfNeeded(t *testing.T) {
	var s lua.Scripts
	set := lua.Set(0).With(core.GCRA)
	for _, row := range []struct{ free, guarded *lua.Script }{
		{s.One(set), s.One(set | lua.Bans)}, {s.Many(set), s.Many(set | lua.Bans)}} {
		fast, _, _ := strings.Cut(row.free.Text, "local function quarantine(")
		guarded, slow, _ := strings.Cut(row.guarded.Text, "local function quarantine(")
		if strings.Contains(row.free.Text, "guard") || !strings.Contains(slow, "guard(voids(gcra, false))") ||
			strings.Count(fast, "\n") != strings.Count(guarded, "\n") {
			t.Errorf("%s\n%s", row.free.Text, row.guarded.Text)
		}
	}
}
