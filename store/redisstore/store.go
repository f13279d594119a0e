package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/lua"
	"github.com/redis/go-redis/v9"
)

const (
	// DefaultPrefix begins every key unless Options.Prefix says otherwise.
	DefaultPrefix = "hg:"

	// DefaultTimeout bounds a call unless Options.Timeout says otherwise.
	DefaultTimeout = 50 * time.Millisecond

	// DefaultBatch is what Options.Batch 0 means. It bounds for how long one
	// script keeps others waiting.
	DefaultBatch = 128

	maxTimeout = time.Minute
	maxBatch   = 1024
)

// ErrUnreadable means that a key holds what no state can be, such as the value
// of another program. It expires within a minute.
var ErrUnreadable = errors.New("unreadable state")

// Options are what a store can be told. The zero value is ready for use.
type Options struct {
	// Prefix begins every key; "" means DefaultPrefix. It must not hold a
	// brace.
	Prefix string

	// Timeout bounds every call, the wait for a connection included; 0 means
	// DefaultTimeout. Less than three round trips to Redis may be too few for a
	// connection to become ready.
	Timeout time.Duration

	// OneSlot puts all keys into one slot of a Cluster, see the package.
	OneSlot bool

	// Secret, if set, turns every subject in a key into an HMAC-SHA-256 of it,
	// so that who reads the keys does not learn them. All instances must share
	// it; a new one starts all counts anew.
	Secret []byte

	// Batch is the most operations that one script call decides while many steps
	// wait; 0 means DefaultBatch. With 1 every step is a call of its own, as a
	// proxy needs that spreads keys over servers behind a client of a single one.
	Batch int

	// CacheRefusals is for how many refused keys the process remembers until when
	// they are refused, at most 1<<24; 0 means none. Their requests are then
	// answered without Redis, and with the same decisions, down to the time
	// that is left. It needs up to some 500 bytes a key.
	//
	// What was refused stays so until its RetryAfter unless somebody resets or
	// refunds the key or changes its limit. This store takes note of all that it
	// does itself; what other processes do is seen when the time is over.
	//
	// A step of a single Take is answered so, if no units come back before it
	// is next allowed, which is so when it costs 1, or when it is known how many
	// do: under FixedWindow, and under GCRA where Period/Quota is in whole
	// microseconds. Not so: Concurrency, whose leases may end at any time, takes
	// that may be booked, and steps of several operations, as they report what
	// remains under all their rules.
	CacheRefusals int

	// Clock replaces the server's time, in microseconds since the Unix epoch.
	// It is for tests and simulations: the clocks of a fleet differ.
	Clock func() int64
}

// Store is a core.Store in Redis. It is safe for concurrent use and owns
// nothing: closing the client is the caller's part.
type Store struct {
	client        redis.UniversalClient
	prefix        string
	timeout       time.Duration
	oneSlot       bool
	sharded       bool
	heedsDeadline bool
	secret        []byte
	clock         func() int64
	scripts       lua.Scripts
	plain         atomic.Bool  // a server does not know the first line of scripts
	learned       atomic.Int64 // when the client was told to learn, in Unix milliseconds
	limits        limits
	shared        sharing
	queue         queue
	waiters       sync.Pool     // of *caller
	batches       sync.Pool     // of *batch
	scratches     sync.Pool     // of *scratch
	refusals      *refusalCache // nil if none are remembered
}

// New returns a store in what the client is connected to. It does not connect.
// The error names every mistake in the options.
//
// Set ContextTimeoutEnabled in the client's options: without it the client
// ignores deadlines, and each call takes a goroutine more to end in time. So does
// each over TLS unless Protocol is 2; beside a Dialer that speaks TLS, TLSConfig
// is to be set for the store to know.
func New(client redis.UniversalClient, o Options) (*Store, error) {
	if err := o.check(client); err != nil {
		return nil, err
	}
	s := &Store{
		client:  client,
		prefix:  cmp.Or(o.Prefix, DefaultPrefix),
		timeout: cmp.Or(o.Timeout, DefaultTimeout),
		oneSlot: o.OneSlot,
		secret:  o.Secret,
		clock:   o.Clock,
		shared:  shares(client, o),
	}
	s.queue.maxOps = cmp.Or(o.Batch, DefaultBatch)
	s.sharded, s.heedsDeadline = traits(client)
	s.heedsDeadline = s.heedsDeadline && !overstays(client)
	s.waiters.New, s.batches.New, s.scratches.New = newWaiter, newBatch, newScratch
	if o.CacheRefusals > 0 {
		s.refusals = newRefusalCache(o.CacheRefusals, o.Clock)
	}
	return s, nil
}

// check names every mistake in the options.
func (o *Options) check(client redis.UniversalClient) error {
	var errs []error
	if client == nil {
		errs = append(errs, errors.New("redisstore: the client is nil"))
	}
	if strings.ContainsAny(o.Prefix, "{}") {
		errs = append(errs, fmt.Errorf("redisstore: the prefix %q holds a brace", o.Prefix))
	}
	if o.Timeout < 0 || o.Timeout > maxTimeout {
		errs = append(errs, fmt.Errorf("redisstore: the timeout %v is not within 0 to %v", o.Timeout, maxTimeout))
	}
	if o.Secret != nil && len(o.Secret) < 16 {
		errs = append(errs, fmt.Errorf("redisstore: a secret of %d bytes is shorter than 16", len(o.Secret)))
	}
	if o.Batch < 0 || o.Batch > maxBatch {
		errs = append(errs, fmt.Errorf("redisstore: a batch of %d is not within 0 to %d", o.Batch, maxBatch))
	}
	if o.CacheRefusals < 0 || o.CacheRefusals > maxCachedRefusals {
		errs = append(errs, fmt.Errorf("redisstore: %d refusals to remember are not within 0 to %d", o.CacheRefusals, maxCachedRefusals))
	}
	return errors.Join(errs...)
}

// MustNew is New for a program that cannot go on without; it panics on an
// error.
func MustNew(client redis.UniversalClient, o Options) *Store {
	s, err := New(client, o)
	if err != nil {
		panic(err)
	}
	return s
}

// Apply implements [core.Store].
func (s *Store) Apply(ctx context.Context, ops []core.Op, out []core.Decision) error {
	if err := core.CheckOps(ops, out); err != nil {
		return err
	}
	for i := range ops {
		if _, err := s.limits.of(&ops[i]); err != nil {
			return err
		}
	}
	if len(ops) == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("redisstore: %w", err)
	}
	if s.refusals == nil {
		return s.carryOut(ctx, ops, out)
	}
	q := s.refusals.begin(&ops[0])
	if len(ops) == 1 && s.refusals.answer(q, &ops[0], &out[0]) {
		return nil
	}
	err := s.carryOut(ctx, ops, out)
	s.refusals.learn(q, ops, out, err)
	return err
}

// carryOut has Redis decide the step.
func (s *Store) carryOut(ctx context.Context, ops []core.Op, out []core.Decision) error {
	if s.sharded && !s.oneSlot && severalSubjects(ops) {
		ctx, cancel := context.WithTimeout(ctx, s.timeout)
		defer cancel()
		return s.applyBySubject(ctx, ops, out)
	}
	return s.decide(ctx, ops, out)
}

// maxLimits is how many limits are remembered as valid. Others are checked
// each time.
const maxLimits = 4096

// terms are what scripts need of a valid limit: its numbers, as a text that is
// an argument already.
type terms struct {
	limit    core.Limit
	text     any
	shortCut bool // the script has a quick function for takes
}

// limits remembers which limits were found valid. The zero value is ready.
type limits struct {
	recent [64]atomic.Pointer[terms] // each in the place of its numbers
	known  sync.Map                  // core.Limit to *terms
	size   atomic.Int64
}

// of returns the terms of the operation's limit, or what is wrong with it.
func (k *limits) of(op *core.Op) (*terms, error) {
	l := &op.Limit
	mix := (uint64(l.Quota)*31+uint64(l.Period))*31 + uint64(l.Burst)*31 + uint64(l.Algorithm)
	recent := &k.recent[mix*0x9E3779B97F4A7C15>>58]
	if t := recent.Load(); t != nil && t.limit == *l {
		return t, nil
	}
	t, err := k.remember(op)
	if err == nil {
		recent.Store(t)
	}
	return t, err
}

func (k *limits) remember(op *core.Op) (*terms, error) {
	if t, ok := k.known.Load(op.Limit); ok {
		return t.(*terms), nil
	}
	if err := op.Limit.Validate(); err != nil {
		return nil, fmt.Errorf("%w: rule %q: %w", core.ErrOp, op.Rule, err)
	}
	period, quota, extra := op.Limit.ScriptArgs()
	t := &terms{op.Limit, fmt.Sprintf("%d %d %d", period, quota, extra), lua.ShortCut(op.Limit.Algorithm, quota)}
	if k.size.Load() >= maxLimits {
		return t, nil
	}
	kept, known := k.known.LoadOrStore(op.Limit, t)
	if !known {
		k.size.Add(1)
	}
	return kept.(*terms), nil
}
