package limiter

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/core"
)

// Result is what the rules of a [Limiter] decided together. Its methods are
// safe for concurrent use and on a nil Result.
type Result struct {
	*course        // nil for a zero Result, and where there is a brief
	brief   *brief // of a Take about which there is no more to know, or nil
}

// newResult returns the result of a request that is yet to be decided.
func newResult() *Result {
	r := &struct {
		Result
		of course
	}{}
	r.course = &r.of
	return &r.Result
}

// whole returns all that there is to know, which for a brief is made when it is first asked for.
func (r *Result) whole() *course {
	switch {
	case r.course != nil:
		return r.course
	case r.brief != nil:
		return r.brief.whole()
	}
	return &course{}
}

// brief is the result of a Take that a store in memory has allowed under plain rules: the least
// from which its course can be made. Nearly all such results are asked no more than whether they
// are allowed, and their memory is most of what a Take costs.
type brief struct {
	engine *engine
	set    *ruleSet
	key    string
	out    []core.Decision        // one for each rule
	made   atomic.Pointer[course] // or nil

	cost     int64 // no pointer is from here on, and the garbage collector looks at none
	degraded bool
	small    [1]core.Decision
}

// newBrief returns a result of what was decided about a Take of cost units of the key. A refusal
// has a course, as it is asked when to come again.
func newBrief(e *engine, set *ruleSet, key string, cost int64, asked *decided) *Result {
	if !asked.allowed {
		res := newResult()
		res.setDecided(e, set, key, cost, asked.out)
		return res
	}

	r := &struct {
		Result
		of brief
	}{}
	b := &r.of
	r.brief = b

	b.engine, b.set, b.key, b.cost, b.degraded = e, set, key, cost, asked.degraded
	if n := asked.asked; n <= len(b.small) {
		b.out = b.small[:n]
	} else {
		b.out = make([]core.Decision, n)
	}
	for i := range b.out {
		copyDecision(&b.out[i], &asked.out[i])
	}
	return &r.Result
}

// whole returns the course of the Take, which is the same for all callers.
func (b *brief) whole() *course {
	if c := b.made.Load(); c != nil {
		return c
	}

	c := &course{}
	c.setDecided(b.engine, b.set, b.key, b.cost, b.out)
	if b.made.CompareAndSwap(nil, c) {
		return c
	}
	return b.made.Load()
}

// isWhole reports whether there is a course, without making one.
func (r *Result) isWhole() bool { return r != nil && r.course != nil }

// Allowed reports whether the units were taken, except those of Degrade and
// Shadow rules that were over their limits. If the store could not decide, it follows
// from OnStoreError of the rules.
func (r *Result) Allowed() bool {
	return r != nil && (r.brief != nil || r.course != nil && r.allowed)
}

// Undecided reports whether the store did not decide under every rule, so that
// Allowed follows from OnStoreError of the rules, at least in part.
func (r *Result) Undecided() bool {
	return r.isWhole() && r.isUndecided()
}

// Denied reports whether the request was refused because Rule.Access of a rule denies the
// caller, and not because of a limit. Violated has the name of the rule.
func (r *Result) Denied() bool { return r.isWhole() && r.isDenied() }

// Banned reports whether the request was refused because of a ban, and not by a limit
// alone. The request whose refusal begins a ban is the first of them. Violated has the
// names of all rules that refused.
func (r *Result) Banned() bool { return r.isWhole() && r.banned() }

// Degraded reports whether the request passes although it is over the limit of a
// Degrade rule, of this limiter or, for a result from a context, of one around it.
func (r *Result) Degraded() bool {
	if r != nil && r.brief != nil {
		return r.brief.degraded
	}
	return r.isWhole() && r.isDegraded()
}

// Near reports whether the request passes and leaves a key near its limit, as Rule.Warn of a rule
// that is not Shadow says it.
func (r *Result) Near() bool {
	if r == nil || r.brief != nil && !r.brief.set.warns {
		return false
	}
	return r.whole().isNear()
}

// Waited returns how long the request has waited for its turn.
func (r *Result) Waited() time.Duration {
	if !r.isWhole() {
		return 0
	}
	return r.waited
}

// Decisions returns what every rule that applies decided, in the order of the
// rules. A booked slot that was waited for has no Wait left.
func (r *Result) Decisions() []RuleDecision {
	if r == nil {
		return nil
	}
	c := r.whole()
	list := make([]RuleDecision, c.asked)
	for i := range list {
		list[i] = c.ruleDecision(i)
	}
	return list
}

// Violated returns the names of the rules that refused the request.
func (r *Result) Violated() []string {
	if r == nil {
		return nil
	}
	c := r.whole()
	var names []string
	for i := range c.asked {
		if c.violates(i) {
			names = append(names, c.calls[i].rule.Name)
		}
	}
	return names
}

// RetryAfter returns the time until the same request would be admitted if no other
// request came: 0 if it is allowed, [core.Never] if it is denied or costs more than a
// limit can hold, or than this instance's part while the fallback of the store decides.
func (r *Result) RetryAfter() time.Duration {
	if r == nil {
		return 0
	}
	return r.whole().retryAfter()
}

// HoldsLeases reports whether the result holds leases, which have to be released.
func (r *Result) HoldsLeases() bool { return r.isWhole() && r.holdsLeases() }

// Refund gives back the units that were taken, and the leases, as if they had
// never been taken; a second call does nothing. Rules that Settle has named before
// are not refunded. Units that the passage of time
// has given back already are not given back twice. After an error some units may
// or may not have been given back.
func (r *Result) Refund(ctx context.Context) error {
	if r == nil {
		return nil
	}
	return r.whole().refund(ctx)
}

// Release ends the leases, so that others can take the units. Once it has
// succeeded another call does nothing.
func (r *Result) Release(ctx context.Context) error {
	if !r.isWhole() {
		return nil
	}
	return r.release(ctx)
}

// Renew holds the leases for another Period from now, and reports whether all of them
// are held. A lease that had expired is taken anew if there is room; the others are
// renewed in any case. Renew returns true for a result without leases, and false for one
// that was refused or released.
func (r *Result) Renew(ctx context.Context) (held bool, err error) {
	if r == nil {
		return true, nil
	}
	held, _, err = r.whole().renew(ctx)
	return held, err
}

// Settle corrects what the request was charged to what it has used. actual has the units
// used, by the names of rules. Units that were not used are given back, except those that
// the passage of time has given back already. Units beyond the charge are charged too, if
// need be beyond the limit; see [core.Debit] and [core.Limit.MaxDebt]. Rules that are not
// named keep their charge, and so do all if Settle is never called. Only the first call
// counts; later ones return nil and do nothing, and a named rule is then not refunded by
// Rule.RefundIf or by Refund. A rule that one of these has refunded before is not settled.
//
// All rules are settled in one step of the store, which also releases the leases. The step
// of a request that an adapter admitted is carried out when the handler has ended, however
// it ends, or with the connection that it has taken over. It does not delay the answer, and
// its error goes to Config.OnError. In all other cases Settle carries it out before it
// returns, whether or not ctx has ended. After an error of the store the units are those
// charged or those used, and the leases are released later.
//
// A mistake in actual is an error that wraps [core.ErrOp] and names the rules, and nothing
// is settled: a negative number; a rule that does not exist, that charged the request
// nothing, or that has a concurrency limit; more units than were charged under a limit
// without debt. A rule that the request has passed uncounted is no mistake and stays
// uncharged: a Degrade or Shadow rule that was over its limit, a rule whose Access does not
// limit the caller, and a rule that the store did not decide. The error on a nil Result
// wraps core.ErrOp too: a request has a result in its context under Config.KeepResult.
func (r *Result) Settle(ctx context.Context, actual map[string]int64) error {
	if r == nil {
		return errNoResult
	}
	return r.whole().settle(ctx, actual)
}

func (r *Result) retryAfterSeconds() int64 {
	switch r.outcome {
	case Failed:
		return max(1, wholeSeconds(retryAfter(r.err)))
	case Refused:
		if d := r.RetryAfter(); d != core.Never {
			return max(1, wholeSeconds(d))
		}
	case QueueFull:
		return max(1, wholeSeconds(r.knownWait()))
	}
	return 0
}

// retryAfter returns the time after which a new attempt is worthwhile, if err has a
// method that returns it, and 0 otherwise.
func retryAfter(err error) time.Duration {
	var e interface{ RetryAfter() time.Duration }
	if errors.As(err, &e) {
		return e.RetryAfter()
	}
	return 0
}

// knownWait returns the time until the rules that refused the request would admit it,
// without those whose leases may be released at any time.
func (r *Result) knownWait() (longest time.Duration) {
	for i := range r.asked {
		if r.violates(i) && !r.ops[i].Limit.Leased() {
			longest = max(longest, r.out[i].RetryAfter)
		}
	}
	return longest
}

// wholeSeconds returns d in seconds, rounded up.
func wholeSeconds(d time.Duration) int64 {
	return int64(d/time.Second) + min(1, int64(d%time.Second))
}

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
	flagCredit
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
func (r *Result) MarshalBinary() ([]byte, error) {
	if r == nil {
		return []byte{encodingVersion, 0, 0, 0, 0}, nil
	}
	c := r.whole()
	flags := flag(flagAllowed, c.allowed) | flag(flagDegraded, c.degraded) | flag(flagUndecided, c.isUndecided())
	b := append(make([]byte, 0, 64+96*c.asked), encodingVersion, flags)

	// The issuer is encoded, as the fallback of another limiter knows nothing of the units.
	var issuer string
	if c.engine != nil {
		issuer = c.engine.id
	}

	b = appendText(appendText(b, issuer), c.lease)
	b = binary.AppendUvarint(b, uint64(c.asked))
	for i := range c.asked {
		b = appendDecided(b, &c.ops[i], &c.out[i], c.calls[i].rule.OnLimit)
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
	b = append(b, flag(flagAdmitted, d.Allowed)|flag(flagFallback, d.Fallback)|flag(flagLeased, op.Lease != "")|
		flag(flagCredit, d.FromCredit > 0))
	b = appendText(appendText(appendText(b, op.Rule), op.Key), op.Limit.String())
	b = binary.AppendVarint(b, onLimit.encoded())
	b = binary.AppendVarint(b, min(op.Cost, maxEncodedUnits)) // a Cost above it was refused
	b = binary.AppendVarint(b, d.Taken)
	b = binary.AppendVarint(b, d.At)
	b = binary.AppendVarint(b, int64(d.ResetAfter))
	b = binary.AppendUvarint(b, uint64(d.Origin))
	if d.FromCredit > 0 {
		b = binary.AppendVarint(binary.AppendVarint(b, d.FromCredit), d.CreditUntil)
	}
	return b
}

// encoded is the rest of an encoded result that is being read. After the first error it
// returns zero values.
type encoded struct {
	rest []byte
	err  error
}

var errShort = errors.New("it ends early")

func (e *encoded) byte() byte {
	if len(e.rest) == 0 {
		e.fail(errShort)
		return 0
	}
	b := e.rest[0]
	e.rest = e.rest[1:]
	return b
}

func (e *encoded) fail(err error) {
	if e.err == nil {
		e.err, e.rest = err, nil
	}
}

func (e *encoded) uvarint() uint64 {
	v, n := binary.Uvarint(e.rest)
	if n <= 0 {
		e.fail(errShort)
		return 0
	}
	e.rest = e.rest[n:]
	return v
}

// number returns an integer from min to max.
func (e *encoded) number(min, max int64) int64 {
	v, n := binary.Varint(e.rest)
	if n <= 0 {
		e.fail(errShort)
		return 0
	}
	if v < min || v > max {
		e.fail(fmt.Errorf("%d is not within %d to %d", v, min, max))
		return 0
	}
	e.rest = e.rest[n:]
	return v
}

func (e *encoded) text() string {
	n := e.uvarint()
	if n > uint64(len(e.rest)) {
		e.fail(errShort)
		return ""
	}
	s := string(e.rest[:n])
	e.rest = e.rest[n:]
	return s
}

// addDecided reads an op and its decision, and adds them to the result. own reports
// whether a limiter encodes and restores its own result.
func (e *encoded) addDecided(res *Result, own bool) {
	flags := e.byte()
	name, key, text := e.text(), e.text(), e.text()
	rule := &activeRule{Rule: Rule{Name: name, OnLimit: e.action()}}
	cost, taken := e.number(0, maxEncodedUnits), e.number(0, maxEncodedUnits)
	d := core.Decision{Allowed: flags&flagAdmitted != 0, Fallback: flags&flagFallback != 0, Taken: taken,
		At: e.number(0, maxEncodedUnits), ResetAfter: time.Duration(e.number(0, int64(core.Never)))}
	d.Origin = uint32(e.uvarint())
	if flags&flagCredit != 0 {
		d.FromCredit, d.CreditUntil = e.number(0, taken), e.number(0, maxEncodedUnits-1)
	}
	if e.err != nil {
		return
	}

	leased := flags&flagLeased != 0
	if err := rule.restore(text, res, leased); err != nil {
		e.fail(err)
		return
	}

	// Units of a fallback are known to the limiter alone whose fallback it is.
	if !own {
		if d.Fallback && !leased {
			res.rare.write().skipped = errElsewhere
			return
		}
		d.Origin = 0
	}

	op := res.nextOp(core.Take, rule, rule.terms, key, cost)
	if leased {
		op.Lease = res.lease
	}
	if rule.terms.limit.NeedsWindows() {
		op.Windows = rule.terms.windowsNow()
	}
	res.out[len(res.out)-1] = d
}

// encoded returns the action as a result is encoded with it: the longest wait in nanoseconds, or
// 0, -1 or -2.
func (a Action) encoded() int64 {
	if a.kind == waits {
		return int64(a.maxWait)
	}
	return -int64(a.kind)
}

// action reads the number of an action.
func (e *encoded) action() Action {
	n := e.number(-int64(shadows), int64(core.MaxBooking))
	if n > 0 {
		return Wait(time.Duration(n))
	}
	return Action{kind: actionKind(-n)}
}

// restore gives a rule that was encoded its limit and, if it is still in force, its ban.
func (a *activeRule) restore(text string, res *Result, leased bool) error {
	limit, err := core.ParseLimit(text)
	if err != nil {
		return err
	}
	if leased && (!limit.Leased() || res.lease == "") {
		return errors.New("a lease without a limit or name")
	}

	// The limit is the one of then; a ban is the one of now, as a refund has to find its state.
	a.Limit = limit
	if now := res.set.named(a.Name); now != nil && !limit.Leased() {
		a.Ban = now.Ban
	}
	a.terms = newTerms(&a.Rule, limit)
	return nil
}
