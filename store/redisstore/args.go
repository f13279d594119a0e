package redisstore

import (
	"strconv"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/lua"
)

// call returns the script for ops and its arguments, after two places for the
// command's name and the script.
func (s *Store) call(ops []core.Op) (*lua.Script, []any) {
	args := make([]any, 3, 5+len(ops)*(operationArgs+2))
	args[2] = len(ops)
	var key [128]byte
	for i := range ops {
		letter := lua.Letter(ops[i].Limit.Algorithm)
		args = append(args, string(s.key(key[:0], ops[i].Key, ops[i].Rule, letter)))
	}
	args = append(args, s.instant())
	if len(ops) == 1 {
		args = s.appendOp(args, &ops[0])
		for args[len(args)-1] == zero {
			args = args[:len(args)-1]
		}
		return s.scripts.One(ops[0].Limit.Algorithm), args
	}
	args = append(args, len(ops))
	var set lua.Set
	for i := range ops {
		set = set.With(ops[i].Limit.Algorithm)
		args = append(args, lua.Letter(ops[i].Limit.Algorithm))
	}
	for i := range ops {
		args = s.appendOp(args, &ops[i])
	}
	return s.scripts.Many(set), args
}

// zero is an argument that may be left out at the end.
var zero any = "0"

// instant is what a script gets as its time: 0 for the server's.
func (s *Store) instant() any {
	if s.clock == nil {
		return zero
	}
	return strconv.FormatInt(s.clock(), 10)
}

// operationArgs is how many arguments an operation has; see lua/many.lua.
const operationArgs = 7

func (s *Store) appendOp(args []any, op *core.Op) []any {
	n, _ := s.limits.of(op)
	x, y := zero, zero
	switch {
	case op.Limit.Algorithm == core.Concurrency:
		y = leaseID(op.Lease)
	case op.Verb == core.Refund:
		x, y = op.At, int64(op.ResetAfter/time.Microsecond)
	case op.Limit.Algorithm == core.GCRA && op.MaxWait > 0:
		x = int64(op.MaxWait / time.Microsecond)
	}
	return append(args, verb(op), op.Cost, n.period, n.quota, n.extra, x, y)
}

func verb(op *core.Op) string {
	if op.Verb == core.Take && op.Soft {
		return "soft"
	}
	return op.Verb.String()
}
