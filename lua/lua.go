// Package lua has the scripts by which a Redis server decides steps, for stores in Redis. Package
// redisstore is one, so programs do not use this package.
//
//	var scripts lua.Scripts
//	set := lua.Set(0).With(core.FixedWindow)
//	one := scripts.One(set)
//	fmt.Println(len(one.SHA1), strings.Contains(one.Text, "function fixed_window"))
//
// [Scripts] assembles a [Script] from the parts that a [Set] of algorithms needs, and caches it.
// The decisions are those of core.Decide, field by field.
package lua

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/headgate/headgate/core"
)

//go:embed *.lua
var files embed.FS

// twin is what is known of the file of an algorithm.
type twin struct {
	file   string
	quick  bool   // the file has a quick function
	letter string // of the algorithm, as used in operations and keys

	lasting bool // a Reset makes no Take void; see void.lua
}

// twins is the registry of the algorithms. Each file defines a function of its name
// and, if quick is set, a quick function whose name ends in _quick.
var twins = map[core.Algorithm]twin{
	core.GCRA:          {file: "gcra", quick: true},
	core.FixedWindow:   {file: "fixed_window"},
	core.SlidingLog:    {file: "sliding_log"},
	core.SlidingWindow: {file: "sliding_window"},
	core.TokenBucket:   {file: "token_bucket"},
	core.Concurrency:   {file: "concurrency", lasting: true},

	core.CalendarWindow: {file: "calendar_window"},
}

// HasQuick reports whether the algorithm has a quick function for takes under a limit
// with this quota, in lowest terms with its period.
func HasQuick(a core.Algorithm, quota int64) bool { return quota == 1 && twins[a].quick }

// Script is the text of a script and the hex SHA-1 by which Redis caches it.
type Script struct {
	Text, SHA1 string

	// Plain is the same script without the line of flags. It is for servers before
	// Redis 7, which refuse that line, and for limits whose states may become large: a
	// server whose memory is full refuses its writes. It is nil for a script without
	// flags.
	Plain *Script
}

// allowOOM is the first line of scripts that keep writing when the server's memory is
// full, because a limit that stopped counting would stop limiting. Their states have to
// be small; see [Script.Plain].
const allowOOM = "#!lua flags=allow-oom\n"

// growing are the algorithms whose state grows with what they admit, which they keep in
// records.
const growing = Set(1<<core.SlidingLog | 1<<core.Concurrency)

// Grows reports whether the state of a key under the algorithm grows with what is
// admitted.
func Grows(a core.Algorithm) bool { return growing&(1<<a) != 0 }

// newScript returns a script with its hash, and no Plain.
func newScript(text string) *Script {
	sum := sha1.Sum([]byte(text))
	return &Script{Text: text, SHA1: hex.EncodeToString(sum[:])}
}

// Set is a set of algorithms, with bit a for algorithm a, and of bans and credits.
type Set uint16

// Bans is in the set of a script for operations that have a [core.Ban], are about bans or credits,
// or give credit back, and for keys that have strikes, bans or credits. A script without it that
// meets such a key writes nothing and fails with an error that contains NeedsBans.
const Bans Set = 1 << 15

// Format is the number of the latest format in which the scripts write states: that of keys with
// credits, while those of all others are of format 1. They read both and no later one; see
// prelude.lua. docs/upgrades.md says when it may change.
const Format = 2

// NeedsBans is in the error of a script that needs [Bans].
const NeedsBans = "HGBANS"

// With returns the set with one more algorithm.
func (s Set) With(a core.Algorithm) Set { return s | 1<<a }

// twins returns the twins of the set with their letters, ordered by algorithm.
func (s Set) twins() []twin {
	var list []twin
	for a := range core.Algorithm(len(twins)) {
		if s&(1<<a) != 0 {
			t := twins[a]
			t.letter = a.Letter()
			list = append(list, t)
		}
	}
	return list
}

// Scripts assembles scripts and caches them. The zero value is ready for use. It is
// safe for concurrent use.
type Scripts struct {
	// Files replaces the embedded files, so that a test can break one.
	Files fs.FS

	once      sync.Once
	parts     map[string]*part
	one, many sync.Map
}

// part is what a file adds to a script: the code above its slow line, and the code below.
type part struct{ above, below string }

// One returns the script for steps of one operation under the one algorithm in the set.
func (s *Scripts) One(set Set) *Script {
	if script, ok := s.one.Load(set); ok {
		return script.(*Script)
	}

	twin, quick := set.twins()[0], "nil"
	if twin.quick {
		quick = twin.file + "_quick"
	}
	script := s.assemble(set, "single",
		fmt.Sprintf("local quick = %s\n", quick),
		fmt.Sprintf("local step = %s\n", set.step(twin)))

	kept, _ := s.one.LoadOrStore(set, script)
	return kept.(*Script)
}

// step returns the expression of the function of an algorithm.
func (s Set) step(t twin) string {
	step := fmt.Sprintf("voids(%s, %t)", t.file, t.lasting)
	switch {
	case s&Bans == 0:
		return step
	case t.lasting: // a leased limit has no credit
		return "guard(" + step + ")"
	}
	return "lend(guard(" + step + "))"
}

// Many returns the script for any number of steps of any number of operations under the
// algorithms in the set.
func (s *Scripts) Many(set Set) *Script {
	if script, ok := s.many.Load(set); ok {
		return script.(*Script)
	}

	// The functions are in tables, because each operation of a batch names its algorithm.
	var steps, quicks strings.Builder
	for _, twin := range set.twins() {
		fmt.Fprintf(&steps, " %s = %s,", twin.letter, set.step(twin))
		if twin.quick {
			fmt.Fprintf(&quicks, " %s = %s_quick,", twin.letter, twin.file)
		}
	}
	script := s.assemble(set, "batch",
		fmt.Sprintf("local quicks = {%s }\n", &quicks),
		fmt.Sprintf("local steps = {%s }\n", &steps))

	// Two callers may assemble one at once. They get the same, so that it is cached once.
	kept, _ := s.many.LoadOrStore(set, script)
	return kept.(*Script)
}

// assemble joins the parts above the slow line of each file, then the parts below. The
// driver comes last in both, each part after a line that names the functions which it
// calls.
func (s *Scripts) assemble(set Set, driver, quick, slow string) *Script {
	// The order of the files is part of the contract in prelude.lua: each uses only what comes
	// before it.
	files := []string{"prelude", "key"}
	if set&(growing|Bans) != 0 {
		files = append(files, "records")
	}
	for _, twin := range set.twins() {
		files = append(files, twin.file)
	}
	if files = append(files, "reply", "void"); set&Bans != 0 {
		files = append(files, "ban", "credit")
	}

	s.once.Do(s.read)
	var above, below strings.Builder
	for _, file := range files {
		above.WriteString(s.parts[file].above)
		below.WriteString(s.parts[file].below)
	}

	// The constants of bans differ from script to script, so they are replaced here and not in
	// read.
	last := s.parts[driver]
	text := above.String() + quick + last.above + below.String() + slow + last.below
	plain := newScript(inline(text, banConstants[set&Bans != 0]))
	script := newScript(allowOOM + plain.Text)
	script.Plain = plain
	return script
}

// read reads the parts of all scripts. It leaves out comments, indentation and blank lines,
// which Redis does not need, and puts values in the place of constants.
func (s *Scripts) read() {
	var from fs.FS = files
	if s.Files != nil {
		from = s.Files
	}

	paths, err := fs.Glob(from, "*.lua")
	if err != nil {
		panic("headgate: " + err.Error())
	}

	s.parts = make(map[string]*part, len(paths))
	values := map[string]string{"FORMAT": strconv.Itoa(Format)}
	for _, path := range paths {
		text, err := fs.ReadFile(from, path)
		if err != nil {
			panic("headgate: " + err.Error())
		}
		s.parts[strings.TrimSuffix(path, ".lua")] = newPart(string(text), values)
	}

	// Only now, because a file may use a constant of one that is read later.
	for _, p := range s.parts {
		p.above, p.below = inline(p.above, values), inline(p.below, values)
	}
}

// newPart reads a file, and adds the values of its constants to values.
func newPart(text string, values map[string]string) *part {
	var above, below strings.Builder
	into := &above
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) == "-- @slow" {
			into = &below
		}

		// No text in the files holds two hyphens.
		code, _, _ := strings.Cut(line, "--")
		code = strings.TrimSpace(code)
		if found := constant.FindStringSubmatch(code); found != nil {
			values[found[1]] = found[2]
		} else if code != "" {
			into.WriteString(code)
			into.WriteByte('\n')
		}
	}

	return &part{above.String(), below.String()}
}

var (
	// constant matches a line that names a number or a text; see prelude.lua.
	constant = regexp.MustCompile(`^local ([A-Z_]+) = (-?\d+|'[^']*')$`)
	capitals = regexp.MustCompile(`\b[A-Z_]+\b`)
)

// banConstants are the constants whose values depend on whether a script has ban.lua; see
// prelude.lua.
var banConstants = map[bool]map[string]string{
	false: {"BANS": "false", "BAN": "nil", "FIRST": "3"},
	true:  {"BANS": "true", "BAN": "ARGV[3]", "FIRST": "4"},
}

// inline replaces the names of constants by their values.
func inline(text string, values map[string]string) string {
	return capitals.ReplaceAllStringFunc(text, func(name string) string {
		if value, ok := values[name]; ok {
			return value
		}
		return name
	})
}
