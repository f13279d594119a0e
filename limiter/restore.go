// This file encodes what a result has taken, so that another process can give it back.

package limiter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/core"
)

// encodingVersion is the first byte of an encoded result. It changes with the form.
const encodingVersion = 1

// Flags of an encoded result.
const (
	flagAllowed = 1 << iota
	flagDegraded
	flagUndecided
)

// Flags of an encoded decision.
const (
	flagAdmitted = 1 << iota
	flagFallback
	flagLeased
)

// maxEncodedUnits is above every number of units that a limit can grant.
const maxEncodedUnits = 1 << 53

// errElsewhere is why a restored result is undecided: some of its rules were.
var errElsewhere = errors.New("headgate: not every rule was decided by a store that is shared")

// MarshalBinary encodes what [Limiter.Restore] needs, so that another process can refund,
// settle, renew or release what res has taken: the names of the rules, the keys in plain
// text, the limits, and the units. It neither encrypts nor authenticates them. It never
// fails, and a nil Result is encoded as one that took nothing.
//
// What Refund, Settle and Release have done is not encoded; see Restore.
func (res *Result) MarshalBinary() ([]byte, error) {
	if res == nil {
		return []byte{encodingVersion, 0, 0, 0, 0}, nil
	}
	flags := flag(flagAllowed, res.allowed) | flag(flagDegraded, res.degraded) | flag(flagUndecided, res.Undecided())
	b := append(make([]byte, 0, 64+96*res.asked), encodingVersion, flags)
	var issuer string
	if res.engine != nil {
		issuer = res.engine.id
	}
	b = appendText(appendText(b, issuer), res.lease)
	b = binary.AppendUvarint(b, uint64(res.asked))
	for i := range res.asked {
		b = appendDecided(b, &res.ops[i], &res.out[i], res.calls[i].rule.OnLimit)
	}
	return b, nil
}

// flag returns f if set is true, and otherwise 0.
func flag(f byte, set bool) byte {
	if set {
		return f
	}
	return 0
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// appendDecided appends an op and the decision on it.
func appendDecided(b []byte, op *core.Op, d *core.Decision, onLimit Action) []byte {
	b = append(b, flag(flagAdmitted, d.Allowed)|flag(flagFallback, d.Fallback)|flag(flagLeased, op.Lease != ""))
	b = appendText(appendText(appendText(b, op.Rule), op.Key), op.Limit.String())
	b = binary.AppendVarint(b, onLimit.number())
	b = binary.AppendVarint(b, min(op.Cost, maxEncodedUnits)) // a Cost above it was refused
	b = binary.AppendVarint(b, d.Taken)
	b = binary.AppendVarint(b, d.At)
	b = binary.AppendVarint(b, int64(d.ResetAfter))
	return binary.AppendUvarint(b, uint64(d.Origin))
}

// encoded is the rest of an encoded result that is being read. After the first error it
// returns zero values.
type encoded struct {
	rest []byte
	err  error
}

var errShort = errors.New("it ends early")

func (r *encoded) byte() byte {
	if len(r.rest) == 0 {
		r.fail(errShort)
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

func (r *encoded) fail(err error) {
	if r.err == nil {
		r.err, r.rest = err, nil
	}
}

func (r *encoded) uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.fail(errShort)
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

// number returns an integer from min to max.
func (r *encoded) number(min, max int64) int64 {
	v, n := binary.Varint(r.rest)
	if n <= 0 {
		r.fail(errShort)
		return 0
	}
	if v < min || v > max {
		r.fail(fmt.Errorf("%d is not within %d to %d", v, min, max))
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *encoded) text() string {
	n := r.uvarint()
	if n > uint64(len(r.rest)) {
		r.fail(errShort)
		return ""
	}
	s := string(r.rest[:n])
	r.rest = r.rest[n:]
	return s
}

// addDecided reads an op and its decision, and adds them to the result. own reports
// whether a limiter encodes and restores its own result.
func (r *encoded) addDecided(res *Result, own bool) {
	flags := r.byte()
	name, key, text := r.text(), r.text(), r.text()
	rule := &activeRule{Rule: Rule{Name: name, OnLimit: r.action()}}
	cost, taken := r.number(0, maxEncodedUnits), r.number(0, maxEncodedUnits)
	d := core.Decision{Allowed: flags&flagAdmitted != 0, Fallback: flags&flagFallback != 0, Taken: taken,
		At: r.number(0, maxEncodedUnits), ResetAfter: time.Duration(r.number(0, int64(core.Never)))}
	d.Origin = uint32(r.uvarint())
	if r.err != nil {
		return
	}
	leased := flags&flagLeased != 0
	if err := rule.restore(text, res, leased); err != nil {
		r.fail(err)
		return
	}
	if !own {
		if d.Fallback && !leased {
			res.skipped = errElsewhere
			return
		}
		d.Origin = 0
	}
	op := res.room(rule, rule.terms)
	op.Key, op.Cost = key, cost
	if leased {
		op.Lease = res.lease
	}
	if rule.terms.limit.Algorithm == core.CalendarWindow {
		op.Windows = rule.terms.windowsNow()
	}
	res.out[len(res.out)-1] = d
}

// number returns the action as a result is encoded with it: the longest wait in nanoseconds, or
// 0, -1 or -2.
func (a Action) number() int64 {
	if a.kind == waits {
		return int64(a.maxWait)
	}
	return -int64(a.kind)
}

// action reads the number of an action.
func (r *encoded) action() Action {
	n := r.number(-int64(shadows), int64(core.MaxBooking))
	if n > 0 {
		return Wait(time.Duration(n))
	}
	return Action{kind: actionKind(-n)}
}

// restore gives a rule that was encoded its limit and, if it is still in force, its ban.
func (r *activeRule) restore(text string, res *Result, leased bool) error {
	limit, err := core.ParseLimit(text)
	if err != nil {
		return err
	}
	if leased && (!limit.Leased() || res.lease == "") {
		return errors.New("a lease without a limit or name")
	}
	r.Limit = limit
	if now := res.set.named(r.Name); now != nil && !limit.Leased() {
		r.Ban = now.Ban
	}
	r.terms = newTerms(&r.Rule, limit)
	return nil
}
