package failover

import (
	"cmp"
	"context"
	"hash/maphash"
	"math/rand/v2"
	"slices"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/observe/events"
)

// Store is a [core.Backed] over a primary and a fallback, made by [New]. It is
// safe for concurrent use.
type Store struct {
	primary  primary
	mirror   mirror
	together together
	reporter reporter
	depth    int // of Stores, one over another
}

var _ core.Backed = (*Store)(nil)

// New returns a store over primary, or an error that names every mistake. It
// calls neither store. Close the Store when it is no longer used.
func New(primary core.Store, o Options) (*Store, error) {
	if err := o.faults(primary); err != nil {
		return nil, err
	}

	s := &Store{depth: 1 + max(depth(primary), depth(o.Fallback))}

	r := &s.reporter
	r.log, r.onChange, r.hasFallback = o.Logger, o.OnChange, o.Fallback != nil

	p := &s.primary
	p.store, p.reporter, p.ignore = primary, r, o.Ignore
	p.copying = single{primary}
	if c, ok := primary.(copying); ok && o.Fallback != nil {
		p.copying = c
	}
	if sharded, ok := primary.(core.Sharded); ok {
		p.shardOf = sharded.Shards()
	}
	p.interval, p.jitter = cmp.Or(o.ProbeInterval, DefaultProbeInterval), rand.Float64
	p.failures = int64(cmp.Or(o.Failures, DefaultFailures))
	p.slow, p.patience = o.bounds(events.ReportOf(primary).MaxCall)
	p.breaker = p.newBreaker("")

	m := &s.mirror
	m.primary, m.fallback, m.instances = p, o.Fallback, o.Instances
	m.owed.seed = maphash.MakeSeed()
	m.steps.New = func() any { return new(step) }
	s.together.mirror, s.together.joints.New = m, newJoint
	return s, nil
}

// MustNew is [New] for arguments that are known to be valid; it panics on an
// error.
func MustNew(primary core.Store, o Options) *Store {
	s, err := New(primary, o)
	if err != nil {
		panic(err)
	}
	return s
}

// Close ends the probes and waits for one in progress, but not for OnChange, which
// may call it. The state of each breaker stays as it is: a primary that is bypassed
// stays bypassed. Refunds that wait for it are lost, and so are later ones that
// would have to wait: they fail with [ErrClosed]. Close closes neither store, may be
// called again and always returns nil.
func (s *Store) Close() error {
	s.primary.punctuality.close()
	for _, b := range s.primary.shards.close() {
		b.end()
	}
	s.primary.breaker.end()

	// The calls of payments have ended with the breakers whose context they use.
	s.mirror.payments.close()

	// The log ends with the state that holds.
	for _, shard := range s.reporter.logged.close() {
		s.reporter.announce(change{shard: shard, expired: true})
	}
	return nil
}

// Apply implements [core.Store]. Without a fallback it fails while the primary
// fails, with [ErrOpen] if the primary was not asked. A step of Refunds and
// Resets that has to wait for the primary succeeds; without a fallback its
// decisions have only Allowed set. A step with a Grant or a Revoke is the primary's or an error:
// the fallback knows no credit.
func (s *Store) Apply(ctx context.Context, ops []core.Op, out []core.Decision) error {
	if hasRefunds(ops) {
		return s.refund(ctx, ops, out)
	}

	r := s.primary.routeOf(ops)
	if lends(ops) {
		return s.ask(ctx, r, ops, ops, out)
	}
	if isOpen(r.generation) && s.mirror.fallback != nil {
		s.primary.restoreCause(r.breaker)
		return s.mirror.decide(ctx, r.generation, ops, out)
	}

	err := s.ask(ctx, r, ops, ops, out)
	if err == nil || !isPrimaryFault(ctx, err) {
		return err
	}
	if s.mirror.fallback == nil {
		s.mirror.follow(err, false)
		return err
	}

	// The fallback decides. The primary may still decide the same step, whose charges must not
	// count twice.
	local := s.mirror.decide(ctx, r.generation, ops, out)
	s.mirror.follow(err, local == nil && core.Granted(ops, out))
	return local
}

// ask has the primary decide, unless it is bypassed. sent are the operations in
// the form for the primary.
func (s *Store) ask(ctx context.Context, r route, ops, sent []core.Op, out []core.Decision) error {
	switch {
	case len(ops) == 0:
		return nil
	case isOpen(r.generation):
		return r.refusal()
	}

	copied, err := s.primary.askTimed(ctx, r, ops, sent, out, &s.together)
	switch {
	case err != nil:
		s.primary.recordFailure(ctx, r, ops, err)
	case copied:
		s.together.gate(ctx, ops, out)
	default:
		s.mirror.record(ctx, ops, out)
	}
	return err
}

// Back implements [core.Backed]. All uses share s, and there is nothing to release: [Store.Close]
// ends s.
func (s *Store) Back() (core.Standby, func()) {
	return core.Standby{Store: s, Strict: s.Strict(), Fallback: s.Fallback(), Cause: s.Cause}, nil
}

// Cause returns why the fallback decided; see [core.Standby]. It wraps the latest error of the
// primary, or what made a breaker open, and names the shard that it is about.
func (s *Store) Cause() error {
	if c := s.primary.latest.Load(); c != nil {
		return c
	}
	return nil
}

var _ events.Reporter = (*Store)(nil)

// Report implements [events.Reporter]. MaxCall is that of the primary, and so are the bans: those
// of the fallback are copies, or last as long as an outage does. Both stores are diagnosed and
// tell the hooks. The status of the primary follows that of s, and then that of the fallback.
func (s *Store) Report() events.Report {
	primary, fallback := events.ReportOf(s.primary.store), events.ReportOf(s.mirror.fallback)
	return events.Report{
		MaxCall: primary.MaxCall,
		Bans:    primary.Bans,
		Diagnose: func(ctx context.Context, rules []core.Op) []core.Finding {
			return slices.Concat(primary.Diagnose(ctx, rules), fallback.Diagnose(ctx, rules))
		},
		Listen: func(h *events.Hooks) {
			s.reporter.listeners.Add(h)
			primary.Listen(h)
			fallback.Listen(h)
		},
		Status: func(list []events.StoreStatus) []events.StoreStatus {
			return fallback.Status(primary.Status(append(list, s.status())))
		},
	}
}

// status returns the status of s itself.
func (s *Store) status() events.StoreStatus {
	n := s.Stats()
	own := events.StoreStatus{
		Store: "failover", Of: s, Away: n.Away, Opened: n.Opened, Local: n.Local, Lost: n.Lost, Waiting: n.Waits,
	}
	if c := s.primary.latest.Load(); c != nil {
		own.Cause = c.err
	}
	if n.State == Open {
		own.Mode = events.PassesUndecided
		if s.mirror.fallback != nil {
			own.Mode = events.FallbackDecides
		}
	}
	return own
}

var _ core.Sharded = (*Store)(nil)

// Shards implements [core.Sharded]. The shards are those of the primary.
func (s *Store) Shards() (shardOf func(key string) string) { return s.primary.shardOf }

// Strict is a side of [Store.Back]. It returns a store that asks the primary
// alone, through the same breaker.
func (s *Store) Strict() core.Store { return strict{s} }

type strict struct{ store *Store }

// Apply asks the primary. What a step that fails is charged all the same goes back if its decision
// comes yet.
func (s strict) Apply(ctx context.Context, ops []core.Op, out []core.Decision) error {
	err := s.store.ask(ctx, s.store.primary.routeOf(ops), ops, ops, out)
	if err != nil && isPrimaryFault(ctx, err) {
		s.store.mirror.follow(err, false)
	}
	return err
}

// Fallback is a side of [Store.Back], or nil if there is no fallback. It returns a store that
// asks the fallback alone, for this instance's part of the limits.
func (s *Store) Fallback() core.Store {
	if s.mirror.fallback == nil {
		return nil
	}
	return local{s}
}

type local struct{ store *Store }

// Apply asks the fallback.
func (l local) Apply(ctx context.Context, ops []core.Op, out []core.Decision) error {
	return l.store.mirror.decide(ctx, l.store.primary.routeOf(ops).generation, ops, out)
}

// State returns Open if a part of the primary is bypassed: see [Stats] for which.
func (s *Store) State() State {
	for _, b := range s.primary.breakers() {
		if b.state() == Open {
			return Open
		}
	}
	return Closed
}

// Stats are counters since the store was made.
type Stats struct {
	State  State
	Away   []string // the shards that are bypassed now, in order; "" is the primary as a whole
	Opened uint64   // how often a breaker opened
	Probes uint64   // how often a probe asked the primary
	Local  uint64   // steps that the fallback decided
	Lost   uint64   // refunds dropped for lack of room to wait, after a failure, or by Close
	Unowed uint64   // units that the fallback granted and that no key owes, for lack of room
	Waits  int      // refunds that wait for the primary now
}

// Stats returns the counters. They are not read at one instant.
func (s *Store) Stats() Stats {
	p := &s.primary
	n := Stats{Opened: p.opened.Load(), Probes: p.probes.Load(), Local: s.mirror.local.Load(), Lost: p.lost.Load(),
		Unowed: s.mirror.owed.forgotten.Load()}

	for _, b := range s.primary.breakers() {
		n.Waits += b.waiting.len()
		if b.state() == Open {
			n.State, n.Away = Open, append(n.Away, b.shard)
		}
	}

	slices.Sort(n.Away)
	return n
}
