package limiter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/observe/events"
)

// Result is what the rules of a [Limiter] decided together. Its methods are
// safe for concurrent use and on a nil Result.
type Result struct {
	limiter *Limiter
	set     *ruleSet

	// calls, ops and out are parallel: one for each rule that applies.
	calls []call
	ops   []core.Op
	out   []core.Decision
	small struct {
		calls [1]call
		ops   [1]core.Op
		out   [1]core.Decision
	}

	allowed   bool
	degraded  bool
	local     bool          // the fallback decided where the store would have been asked
	err       error         // why the store could not decide
	stopped   error         // why the wait ended before its time
	notQueued error         // why no wait could begin
	skipped   error         // why some rules could not be asked
	ownFault  error         // the same, if it was an error of the rules themselves
	inParts   bool          // a rule may have more calls than one
	denied    bool          // by the lists of the only rule in calls; no store was asked
	aside     int           // how many ops behind the last are of rules that were not asked
	waited    time.Duration // in all
	aged      time.Duration // since the store decided
	asked     time.Time     // when the store was last asked for the leases, if there are any
	lease     string
	outer     *Result // of the limiter around this one

	fixedCost *int64 // of the request under every rule, or nil for the Cost of each

	indices  []int         // of the rules that the selection has named
	selected []*activeRule // those rules

	outside []outside // rules that the store was not asked about

	unlogged  error // of the store, and to be logged with what becomes of the request
	concluded bool  // the observer was told

	pooled bool            // the result is used again
	record *events.Request // memory for the next event, or nil

	refunded, released atomic.Bool
	leasesTold         atomic.Bool // that they have ended, or that there are none

	settlement atomic.Pointer[settlement]
	admitted   bool        // an Admission carries out the settlement at its end
	ended      atomic.Bool // that has come, but handlers may still refer to the result
}

// call is one rule's part of a result.
type call struct {
	rule    *activeRule
	terms   *terms
	maxWait time.Duration // the longest wait for this rule

	id    int  // 1 and up in the order of addition, for requests in parts
	check bool // the op is a Peek under a limit that holds one unit more

	waited time.Duration // for a turn under this rule
	behind bool          // by the last Peek, older requests wait for the key

	leaseLost uint32 // 1 if the lease has ended before the request, and was not taken anew; atomic

	corrected uint32 // 1 once the charge is refunded or settled, which is done once; atomic
}

// outside is a rule that the store was not asked about: its functions failed and it fails
// open, or it is a Shadow rule whose lists deny the caller.
type outside struct {
	rule *activeRule
	key  string
	err  error // nil for a denial
}

// RuleDecision is what one rule decided.
type RuleDecision struct {
	Rule     string
	Limit    core.Limit
	OnLimit  Action
	Decision core.Decision
}

// Allowed reports whether the units were taken, except those of Degrade and
// Shadow rules that were over their limits. If the store could not decide, it follows
// from OnStoreError of the rules.
func (res *Result) Allowed() bool { return res != nil && res.allowed }

// Undecided reports whether the store did not decide under every rule, so that
// Allowed follows from OnStoreError of the rules, at least in part.
func (res *Result) Undecided() bool {
	return res != nil && (res.err != nil || res.skipped != nil)
}

// Degraded reports whether the request passes although it is over the limit of a
// Degrade rule, of this limiter or, for a result from a context, of one around it.
func (res *Result) Degraded() bool {
	return res != nil && (res.allowed && res.degraded || res.outer.Degraded())
}

// Waited returns how long the request has waited for its turn.
func (res *Result) Waited() time.Duration {
	if res == nil {
		return 0
	}
	return res.waited
}

// Decisions returns what every rule that applies decided, in the order of the
// rules. A booked slot that was waited for has no Wait left.
func (res *Result) Decisions() []RuleDecision {
	if res == nil {
		return nil
	}
	list := make([]RuleDecision, len(res.calls))
	for i := range list {
		list[i] = res.ruleDecision(i)
	}
	return list
}

func (res *Result) ruleDecision(i int) RuleDecision {
	r := res.calls[i].rule
	return RuleDecision{r.Name, res.ops[i].Limit, r.OnLimit, res.decision(i)}
}

// decision returns out[i] as it is after the wait.
func (res *Result) decision(i int) core.Decision {
	d := res.out[i]
	if res.aged > 0 {
		d.At += int64(res.aged / time.Microsecond)
		d.ResetAfter = max(0, d.ResetAfter-res.aged)
	}
	return d
}

// violates reports whether rule i is why the request was refused.
func (res *Result) violates(i int) bool {
	return !res.allowed && !res.out[i].Allowed && (res.denied || !res.ops[i].Soft)
}

// exceedsPart reports whether the limit of rule i holds the cost, and the fallback of the
// store refuses it because this instance's part of the limit never does.
func (res *Result) exceedsPart(i int) bool {
	d, op := &res.out[i], &res.ops[i]
	return d.Fallback && d.RetryAfter == core.Never && !op.UpTo && op.Cost <= op.Limit.Capacity()
}

// awaitsStore reports whether the request can be admitted, but not before the store is back.
func (res *Result) awaitsStore() (awaits bool) {
	for i := range res.calls {
		if !res.violates(i) || res.out[i].RetryAfter != core.Never {
			continue
		}
		if res.denied || !res.exceedsPart(i) {
			return false
		}
		awaits = true
	}
	return awaits
}

// Violated returns the names of the rules that refused the request.
func (res *Result) Violated() []string {
	if res == nil {
		return nil
	}
	var names []string
	for i := range res.calls {
		if res.violates(i) {
			names = append(names, res.calls[i].rule.Name)
		}
	}
	return names
}

// RetryAfter returns the time until the same request would be admitted if no other
// request came: 0 if it is allowed, [core.Never] if it is denied or costs more than a
// limit can hold, or than this instance's part while the fallback of the store decides.
func (res *Result) RetryAfter() time.Duration {
	var longest time.Duration
	if res == nil {
		return 0
	}
	for i := range res.calls {
		if res.violates(i) {
			longest = max(longest, res.out[i].RetryAfter)
		}
	}
	return longest
}

func (res *Result) outcome() Outcome {
	switch {
	case res.allowed:
		return Pass
	case res.err != nil:
		return Failed
	case res.notQueued == ErrQueueFull:
		return QueueFull
	}
	return Refused
}

// knownWait returns the time until the rules that refused the request would admit it,
// without those whose leases may be released at any time.
func (res *Result) knownWait() (longest time.Duration) {
	for i := range res.calls {
		if res.violates(i) && !res.ops[i].Limit.Leased() {
			longest = max(longest, res.out[i].RetryAfter)
		}
	}
	return longest
}

// mayRefund reports whether any rule in force may give units back.
func (res *Result) mayRefund() bool { return res.set != nil && res.set.refunds && !res.inParts }

// begin makes the result ready for the rules in force.
func (res *Result) begin(l *Limiter) {
	res.limiter, res.set = l, l.set.Load()
	switch n := len(res.set.rules); {
	case res.calls != nil:
	case n <= len(res.small.calls):
		res.calls, res.ops, res.out = res.small.calls[:0], res.small.ops[:0], res.small.out[:0]
	default:
		res.calls, res.ops, res.out = make([]call, 0, n), make([]core.Op, 0, n), make([]core.Decision, 0, n)
	}
}

// add puts one more op under the terms into the step.
func (res *Result) add(verb core.Verb, r *activeRule, t *terms, key string, cost int64) error {
	if cost < 0 {
		return r.ruleError(errors.New("the cost is negative"))
	}
	if r.CostAtMost {
		cost = min(cost, t.limit.Capacity())
	}
	op := res.room(r, t)
	op.Verb, op.UpTo, op.Key, op.Cost, op.MaxWait = verb, false, key, cost, 0
	if t.limit.Algorithm == core.CalendarWindow {
		op.Windows = t.windowsNow()
	}
	if t.leased && verb == core.Take {
		if res.lease == "" {
			res.lease = res.limiter.leases.next()
		}
		// Renewal may outlive the request, and with it the key.
		op.Lease, op.Key = res.lease, strings.Clone(key)
	}
	return nil
}

// room adds a call under the terms and returns its op. If an earlier request left an op
// under the same terms in that place, room returns it instead of a new copy.
func (res *Result) room(r *activeRule, t *terms) *core.Op {
	n := len(res.calls)
	if n < cap(res.calls) {
		if c := &res.calls[:n+1][n]; c.terms == t {
			c.corrected, c.waited = 0, 0
			res.calls, res.ops, res.out = res.calls[:n+1], res.ops[:n+1], res.out[:n+1]
			res.out[n] = core.Decision{}
			return &res.ops[n]
		}
	}
	res.calls = append(res.calls, call{rule: r, terms: t, maxWait: r.OnLimit.MaxWait()})
	res.ops = append(res.ops, t.take)
	res.out = append(res.out, core.Decision{})
	return &res.ops[n]
}

// addRequest adds an op for the request under every rule that applies to it, among
// all rules or those that are selected.
func (res *Result) addRequest(verb core.Verb, r core.Request) (err error) {
	rules := res.set.rules
	if res.set.selection != nil {
		if rules, err = res.selectRules(r); err != nil {
			return res.selectionFailed(err)
		}
	}
	for i := 0; ; i++ {
		if i, err = res.addRequestFrom(verb, rules, i, r); err == nil {
			return nil
		}
		if verb != core.Take {
			return err
		}
		if err = res.skipRule(r.Context(), rules[i].index, err); err != nil {
			return err
		}
	}
}

// addRequestFrom adds the ops of rule i and those after it. With an error it returns
// the index of the rule that failed.
func (res *Result) addRequestFrom(verb core.Verb, rules []*activeRule, i int, r core.Request) (at int, err error) {
	at = i
	defer func() {
		if v := recover(); v != nil {
			err = rules[at].ruleError(panicked(v))
		}
	}()

	for ; at < len(rules); at++ {
		i := at
		key, ok := rules[i].Key(r)
		if !ok {
			continue
		}
		if rules[i].Access != nil {
			switch listed, err := res.applyAccess(verb, rules[i], r, key); {
			case err != nil || res.denied:
				return at, err
			case listed:
				continue
			}
		}

		cost := int64(1)
		switch {
		case res.fixedCost != nil:
			cost = *res.fixedCost
		case rules[i].Cost != nil && verb != core.Reset:
			cost = rules[i].Cost(r)
		}

		t := rules[i].terms
		if rules[i].Override != nil {
			if t, err = rules[i].overridden(r.Context(), key); err != nil {
				return at, err
			}
		}
		if err := res.add(verb, rules[i], t, key, cost); err != nil {
			return at, err
		}
	}
	return at, nil
}

// addKey makes every rule count key.
func (res *Result) addKey(ctx context.Context, verb core.Verb, key string, cost int64) error {
	for _, r := range res.set.rules {
		err := res.addKeyTo(ctx, r, verb, key, cost)
		if res.denied {
			return nil
		}
		if err != nil && verb == core.Take {
			err = res.skipRule(ctx, r.index, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (res *Result) addKeyTo(ctx context.Context, r *activeRule, verb core.Verb, key string, cost int64) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = r.ruleError(panicked(v))
		}
	}()
	if r.Access != nil {
		if listed, err := res.applyAccess(verb, r, nil, key); err != nil || listed {
			return err
		}
	}
	t := r.terms
	if r.Override != nil {
		if t, err = r.overridden(ctx, key); err != nil {
			return err
		}
	}
	return res.add(verb, r, t, key, cost)
}

// apply carries out a Peek, a Reset or a Lift. A Peek asks the same store as a Take, with or
// without its fallback.
func (res *Result) apply(ctx context.Context, verb core.Verb) error {
	if res.denied {
		return nil
	}
	if verb == core.Peek {
		return res.limiter.applyTo(ctx, res.set.store, res.ops, res.out)
	}
	if err := res.limiter.apply(ctx, res.ops, res.out); err != nil {
		return err
	}
	res.limiter.queue.NoteReleases(res.ops)
	return nil
}

// ask lets the store decide, unless the caller is denied.
func (res *Result) ask(ctx context.Context) error {
	if res.denied {
		return nil
	}

	res.noteAsking()
	if err := res.limiter.applyTo(ctx, res.set.store, res.ops, res.out); err != nil {
		if err = res.fallbackDecide(ctx, err); err != nil {
			res.releaseUnanswered(ctx)
			return err
		}
	}

	res.allowed, res.degraded = true, false
	for i := range res.ops {
		if res.out[i].Fallback && !res.set.strict {
			res.local = true
		}
		if res.out[i].Allowed {
			continue
		}
		if res.out[i].RetryAfter == core.Never && !res.ops[i].UpTo && !res.exceedsPart(i) {
			res.limiter.Warn(core.Finding{Code: CodeTooCostly, Rule: res.ops[i].Rule, Text: "a request cost more than its limit can ever hold, and can never be admitted"})
		}
		switch {
		case !res.ops[i].Soft:
			res.allowed = false
		case res.calls[i].rule.OnLimit == Degrade:
			res.degraded = true
		}
	}
	return nil
}

// noteAsking notes when the store is asked for leases.
func (res *Result) noteAsking() {
	if res.lease != "" {
		res.asked = time.Now()
	}
}

// conclude derives the outcome from err and the answer of the store, and reports it.
func (res *Result) conclude(ctx context.Context, err error) {
	if err != nil {
		res.err = err
		res.allowed, res.degraded = res.failsOpen(ctx, err), false
	}
	if res.skipped != nil {
		res.logSkipped(ctx)
	}
	if err != nil {
		res.limiter.reportAs(ctx, err, res.fate())
	} else if res.local {
		res.limiter.reportFallback(ctx)
	}
	res.tell(ctx)
	if err != nil {
		res.calls, res.ops, res.out = res.calls[:0], res.ops[:0], res.out[:0]
	}
}

// fate returns what became of a request that not every rule has decided about.
func (res *Result) fate() fate {
	if res.allowed {
		return passed
	}
	return turnedAway
}

// logSkipped logs why rules were not decided, with what became of the request.
func (res *Result) logSkipped(ctx context.Context) {
	f := res.fate()
	for i := range res.outside {
		if err := res.outside[i].err; err != nil {
			res.limiter.logFailure(ctx, err, f)
		}
	}
	if res.unlogged == nil {
		return
	}
	if res.aside == 0 {
		f = decidedLocally
	}
	res.limiter.logFailure(ctx, res.unlogged, f)
}

// cleanupTimeout bounds the store calls at the end of a request. The end of its
// context must not cut them short.
const cleanupTimeout = time.Second

// cleanupContext returns a context for calls that have to be made although ctx may
// have ended.
func cleanupContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
}

// charged reports whether units were taken by op i.
func (res *Result) charged(i int) bool {
	op := &res.ops[i]
	return res.allowed && res.out[i].Allowed && op.Cost > 0 && (op.Verb == core.Take || op.Verb == core.Debit)
}

// leased reports whether op i holds a lease.
func (res *Result) leased(i int) bool { return res.ops[i].Lease != "" && res.charged(i) }

// HoldsLeases reports whether the result holds leases, which have to be released.
func (res *Result) HoldsLeases() bool {
	if res == nil || res.lease == "" || res.released.Load() {
		return false
	}
	for i := range res.ops {
		if res.leased(i) {
			return true
		}
	}
	return false
}

// refundOp returns the op that undoes op i.
func (res *Result) refundOp(i int) core.Op { return res.ops[i].Refund(res.out[i]) }

// Refund gives back the units that were taken, and the leases, as if they had
// never been taken; a second call does nothing. Rules that Settle has named before
// are not refunded. Units that the passage of time
// has given back already are not given back twice. After an error some units may
// or may not have been given back.
func (res *Result) Refund(ctx context.Context) error {
	if res == nil || !res.refunded.CompareAndSwap(false, true) {
		return nil
	}
	leases := res.endLeases()
	var undo []core.Op
	for i := range res.ops {
		switch {
		case !res.charged(i), res.leased(i) && !leases:
		case res.leased(i), !res.settles(i) && res.correct(i):
			undo = append(undo, res.refundOp(i))
		}
	}
	return res.applyRefunds(ctx, undo, 0)
}

// Release ends the leases, so that others can take the units. Once it has
// succeeded another call does nothing.
func (res *Result) Release(ctx context.Context) error {
	if res == nil || res.lease == "" || !res.endLeases() {
		return nil
	}
	err := res.releaseLeases(ctx)
	if err != nil {
		res.released.Store(false)
	}
	return err
}

// releaseLater settles what was reported and releases the leases, in the background.
func (res *Result) releaseLater(ctx context.Context) {
	res.ended.Store(true)
	l, undo := res.limiter, res.settleOps()
	settled := len(undo)
	if res.endLeases() {
		undo = append(undo, res.leaseRefunds()...)
	}
	l.background.run(func() { l.giveBack(ctx, undo, settled) })
}

// releaseUnanswered releases the leases that the store may have given to a client which
// left before the answer. They would last until their ttl.
func (res *Result) releaseUnanswered(ctx context.Context) {
	if res.lease == "" || ctx.Err() == nil {
		return
	}
	var undo []core.Op
	for i := range res.ops {
		if op := &res.ops[i]; op.Verb == core.Take && op.Lease != "" && op.Cost > 0 {
			undo = append(undo, res.refundOp(i))
		}
	}
	l := res.limiter
	l.background.run(func() { l.giveBack(ctx, undo, 0) })
}

func (res *Result) releaseLeases(ctx context.Context) error {
	return res.applyRefunds(ctx, res.leaseRefunds(), 0)
}

// leaseRefunds returns the ops that end the leases.
func (res *Result) leaseRefunds() (undo []core.Op) {
	for i := range res.ops {
		if res.leased(i) {
			undo = append(undo, res.refundOp(i))
		}
	}
	return undo
}

// applyRefunds carries out refunds, after the ops that settle the result.
func (res *Result) applyRefunds(ctx context.Context, ops []core.Op, settled int) error {
	if len(ops) == 0 {
		return nil
	}
	out := make([]core.Decision, len(ops))
	if err := res.limiter.apply(ctx, ops, out); err != nil {
		return err
	}
	if res.concluded { // or else it was never told that they were charged
		res.limiter.tellUnits(ops, out, settled)
	}
	res.limiter.queue.NoteReleases(ops)
	return nil
}

// Renew holds the leases for another Period from now, and reports whether all of them
// are held. A lease that had expired is taken anew if there is room; the others are
// renewed in any case. Renew returns true for a result without leases, and false for one
// that was refused or released.
func (res *Result) Renew(ctx context.Context) (held bool, err error) {
	if res == nil {
		return true, nil
	}
	held, _, err = res.renew(ctx)
	return held, err
}

// renew is Renew, and returns the indices of the ops whose units others hold.
func (res *Result) renew(ctx context.Context) (held bool, taken []int, err error) {
	if !res.allowed || res.released.Load() {
		return false, nil, nil
	}

	var ops []core.Op
	var indices []int
	for i := range res.ops {
		if res.leased(i) {
			op := res.ops[i]
			op.Soft, op.MaxWait = true, 0 // a lease that is lost does not end the others
			ops, indices = append(ops, op), append(indices, i)
		}
	}

	out := make([]core.Decision, len(ops)) // none for a result without leases
	if err := res.limiter.apply(ctx, ops, out); err != nil {
		return false, nil, err
	}
	if res.released.Load() { // meanwhile: the renewal may have come second
		return false, nil, res.releaseLeases(ctx)
	}

	for k, i := range indices {
		if !out[k].Allowed {
			taken = append(taken, i)
		}
	}
	return len(taken) == 0, taken, nil
}

// end ends a request that was answered with status: it gives units back as the rules say,
// and unless a connection outlives the request, settles what the handler has reported and
// releases the leases. Units that a rule gives back for the status are back before
// the answer; settling and the release of leases alone do not delay it.
func (res *Result) end(ctx context.Context, status int, holding bool) {
	releasing := res.lease != "" && !holding && res.endLeases()
	l, mayBeLate := res.limiter, true
	var undo []core.Op
	if !holding {
		undo = res.settleOps()
	}

	settled := len(undo)
	for i := range res.ops {
		switch {
		case !res.charged(i):
		case res.leased(i):
			if releasing {
				undo = append(undo, res.refundOp(i))
			}
		case res.refunds(ctx, i, status) && res.correct(i):
			undo = append(undo, res.refundOp(i))
			mayBeLate = false
		}
	}

	switch {
	case len(undo) == 0:
	case mayBeLate:
		l.background.run(func() { l.giveBack(ctx, undo, settled) })
	default:
		l.giveBack(ctx, undo, settled)
	}
}

// refunds reports whether rule i gives its units back for the status.
func (res *Result) refunds(ctx context.Context, i, status int) (yes bool) {
	r := res.calls[i].rule
	if r.RefundIf == nil || res.settles(i) {
		return false
	}
	defer func() {
		if v := recover(); v != nil {
			yes = false
			res.limiter.report(ctx, r.ruleError(panicked(v)))
		}
	}()
	return r.RefundIf(status)
}

func (res *Result) recycle() {
	ops := res.ops[:cap(res.ops)]
	for i := range ops {
		ops[i].Key, ops[i].Lease = "", ""
	}
	clear(res.selected)
	if len(res.outside) > 0 {
		clear(res.outside)
		res.outside = res.outside[:0]
	}
	res.calls, res.ops, res.out, res.selected = res.calls[:0], res.ops[:0], res.out[:0], res.selected[:0]
	res.limiter, res.set, res.err, res.stopped, res.notQueued, res.skipped, res.ownFault, res.aside = nil, nil, nil, nil, nil, nil, nil, 0
	res.local, res.denied, res.inParts, res.concluded, res.unlogged = false, false, false, false, nil
	res.allowed, res.degraded, res.waited, res.aged, res.lease, res.outer = false, false, 0, 0, "", nil
	unset(&res.refunded)
	unset(&res.released)
	unset(&res.leasesTold)
	if res.admitted = false; res.settlement.Load() != nil {
		res.settlement.Store(nil)
	}
}

// fallbackDecide lets the fallback decide for the rules that want it, after the store
// has failed with err, and ignores the rules that fail open. It returns an error if
// the request fails.
func (res *Result) fallbackDecide(ctx context.Context, err error) error {
	f := &res.limiter.fallbacks
	if ctx.Err() != nil || !res.set.strict || errors.Is(err, core.ErrOp) {
		return err
	}
	for i := range res.calls {
		if r := res.calls[i].rule; r.failureMode == FailClosed && r.OnLimit != Shadow {
			return err
		}
	}
	res.setAside()
	if again := res.limiter.applyTo(ctx, f.fallback, res.ops, res.out); again != nil {
		return errors.Join(err, again)
	}
	res.noteSkipped(ctx, err)
	res.unlogged = err
	return nil
}

// setAside moves the ops of rules that fail open behind the others, where the next
// question finds them.
func (res *Result) setAside() {
	local := 0
	for i := range res.calls {
		if res.calls[i].rule.failureMode == FailLocal {
			res.swap(local, i)
			local++
		}
	}
	res.aside, res.calls, res.ops, res.out = len(res.calls)-local, res.calls[:local], res.ops[:local], res.out[:local]
}

// takeBack undoes setAside, so that every rule is asked again. An error that kept
// them from being asked the last time is forgotten.
func (res *Result) takeBack(ctx context.Context) {
	if res.unlogged != nil {
		res.limiter.logFailure(ctx, res.unlogged, unknownFate)
		res.unlogged = nil
	}
	n := len(res.calls) + res.aside
	res.calls, res.ops, res.out = res.calls[:n], res.ops[:n], res.out[:n]
	for i := range n {
		for j := i; j > 0 && res.calls[j].rule.index < res.calls[j-1].rule.index; j-- {
			res.swap(j, j-1)
		}
	}
	res.aside, res.skipped = 0, res.ownFault
}

func (res *Result) swap(i, j int) {
	res.calls[i], res.calls[j] = res.calls[j], res.calls[i]
	res.ops[i], res.ops[j] = res.ops[j], res.ops[i]
	res.out[i], res.out[j] = res.out[j], res.out[i]
}

// skipRule lets the request go on without rule i, whose own functions failed with
// err, unless the rule fails closed, or the client has left: a function that heeds the
// context fails then, and clients could avoid being counted by hanging up.
func (res *Result) skipRule(ctx context.Context, i int, err error) error {
	if ctx.Err() != nil || res.set.rules[i].failsClosed(&res.limiter.fallbacks) {
		return err
	}
	res.noteSkipped(ctx, err)
	res.outside = append(res.outside, outside{rule: res.set.rules[i], err: err})
	res.ownFault = res.skipped
	return nil
}

// noteSkipped notes that err kept some rules from being asked. It is logged later, with what
// becomes of the request.
func (res *Result) noteSkipped(ctx context.Context, err error) {
	res.skipped = cmp.Or(res.skipped, err)
	res.limiter.callOnError(ctx, err)
}

// failsOpen reports whether the request goes on although err kept all rules from
// deciding. It returns false if the client has left, because clients could otherwise
// avoid being counted by hanging up, and if err is about a single rule, because then
// skipRule did not accept it.
func (res *Result) failsOpen(ctx context.Context, err error) bool {
	if ctx.Err() != nil || ruleOf(err) != "" {
		return false
	}
	for i := range res.calls {
		if res.calls[i].rule.failsClosed(&res.limiter.fallbacks) {
			return false
		}
	}
	return true
}

func (res *Result) allow(ctx context.Context, l *Limiter, key string, cost int64) (core.Decision, error) {
	res.begin(l)
	err := res.addKey(ctx, core.Take, key, cost)
	if err == nil && res.lease != "" {
		return core.Decision{}, errLease
	}
	if err == nil {
		err = res.decide(ctx, false)
	}
	res.conclude(ctx, err)
	var d core.Decision
	if i := res.scarcest(); i >= 0 {
		d = res.out[i]
	}
	d.Allowed, d.Banned, d.RetryAfter = res.allowed, res.Banned(), res.RetryAfter()
	if err != nil || res.stopped != nil || res.skipped != nil {
		return d, res.takeError(err)
	}
	return d, nil
}

// scarcest returns the most exhausted rule that clients may see, or -1.
func (res *Result) scarcest() int {
	first := -1
	for i := range res.calls {
		if res.calls[i].rule.OnLimit != Shadow && (first < 0 || res.scarcer(i, first)) {
			first = i
		}
	}
	return first
}

// selectionFailed returns err as an error of the first rule that fails closed, if any.
func (res *Result) selectionFailed(err error) error {
	for _, r := range res.set.rules {
		if r.failsClosed(&res.limiter.fallbacks) {
			return r.ruleError(err)
		}
	}
	return err
}

var errSelection = errors.New("headgate: the selection names a rule that does not exist, or a rule twice")

// selectRules returns the rules that the selection names.
func (res *Result) selectRules(r core.Request) (rules []*activeRule, err error) {
	defer func() {
		if v := recover(); v != nil {
			rules, err = nil, fmt.Errorf("selection: %w", panicked(v))
		}
	}()
	res.indices = res.set.selection(r, res.indices[:0])
	res.selected = res.selected[:0]
	last := -1
	for _, i := range res.indices {
		if i <= last || i >= len(res.set.rules) {
			return nil, errSelection
		}
		res.selected, last = append(res.selected, res.set.rules[i]), i
	}
	return res.selected, nil
}

// scarcer reports whether rule i refuses the request and j does not, or is over its limit and
// j is not, or bans the key and j does not, or has less left of its capacity.
func (res *Result) scarcer(i, j int) bool {
	if res.out[i].Allowed != res.out[j].Allowed {
		return !res.out[i].Allowed
	}
	if refuses := res.violates(i); refuses != res.violates(j) {
		return refuses
	}
	if res.out[i].Banned != res.out[j].Banned {
		return res.out[i].Banned
	}
	hi1, lo1 := bits.Mul64(uint64(res.out[i].Remaining), uint64(res.ops[j].Limit.Capacity()))
	hi2, lo2 := bits.Mul64(uint64(res.out[j].Remaining), uint64(res.ops[i].Limit.Capacity()))
	return hi1 < hi2 || hi1 == hi2 && lo1 < lo2
}

// usesOwnLimits reports whether every rule that clients may see applies, under
// the limit that it was configured with.
func (res *Result) usesOwnLimits(shown int) bool {
	for i := range res.calls {
		if res.calls[i].terms != res.calls[i].rule.terms {
			return false
		}
	}
	return shown == res.set.shown && !res.inParts
}

// appendRemaining writes the item of RateLimit. It has no reset under a concurrency
// limit, because the end of a lease is not known.
func (res *Result) appendRemaining(b []byte, i int) []byte {
	d := res.decision(i)
	b = append(b, res.calls[i].terms.remaining...)
	b = strconv.AppendInt(b, min(d.Remaining, maxInteger), 10)
	if res.ops[i].Limit.Leased() {
		return b
	}
	b = append(b, ";t="...)
	return strconv.AppendInt(b, wholeSeconds(fullAfter(&d)), 10)
}
