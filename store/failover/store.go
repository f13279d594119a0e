package failover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/observe/events"
)

// Store is a [core.Standby] over a primary and a fallback, made by [New]. It is
// safe for concurrent use.
type Store struct {
	primary   core.Store
	sharded   Sharded    // the primary, or nil
	fallback  core.Store // or nil
	instances func() int // or nil
	ignore    func(error) bool
	onChange  func(string, State)
	log       *slog.Logger
	slow      time.Duration // beyond which a call counts as a failure, or 0
	patience  time.Duration // for a probe, or another call in the background
	interval  time.Duration
	jitter    func() float64 // from 0 up to 1

	failures int64

	breaker     *breaker // of the keys whose shard is not known
	shards      shards
	generations atomic.Uint64 // the latest of any breaker, as no two share one
	changes     changes
	lines       lines
	punctuality punctuality
	shares      shares
	copies      copies
	owed        owed
	payments    payments
	depth       int       // of Stores, one over another
	steps       sync.Pool // of *step

	latest atomic.Pointer[cause] // nil until the primary fails

	listeners events.Listeners

	opened, probes, local, lost atomic.Uint64
}

var _ core.Outage = (*Store)(nil)

// New returns a store over primary, or an error that names every mistake. It
// calls neither store. Close the Store when it is no longer used.
func New(primary core.Store, o Options) (*Store, error) {
	if err := o.faults(primary); err != nil {
		return nil, err
	}

	s := &Store{
		primary: primary, fallback: o.Fallback, instances: o.Instances,
		ignore: o.Ignore, onChange: o.OnChange, log: o.Logger,
		interval: cmp.Or(o.ProbeInterval, DefaultProbeInterval),
		jitter:   rand.Float64,
		failures: int64(cmp.Or(o.Failures, DefaultFailures)),
		depth:    1 + max(depth(primary), depth(o.Fallback)),
	}
	s.slow, s.patience = o.bounds(s.MaxCall())

	s.sharded, _ = primary.(Sharded)
	s.breaker = s.newBreaker("")
	s.owed.seed = maphash.MakeSeed()
	s.steps.New = func() any { return new(step) }
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
	s.punctuality.close()
	for _, b := range s.shards.close() {
		b.end()
	}
	s.breaker.end()
	s.payments.close()
	for _, shard := range s.lines.close() {
		s.announce(change{shard: shard, expired: true})
	}
	return nil
}

// Apply implements [core.Store]. Without a fallback it fails while the primary
// fails, with [ErrOpen] if the primary was not asked. A step of Refunds and
// Resets that has to wait for the primary succeeds; without a fallback its
// decisions have only Allowed set.
func (s *Store) Apply(ctx context.Context, ops []core.Op, out []core.Decision) error {
	if hasRefunds(ops) {
		return s.refund(ctx, ops, out)
	}
	r := s.routeOf(ops)
	if isOpen(r.generation) && s.fallback != nil {
		s.excuse(r.breaker)
		return s.decide(ctx, r.generation, ops, out)
	}
	err := s.ask(ctx, r, ops, ops, out)
	if err == nil || s.fallback == nil || !blames(ctx, err) {
		return err
	}
	local := s.decide(ctx, r.generation, ops, out)
	s.follow(err, local == nil && core.Granted(ops, out))
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

	if err := s.askTimed(ctx, r, ops, sent, out); err != nil {
		s.blame(ctx, r, ops, err)
		return err
	}
	s.mirror(ctx, ops, out)
	return nil
}

// askTimed has the primary decide, and counts a call that succeeded.
func (s *Store) askTimed(ctx context.Context, r route, ops, sent []core.Op, out []core.Decision) error {
	if s.slow == 0 {
		err := s.primary.Apply(ctx, sent, out)
		if err == nil {
			r.succeed(out[0].At)
		}
		return err
	}

	start := time.Now()
	if err := s.primary.Apply(ctx, sent, out); err != nil {
		return err
	}
	switch took := time.Since(start); {
	case took <= s.slow:
		r.succeed(out[0].At)
	case r.others == nil && s.punctuality.held(start, took): // else it is not known which shard is slow
		s.count(r, ops, &slowError{took})
	}
	return nil
}

// blame counts an error of the primary against the shards that are at fault.
func (s *Store) blame(ctx context.Context, r route, ops []core.Op, err error) {
	if !blames(ctx, err) {
		return
	}
	shard, named := shardOf(err)
	if r.others == nil {
		shard = r.shard
	}
	s.latest.Store(&cause{shard, err})
	if s.excused(err) {
		return
	}
	if r.others == nil {
		s.count(r, ops, err)
		return
	}
	for _, one := range r.others {
		if !named || one.shard == shard {
			s.count(one, ops, err)
		}
	}
}

// excused reports whether an error of the primary says nothing about its health. The error
// counts if the program's function panics.
func (s *Store) excused(err error) (is bool) {
	if s.ignore == nil {
		return errors.Is(err, core.ErrOverload)
	}
	defer s.guard("Ignore")
	return errors.Is(err, core.ErrOverload) || s.ignore(err)
}

// guard, deferred, logs a panic of one of the program's functions, which may be called in a
// goroutine of the store.
func (s *Store) guard(function string) {
	if v := recover(); v != nil {
		s.write(slog.LevelError, "headgate: "+function+" of a failover store panicked", slog.String("panic", fmt.Sprint(v)))
	}
}

// count counts a failure against one breaker.
func (s *Store) count(r route, ops []core.Op, err error) {
	if r.fail(r.generation, err) {
		s.open(r.breaker, r.generation, ops, err)
	}
}

// excuse makes the cause for which the breaker opened the latest.
func (s *Store) excuse(b *breaker) {
	if c := b.cause.Load(); s.latest.Load() != c {
		s.latest.Store(c)
	}
}

// slowError is the cause if a call that succeeded counts as a failure.
type slowError struct{ took time.Duration }

func (e *slowError) Error() string { return "a call took " + e.took.Round(time.Millisecond).String() }

// cause is why the fallback decides.
type cause struct {
	shard string
	err   error
}

func (c *cause) Error() string {
	return core.ErrFallback.Error() + at(c.shard) + ": " + c.err.Error()
}

// Unwrap returns [core.ErrFallback] and the error of the primary.
func (c *cause) Unwrap() []error { return []error{core.ErrFallback, c.err} }

// Cause implements [core.Outage]. It wraps the latest error of the primary, or
// what made a breaker open, and names the shard that it is about.
func (s *Store) Cause() error {
	if c := s.latest.Load(); c != nil {
		return c
	}
	return nil
}

// MaxCall implements [core.Remote]. It returns the MaxCall of the primary, or 0 if the
// primary asks no server.
func (s *Store) MaxCall() time.Duration {
	if r, ok := s.primary.(core.Remote); ok {
		return r.MaxCall()
	}
	return 0
}

// Diagnose implements [core.Diagnoser]. It returns the findings of both stores.
func (s *Store) Diagnose(ctx context.Context, rules []core.Op) []core.Finding {
	var found []core.Finding
	for _, store := range []core.Store{s.primary, s.fallback} {
		if d, ok := store.(core.Diagnoser); ok {
			found = append(found, d.Diagnose(ctx, rules)...)
		}
	}
	return found
}

var _ events.Source = (*Store)(nil)

// Listen implements [events.Source]. Both stores tell the hooks too.
func (s *Store) Listen(h *events.Hooks) {
	s.listeners.Add(h)
	for _, store := range []core.Store{s.primary, s.fallback} {
		if under, ok := store.(events.Source); ok {
			under.Listen(h)
		}
	}
}

// Status implements [events.Source]. The status of the primary follows that of s, and then
// that of the fallback.
func (s *Store) Status(list []events.StoreStatus) []events.StoreStatus {
	n := s.Stats()
	own := events.StoreStatus{Store: "failover", Of: s, Away: n.Away, Opened: n.Opened, Local: n.Local, Lost: n.Lost, Waiting: n.Waits}
	if c := s.latest.Load(); c != nil {
		own.Cause = c.err
	}
	if n.State == Open {
		own.Mode = events.PassesUndecided
		if s.fallback != nil {
			own.Mode = events.FallbackDecides
		}
	}
	list = append(list, own)
	for _, store := range []core.Store{s.primary, s.fallback} {
		if under, ok := store.(events.Source); ok {
			list = under.Status(list)
		}
	}
	return list
}

// Shard implements [Sharded]. It returns the Shard of the primary, or "" if the primary
// has no shards.
func (s *Store) Shard(key string) string {
	if s.sharded == nil {
		return ""
	}
	return s.sharded.Shard(key)
}

// Strict implements [core.Standby]. It returns a store that asks the primary
// alone, through the same breaker.
func (s *Store) Strict() core.Store { return strict{s} }

type strict struct{ store *Store }

// Apply asks the primary.
func (s strict) Apply(ctx context.Context, ops []core.Op, out []core.Decision) error {
	return s.store.ask(ctx, s.store.routeOf(ops), ops, ops, out)
}

// Fallback implements [core.Standby]. It returns a store that asks the fallback
// alone, for this instance's part of the limits.
func (s *Store) Fallback() core.Store {
	if s.fallback == nil {
		return nil
	}
	return local{s}
}

type local struct{ store *Store }

// Apply asks the fallback.
func (s local) Apply(ctx context.Context, ops []core.Op, out []core.Decision) error {
	return s.store.decide(ctx, s.store.routeOf(ops).generation, ops, out)
}
