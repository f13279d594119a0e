package replay

import (
	"context"
	"log/slog"
	"slices"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/accesslog"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/observe/events"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store/memstore"
)

// fate is what would have become of a request.
type fate uint8

const (
	passes  fate = iota
	waits        // it would have waited for its turn
	refused      // with 429, or 403 for a caller who is denied
)

// side is a set of policies in force over the log.
type side struct {
	limiter *limiter.Limiter
	store   *memstore.Store
	order   []*tally // of the rules
	leftOut []LeftOut
	now     func() int64

	request *request // that is being decided
	fate    fate     // of the request that was decided last

	undecided int64 // requests that passed because of an error
	shared    int64 // requests that shared limits in the stores of lanes
	top       top
}

// tally counts what a policy did.
type tally struct {
	policy          *policy.Policy
	rule            string // the name of the rule
	maxWait         int64  // nanoseconds
	applied, over   int64
	refused, waited int64
	banned, denied  int64
	callers         distinct
	touched         distinct
	first, last     int64
}

// app is the name of the application of all policies if none is chosen.
const app = "log"

// newSide puts policies in force over a log that has the fields.
func newSide(set policy.Set, o *Options, has accesslog.Fields, now func() int64,
	bindings policy.Bindings) (*side, error) {
	// What the log is not enough for is left out, and told.
	name, mine := o.mine(set)
	mine, out := usable(mine, has, o.Users)
	compiled, err := policy.Compile(name, mine, bindings)
	if err != nil {
		return nil, err
	}

	s := &side{leftOut: out, now: now}
	rules, selection := compiled.Selected()
	for i := range rules {
		t := &tally{policy: &mine[i], rule: rules[i].Name, maxWait: int64(rules[i].OnLimit.MaxWait())}
		s.order = append(s.order, t)

		rules[i].OnStoreError = limiter.FailOpen // a memory never fails, and has no fallback

		// No request of a log can wait. Those that would have are told from the others.
		if t.maxWait > 0 {
			rules[i].OnLimit = limiter.Reject
		}
	}

	if s.store, err = memstore.New(memstore.Options{MaxKeys: o.MaxKeys, Clock: now, Logger: discard}); err != nil {
		return nil, err
	}

	c := limiter.Config{Store: s.store, Observer: s, Logger: discard, OnStoreError: limiter.FailOpen}
	if slices.ContainsFunc(rules, func(r limiter.Rule) bool { return r.Limit.NeedsWindows() }) {
		c.Store = &calendarStore{Store: s.store, now: now}
	}

	if s.limiter, err = limiter.New(c); err != nil {
		return nil, err
	}

	return s, s.limiter.SetSelectedRules(rules, selection)
}

// mine returns the policies of the set that count, and the name of their application.
func (o *Options) mine(set policy.Set) (name string, mine policy.Set) {
	if name = o.App; name == "" {
		name = app
		set = slices.Clone(set)
		for i := range set {
			set[i].Apps = []string{app}
		}
	}
	return name, set.For(name)
}

// sharedKeys returns how many requests of new keys shared limits.
func (s *side) sharedKeys() int64 {
	if s.store == nil {
		return s.shared
	}
	shared, lost := s.store.Overflowed()
	return shared + lost
}

var discard = slog.New(slog.DiscardHandler)

// bindings returns what policies may use of a log. A caller has one key "ip" for all policies, so
// it is made once for a request.
func (o *Options) bindings() (b policy.Bindings, err error) {
	b.User = userKey
	b.Trusted = func(core.Request) bool { return false } // no log has the header of a cost
	b.IPPrefix = func(bits int) (core.KeyFunc, error) {
		key, err := keyfuncs.RemoteIPPrefix(bits)
		if len(o.Proxies) > 0 {
			key, err = keyfuncs.ForwardedIP(keyfuncs.Proxies{Trusted: o.Proxies, IPv6Prefix: bits})
		}

		// The networks of policies are about addresses alone, and ask for all bits.
		if bits == allBits {
			return key, err
		}
		return hostKey(key), err
	}

	key, err := b.IPPrefix(defaultBits)
	if err != nil {
		return b, err
	}
	b.IP = func(r core.Request) (string, bool) {
		l, is := r.(*request)
		if !is {
			return key(r)
		}
		if !l.keyed {
			l.key, _ = key(r)
			l.keyed = true
		}
		return l.key, true
	}
	return b, nil
}

// decide returns what would have become of the request. Its answer gives back what the log says,
// at the instant of the request.
func (s *side) decide(r *request) fate {
	s.fate, s.request = passes, r
	s.limiter.Admit(r).Done(r.entry.Status)
	return s.fate
}

// Observe implements [events.Observer]. It is called once for each request, while it is decided.
func (s *side) Observe(_ context.Context, r *events.Request) {
	if r.Err != nil {
		s.undecided++
	}

	// A request is refused if a rule refuses it that it would not have waited for.
	if !r.Verdict.Passes() {
		s.fate = waits
	}

	// What a rule would have done counts for its policy, also where another one decides.
	at, from := s.now(), 0
	for i := range r.Rules {
		rule := &r.Rules[i]
		from = s.indexOf(rule.Name, from)
		hash := s.request.hash
		if rule.Key != s.request.key {
			hash = hashOf(rule.Key)
		}
		if s.order[from].count(rule, hash, at) == refused {
			s.fate = refused
		}
		if !rule.Verdict.Passes() || rule.Verdict == events.ShadowRefused || rule.Verdict == events.Degraded {
			s.top.add(rule.Name, rule.Key)
		}
	}
}

// indexOf returns the index of a rule in order. It looks from an index on, as an event nearly
// always has its rules in order.
func (s *side) indexOf(rule string, from int) int {
	for i := from; i < len(s.order); i++ {
		if s.order[i].rule == rule {
			return i
		}
	}
	return slices.IndexFunc(s.order, func(t *tally) bool { return t.rule == rule })
}

// count counts the verdict of the rule on a request of a key, and returns what would have become of
// the request under it alone.
func (t *tally) count(r *events.Rule, hash uint64, at int64) (f fate) {
	t.applied++
	t.callers.add(hash)

	switch v := r.Verdict; v {
	case events.Refused:
		if f = refused; t.maxWait > 0 && int64(r.Decision.RetryAfter) <= t.maxWait {
			f = waits
		}
	case events.Banned, events.Impossible, events.Denied:
		f = refused
	case events.ShadowRefused, events.Degraded:
	default:
		return passes
	}

	// The caller is touched, also where the request passes.
	t.over++
	t.touched.add(hash)
	if t.first == 0 {
		t.first = at
	}

	t.last = at

	switch {
	case f == waits:
		t.waited++
	case f == refused:
		t.refused++
	}

	switch r.Verdict {
	case events.Banned:
		t.banned++
	case events.Denied:
		t.denied++
	}

	return f
}

// calendarStore gives steps the windows of a calendar around an instant of the log. The limiter
// knows those of today.
type calendarStore struct {
	core.Store
	now     func() int64
	windows map[core.Limit]*core.Windows
}

// maxWindows is how many limits a calendarStore remembers the windows of.
const maxWindows = 1000

// Apply implements [core.Store].
func (c *calendarStore) Apply(ctx context.Context, ops []core.Op, out []core.Decision) error {
	at := c.now()
	for i := range ops {
		if ops[i].Windows == nil {
			continue
		}

		// The windows hold for all steps until the third ends.
		w := c.windows[ops[i].Limit]
		if w == nil || at < w[3] || at >= w[4] {
			w = ops[i].Limit.Windows(at)
			if c.windows == nil || len(c.windows) >= maxWindows {
				c.windows = map[core.Limit]*core.Windows{}
			}
			c.windows[ops[i].Limit] = w
		}
		ops[i].Windows = w
	}

	return c.Store.Apply(ctx, ops, out)
}
