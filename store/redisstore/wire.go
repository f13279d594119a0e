// This file encodes the arguments of scripts and decodes their replies.

package redisstore

import (
	"errors"
	"fmt"
	"hash/maphash"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/lua"
)

// wire writes steps as calls of scripts.
type wire struct {
	prefix  string
	oneSlot bool
	secret  []byte
	clock   func() int64 // or nil
	shared  sharing

	scripts   *lua.Scripts
	limits    limits
	scratches sync.Pool   // of *scratch
	struck    atomic.Bool // all scripts have to know of bans and credits
}

// leadingArgs is how many arguments precede the keys: the command's name, the
// script and the number of keys.
const leadingArgs = 3

// call returns the script for steps and its arguments, after two places for the
// command's name and the script. That of a single operation is lua/single.lua.
func (w *wire) call(steps []*step) (*lua.Script, []any) {
	if len(steps) > 1 || len(steps[0].ops) > 1 || steps[0].ops[0].UpTo {
		return w.callMany(steps)
	}

	op := &steps[0].ops[0]
	var name [128]byte
	algorithm := op.Limit.Algorithm
	t, _ := w.limits.termsOf(op)

	set := lua.Set(0).With(algorithm) | w.bansOf(op)

	args := make([]any, leadingArgs+3, leadingArgs+8)
	args[2] = 1
	args[3] = string(w.key(name[:0], op.Key, op.Rule, algorithm.Letter()))
	args[4] = w.instant()
	args[5] = t.text

	// The script looks at its arguments from the left: the ban is there if the script knows of
	// bans, and the rest unless the operation takes one unit.
	if set&lua.Bans != 0 {
		args = append(args, t.ban(op).text)
	}

	if !isSingleUnit(op) {
		x, y := scriptXY(op, t)
		args = append(args, op.Verb.String(), op.Cost, x, y)
	}
	return fitting(w.scripts.One(set), t.long), args
}

// bansOf returns lua.Bans if the script for the operation needs it.
func (w *wire) bansOf(op *core.Op) lua.Set {
	if op.Ban != nil || op.Verb >= core.Lift || op.FromCredit > 0 || w.struck.Load() {
		return lua.Bans
	}
	return 0
}

// fitting returns the script, without its flags if some limit may have a large state.
func fitting(script *lua.Script, long bool) *lua.Script {
	if long {
		return script.Plain
	}
	return script
}

// zero is the argument 0.
var zero any = "0"

// instant returns the time argument of a script: 0 for the server's time.
func (w *wire) instant() any {
	if w.clock == nil {
		return zero
	}
	return w.ownInstant()
}

func (w *wire) ownInstant() any { return strconv.FormatInt(w.clock(), 10) }

// isSingleUnit reports whether the operation takes exactly one unit without a
// MaxWait, without a lease and without the windows of a calendar.
func isSingleUnit(op *core.Op) bool {
	return op.Verb == core.Take && op.Cost == 1 && op.MaxWait == 0 && !op.UpTo &&
		!op.Limit.Leased() && op.Windows == nil
}

// scriptXY returns the x and y of an operation under a limit; see lua/prelude.lua.
func scriptXY(op *core.Op, t *terms) (x, y any) {
	if op.Verb >= core.Grant {
		return zero, op.CreditUntil
	}
	if op.Limit.NeedsWindows() && op.Windows != nil && op.Verb != core.Refund {
		x, y = zero, t.boundaries(op.Windows)
		if op.Verb == core.Debit {
			x = op.Limit.Capacity() + op.Limit.MaxDebt()
		}
		return x, y
	}

	switch {
	case op.Limit.Leased():
		return zero, leaseID(op.Lease)
	case op.Verb == core.Refund && op.FromCredit > 0:
		return op.At, fmt.Sprintf("%d %d %d", op.ResetAfter/time.Microsecond, op.FromCredit, op.CreditUntil)
	case op.Verb == core.Refund:
		return op.At, int64(op.ResetAfter / time.Microsecond)
	case op.Verb == core.Debit:
		return op.Limit.Capacity() + op.Limit.MaxDebt(), zero
	case op.Limit.Books():
		return int64(op.MaxWait / time.Microsecond), zero
	}
	return zero, zero
}

// Flags that are added to the opcode of a verb, and the length of an operation in
// bytes; see lua/batch.lua.
const (
	opcodeSoft   = 1
	opcodeUpTo   = 5
	opcodeMore   = 16
	opcodeValues = 32
	opcodeRow    = 64
	opcodeLength = 7
)

// opcodeVerb holds the opcodes of the verbs.
var opcodeVerb = [...]byte{
	core.Take: 0, core.Peek: 2, core.Refund: 3, core.Reset: 4, core.Debit: 7, core.Lift: 8, core.Impose: 9,
	core.Grant: 10, core.Revoke: 11,
}

// program holds the arguments of lua/batch.lua while they are assembled.
type program struct {
	code   []byte
	keys   []any
	limits []banTerms
	heads  []any // for each limit, its letter and its ban, and its text
	values []any
	set    lua.Set
	long   bool    // some limit may have a large state
	places *places // of keys, or nil if there are few

	row   row
	alike bool // the operations of the step so far may be of a row
}

// row is the last steps of a program, if they are alike; see lua/batch.lua.
type row struct {
	at    int // where it begins in code
	steps int
	width int // bytes of a step
}

// linearSearchMax is the number of keys up to which a linear search is faster than a table.
const linearSearchMax = 8

// places finds keys by their hashes: a key has the first free entry from its hash on. A map takes
// four times as long, as it needs one search to look for a key and one to add it.
type places struct {
	seed  maphash.Seed
	table []int // the place of a key, from 1, or 0; of a power of two, and at most half is taken
}

// clear makes the table one without keys, with room for n.
func (p *places) clear(n int) {
	size := 1 << bits.Len(uint(2*n))
	if cap(p.table) < size {
		p.table = make([]int, size)
	}
	p.table = p.table[:size]
	clear(p.table)
}

// of returns the entry of a key, which is 0 if it is not among the keys.
func (p *places) of(name string, keys []any) *int {
	mask := uint64(len(p.table) - 1)
	for i := maphash.String(p.seed, name) & mask; ; i = (i + 1) & mask {
		if k := p.table[i]; k == 0 || keys[k-1] == name {
			return &p.table[i]
		}
	}
}

// scratch is memory that a program needs only while it is assembled.
type scratch struct {
	names  []byte // the keys of all operations
	ends   []int  // the end of each name
	places places
}

// maxNames is the capacity up to which names is reused for the next program.
const maxNames = 1 << 16

func newScratch() any { return &scratch{places: places{seed: maphash.MakeSeed()}} }

func (s *scratch) clear() {
	s.ends = s.ends[:0]
	if s.names = s.names[:0]; cap(s.names) > maxNames {
		s.names = nil
	}
}

// callMany returns the script and the arguments for any steps; see
// lua/batch.lua.
func (w *wire) callMany(steps []*step) (*lua.Script, []any) {
	s := w.scratches.Get().(*scratch)
	names := w.names(steps, s)
	n := len(s.ends)

	p := &program{code: make([]byte, 0, (n+1)*opcodeLength), keys: make([]any, leadingArgs, leadingArgs+n+8)}
	if n > linearSearchMax {
		p.places = &s.places
		p.places.clear(n)
	}

	// The names are parts of one text, in the order of the operations.
	start, i := 0, 0
	for _, each := range steps {
		at := len(p.code)
		p.alike = true
		for j := range each.ops {
			op := &each.ops[j]
			t, _ := w.limits.termsOf(op)
			p.add(op, names[start:s.ends[i]], t, j+1 < len(each.ops))
			p.set |= w.bansOf(op)
			start, i = s.ends[i], i+1
		}
		p.joinRow(at)
	}

	s.clear()
	w.scratches.Put(s)
	return fitting(w.scripts.Many(p.set), p.long), p.args(w.instant())
}

// names returns the keys of all operations in one text.
func (w *wire) names(steps []*step, s *scratch) string {
	for _, each := range steps {
		for i := range each.ops {
			op := &each.ops[i]
			s.names = w.key(s.names, op.Key, op.Rule, op.Limit.Algorithm.Letter())
			s.ends = append(s.ends, len(s.names))
		}
	}
	return string(s.names)
}

// add puts an operation into the program.
func (p *program) add(op *core.Op, key string, t *terms, more bool) {
	opcode := opcodeVerb[op.Verb]
	if op.UpTo {
		opcode += opcodeUpTo
	}
	if op.Verb == core.Take && op.Soft {
		opcode += opcodeSoft
	}
	if more {
		opcode += opcodeMore
	}

	if !isSingleUnit(op) {
		opcode += opcodeValues
		x, y := scriptXY(op, t)
		p.values = append(p.values, op.Cost, x, y)
	}

	// A row is of steps that take one unit of keys that the program meets for the first time.
	fresh := len(p.keys) - leadingArgs + 1
	k, l := p.key(key), p.limit(op, banTerms{t, t.ban(op)})
	p.alike = p.alike && t.shortCut && k == fresh && opcode&^opcodeMore == opcodeVerb[core.Take]

	at := len(p.code)
	p.code = append(p.code, opcode, 0, 0, 0, 0, 0, 0)
	putPlace(p.code[at+1:], k)
	putPlace(p.code[at+4:], l)
}

// joinRow puts the step that begins at p.code[at] into the last row, if the steps
// there have the same limits, or into a new one.
func (p *program) joinRow(at int) {
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

// sameLimits reports whether the step that begins at p.code[at] has the limits of
// the steps in the row.
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

	k := p.places.of(name, p.keys[leadingArgs:])
	if *k == 0 {
		p.keys = append(p.keys, name)
		*k = len(p.keys) - leadingArgs
	}
	return *k
}

// limit returns the place of a limit and its ban, from 1. Most steps have few limits.
func (p *program) limit(op *core.Op, t banTerms) int {
	l := slices.IndexFunc(p.limits, t.equal)
	if l < 0 {
		l = len(p.limits)
		p.limits = append(p.limits, t)
		p.heads = append(p.heads, t.ban.head(op.Limit.Algorithm), t.text)
		p.set = p.set.With(op.Limit.Algorithm)
		p.long = p.long || t.long
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

// The codes of decisions. The second integer of a decision is four times the reset
// plus a code; see lua/reply.lua.
const (
	saysAllowed = iota
	saysWait
	saysRetry
	saysNever
)

// A reply has one of these in place of the units that remain, or before them; see lua/reply.lua.
const (
	saysUnreadable = -1
	saysBanned     = -2
	saysCredit     = -3
	saysFormat     = -100 // less the number of a later format
)

var errReply = errors.New("redisstore: the reply does not fit the operations")

// answers is the integers of a reply that are still to be read.
type answers struct {
	at     int64
	unread []int64
}

// decode reads the reply to steps and puts into each its decisions or its error.
// A returned error means that the reply fits none of them.
func decode(steps []*step, ints []int64) error {
	if len(ints) == 0 {
		return errReply
	}

	a := answers{ints[0], ints[1:]}
	for _, each := range steps {
		var err error
		if each.err, err = a.step(each.ops, each.out); err != nil {
			return err
		}
	}

	// Integers that belong to no operation prove that the reply is of another script.
	if len(a.unread) > 0 {
		return errReply
	}
	return nil
}

// step reads the decisions on the operations of a step. unreadable is the error of a step
// with an unreadable key or one of a later format, or with windows of a calendar that do not hold
// the server's instant. The script charges nothing to such a window.
func (a *answers) step(ops []core.Op, out []core.Decision) (unreadable, err error) {
	for i := range ops {
		fault, err := a.decision(&out[i], ops[i].UpTo || ops[i].Verb == core.Debit)
		if err != nil {
			return nil, err
		}
		if fault != nil && unreadable == nil {
			unreadable = fmt.Errorf("redisstore: rule %q: %w", ops[i].Rule, fault)
		}
	}

	// A decision by windows that do not hold the server's instant is none.
	for i := 0; i < len(ops) && unreadable == nil; i++ {
		unreadable = ops[i].CheckWindows(a.at)
	}

	if core.Granted(ops, out) {
		setTaken(ops, out)
	}
	return unreadable, nil
}

// setTaken sets Taken for the Takes of a granted step. Replies have it only for UpTo
// Takes and for Debits.
func setTaken(ops []core.Op, out []core.Decision) {
	for i := range ops {
		if op := &ops[i]; op.Verb == core.Take && !op.UpTo && out[i].Allowed {
			out[i].Taken = op.Cost
		}
	}
}

// decision reads one decision, and the units taken if they are counted. fault is why the
// script could not decide.
func (a *answers) decision(d *core.Decision, counted bool) (fault, err error) {
	if fault = a.fault(); fault != nil {
		a.unread = a.unread[1:]
		return fault, nil
	}

	credit, err := a.credit()
	if err != nil || len(a.unread) < 2 {
		return nil, errReply
	}

	// The two lowest bits of the second integer are the code.
	remaining, reset, says := a.unread[0], a.unread[1]>>2, a.unread[1]&3
	a.unread = a.unread[2:]

	*d = core.Decision{
		Allowed: says <= saysWait, Remaining: remaining, ResetAfter: micros(reset), At: a.at,
		Credit: credit[0], FromCredit: credit[1], CreditUntil: credit[2],
	}
	if remaining == saysBanned {
		d.Banned, d.Remaining = true, 0
	}

	switch says {
	case saysNever:
		d.RetryAfter = core.Never
	case saysWait:
		d.Wait, err = a.span()
	case saysRetry:
		d.RetryAfter, err = a.span()
	}

	if counted && err == nil {
		d.Taken, err = a.next()
	}
	return nil, err
}

// credit reads what stands before the decision on a key with credit: the units that are left,
// those that were taken, and the end of the first of these.
func (a *answers) credit() (list [3]int64, err error) {
	switch {
	case len(a.unread) == 0 || a.unread[0] != saysCredit:
		return list, nil
	case len(a.unread) < 1+len(list):
		return list, errReply
	}
	copy(list[:], a.unread[1:])
	a.unread = a.unread[1+len(list):]
	return list, nil
}

// fault returns the error that stands in place of the next decision, or nil.
func (a *answers) fault() error {
	switch {
	case len(a.unread) == 0 || a.unread[0] > saysFormat && a.unread[0] != saysUnreadable:
		return nil
	case a.unread[0] == saysUnreadable:
		return ErrUnreadable
	}
	return formatError(saysFormat - a.unread[0])
}

// next reads one integer.
func (a *answers) next() (n int64, err error) {
	if len(a.unread) == 0 {
		return 0, errReply
	}
	n, a.unread = a.unread[0], a.unread[1:]
	return n, nil
}

// span reads a number of microseconds.
func (a *answers) span() (time.Duration, error) {
	n, err := a.next()
	return micros(n), err
}

// micros returns n microseconds as a Duration.
func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// meetsBan reports whether the error is that of a script which has met a key with strikes or
// credit and does not know of them. It has written nothing. From then on the store sends the
// scripts that do. That happens where another process has given a key credit, and where an
// operation without a Ban is about a key that was banned under one: when a rule has lost its Ban,
// or not all processes have it yet.
func (w *wire) meetsBan(err error) bool {
	if err == nil || !strings.Contains(err.Error(), lua.NeedsBans) {
		return false
	}
	w.struck.Store(true)
	return true
}

// fullMemory returns the error of steps that a server without free memory refused, with
// the rule for whose limit it did.
func (w *wire) fullMemory(steps []*step, err error) error {
	for _, each := range steps {
		for i := range each.ops {
			op := &each.ops[i]
			if t, _ := w.limits.termsOf(op); t.long {
				return fmt.Errorf("redisstore: rule %q, %v: the server's memory is full, "+
					"and only states of up to %d records are written then: %w",
					op.Rule, op.Limit, maxSmall, err)
			}
		}
	}
	return fmt.Errorf("redisstore: the server's memory is full: %w", err)
}
