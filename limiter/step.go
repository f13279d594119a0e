package limiter

import (
	"cmp"
	"context"
	"errors"
	"math/bits"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/telling"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/observe/findings"
)

// decided is what one request asks a store, all at once, and what the store has answered.
//
// Its calls are in the order of the rules. While the fallback decides in place of the store, the
// rules that fail open are behind the others, and are not asked.
type decided struct {
	// calls, ops and out are parallel: one for each rule that applies. The first ones are asked.
	calls []call
	ops   []core.Op
	out   []core.Decision
	asked int

	allowed  bool
	degraded bool
	over     bool // some rule would not admit
	fallback bool // of the store has decided, now or before
	alone    bool // the only rule in calls refuses, by its lists or a ban of its Override; no store was asked
	inParts  bool // a rule may have more calls than one
	admitted bool // an Admission carries out the settlement at its end
	notified bool // the observer and the hooks know of the request
}

// step is one request on its way to a store and back.
type step struct {
	engine *engine
	set    *ruleSet

	decided
	small struct {
		calls [1]call
		ops   [1]core.Op
		out   [1]core.Decision
	}

	err         error         // why the store could not decide
	aged        time.Duration // since the store decided
	lease       string
	leasesAsked time.Time // when the store was last asked for the leases, if there are any

	rare rare // what few steps have
}

// unusual is what few steps have. It is apart, as the memory of a Result is most of what a Take
// costs.
type unusual struct {
	stopped   error     // why the wait ended before its time
	notQueued error     // why no wait could begin
	skipped   error     // why some rules could not be asked
	ownFault  error     // the same, if it was an error of the rules themselves
	unlogged  error     // of the store, and to be logged with what becomes of the request
	outside   []outside // rules that the store was not asked about

	fixed     bool  // the request has a cost under every rule, in place of the Cost of each
	fixedCost int64 // that cost

	used []used // how the request is settled by its answer
	seen Seen   // that answer

	indices  []int         // of the rules that the selection has named
	selected []*activeRule // those rules
	few      struct {
		indices  [4]int
		selected [4]*activeRule
	}
}

// used is how a request is settled under one rule.
type used struct {
	engine *engine
	rule   *activeRule
	f      func(Seen) (int64, error)
}

// rare has what few steps have, once it is written.
type rare struct{ written *unusual }

// usual is what most steps have. It is never written.
var usual unusual

// read returns what the step has, which must not be written.
func (r rare) read() *unusual {
	if r.written == nil {
		return &usual
	}
	return r.written
}

// write returns what the step has, for writing.
func (r *rare) write() *unusual {
	if r.written == nil {
		u := &unusual{}
		u.indices, u.selected = u.few.indices[:0], u.few.selected[:0]
		r.written = u
	}
	return r.written
}

// recycle makes it that of most steps, and keeps its memory.
func (u *unusual) recycle() {
	clear(u.selected)
	clear(u.outside)
	clear(u.used)
	u.stopped, u.notQueued, u.skipped, u.ownFault, u.unlogged = nil, nil, nil, nil, nil
	u.outside, u.indices, u.selected = u.outside[:0], u.indices[:0], u.selected[:0]
	u.used, u.seen = u.used[:0], Seen{}
	u.fixed = false
}

// call is one rule's part of a step.
type call struct {
	rule    *activeRule
	terms   *terms
	maxWait time.Duration // the longest wait for this rule

	waited time.Duration // for a turn under this rule

	id        int32  // 1 and up in the order of addition, for requests in parts
	leaseLost uint32 // 1 if the lease has ended before the request, and was not taken anew; atomic
	corrected uint32 // 1 once the charge is refunded or settled, which is done once; atomic

	check  bool // the op is a Peek under a limit that holds one unit more
	behind bool // by the last Peek, older requests wait for the key
}

// newCall returns the rule's part of a step that is to be decided.
func newCall(r *activeRule, t *terms) call {
	return call{rule: r, terms: t, maxWait: r.OnLimit.MaxWait()}
}

// isLeaseLost reports whether the lease has ended before the request.
func (c *call) isLeaseLost() bool { return atomic.LoadUint32(&c.leaseLost) != 0 }

// outside is a rule that the store was not asked about: its functions failed and it fails
// open, or it is a Shadow rule whose lists deny the caller, or whose Override bans the key.
type outside struct {
	rule    *activeRule
	key     string
	err     error         // nil for a refusal
	refusal core.Decision // what the rule would have decided in force
}

// RuleDecision is what one rule decided.
type RuleDecision struct {
	Rule     string
	Limit    core.Limit
	OnLimit  Action
	Decision core.Decision
}

// prepare makes the step ready for the rules in force.
func (s *step) prepare(e *engine) { s.prepareUnder(e, e.set.Load()) }

// prepareUnder makes the step ready for a set of rules that is or was in force.
func (s *step) prepareUnder(e *engine, set *ruleSet) {
	s.engine, s.set = e, set
	switch n := len(s.set.rules); {
	case s.calls != nil:
	case n <= len(s.small.calls):
		s.calls, s.ops, s.out = s.small.calls[:0], s.small.ops[:0], s.small.out[:0]
	default:
		s.calls, s.ops, s.out = make([]call, 0, n), make([]core.Op, 0, n), make([]core.Decision, 0, n)
	}
}

// add puts one more op under the terms into the step.
func (s *step) add(verb core.Verb, r *activeRule, t *terms, key string, cost int64) error {
	if cost < 0 {
		return r.ruleError(errors.New("the cost is negative"))
	}
	if r.CostAtMost {
		cost = min(cost, t.limit.Capacity())
	}

	op := s.nextOp(verb, r, t, key, cost)
	if t.windowed {
		op.Windows = t.windowsNow()
	}

	if t.leased && verb == core.Take {
		if s.lease == "" {
			s.lease = s.engine.leases.next()
		}
		// Renewal may outlive the request, and with it the key.
		op.Lease, op.Key = s.lease, strings.Clone(key)
	}
	return nil
}

// addPlain adds an op under every rule of a plain set.
func (s *step) addPlain(verb core.Verb, key string, cost int64) {
	for _, r := range s.set.rules {
		s.nextOp(verb, r, r.terms, key, cost)
	}
}

// nextOp adds a call under the terms, of which add has checked the cost, and returns its op. If an
// earlier request left an op under the same terms in that place, the op is used again, as most
// requests follow one whose op has all but the key.
func (s *step) nextOp(verb core.Verb, r *activeRule, t *terms, key string, cost int64) *core.Op {
	n := len(s.calls)
	s.asked = n + 1

	if before := s.calls[:cap(s.calls)]; n < len(before) && before[n].terms == t {
		s.calls, s.ops, s.out = before[:n+1], s.ops[:n+1], s.out[:n+1]
		before[n].corrected, before[n].waited, s.out[n] = 0, 0, core.Decision{}
	} else {
		s.calls = append(s.calls, newCall(r, t))
		s.ops = append(s.ops, t.take)
		s.out = append(s.out, core.Decision{})
	}

	op := &s.ops[n]
	op.Verb, op.UpTo, op.Key, op.Cost, op.MaxWait = verb, false, key, cost, 0
	return op
}

// drop empties the step.
func (s *step) drop() { s.calls, s.ops, s.out, s.asked = s.calls[:0], s.ops[:0], s.out[:0], 0 }

// recycle makes the step that of no request, and keeps its memory.
func (s *step) recycle() {
	ops := s.ops[:cap(s.ops)]
	for i := range ops {
		ops[i].Key, ops[i].Lease = "", ""
	}

	// Most requests were decided, and to clear what is clear costs writes.
	if s.err != nil {
		s.err = nil
	}
	if u := s.rare.written; u != nil {
		u.recycle()
	}
	s.drop()
	s.engine, s.set = nil, nil

	s.allowed, s.degraded, s.over, s.fallback, s.alone = false, false, false, false, false
	s.inParts, s.admitted, s.notified = false, false, false
	s.aged, s.lease = 0, ""
}

// apply carries out what is no Take. A Peek asks the same store as a Take, with or
// without its fallback.
func (s *step) apply(ctx context.Context, verb core.Verb) error {
	if s.alone {
		return nil
	}
	if verb == core.Peek {
		return s.engine.applyTo(ctx, s.set.store, s.ops[:s.asked], s.out[:s.asked])
	}
	if err := s.engine.apply(ctx, s.ops[:s.asked], s.out[:s.asked]); err != nil {
		return err
	}
	s.engine.queue.WakeForReleases(s.ops[:s.asked])
	return nil
}

// ask lets the store decide, unless a rule refuses alone.
func (s *step) ask(ctx context.Context) error {
	if s.alone {
		return nil
	}

	s.recordAsking()
	if err := s.engine.applyTo(ctx, s.set.store, s.ops[:s.asked], s.out[:s.asked]); err != nil {
		if err = s.fallbackDecide(ctx, err); err != nil {
			return err
		}
	}

	s.sumUp(s.engine.findings)
	return nil
}

// asking returns what is asked under every rule of a prepared set. It has no key and no cost. It
// is inlined, so that the answer has room on the stack of the caller.
func (r *ruleSet) asking() decided {
	out := make([]core.Decision, 1)
	switch n := len(r.ops); {
	case n > 4:
		out = make([]core.Decision, maxPrepared)
	case n > 1:
		out = make([]core.Decision, 4)
	}
	return decided{calls: r.calls, ops: r.ops, out: out, asked: len(r.ops)}
}

// sumUp determines what the decisions of the rules are together.
func (d *decided) sumUp(log *telling.Findings) {
	d.allowed, d.degraded, d.over = true, false, false
	for i := range d.out[:d.asked] {
		if d.out[i].Fallback {
			d.fallback = true
		}
		if d.out[i].Allowed {
			continue
		}
		d.over = true

		// A cost that no time makes fit is a mistake of the set-up, and worth a line in the log.
		if d.out[i].RetryAfter == core.Never && !d.ops[i].UpTo && !d.exceedsPart(i) {
			log.Add(core.Finding{Code: findings.TooCostly, Rule: d.ops[i].Rule,
				Text: "a request cost more than its limit can ever hold, and can never be admitted"})
		}
		switch {
		case !d.ops[i].Soft:
			d.allowed = false
		case d.calls[i].rule.OnLimit == Degrade:
			d.degraded = true
		}
	}
}

// reportNear reports to the hooks the keys that the step has brought near their limits, as
// Rule.Warn says it. key is that of ops without one.
func (d *decided) reportNear(hooks *events.Hooks, key string) {
	if hooks.Near == nil {
		return
	}
	for i := range d.out[:d.asked] {
		op, out, t := &d.ops[i], &d.out[i], d.calls[i].terms

		// What was taken is what is missing, in every algorithm.
		before := out.Remaining + out.Taken
		// A refund that is on its way, and units that are booked for later, say nothing of now.
		taken := op.Verb == core.Take && out.Allowed && out.Wait == 0 && !out.Fallback
		if taken && before > t.near && out.Remaining <= t.near {
			hooks.Near(events.Near{Rule: op.Rule, Key: cmp.Or(op.Key, key), Limit: &t.limit, Remaining: out.Remaining})
		}
	}
}

// isNear is [Result.Near].
func (d *decided) isNear() bool {
	for i := range d.asked {
		if d.out[i].Remaining <= d.calls[i].terms.near && d.calls[i].rule.OnLimit != Shadow && !d.out[i].Fallback {
			return d.allowed
		}
	}
	return false
}

// together makes answer, which is zero, the decision of the most exhausted rule that clients may
// see, with whether and when all rules let the request pass.
func (d *decided) together(answer *core.Decision) {
	if i := d.scarcest(); i >= 0 {
		copyDecision(answer, &d.out[i])
	}
	answer.Allowed, answer.Banned, answer.RetryAfter = d.allowed, false, 0
	if !d.allowed {
		answer.Banned, answer.RetryAfter = d.banned(), d.retryAfter()
	}
}

// copyDecision copies each field by itself. A copy of the whole takes three times as long right
// after the store has written the fields, as the processor cannot forward several small writes
// to one wide read.
func copyDecision(to, from *core.Decision) {
	to.Allowed, to.Banned, to.Fallback, to.Origin = from.Allowed, from.Banned, from.Fallback, from.Origin
	to.Taken, to.Remaining, to.Wait, to.RetryAfter = from.Taken, from.Remaining, from.Wait, from.RetryAfter
	to.ResetAfter, to.At = from.ResetAfter, from.At
	to.Credit, to.FromCredit, to.CreditUntil = from.Credit, from.FromCredit, from.CreditUntil
}

// scarcest returns the most exhausted rule that clients may see, or -1.
func (d *decided) scarcest() int {
	first := -1
	for i := range d.asked {
		if d.calls[i].rule.OnLimit != Shadow && (first < 0 || d.scarcer(i, first)) {
			first = i
		}
	}
	return first
}

// scarcer reports whether rule i refuses the request and j does not, or is over its limit and
// j is not, or bans the key and j does not, or has less left of its capacity.
func (d *decided) scarcer(i, j int) bool {
	if d.out[i].Allowed != d.out[j].Allowed {
		return !d.out[i].Allowed
	}
	if refuses := d.violates(i); refuses != d.violates(j) {
		return refuses
	}
	if d.out[i].Banned != d.out[j].Banned {
		return d.out[i].Banned
	}
	hi1, lo1 := bits.Mul64(uint64(d.out[i].Remaining), uint64(d.ops[j].Limit.Capacity()))
	hi2, lo2 := bits.Mul64(uint64(d.out[j].Remaining), uint64(d.ops[i].Limit.Capacity()))
	return hi1 < hi2 || hi1 == hi2 && lo1 < lo2
}

// isDenied is [Result.Denied].
func (d *decided) isDenied() bool { return d.alone && !d.out[0].Banned }

// banned is [Result.Banned].
func (d *decided) banned() bool {
	for i := range d.asked {
		if d.out[i].Banned && d.violates(i) {
			return true
		}
	}
	return false
}

// retryAfter is [Result.RetryAfter].
func (d *decided) retryAfter() (longest time.Duration) {
	for i := range d.asked {
		if d.violates(i) {
			longest = max(longest, d.out[i].RetryAfter)
		}
	}
	return longest
}

func (s *step) swap(i, j int) {
	s.calls[i], s.calls[j] = s.calls[j], s.calls[i]
	s.ops[i], s.ops[j] = s.ops[j], s.ops[i]
	s.out[i], s.out[j] = s.out[j], s.out[i]
}

// setAside moves the ops of rules that fail open behind the others, where the next
// question finds them.
func (s *step) setAside() {
	local := 0
	for i := range s.asked {
		if s.calls[i].rule.failureMode == FailLocal {
			s.swap(local, i)
			local++
		}
	}
	s.asked = local
}

// takeBack undoes setAside, so that every rule is asked again. An error that kept
// them from being asked the last time is forgotten.
func (s *step) takeBack(ctx context.Context) {
	if err := s.rare.read().unlogged; err != nil {
		s.engine.logFailure(ctx, err, events.StoreDecides)
		s.rare.write().unlogged = nil
	}
	for i := range s.calls {
		for j := i; j > 0 && s.calls[j].rule.index < s.calls[j-1].rule.index; j-- {
			s.swap(j, j-1)
		}
	}
	s.asked = len(s.calls)
	if u := s.rare.written; u != nil {
		u.skipped = u.ownFault
	}
}

// recordAsking records when the store is asked for leases.
func (s *step) recordAsking() {
	if s.lease != "" {
		s.leasesAsked = time.Now()
	}
}

// fallbackDecide lets the fallback decide for the rules that want it, after the store
// has failed with err, and ignores the rules that fail open. It returns an error if
// the request fails.
func (s *step) fallbackDecide(ctx context.Context, err error) error {
	f := &s.engine.fallbacks
	if ctx.Err() != nil || !s.set.strict || errors.Is(err, core.ErrOp) {
		return err
	}

	// One rule that fails closed turns the request away, whatever the others would let pass.
	for i := range s.asked {
		if r := s.calls[i].rule; r.failureMode == FailClosed && r.OnLimit != Shadow {
			return err
		}
	}

	s.setAside()
	if again := s.engine.applyTo(ctx, f.fallback, s.ops[:s.asked], s.out[:s.asked]); again != nil {
		return errors.Join(err, again)
	}
	s.recordSkipped(ctx, err)
	s.rare.write().unlogged = err
	return nil
}

// recordSkipped records that err kept some rules from being asked. It is logged later, with what
// becomes of the request.
func (s *step) recordSkipped(ctx context.Context, err error) {
	u := s.rare.write()
	u.skipped = cmp.Or(u.skipped, err)
	s.engine.callOnError(ctx, err)
}

// decision returns out[i] as it is after the wait.
func (s *step) decision(i int) core.Decision {
	d := s.out[i]
	if s.aged > 0 {
		d.At += int64(s.aged / time.Microsecond)
		d.ResetAfter = max(0, d.ResetAfter-s.aged)
	}
	return d
}

func (s *step) ruleDecision(i int) RuleDecision {
	r := s.calls[i].rule
	return RuleDecision{r.Name, s.ops[i].Limit, r.OnLimit, s.decision(i)}
}

// violates reports whether rule i is why the request was refused.
func (d *decided) violates(i int) bool {
	return !d.allowed && !d.out[i].Allowed && (d.alone || !d.ops[i].Soft)
}

// exceedsPart reports whether the limit of rule i holds the cost, and the fallback of the
// store refuses it because this instance's part of the limit never does.
func (d *decided) exceedsPart(i int) bool {
	out, op := &d.out[i], &d.ops[i]
	return out.Fallback && out.RetryAfter == core.Never && !op.UpTo && op.Cost <= op.Limit.Capacity()
}

// decides reports whether op i, which may be set aside, is a question that the store decides,
// and not a correction.
func (s *step) decides(i int) bool {
	verb := s.ops[i].Verb
	return verb != core.Refund && verb != core.Debit
}

// refuseBooking makes the step one that was refused where it had booked.
func (s *step) refuseBooking() {
	s.allowed = false
	for i := range s.asked {
		if d := &s.out[i]; d.Wait > 0 {
			d.Allowed, d.RetryAfter, d.Wait = false, d.Wait, 0
		}
	}
}

// isUndecided reports whether the store did not decide under every rule.
func (s *step) isUndecided() bool { return s.err != nil || s.rare.read().skipped != nil }
