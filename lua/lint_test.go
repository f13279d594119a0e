package lua_test

import (
	"os"
	"path/filepath"
	"regexp"
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
	for name, lines := range code(t) {
		for _, line := range lines {
			for _, m := range keysFrom.FindAllStringSubmatch(line, -1) {
				calls++
				if m[1] != "TIME" && m[2] != "key" && m[2] != "unpack(KEYS" {
					t.Errorf("%s: %s is called on %q", name, m[1], m[2])
				}
			}
			if strings.Contains(line, "KEYS") && !keysHere.MatchString(line) {
				t.Errorf("%s: KEYS is passed on: %s", name, line)
			}
		}
	}
	if calls < 6 {
		t.Errorf("only %d calls of Redis were found", calls)
	}
}

func TestTheClockIsReadOnce(t *testing.T) {
	n := 0
	for _, lines := range code(t) {
		n += strings.Count(strings.Join(lines, "\n"), "'TIME'")
	}
	if n != 1 {
		t.Errorf("TIME is called in %d places", n)
	}
}

func TestEveryAlgorithmHasATwinWithALetterOfItsOwn(t *testing.T) {
	var s lua.Scripts
	letters := map[string]bool{}
	for a := range core.Concurrency + 1 {
		letter := lua.Letter(a)
		if letter == "" || letters[letter] {
			t.Errorf("%s has the letter %q", a, letter)
		}
		letters[letter] = true
		one, many := s.One(a), s.Many(lua.Set(0).With(a))
		if len(one.SHA1) != 40 || one.SHA1 == many.SHA1 || strings.Contains(one.Text, "\n--") {
			t.Errorf("%s: scripts %s and %s", a, one.SHA1, many.SHA1)
		}
		if s.One(a) != one {
			t.Errorf("%s is assembled again", a)
		}
	}
}

func TestAScriptHoldsOnlyTheAlgorithmsItNeeds(t *testing.T) {
	var s lua.Scripts
	text := s.Many(lua.Set(0).With(core.GCRA).With(core.FixedWindow)).Text
	for want, has := range map[string]bool{
		"function gcra": true, "function fixed_window": true, "function sliding_log": false, "function pack": false,
	} {
		if strings.Contains(text, want) != has {
			t.Errorf("%q in the script: %v", want, !has)
		}
	}
}
