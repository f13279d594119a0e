// Package meter counts what limiters report, for the packages of metrics. Counters are cells,
// which a request adds to without a lock, and which are read when metrics are collected.
// Histograms are recorded by the package of metrics at once, as only requests that wait, leases
// and calls of a server have a duration. A [Meter] counts in the cells of each [Instrument].
package meter

import (
	"context"
	"fmt"
	"hash/fnv"
	"hash/maphash"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/events"
)

// Other is the rule of everything that is beyond the maximum number of rules. No rule has
// the name.
const Other = "_other"

const (
	defaultMaxRules = 200
	keepRemoved     = 15 * time.Minute // how long a rule is kept that is no longer in force
	maxBans         = 10_000
	maxStores       = 16 // kinds of stores
)

// Options are the options of a Meter.
type Options struct {
	// MaxRules is the maximum number of rules that are counted apart. 0 means 200.
	MaxRules int

	// Record records a value of a histogram.
	Record func(ctx context.Context, i *Instrument, values [2]string, v float64)

	// Forget, unless nil, has the series of histograms deleted that a rule had, after the
	// rule was removed. If it is nil, rules are kept forever.
	Forget func(rule string)
}

// Meter counts what the limiters report in which it is installed.
type Meter struct {
	o         Options
	requests  [events.Verdicts]Cell
	changes   [events.Modes]Cell
	reloads   [2]Cell
	other     *rule
	otherUsed atomic.Bool
	rules     atomic.Pointer[map[string]*rule] // replaced under mu
	seed      maphash.Seed
	hooks     *events.Hooks // the same in every config, so that a shared store reports once

	mu        sync.Mutex // guards what follows, up to forgetter
	limiters  []events.Inspector
	stores    map[string]*[events.ErrorTypes]Cell
	bans      map[ban]time.Time
	bansEnded time.Time // when endBansLocked was last called
	revision  float64
	followed  bool // a policy was applied or refused
	inForce   bool // a revision is

	forgetter sync.Mutex // guards the removal of rules
}

// ban is a ban of a key, of which only a hash is kept.
type ban struct {
	rule *rule
	key  uint64
}

// flows is how many flows there are; charged is the one of decisions.
const (
	charged = int(events.Debited) + 1
	flows   = charged + 1
)

// rule has the counts of a rule.
type rule struct {
	label          string
	decisions      [events.Verdicts]Cell
	units          [flows]Cell
	cached, near   Cell
	single         atomic.Uint64 // decisions that allowed a request and charged it one unit
	queued, leases gauge
	bans           gauge     // used says whether there ever was one; the value is not kept here
	removed        time.Time // when the rule was first seen to be in force nowhere, under forgetter
}

// gauge is a value of a rule, which is shown from its first change on.
type gauge struct {
	n    atomic.Int64
	used atomic.Bool
}

// add changes the value by n.
func (g *gauge) add(n int64) {
	g.used.Store(true)
	g.n.Add(n)
}

// newRule returns a rule of which nothing has been counted, under the label that it is shown by.
func newRule(label string) *rule {
	r := &rule{label: label}
	for v := range events.Verdict(events.Verdicts) {
		r.decisions[v].init(Decisions, v == events.Allowed || v == events.Refused, label, v.String())
	}
	for f := range events.Flow(charged) {
		r.units[f].init(Units, false, label, f.String())
	}
	r.units[charged].init(Units, true, label, "charged")
	r.cached.init(CachedRefusals, false, label)
	r.near.init(Near, false, label)
	return r
}

// foldSingle moves what is in r.single to the cells that it stands for.
func (r *rule) foldSingle() {
	n := r.single.Swap(0)
	r.decisions[events.Allowed].Add(n)
	r.units[charged].Add(n)
}

// New returns a meter.
func New(o Options) (*Meter, error) {
	if o.MaxRules < 0 || o.MaxRules > 1_000_000 {
		return nil, fmt.Errorf("MaxRules is %d; want 0 to 1000000", o.MaxRules)
	}
	if o.MaxRules == 0 {
		o.MaxRules = defaultMaxRules
	}

	m := &Meter{
		o: o, other: newRule(Other), seed: maphash.MakeSeed(),
		stores: map[string]*[events.ErrorTypes]Cell{}, bans: map[ban]time.Time{},
	}
	m.rules.Store(&map[string]*rule{})
	m.hooks = &events.Hooks{
		Open: m.opened, Closed: m.removeLimiter, Queue: m.queue, Lease: m.lease, Units: m.flow, Ban: m.ban,
		StoreCall: m.storeCall, Breaker: m.breaker, CachedRefusal: m.cachedRefusal, Near: m.near,
		Policy: m.policy,
	}

	// Verdicts and modes are few, so their series are shown from the beginning. No request has the
	// verdict of a rule alone.
	for v := range events.Verdict(events.Verdicts) {
		m.requests[v].init(Requests, v != events.Overruled, v.String())
	}
	for mode := range events.Mode(events.Modes) {
		m.changes[mode].init(ModeChanges, true, mode.String())
	}
	for _, c := range []events.PolicyChange{events.PolicyApplied, events.PolicyRefused} {
		m.reloads[c].init(PolicyReloads, true, c.String())
	}
	return m, nil
}

// Install has the limiters of the config report to the observer and the meter, besides
// whatever the config names already.
func (m *Meter) Install(c *limiter.Config, o events.Observer) {
	c.Observer = events.Join(c.Observer, o)
	if c.Hooks == nil {
		c.Hooks = m.hooks
	} else {
		c.Hooks = events.JoinHooks(c.Hooks, m.hooks)
	}
}

// CountRequest counts a plain request. refused is as in [Meter.Observe].
func (m *Meter) CountRequest(ctx context.Context, v events.Verdict, refused func(context.Context, *Cell)) {
	if refused != nil && !v.Passes() {
		refused(ctx, &m.requests[v])
		return
	}
	m.requests[v].n.Add(1)
}

// RuleCounter counts the decisions of a rule on plain requests, as Observe would. It finds the
// counts of the rule anew whenever the meter's rules have changed.
type RuleCounter struct {
	meter *Meter
	name  string
	found atomic.Pointer[found]
}

// found are the counts of a rule, as long as the meter has these rules.
type found struct {
	*rule
	rules *map[string]*rule
}

// RuleCounter returns the counter of the rule. The rule has no place among the rules of the meter
// before there is something to count.
func (m *Meter) RuleCounter(name string) *RuleCounter { return &RuleCounter{meter: m, name: name} }

// Count counts a decision. refused is as in [Meter.Observe].
func (r *RuleCounter) Count(ctx context.Context, v events.Verdict, refused func(context.Context, *Cell)) {
	f := r.found.Load()
	if f == nil || f.rules != r.meter.rules.Load() {
		f = r.find()
	}
	switch {
	case v == events.Allowed:
		f.single.Add(1)
	case refused != nil && !v.Passes():
		refused(ctx, &f.decisions[v])
	default:
		f.decisions[v].n.Add(1)
	}
}

// find finds the counts of the rule among the rules that the meter has now.
func (r *RuleCounter) find() *found {
	for {
		rules := r.meter.rules.Load()
		f := &found{r.meter.ruleOf(r.name), rules}
		if r.meter.rules.Load() == rules { // or else the rule may have been added or removed
			r.found.Store(f)
			return f
		}
	}
}

// Observe counts a request. If refused is not nil, it is called instead for the cells that
// count that the request does not pass.
func (m *Meter) Observe(ctx context.Context, e *events.Request, refused func(context.Context, *Cell)) {
	m.CountRequest(ctx, e.Verdict, refused)

	for i := range e.Rules {
		d := &e.Rules[i]
		r := m.ruleOf(d.Name)

		// Nearly all decisions are of the first kind, and count in one number instead of two.
		switch {
		case d.Verdict == events.Allowed && d.Charged == 1:
			r.single.Add(1)
		case refused != nil && !d.Verdict.Passes():
			refused(ctx, &r.decisions[d.Verdict])
		default:
			r.decisions[d.Verdict].n.Add(1)
			if d.Charged > 0 {
				r.units[charged].n.Add(uint64(d.Charged))
			}
		}

		if d.Waited > 0 {
			m.o.Record(ctx, TimeInQueue, [2]string{r.label, d.Verdict.String()}, d.Waited.Seconds())
		}
	}
}

// ruleOf returns the counts of the rule.
func (m *Meter) ruleOf(name string) *rule {
	if r := (*m.rules.Load())[name]; r != nil {
		return r
	}
	return m.addRule(name)
}

// addRule adds a rule, or returns the one of all rules for which there is no room.
func (m *Meter) addRule(name string) *rule {
	if len(*m.rules.Load()) >= m.o.MaxRules || !utf8.ValidString(name) {
		return m.useOther()
	}

	m.mu.Lock()
	defer m.mu.Unlock()

	// Another request may have added the rule, or taken the last place, before the lock.
	old := *m.rules.Load()
	if r := old[name]; r != nil {
		return r
	}
	if len(old) >= m.o.MaxRules {
		return m.useOther()
	}

	r := newRule(name)
	m.replaceRulesLocked(func(rules map[string]*rule) { rules[name] = r })
	return r
}

// useOther returns the rule of the others, which is shown from now on.
func (m *Meter) useOther() *rule {
	if !m.otherUsed.Load() {
		m.otherUsed.Store(true)
	}
	return m.other
}

// replaceRulesLocked replaces the rules by changed ones.
func (m *Meter) replaceRulesLocked(change func(map[string]*rule)) {
	rules := make(map[string]*rule, len(*m.rules.Load())+1)
	for name, r := range *m.rules.Load() {
		rules[name] = r
	}
	change(rules)
	m.rules.Store(&rules)
}

// What follows are the hooks of the meter.

// opened adds a limiter to those that are read.
func (m *Meter) opened(l events.Inspector) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.limiters = append(m.limiters, l)
}

// removeLimiter removes a limiter. Its counts stay.
func (m *Meter) removeLimiter(l events.Inspector) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.limiters {
		if m.limiters[i] == l {
			last := len(m.limiters) - 1
			m.limiters[i], m.limiters[last] = m.limiters[last], nil
			m.limiters = m.limiters[:last]
			return
		}
	}
}

// openLimiters returns the limiters that are open.
func (m *Meter) openLimiters() []events.Inspector {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]events.Inspector(nil), m.limiters...)
}

// queue counts a request that begins to wait, or ceases to.
func (m *Meter) queue(e events.Queue) { m.ruleOf(e.Rule).queued.add(int64(e.Change)) }

// lease counts a lease that begins or ends.
func (m *Meter) lease(e events.Lease) {
	r := m.ruleOf(e.Rule)
	if !e.Ended {
		r.leases.add(1)
		return
	}
	r.leases.add(-1)
	m.o.Record(context.Background(), LeaseDuration, [2]string{r.label}, e.Held.Seconds())
}

// flow counts units that were given back or charged after the decision.
func (m *Meter) flow(e events.Units) {
	if e.Units > 0 && int(e.Flow) < charged {
		m.ruleOf(e.Rule).units[e.Flow].Add(uint64(e.Units))
	}
}

// ban keeps a ban until it ends or is lifted, as far as there is room.
func (m *Meter) ban(e events.Ban) {
	k := ban{m.ruleOf(e.Rule), maphash.String(m.seed, e.Key)}
	k.rule.bans.used.Store(true)
	now := time.Now()

	m.mu.Lock()
	defer m.mu.Unlock()

	if e.Lifted {
		delete(m.bans, k)
		return
	}

	// A full list is cleared of the bans that have ended, at most once a second.
	if len(m.bans) >= maxBans && now.Sub(m.bansEnded) >= time.Second {
		m.endBansLocked(now)
	}

	if _, known := m.bans[k]; known || len(m.bans) < maxBans {
		m.bans[k] = now.Add(e.For)
	}
}

// endBansLocked removes the bans that have ended.
func (m *Meter) endBansLocked(now time.Time) {
	m.bansEnded = now
	for k, until := range m.bans {
		if !now.Before(until) {
			delete(m.bans, k)
		}
	}
}

// storeCall counts a call of a store.
func (m *Meter) storeCall(e events.StoreCall) {
	ctx := context.Background()
	kind, errs := m.storeErrors(strings.ToValidUTF8(e.Store, "?"))
	if e.Type != events.NoError && int(e.Type) < len(errs) {
		errs[e.Type].Add(1)
	}
	m.o.Record(ctx, CallDuration, [2]string{kind, e.Type.String()}, e.Took.Seconds())
	m.o.Record(ctx, BatchSize, [2]string{}, float64(e.Ops))
}

// storeErrors returns the counts of a kind of stores, and the name that it is shown by.
func (m *Meter) storeErrors(kind string) (string, *[events.ErrorTypes]Cell) {
	m.mu.Lock()
	defer m.mu.Unlock()

	// The kind is a text of the store, of which there may be any number.
	if m.stores[kind] == nil && len(m.stores) >= maxStores {
		kind = Other
	}

	errs := m.stores[kind]
	if errs == nil {
		errs = &[events.ErrorTypes]Cell{}
		for t := range events.ErrorType(events.ErrorTypes) {
			errs[t].init(StoreErrors, t != events.NoError, kind, t.String())
		}
		m.stores[kind] = errs
	}

	return kind, errs
}

// breaker counts a change of a breaker by what decides afterwards.
func (m *Meter) breaker(e events.Breaker) {
	mode := events.StoreDecides
	if e.Open {
		if mode = m.worstMode(); mode == events.StoreDecides { // it closed meanwhile
			mode = events.PassesUndecided
			if e.Fallback {
				mode = events.FallbackDecides
			}
		}
	}
	m.changes[mode].Add(1)
}

// worstMode returns the mode of the limiter that is worst off.
func (m *Meter) worstMode() (mode events.Mode) {
	for _, l := range m.openLimiters() {
		mode = max(mode, modeOf(l.Stores()))
	}
	return mode
}

// modeOf returns the mode of a limiter with the stores.
func modeOf(stores []events.StoreStatus) (mode events.Mode) {
	for i := range stores {
		mode = max(mode, stores[i].Mode)
	}
	return mode
}

// near counts a key that comes near its limit.
func (m *Meter) near(e events.Near) { m.ruleOf(e.Rule).near.Add(1) }

// cachedRefusal counts a refusal without a call of the store.
func (m *Meter) cachedRefusal(rule string) { m.ruleOf(rule).cached.Add(1) }

// policy counts a revision that was put in force or refused.
func (m *Meter) policy(e events.Policy) {
	if e.Change > events.PolicyRefused {
		return
	}
	m.reloads[e.Change].Add(1)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.followed = true
	if e.Change == events.PolicyApplied {
		m.revision, m.inForce = revisionNumber(e.Version), true
	}
}

// revisionNumber returns the number of a revision or, if it is none, a hash of 32 bits,
// which a float64 holds exactly.
func revisionNumber(version string) float64 {
	if n, err := strconv.ParseInt(version, 10, 53); err == nil {
		return float64(n)
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(version))
	return float64(h.Sum32())
}
