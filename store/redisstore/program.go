package redisstore

import (
	"slices"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/lua"
)

// What an operation of a program does, besides the verb; see lua/batch.lua.
const (
	opcodeSoft   = 1
	opcodeMore   = 8
	opcodeBring  = 16
	opcodeRow    = 32
	opcodeLength = 7
)

// opcodeVerb is how a program names the verbs.
var opcodeVerb = [...]byte{core.Take: 0, core.Peek: 2, core.Refund: 3, core.Reset: 4}

// program is the arguments of lua/batch.lua while they are put together.
type program struct {
	code   []byte
	keys   []any
	limits []*terms
	heads  []any // for each limit its letter and its text
	values []any
	set    lua.Set
	places map[string]int // of keys, or nil if they are few

	row   row
	alike bool // the operations of the step so far may be of a row
}

// row is the last steps of a program, if they are alike; see lua/batch.lua.
type row struct {
	at    int // where it begins in code
	steps int
	width int // bytes of a step
}

// few is how many keys are found faster by looking at each.
const few = 8

// scratch is what a program needs only while it is put together.
type scratch struct {
	names  []byte // the keys of all operations
	ends   []int  // where each ends
	places map[string]int
}

// maxNames is how long a text of names is kept for the next program.
const maxNames = 1 << 16

func newScratch() any { return &scratch{places: map[string]int{}} }

func (d *scratch) clear() {
	clear(d.places)
	d.ends = d.ends[:0]
	if d.names = d.names[:0]; cap(d.names) > maxNames {
		d.names = nil
	}
}

// callMany is for any steps; see lua/batch.lua.
func (s *Store) callMany(steps []*step) (*lua.Script, []any) {
	d := s.scratches.Get().(*scratch)
	names := s.names(steps, d)
	n := len(d.ends)
	p := &program{code: make([]byte, 0, (n+1)*opcodeLength), keys: make([]any, leadingArgs, leadingArgs+n+8)}
	if n > few {
		p.places = d.places
	}
	begin, i := 0, 0
	for _, each := range steps {
		at := len(p.code)
		p.alike = true
		for j := range each.ops {
			op := &each.ops[j]
			t, _ := s.limits.of(op)
			p.add(op, names[begin:d.ends[i]], t, j+1 < len(each.ops))
			begin, i = d.ends[i], i+1
		}
		p.line(at)
	}
	d.clear()
	s.scratches.Put(d)
	return s.scripts.Many(p.set), p.args(s.instant())
}

// names returns the keys of all operations in one text.
func (s *Store) names(steps []*step, d *scratch) string {
	for _, each := range steps {
		for i := range each.ops {
			op := &each.ops[i]
			d.names = s.key(d.names, op.Key, op.Rule, op.Limit.Algorithm.Letter())
			d.ends = append(d.ends, len(d.names))
		}
	}
	return string(d.names)
}

// add puts an operation into the program.
func (p *program) add(op *core.Op, key string, t *terms, more bool) {
	opcode := opcodeVerb[op.Verb]
	if op.Verb == core.Take && op.Soft {
		opcode = opcodeSoft
	}
	if more {
		opcode += opcodeMore
	}
	if !isSingleUnit(op) {
		opcode += opcodeBring
		x, y := details(op)
		p.values = append(p.values, op.Cost, x, y)
	}
	fresh := len(p.keys) - leadingArgs + 1
	k, l := p.key(key), p.limit(op, t)
	p.alike = p.alike && t.shortCut && k == fresh && opcode&^opcodeMore == opcodeVerb[core.Take]
	at := len(p.code)
	p.code = append(p.code, opcode, 0, 0, 0, 0, 0, 0)
	putPlace(p.code[at+1:], k)
	putPlace(p.code[at+4:], l)
}

// line puts the step that begins in code at a byte into a row: the last, if that is
// of steps with the same limits, or one of its own.
func (p *program) line(at int) {
	if !p.alike {
		p.row = row{}
		return
	}
	if width := len(p.code) - at; width != p.row.width || !p.sameLimits(at) {
		p.row = row{at: at, width: width}
		p.code = slices.Insert(p.code, at, opcodeRow, 0, 0, 0, 0, 0, 0)
		putPlace(p.code[at+4:], width/opcodeLength)
	}
	p.row.steps++
	putPlace(p.code[p.row.at+1:], p.row.steps)
}

// sameLimits reports whether the step at a byte has the limits of those in the row.
func (p *program) sameLimits(at int) bool {
	step, first := p.code[at:], p.code[p.row.at+opcodeLength:]
	for i := 4; i < len(step); i += opcodeLength {
		if string(step[i:i+3]) != string(first[i:i+3]) {
			return false
		}
	}
	return true
}

// putPlace writes a place, or a number, into three bytes.
func putPlace(b []byte, n int) { b[0], b[1], b[2] = byte(n>>16), byte(n>>8), byte(n) }

// key returns the place of a key, from 1.
func (p *program) key(name string) int {
	if p.places == nil {
		for i, key := range p.keys[leadingArgs:] {
			if key == name {
				return i + 1
			}
		}
		p.keys = append(p.keys, name)
		return len(p.keys) - leadingArgs
	}
	k, known := p.places[name]
	if !known {
		p.keys = append(p.keys, name)
		k = len(p.keys) - leadingArgs
		p.places[name] = k
	}
	return k
}

// limit returns the place of a limit, from 1. Most steps have few.
func (p *program) limit(op *core.Op, t *terms) int {
	l := slices.Index(p.limits, t)
	if l < 0 {
		l = len(p.limits)
		p.limits = append(p.limits, t)
		p.heads = append(p.heads, op.Limit.Algorithm.Letter(), t.text)
		p.set = p.set.With(op.Limit.Algorithm)
	}
	return l + 1
}

// args returns all arguments, after two places for the command's name and the
// script.
func (p *program) args(instant any) []any {
	args := p.keys
	args[2] = len(p.keys) - leadingArgs
	args = append(args, instant, p.code, len(p.limits))
	args = append(args, p.heads...)
	return append(args, p.values...)
}
