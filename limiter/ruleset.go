package limiter

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"sync/atomic"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/telling"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/store/memstore"
)

// ruleSet is a checked list of rules with precomputed facts about them.
type ruleSet struct {
	rules   []*activeRule
	plain   bool       // no rule has lists, an Override, an Enforce, a calendar or leases, or lowers a cost
	store   core.Store // the store to ask first
	strict  bool       // store is without its fallback
	mayWait bool       // some rule waits
	refunds bool       // some rule gives units back, or settles by the answer
	warns   bool       // some rule has a Warn
	shown   int        // how many rules clients may see
	policy  string     // the RateLimit-Policy of all of them under their own limits
	setup   telling.Setup

	noKey error // what Limiter.CheckRequests returns

	inMemory bool // plainInMemory
	direct   bool // a request is decided by its keys and the answer of a store in memory alone

	// prepared asks the store about all rules, of which there are few, in a set that is inMemory.
	// It is nil in others. calls and ops are those of its decisions.
	prepared *memstore.Prepared
	calls    []call
	ops      []core.Op

	selection Selection // nil asks every rule
}

// activeRule is a rule in use.
type activeRule struct {
	Rule
	index       int
	failureMode FailureMode // never FailDefault
	minTTL      time.Duration
	priced      bool // it has a Cost or a Charge
	keyed       bool // it is plain, see ruleSet, and not priced: its Key says all about a request
	terms       *terms
	keys        *telling.Keys
	tally       *telling.Tally     // nil if Config.Top is 0
	counter     events.RuleCounter // nil if the Observer gets the plain requests too

	// shadow is the same rule as one in Shadow, for the keys that Enforce leaves out, or nil.
	shadow *activeRule

	// others are the terms of limits that Override has returned, replaced as a
	// whole when one is added.
	others atomic.Pointer[map[core.Limit]*terms]
}

// maxOthers bounds the remembered limits of one rule's Override.
// It is enough for the plans and the single keys of a policy.
const maxOthers = 128

// newRuleSet checks and compiles the rules of a limiter of the name. Its error joins a
// [*RuleError] for every mistake.
func newRuleSet(rules []Rule, name string, f *fallbacks) (*ruleSet, error) {
	var errs []error
	set := &ruleSet{rules: make([]*activeRule, len(rules)), plain: true}
	first := map[string]int{}
	var policy []string
	var noKey []error
	for i, r := range rules {
		// A program with one rule need not think of a name.
		if r.Name == "" && len(rules) == 1 {
			r.Name = cmp.Or(name, defaultName)
		}

		for _, err := range r.faults(f) {
			errs = append(errs, &RuleError{r.Name, i, err})
		}
		if j, taken := first[r.Name]; taken {
			errs = append(errs, &RuleError{r.Name, i, fmt.Errorf("rule %d has the same name", j)})
		} else {
			first[r.Name] = i
		}

		t := newTerms(&r, r.Limit)
		set.rules[i] = &activeRule{Rule: r, index: i, terms: t, minTTL: f.minTTL, priced: r.isPriced(),
			keys: &telling.Keys{Rule: r.Name, Func: r.Key}}
		set.mayWait = set.mayWait || r.OnLimit.MaxWait() > 0
		set.refunds = set.refunds || r.corrects()
		set.warns = set.warns || r.Warn > 0
		set.plain = set.plain && r.isPlain(t)
		set.rules[i].keyed = r.isPlain(t) && !r.isPriced()

		// Take and Wait are given keys; an adapter finds this out when it is made.
		if r.Key == nil {
			noKey = append(noKey, &RuleError{r.Name, i, errNoKey})
		}
		if r.OnLimit != Shadow {
			policy = append(policy, t.policy)
		}
	}

	set.noKey = errors.Join(noKey...)
	set.shown, set.policy = len(policy), strings.Join(policy, ", ")
	f.resolve(set)
	return set, errors.Join(errs...)
}

// isPlain reports whether a key and a cost are all that there is to a request under the rule.
func (r *Rule) isPlain(t *terms) bool {
	return r.Access == nil && r.Override == nil && !r.CostAtMost && !t.windowed && !t.leased && !r.isPartial()
}

// isDirect reports whether each request is asked about under every rule, costs one unit there, and
// does not wait.
func (r *ruleSet) isDirect() bool {
	priced := slices.ContainsFunc(r.rules, func(a *activeRule) bool { return a.priced })
	return r.selection == nil && r.noKey == nil && !r.mayWait && !priced
}

// isPartial reports whether the rule is in force for some keys, and in Shadow for others.
func (r *Rule) isPartial() bool {
	return r.Enforce > 0 && r.Enforce < core.Whole && r.OnLimit != Shadow
}

// addShadow gives a rule that is ready and in force for some keys what it is for the others.
func (a *activeRule) addShadow() {
	if !a.isPartial() {
		return
	}

	// Both count under one name, so a key that changes sides keeps what it has used.
	r := a.Rule
	r.OnLimit = Shadow
	t := newTerms(&r, r.Limit)
	t.mark = a.terms.mark
	a.shadow = &activeRule{Rule: r, index: a.index, failureMode: a.failureMode, minTTL: a.minTTL, terms: t,
		priced: a.priced, keys: a.keys, tally: a.tally, counter: a.counter}
}

// forKey returns the rule as it is for the key: in force or in Shadow.
func (a *activeRule) forKey(key string) *activeRule {
	if a.shadow == nil || a.Enforce.Has(a.Name, key) {
		return a
	}
	return a.shadow
}

// named returns the rule of the name, or nil.
func (r *ruleSet) named(name string) *activeRule {
	i := slices.IndexFunc(r.rules, func(r *activeRule) bool { return r.Name == name })
	if i < 0 {
		return nil
	}
	return r.rules[i]
}

// takes returns a Take of each rule, without a key.
func (r *ruleSet) takes() []core.Op {
	ops := make([]core.Op, len(r.rules))
	for i, r := range r.rules {
		ops[i] = r.terms.take
	}
	return ops
}

// mayOwe reports whether keys under the rule may have a debt.
func (a *activeRule) mayOwe() bool { return a.Override != nil || a.terms.limit.MaxDebt() > 0 }

// ruleError returns err as an error that names the rule.
func (a *activeRule) ruleError(err error) error { return &RuleError{a.Name, a.index, err} }

// termsOf returns the terms of another limit of the rule. source is where it comes from.
func (a *activeRule) termsOf(limit core.Limit, source string) (*terms, error) {
	if limit == a.Limit {
		return a.terms, nil
	}

	known := a.others.Load()
	if known != nil {
		if t := (*known)[limit]; t != nil {
			return t, nil
		}
	}

	if err := errors.Join(limit.Validate(), checkTTL(&limit, a.minTTL), a.checkBanned(&limit)); err != nil {
		return nil, a.ruleError(fmt.Errorf("%s: %w", source, err))
	}

	// The mark names the limiter and the capacity, which differs under this limit.
	t := newTerms(&a.Rule, limit)
	t.mark = newMark(t.capacity, a.terms.mark.id())
	a.remember(known, t)
	return t, nil
}

// remember adds t to the known limits, unless they are many or another
// goroutine was faster.
func (a *activeRule) remember(known *map[core.Limit]*terms, t *terms) {
	next := map[core.Limit]*terms{}
	if known != nil {
		if len(*known) >= maxOthers {
			return
		}
		next = maps.Clone(*known)
	}
	next[t.limit] = t
	a.others.CompareAndSwap(known, &next)
}

// terms are a limit under a rule and the text that clients see of it.
type terms struct {
	limit     core.Limit
	leased    bool    // limit.Leased()
	windowed  bool    // limit.NeedsWindows()
	take      core.Op // of no key and no cost yet
	capacity  string
	policy    string // the item of RateLimit-Policy
	remaining string // how the item of RateLimit begins
	violated  string // how a problem ends that names this rule alone
	near      int64  // the most remaining units with which a key is near its limit; below 0 for none
	mark      *Mark  // of an answer whose headers show this limit first

	windows atomic.Pointer[core.Windows] // of a calendar, around the latest request
}

// newTerms returns the terms of a limit under the rule, without its mark and windows.
func newTerms(r *Rule, l core.Limit) *terms {
	t := &terms{
		limit:     l,
		leased:    l.Leased(),
		windowed:  l.NeedsWindows(),
		take:      core.Op{Verb: core.Take, Soft: r.OnLimit.soft(), Rule: r.Name, Limit: l},
		capacity:  strconv.FormatInt(l.Capacity(), 10),
		policy:    policyItem(r.Name, l),
		remaining: `"` + r.Name + `";r=`,
		violated:  violatedPolicies + `["` + r.Name + `"]}`,
		near:      -1,
	}
	if r.Warn > 0 {
		t.near = l.Capacity() - r.Warn.Of(l.Capacity())
	}

	// A Shadow rule refuses no request, so it has no refusals to count.
	if r.OnLimit != Shadow {
		t.take.Ban = r.Ban.OrNil()
	}
	return t
}

// windowsNow returns the windows of the limit's calendar around the present instant.
func (t *terms) windowsNow() *core.Windows {
	at, w := time.Now().UnixMicro(), t.windows.Load()
	if w == nil || at < w[3] || at >= w[4] {
		w = t.limit.Windows(at)
		t.windows.Store(w)
	}
	return w
}

// maxInteger is the highest integer of a structured field (RFC 9651, 3.3.1).
const maxInteger = 999_999_999_999_999

// policyItem returns the limit as draft-ietf-httpapi-ratelimit-headers writes it. A
// window that is not in whole seconds, or is not always as long, cannot be written, so it
// is left out.
func policyItem(rule string, l core.Limit) string {
	b := make([]byte, 0, 64)
	b = append(b, '"')
	b = append(b, rule...)
	b = append(b, `";q=`...)
	b = strconv.AppendInt(b, min(l.Quota, maxInteger), 10)

	switch {
	case l.Leased():
		b = append(b, `;qu="concurrent-requests"`...)
	case l.NeedsWindows(): // its windows differ in length
	case l.Period%time.Second == 0:
		b = append(b, ";w="...)
		b = strconv.AppendInt(b, int64(l.Period/time.Second), 10)
	}
	return string(b)
}

// failsClosed reports whether the rule turns a request away if neither the store nor
// its fallback could decide. Shadow rules turn no request away.
func (a *activeRule) failsClosed(f *fallbacks) bool {
	if a.OnLimit == Shadow {
		return false
	}
	return a.failureMode == FailClosed || a.failureMode == FailLocal && f.last == FailClosed
}

// Selection selects the rules that may apply to a request, so that not every rule
// has to be asked: it appends their indices in the list of rules to into, each
// once, in ascending order, and returns the extended slice. The other rules do not
// apply to the request. It is called for every request, from many goroutines, and
// must not keep into. If it panics or returns an index without a rule, the request
// is turned away if any rule of the limiter fails closed, and passes otherwise.
type Selection func(r core.Request, into []int) []int

// fallbacks says what a limiter does when the store cannot decide, and how short the
// leases in the store may be.
type fallbacks struct {
	store     core.Store    // decides by its fallback if need be
	strict    core.Store    // the same without the fallback
	fallback  core.Store    // or nil
	cause     func() error  // of the fallback's decisions, or nil
	report    events.Report // of the store
	otherwise FailureMode
	last      FailureMode // when the fallback cannot decide either
	minTTL    time.Duration
	asks      bool // the store asks a server, which may be away or too slow
	named     bool // otherwise is the choice of the program
}

func newFallbacks(c *Config, sides core.Standby) fallbacks {
	report := events.ReportOf(sides.Store)
	f := fallbacks{
		store: sides.Store, strict: sides.Strict, fallback: sides.Fallback, cause: sides.Cause, report: report,
		otherwise: c.OnStoreError, last: FailOpen, minTTL: shortestTTL(report.MaxCall), asks: report.MaxCall > 0,
		named: c.OnStoreError != FailDefault}

	if f.otherwise == FailClosed {
		f.last = FailClosed
	}

	// Who has not chosen gets the fallback of the store, and an open door without one.
	if f.otherwise == FailDefault {
		f.otherwise = FailOpen
		if f.fallback != nil {
			f.otherwise = FailLocal
		}
	}
	return f
}

// check returns an error if a choice cannot be carried out.
func (f *fallbacks) check(choice FailureMode) error {
	switch {
	case choice > FailLocal:
		return fmt.Errorf("OnStoreError: %d is not known", choice)
	case choice == FailLocal && f.fallback == nil:
		return errors.New("OnStoreError: the store has no fallback that could decide")
	}
	return nil
}

// resolve gives every rule its failure mode and determines which store is asked
// first: rules that want no decision of the fallback have to see the store fail.
func (f *fallbacks) resolve(set *ruleSet) {
	set.store = f.store
	for _, r := range set.rules {
		if r.failureMode = cmp.Or(r.OnStoreError, f.otherwise); r.failureMode != FailLocal {
			set.store, set.strict = f.strict, f.fallback != nil
		}
	}
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
