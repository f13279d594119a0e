package redisstore

import (
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/core"
)

// What the second integer of a decision says, besides four times the reset; see
// lua/reply.lua.
const (
	saysAllowed = iota
	saysWait
	saysRetry
	saysNever
)

var errReply = errors.New("redisstore: the reply does not fit the operations")

// answers are the integers of a reply that are still to be read.
type answers struct {
	at   int64
	rest []int64
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
	if len(a.rest) > 0 {
		return errReply
	}
	return nil
}

// step reads the decisions on the operations of a step, and reports whether any
// met an unreadable key.
func (a *answers) step(ops []core.Op, out []core.Decision) (unreadable, err error) {
	for i := range ops {
		known, err := a.decision(&out[i])
		if err != nil {
			return nil, err
		}
		if !known && unreadable == nil {
			unreadable = fmt.Errorf("redisstore: %w: rule %q", ErrUnreadable, ops[i].Rule)
		}
	}
	return unreadable, nil
}

// decision reads one, and reports whether there was one.
func (a *answers) decision(d *core.Decision) (known bool, err error) {
	if len(a.rest) > 0 && a.rest[0] < 0 {
		a.rest = a.rest[1:]
		return false, nil
	}
	if len(a.rest) < 2 {
		return false, errReply
	}
	remaining, reset, says := a.rest[0], a.rest[1]>>2, a.rest[1]&3
	a.rest = a.rest[2:]
	*d = core.Decision{Allowed: says <= saysWait, Remaining: remaining, ResetAfter: micros(reset), At: a.at}
	switch says {
	case saysAllowed:
		return true, nil
	case saysNever:
		d.RetryAfter = core.Never
		return true, nil
	}
	if len(a.rest) == 0 {
		return false, errReply
	}
	if says == saysWait {
		d.Wait = micros(a.rest[0])
	} else {
		d.RetryAfter = micros(a.rest[0])
	}
	a.rest = a.rest[1:]
	return true, nil
}

// micros is n microseconds.
func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
