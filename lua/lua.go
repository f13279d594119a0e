// Package lua holds the scripts with which a Redis server decides: a prelude,
// one file for each algorithm, the twin of the one in core, and two drivers. A
// script is assembled from those that a set of limits needs. The protocol is
// described in prelude.lua, the drivers, one.lua and many.lua, and answer.lua;
// many.lua drives what steps.lua and row.lua define.
package lua

import (
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

// twins is the registry: the file of each algorithm, which defines a function of
// the same name, the letter by which operations and keys name it, and the
// function that decides most takes sooner, or nil.
var twins = map[core.Algorithm]struct{ file, letter, quick string }{
	core.GCRA:          {"gcra", "g", "gcra_quick"},
	core.FixedWindow:   {"fixed_window", "f", "nil"},
	core.SlidingLog:    {"sliding_log", "l", "nil"},
	core.SlidingWindow: {"sliding_window", "w", "nil"},
	core.TokenBucket:   {"token_bucket", "t", "nil"},
	core.Concurrency:   {"concurrency", "c", "nil"},
}

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
	glue := fmt.Sprintf("local step, quick = %s, %s\n", twins[a].file, twins[a].quick)
	s := c.assemble(Set(0).With(a), glue, "one.lua")
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
	for a := range core.Algorithm(len(twins)) {
		if set&(1<<a) != 0 {
			fmt.Fprintf(&steps, " %s = %s,", twins[a].letter, twins[a].file)
			fmt.Fprintf(&quicks, " %s = %s,", twins[a].letter, twins[a].quick)
		}
	}
	glue := fmt.Sprintf("local steps = {%s }\nlocal quicks = {%s }\n", &steps, &quicks)
	kept, _ := c.many.LoadOrStore(set, c.assemble(set, glue, "steps.lua", "row.lua", "many.lua"))
	return kept.(*Script)
}

// assemble puts a script together: what the algorithms share, the algorithms,
// the glue that names them, and the driver.
func (c *Scripts) assemble(set Set, glue string, driver ...string) *Script {
	var b strings.Builder
	b.WriteString(c.source("prelude.lua"))
	if set&growing != 0 {
		b.WriteString(c.source("packed.lua"))
	}
	for a := range core.Algorithm(len(twins)) {
		if set&(1<<a) != 0 {
			b.WriteString(c.source(twins[a].file + ".lua"))
		}
	}
	b.WriteString(glue)
	b.WriteString(c.source("keys.lua"))
	b.WriteString(c.source("answer.lua"))
	for _, name := range driver {
		b.WriteString(c.source(name))
	}
	plain := newScript(b.String())
	if set&growing != 0 {
		return plain
	}
	s := newScript(allowOOM + plain.Text)
	s.Plain = plain
	return s
}

// source is a file without the comments and blank lines, which would
// only travel.
func (c *Scripts) source(name string) string {
	var from fs.FS = files
	if c.Files != nil {
		from = c.Files
	}
	text, err := fs.ReadFile(from, name)
	if err != nil {
		panic("headgate: the script " + name + " is missing")
	}
	var b strings.Builder
	for line := range strings.Lines(string(text)) {
		if code := strings.TrimSpace(line); code != "" && !strings.HasPrefix(code, "--") {
			b.WriteString(strings.TrimRight(line, "\n"))
			b.WriteByte('\n')
		}
	}
	return b.String()
}
