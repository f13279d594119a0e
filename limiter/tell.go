// This file tells the Observer and the Hooks of a Config.

package limiter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/waitline"
	"github.com/headgate/headgate/observe/events"
)

var _ events.Inspector = (*Limiter)(nil)

// listen has the hooks told, by the store too.
func (l *Limiter) listen(h *events.Hooks) {
	var one events.Listeners
	one.Add(h)
	l.hooks = one.Hooks()
	l.records.New = func() any { return new(events.Request) }
	if s, ok := l.store.(events.Source); ok {
		s.Listen(l.storeLog.hooks())
		s.Listen(h)
	}
	if l.hooks.Open != nil {
		l.hooks.Open(l)
	}
}

// Hooks returns Config.Hooks in a form that is never nil and does not panic, for parts of a
// program that tell more events.
func (l *Limiter) Hooks() *events.Hooks { return l.hooks }

// RuleNames returns the names of the rules in force, in order.
func (l *Limiter) RuleNames() []string {
	set := l.set.Load()
	names := make([]string, len(set.rules))
	for i, r := range set.rules {
		names[i] = r.Name
	}
	return names
}

// Stores implements [events.Inspector]. It lists the stores that are an [events.Source].
func (l *Limiter) Stores() []events.StoreStatus {
	s, ok := l.store.(events.Source)
	if !ok {
		return nil
	}
	list := s.Status(nil)
	for i := range list {
		if len(list[i].Away) > 0 {
			list[i].Mode = l.fallbacks.mode(list[i].Mode)
		}
	}
	return list
}

// mode returns what decides under a store that is away, where rules say nothing else.
func (f *fallbacks) mode(byStore events.Mode) events.Mode {
	switch {
	case f.otherwise == FailClosed:
		return events.FailsUndecided
	case f.otherwise == FailOpen:
		return events.PassesUndecided
	}
	return byStore
}

func (l *Limiter) tellClosed() {
	if l.hooks.Closed != nil {
		l.hooks.Closed(l)
	}
}

func (l *Limiter) tellRules(err error) {
	if l.hooks.Rules != nil {
		l.hooks.Rules(events.Rules{Count: len(l.set.Load().rules), Err: err})
	}
}

func (l *Limiter) tellQueue(k waitline.Key, change int) {
	if l.hooks.Queue != nil {
		l.hooks.Queue(events.Queue{Rule: k.Rule, Change: change})
	}
}

// tellUnits tells of units that were given back or charged by ops, of which the first settle a
// request.
func (l *Limiter) tellUnits(ops []core.Op, out []core.Decision, settled int) {
	if l.hooks.Units == nil {
		return
	}
	for i := range ops {
		op := &ops[i]
		e := events.Units{Rule: op.Rule, Key: op.Key, Flow: events.Refunded, Units: op.Cost}
		switch {
		case op.Limit.Leased():
			continue
		case op.Verb == core.Debit:
			e.Flow, e.Units = events.Debited, out[i].Taken
		case i < settled:
			e.Flow = events.Settled
		}
		l.hooks.Units(e)
	}
}

// tellCorrections tells of the units that the parts of the request have given back or charged
// beyond their limits.
func (res *Result) tellCorrections() {
	for i := range res.ops {
		if !res.decides(i) {
			res.limiter.tellUnits(res.ops[i:i+1], res.out[i:i+1], 0)
		}
	}
}

// decides reports whether op i, which may be set aside, is a question that the store decides,
// and not a correction.
func (res *Result) decides(i int) bool {
	verb := res.ops[:i+1][i].Verb
	return verb != core.Refund && verb != core.Debit
}

// tell tells of a request that was decided.
func (res *Result) tell(ctx context.Context) {
	l := res.limiter
	res.concluded = true
	if l.observer != nil {
		l.observe(ctx, res)
	}
	if l.top > 0 {
		res.tally(ctx)
	}
	if res.lease != "" && res.err == nil {
		l.held.Add(res.leases())
		if l.hooks.Lease != nil {
			res.tellLeases(events.Lease{})
		}
	}
	if l.hooks.Ban != nil && res.err == nil {
		res.tellBans()
	}
}

// tellLeases tells of each lease of the result.
func (res *Result) tellLeases(e events.Lease) {
	for i := range res.ops {
		if res.leased(i) {
			e.Rule, e.Key, e.Units = res.ops[i].Rule, res.ops[i].Key, res.ops[i].Cost
			e.Lost = e.Ended && res.calls[i].isLeaseLost()
			res.limiter.hooks.Lease(e)
		}
	}
}

// endLeases notes that the leases are released, and reports whether they were not before.
func (res *Result) endLeases() bool {
	if !res.released.CompareAndSwap(false, true) {
		return false
	}
	if res.concluded && res.lease != "" && res.leasesTold.CompareAndSwap(false, true) {
		e := events.Lease{Ended: true}
		if !res.asked.IsZero() { // or else another limiter took them
			res.limiter.held.Add(-res.leases())
			e.Held = time.Since(res.asked)
		}
		if res.limiter.hooks.Lease != nil {
			res.tellLeases(e)
		}
	}
	return true
}

// leases returns how many leases the result was granted.
func (res *Result) leases() (n int64) {
	for i := range res.ops {
		if res.leased(i) {
			n++
		}
	}
	return n
}

// noteWaited notes how long the request has just waited for its turn under the rule, and how
// long in all.
func (res *Result) noteWaited(rule string, now, all time.Duration) {
	res.waited = all
	calls := res.calls[:len(res.calls)+res.aside]
	for i := range calls {
		if calls[i].rule.Name == rule {
			calls[i].waited += now
		}
	}
}

// giveCounters gives each rule of the set what counts its decisions on plain requests, if the
// Observer has that.
func (l *Limiter) giveCounters(set *ruleSet) {
	if l.counter != nil {
		for _, r := range set.rules {
			r.counter = l.counterOf(r.Name)
		}
	}
}

// counterOf returns what counts the decisions of the rule on plain requests, nil after a panic.
func (l *Limiter) counterOf(rule string) (counter events.RuleCounter) {
	defer func() {
		if v := recover(); v != nil {
			l.report(context.Background(), fmt.Errorf("the observer: %w", panicked(v)))
		}
	}()
	return l.counter.RuleCounter(rule)
}

// plain reports whether the request, which has the verdict, is plain as events.Counter defines
// it and all of its rules have counters, and returns it as a counter gets it, but for the Rule.
// A request with skipped rules is not plain: those that failed are outside, and where the store
// did, the fallback decides under the others.
func (res *Result) plain(v events.Verdict) (p events.Plain, ok bool) {
	if v != events.Allowed && v != events.Refused || len(res.calls) == 0 || len(res.outside) > 0 || res.waited > 0 {
		return p, false
	}
	p.Verdict, p.Remaining = v, math.MaxInt64
	for i := range res.calls {
		op, d := &res.ops[:i+1][i], &res.out[:i+1][i]
		if res.calls[i].rule.counter == nil || op.Verb != core.Take || op.Cost != 1 || d.Wait != 0 || d.Fallback || v == events.Allowed && d.Taken != 1 {
			return p, false
		}
		p.Remaining = min(p.Remaining, d.Remaining)
	}
	return p, true
}

// count passes a plain request to the counters of its rules, and to that of requests.
func (res *Result) count(ctx context.Context, p events.Plain) {
	for i := range res.calls {
		rule, v := res.calls[i].rule, p.Verdict
		if v != events.Allowed { // or else every rule allows the request
			if v = res.verdictOf(i, v); v == p.Verdict && p.Rule == "" {
				p.Rule = rule.Name
			}
		}
		rule.counter.Count(ctx, v)
	}
	res.limiter.counter.CountRequest(ctx, p)
}

// observe passes the result to the Observer, which is not nil, or to its counters if the request
// is plain. A result that is used again keeps the memory of the event.
func (l *Limiter) observe(ctx context.Context, res *Result) {
	returned := false
	defer func() {
		if returned { // a recover that finds nothing takes time
			return
		}
		if v := recover(); v != nil {
			l.report(ctx, fmt.Errorf("the observer: %w", panicked(v)))
		}
	}()

	v := res.verdict(ctx)
	if l.counter != nil {
		if p, ok := res.plain(v); ok {
			res.count(ctx, p)
			returned = true
			return
		}
	}

	e := res.record
	if e == nil {
		e = l.records.Get().(*events.Request)
	}
	res.event(v, e)
	l.observer.Observe(ctx, e)
	returned = true

	for i := range e.Rules { // so that nothing of the client is kept
		e.Rules[i].Key, e.Rules[i].Err = "", nil
	}
	e.Err, e.Rules = nil, e.Rules[:0]

	switch {
	case res.record != nil:
	case res.pooled:
		res.record = e
	default:
		l.records.Put(e)
	}
}

// event fills in what became of the request, which has the verdict, and of each rule.
func (res *Result) event(v events.Verdict, e *events.Request) {
	e.Verdict, e.Fallback, e.Waited, e.Err = v, false, res.waited, res.err
	if e.Err == nil {
		e.Err = res.skipped
	}

	if res.err != nil {
		res.undecidedRules(e)
	} else {
		passes := e.Verdict.Passes()
		for i := range res.calls {
			if !res.decides(i) {
				continue
			}
			r := res.ruleEvent(e, i)
			r.Verdict = e.Verdict
			copyDecision(&r.Decision, &res.out[i])
			if e.Verdict != events.Allowed { // or else every rule allows the request
				r.Verdict = res.verdictOf(i, e.Verdict)
			}
			if res.aged > 0 {
				r.Decision = res.decision(i)
			}
			if r.Decision.Fallback {
				e.Fallback = true
			}
			if passes && r.Decision.Allowed {
				r.Charged = r.Decision.Taken
			}
		}

		for i := len(res.calls); i < len(res.calls)+res.aside; i++ {
			if res.decides(i) {
				r := res.ruleEvent(e, i)
				r.Verdict, r.Decision, r.Err = events.FailedOpen, core.Decision{}, res.skipped
			}
		}
	}

	for i := range res.outside {
		o := &res.outside[i]
		r := events.Rule{Name: o.rule.Name, Key: o.key, Limit: &o.rule.Limit, Verdict: events.FailedOpen, Err: o.err}
		if o.err == nil {
			r.Verdict, r.Decision = events.ShadowRefused, denial
		}
		e.Rules = append(e.Rules, r)
	}
}

// ruleEvent appends the event of op i, which may be set aside. The verdict and the decision of
// an earlier event in its place are still there.
func (res *Result) ruleEvent(e *events.Request, i int) *events.Rule {
	n := len(e.Rules)
	if n < cap(e.Rules) {
		e.Rules = e.Rules[:n+1]
	} else {
		e.Rules = append(e.Rules, events.Rule{})
	}
	r, op, c := &e.Rules[n], &res.ops[:i+1][i], &res.calls[:i+1][i]
	r.Name, r.Key, r.Limit, r.Cost, r.Charged, r.Waited = c.rule.Name, op.Key, &c.terms.limit, op.Cost, 0, c.waited
	return r
}

// copyDecision copies each field by itself. A copy of the whole takes three times as long right
// after the store has written the fields, as the processor cannot forward several small writes
// to one wide read.
func copyDecision(to, from *core.Decision) {
	to.Allowed, to.Banned, to.Fallback, to.Origin = from.Allowed, from.Banned, from.Fallback, from.Origin
	to.Taken, to.Remaining, to.Wait, to.RetryAfter = from.Taken, from.Remaining, from.Wait, from.RetryAfter
	to.ResetAfter, to.At = from.ResetAfter, from.At
}

// undecidedRules appends the rules of a request that ended with an error.
func (res *Result) undecidedRules(e *events.Request) {
	var of *RuleError
	about := errors.As(res.err, &of)
	for i := range len(res.calls) + res.aside {
		if !res.decides(i) {
			continue
		}
		r := res.ruleEvent(e, i)
		r.Decision = core.Decision{}

		switch {
		case about: // another rule failed before the store was asked
			r.Verdict = events.Overruled
			continue
		case e.Verdict == events.Canceled:
			r.Verdict = events.Canceled
		case res.calls[:i+1][i].rule.failsClosed(&res.limiter.fallbacks):
			r.Verdict = events.FailedClosed
		default:
			r.Verdict = events.FailedOpen
		}
		r.Err = res.err
	}

	if about && of.Index < len(res.set.rules) {
		r := res.set.rules[of.Index]
		e.Rules = append(e.Rules, events.Rule{Name: r.Name, Limit: &r.Limit, Verdict: e.Verdict, Err: res.err})
	}
}

// verdict returns what became of the request.
func (res *Result) verdict(ctx context.Context) events.Verdict {
	switch {
	case res.err == nil && !res.allowed:
		return res.refusal()
	case !res.allowed && ctx.Err() == context.Canceled:
		return events.Canceled
	case !res.allowed:
		return events.FailedClosed
	case res.err != nil, res.aside > 0:
		return events.FailedOpen
	}

	shadow := false
	for i := range res.outside {
		if res.outside[i].err != nil {
			return events.FailedOpen
		}
		shadow = true
	}
	if res.degraded {
		return events.Degraded
	}
	for i := 0; i < len(res.out) && !shadow; i++ {
		shadow = !res.out[i].Allowed
	}

	switch {
	case shadow:
		return events.ShadowRefused
	case res.waited > 0:
		return events.Waited
	}
	return events.Allowed
}

// refusal returns why the request, about which there was no error, was refused.
func (res *Result) refusal() events.Verdict {
	switch {
	case res.denied:
		return events.Denied
	case res.stopped != nil && !errors.Is(res.stopped, ErrClosed):
		return events.Canceled
	case res.notQueued == ErrQueueFull:
		return events.QueueFull
	}
	v := events.Refused
	for i := range res.out {
		if res.violates(i) {
			v = max(v, res.refusalOf(i))
		}
	}
	return v
}

// refusalOf returns why rule i refused the request. The greatest verdict lasts longest.
func (res *Result) refusalOf(i int) events.Verdict {
	switch d := &res.out[i]; {
	case d.RetryAfter == core.Never && !res.ops[i].UpTo && !res.exceedsPart(i):
		return events.Impossible
	case d.Banned:
		return events.Banned
	}
	return events.Refused
}

// verdictOf returns what rule i says of a request that was decided.
func (res *Result) verdictOf(i int, all events.Verdict) events.Verdict {
	switch d, action := &res.out[i], res.calls[i].rule.OnLimit; {
	case res.denied:
		return events.Denied
	case d.Allowed && !all.Passes():
		return events.Overruled
	case d.Allowed && res.calls[i].waited > 0:
		return events.Waited
	case d.Allowed:
		return events.Allowed
	case action == Shadow:
		return events.ShadowRefused
	case action == Degrade:
		return events.Degraded
	case all == events.Canceled || all == events.QueueFull:
		return all
	}
	return res.refusalOf(i)
}

// maxBanLog is how many bans a limiter remembers to have told.
const maxBanLog = 4096

// bannedKey is a key under the ban of a rule.
type bannedKey struct{ rule, key string }

// banLog knows the bans that were told. The zero value is ready for use.
type banLog struct {
	mu    sync.Mutex
	until map[bannedKey]int64 // by the clock of the store
}

// begins reports whether the ban is told for the first time.
func (b *banLog) begins(k bannedKey, now, until int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if end, known := b.until[k]; known && now < end {
		return false
	}
	if b.until == nil || len(b.until) >= maxBanLog {
		b.until = map[bannedKey]int64{}
	}
	k.key = strings.Clone(k.key)
	b.until[k] = until
	return true
}

// ends forgets a ban, and reports whether it was told.
func (b *banLog) ends(k bannedKey) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, known := b.until[k]
	delete(b.until, k)
	return known
}

// tellBans tells of the bans that the request has met and that were not told yet.
func (res *Result) tellBans() {
	for i := range res.out {
		op, d := &res.ops[i], &res.out[i]
		if d.Banned && op.Ban != nil && res.limiter.bans.begins(bannedKey{op.Rule, op.Key}, d.At, d.At+d.RetryAfter.Microseconds()) {
			res.limiter.hooks.Ban(events.Ban{Rule: op.Rule, Key: op.Key, For: d.RetryAfter})
		}
	}
}

// tellLifted tells of the bans that ops have lifted.
func (res *Result) tellLifted() {
	if res.limiter.hooks.Ban == nil {
		return
	}
	for i := range res.ops {
		op := &res.ops[i]
		if op.Ban != nil && res.limiter.bans.ends(bannedKey{op.Rule, op.Key}) {
			res.limiter.hooks.Ban(events.Ban{Rule: op.Rule, Key: op.Key, Lifted: true})
		}
	}
}
