package redisstore

import (
	"strconv"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/lua"
)

// leadingArgs is how many arguments precede the keys: the command's name, the script
// and the number of keys.
const leadingArgs = 3

// call returns the script for steps and its arguments, after two places for the
// command's name and the script.
func (s *Store) call(steps []*step) (*lua.Script, []any) {
	if len(steps) == 1 && len(steps[0].ops) == 1 {
		return s.callOne(&steps[0].ops[0])
	}
	return s.callMany(steps)
}

// callOne is for a step of one operation; see lua/single.lua.
func (s *Store) callOne(op *core.Op) (*lua.Script, []any) {
	var name [128]byte
	algorithm := op.Limit.Algorithm
	t, _ := s.limits.of(op)
	args := make([]any, leadingArgs+3, leadingArgs+7)
	args[2] = 1
	args[3] = string(s.key(name[:0], op.Key, op.Rule, algorithm.Letter()))
	args[4] = s.instant()
	args[5] = t.text
	if !isSingleUnit(op) {
		x, y := details(op)
		args = append(args, op.Verb.String(), op.Cost, x, y)
	}
	return s.scripts.One(algorithm), args
}

// zero is an argument.
var zero any = "0"

// instant is what a script gets as its time: 0 for the server's.
func (s *Store) instant() any {
	if s.clock == nil {
		return zero
	}
	return strconv.FormatInt(s.clock(), 10)
}

// isSingleUnit reports whether the operation takes one unit, at once and for good.
func isSingleUnit(op *core.Op) bool {
	return op.Verb == core.Take && op.Cost == 1 && op.MaxWait == 0 && !op.Limit.Leased()
}

// details are the x and y of an operation; see lua/prelude.lua.
func details(op *core.Op) (x, y any) {
	switch {
	case op.Limit.Leased():
		return zero, leaseID(op.Lease)
	case op.Verb == core.Refund:
		return op.At, int64(op.ResetAfter / time.Microsecond)
	case op.Limit.Books():
		return int64(op.MaxWait / time.Microsecond), zero
	}
	return zero, zero
}
