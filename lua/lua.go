// Package lua holds the scripts with which a Redis server decides: a prelude,
// one file for each algorithm, the twin of the one in core, and two drivers. A
// script is assembled from those that a set of limits needs. The protocol is
// described in prelude.lua, the drivers, one.lua and many.lua, and answer.lua;
// many.lua drives what steps.lua and row.lua define.
package lua

import (
	"cmp"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"strings"
	"sync"

	"github.com/headgate/headgate/core"
)

//go:embed *.lua
var files embed.FS

type twin struct{ file, letter, quick string }

// twins is the registry: the file of each algorithm, which defines a function of
// the same name, the letter by which operations and keys name it, and the file of
// its short cut, if it has one.
var twins = map[core.Algorithm]twin{
	core.GCRA:          {"gcra", "g", "gcra_quick"},
	core.FixedWindow:   {"fixed_window", "f", ""},
	core.SlidingLog:    {"sliding_log", "l", ""},
	core.SlidingWindow: {"sliding_window", "w", ""},
	core.TokenBucket:   {"token_bucket", "t", ""},
	core.Concurrency:   {"concurrency", "c", ""},
}

// ShortCut tells whether takes have a short cut under a limit of the algorithm
// whose quota, in lowest terms with its period, is this.
func ShortCut(a core.Algorithm, quota int64) bool { return quota == 1 && twins[a].quick != "" }

// Letter is the short name of the algorithm in scripts and keys.
func Letter(a core.Algorithm) string { return twins[a].letter }

// Script is the text of a script and the hex SHA-1 by which Redis caches it.
type Script struct {
	Text, SHA1 string

	// Plain is the same script without its first line, for servers before Redis
	// 7, which refuse it. It is nil if there is no such line.
	Plain *Script
}

// allowOOM is the first line of scripts that go on writing when the server's
// memory is full: a limit that stops counting then would stop limiting. They
// write no more than a counter a key.
const allowOOM = "#!lua flags=allow-oom\n"

// growing are the algorithms whose state grows with what they admit.
const growing = Set(1<<core.SlidingLog | 1<<core.Concurrency)

func newScript(text string) *Script {
	sum := sha1.Sum([]byte(text))
	return &Script{Text: text, SHA1: hex.EncodeToString(sum[:])}
}

// Set is a set of algorithms, with bit a for algorithm a.
type Set uint16

// With returns the set with one more algorithm.
func (s Set) With(a core.Algorithm) Set { return s | 1<<a }

// twins returns those of the set, in the order of their numbers.
func (s Set) twins() []twin {
	var list []twin
	for a := range core.Algorithm(len(twins)) {
		if s&(1<<a) != 0 {
			list = append(list, twins[a])
		}
	}
	return list
}

// Scripts assembles scripts and keeps them. The zero value is ready, and it is
// safe for concurrent use.
type Scripts struct {
	// Files replaces the embedded files, so that a test can break one.
	Files fs.FS

	one, many sync.Map
}

// One returns the script for steps of one operation.
func (c *Scripts) One(a core.Algorithm) *Script {
	if s, ok := c.one.Load(a); ok {
		return s.(*Script)
	}
	s := c.assemble(Set(0).With(a),
		part{fmt.Sprintf("local quick = %s\n", cmp.Or(twins[a].quick, "nil")), []string{"one"}},
		part{fmt.Sprintf("local step = %s\n", twins[a].file), []string{"rest_one"}})
	kept, _ := c.one.LoadOrStore(a, s)
	return kept.(*Script)
}

// Many returns the script for any number of steps, of any number of operations on
// the algorithms in the set.
func (c *Scripts) Many(set Set) *Script {
	if s, ok := c.many.Load(set); ok {
		return s.(*Script)
	}
	var steps, quicks strings.Builder
	for _, twin := range set.twins() {
		fmt.Fprintf(&steps, " %s = %s,", twin.letter, twin.file)
		if twin.quick != "" {
			fmt.Fprintf(&quicks, " %s = %s,", twin.letter, twin.quick)
		}
	}
	s := c.assemble(set,
		part{fmt.Sprintf("local quicks = {%s }\n", &quicks), []string{"many", "row"}},
		part{fmt.Sprintf("local steps = {%s }\n", &steps), []string{"steps", "rest_many"}})
	kept, _ := c.many.LoadOrStore(set, s)
	return kept.(*Script)
}

// part is files of a driver, and the line in front that names what they drive.
type part struct {
	glue  string
	files []string
}

// assemble puts a script together: what its driver needs for short cuts, and then
// what it needs otherwise.
func (c *Scripts) assemble(set Set, quick, rest part) *Script {
	var b strings.Builder
	c.append(&b, "prelude", "write")
	for _, twin := range set.twins() {
		if twin.quick != "" {
			c.append(&b, twin.quick)
		}
	}
	b.WriteString(quick.glue)
	c.append(&b, quick.files...)
	if set&growing != 0 {
		c.append(&b, "packed")
	}
	for _, twin := range set.twins() {
		c.append(&b, twin.file)
	}
	b.WriteString(rest.glue)
	c.append(&b, "keys", "answer")
	c.append(&b, rest.files...)
	plain := newScript(b.String())
	if set&growing != 0 {
		return plain
	}
	s := newScript(allowOOM + plain.Text)
	s.Plain = plain
	return s
}

// append puts files behind what there is of a script, without the comments and
// blank lines, which would only travel.
func (c *Scripts) append(b *strings.Builder, names ...string) {
	var from fs.FS = files
	if c.Files != nil {
		from = c.Files
	}
	for _, name := range names {
		text, err := fs.ReadFile(from, name+".lua")
		if err != nil {
			panic("headgate: the script " + name + ".lua is missing")
		}
		for line := range strings.Lines(string(text)) {
			if code := strings.TrimSpace(line); code != "" && !strings.HasPrefix(code, "--") {
				b.WriteString(strings.TrimRight(line, "\n"))
				b.WriteByte('\n')
			}
		}
	}
}
