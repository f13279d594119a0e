package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/rediscall"
	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/observe/events"
)

const (
	// DefaultPrefix begins every key unless Options.Prefix says otherwise.
	DefaultPrefix = "hg:"

	// DefaultTimeout bounds a call unless Options.Timeout says otherwise.
	DefaultTimeout = 50 * time.Millisecond

	// DefaultMaxTimeout bounds a call to a server that is far away unless
	// Options.MaxTimeout says otherwise.
	DefaultMaxTimeout = 250 * time.Millisecond

	// DefaultBatch is the maximum number of operations of a script call unless
	// Options.Batch says otherwise. It bounds how long one script keeps others
	// waiting.
	DefaultBatch = 128

	maxTimeout = time.Minute
	maxBatch   = 1024
)

// ErrUnreadable means that the value of a key is not a state, such as the value
// of another program. The value expires within a minute.
var ErrUnreadable = errors.New("unreadable state")

// Options configures a store. The zero value is ready for use where no other service
// uses the server.
type Options struct {
	// Prefix begins every key and is the name of the service, such as "shop:". It must
	// not contain a brace. Two services with one prefix share the counts of rules
	// that have the same name. "" means DefaultPrefix, and a limiter then logs a
	// finding; set DefaultPrefix itself if no other service uses the server.
	Prefix string

	// Timeout bounds every call, including the wait for a connection, up to a
	// minute. Under two round trips to Redis, the call that finds a server without its
	// scripts fails; a limiter then logs [core.CodeTooFar]. 0 means DefaultTimeout, and three
	// round trips, as the store measures them, where these take longer: see MaxTimeout.
	// Connections may take ten timeouts to become ready, and calls fail until one is.
	//
	// While a server is silent, callers wait for less: until seven fifths of the timeout
	// have passed since the call with which the silence began.
	Timeout time.Duration

	// MaxTimeout bounds the timeout that follows the distance, up to a minute; 0 means
	// DefaultMaxTimeout. It must not be set beside a Timeout.
	MaxTimeout time.Duration

	// OneSlot puts all keys into one slot of a Cluster; see the package
	// comment.
	OneSlot bool

	// Secret, if set, replaces every subject in a key by its HMAC-SHA-256, so
	// that a reader of the keys does not learn the subjects. It has at least 16
	// bytes. All instances must share it; a new secret starts all counts anew.
	Secret []byte

	// Batch is the maximum number of operations that one script call decides
	// while many steps wait, up to 1024; 0 means DefaultBatch. With 1 every step
	// is a call of its own, which is necessary behind a proxy that spreads the
	// keys of a single-server client over several servers.
	Batch int

	// CacheRefusals is the number of refused keys that the process remembers
	// until they can be allowed again, at most 1<<24; 0 means none. Their
	// requests are answered without Redis, with the same decisions except that
	// the time left is computed here. It needs up to about 500 bytes for each
	// key.
	//
	// A refusal stands until its RetryAfter unless the key is reset or refunded
	// or its limit changes. This store takes its own operations into account;
	// it sees those of other processes only when the refusal ends.
	//
	// It answers a Take if no units come back before the Take
	// is next allowed: if it has the cost of the refused one, and that lacked a
	// single unit, as every refused Take of 1 does, or under FixedWindow. It does
	// not answer under Concurrency, whose leases may end at any time, nor Takes that
	// may be booked. Under a ban it answers while the key is
	// banned, unless the units take longer to come back. It answers no refusals that
	// Redis has to count towards a ban. It answers a step of several operations if all
	// are Takes that it answers, because a step reports what remains under all its rules.
	//
	// Without it the process remembers 4096 keys that were refused while steps waited. It
	// answers from them where it would turn a step away, or the step's time has ended: the
	// step is refused if one of its Takes is as above, and the decisions on its other Takes
	// are then as of the latest answer about their keys.
	CacheRefusals int

	// Instances is how many instances share the counts, at most 1<<20: the most that are
	// alive at a time, with those that a roll-out adds. It counts until Redis has said how
	// many there are. With 0 an instance that starts while Redis is away admits one unit of
	// a key. See [Store.Back].
	Instances int

	// MemoryKeys is the maximum number of keys in the memory that decides what Redis does
	// not decide in time, at most 1<<30; 0 means [memstore.DefaultMaxKeys].
	MemoryKeys int

	// Logger receives what happens to the store when Redis goes away and is back, in a few
	// lines. nil means slog.Default() at the time. All limiters over the store share these
	// lines, so they have no attribute limiter. Give the Logger one where several stores
	// write to one log: slog.With("limiter", "api").
	Logger *slog.Logger

	// Clock replaces the server's time, in microseconds since the Unix epoch.
	// It is for tests and simulations, because the clocks of a fleet differ.
	Clock func() int64
}

// Store is a core.Store in Redis. It is safe for concurrent use. It does not
// own the client, which the caller closes.
type Store struct {
	client          redis.UniversalClient
	prefix          string
	fixed, most     time.Duration // of the options; fixed is 0 if the budget follows the distance
	single          server        // unless the client has several
	servers         sync.Map      // of *server, by their names
	oneSlot         bool
	sharded         bool
	heedsDeadline   bool
	ignoresDeadline bool
	secret          []byte
	clock           func() int64
	scripts         *lua.Scripts
	ran             sync.Map     // the scripts that have run, of *lua.Script
	plain           atomic.Bool  // a server does not know the first line of scripts
	learned         atomic.Int64 // when the client was last made to reload, in Unix milliseconds
	mapped          atomic.Bool  // the client of a Cluster has its table of slots
	mapping         atomic.Bool  // it is being found out
	connecting      sync.Mutex   // held by a round of connecting
	reconnect       time.Time    // when the next round may begin
	dials           dialCheck
	doors           doors
	limits          limits
	unnamed         bool // no prefix was given
	notes           limitNotes
	shared          sharing
	queue           queue
	ready           atomic.Int64  // for how many calls at a time the client has connections
	waiters         sync.Pool     // of *waiter
	batches         sync.Pool     // of *batch
	scratches       sync.Pool     // of *scratch
	refusals        *refusalCache // nil if no refusals are cached
	overflow        *refusalCache // of steps that waited
	lateAt          atomic.Int64  // when this process last noticed a deadline late; 0: never
	lateBy          atomic.Int64  // by how much, in nanoseconds
	struck          atomic.Bool   // all scripts have to know of bans
	bans            banList
	listeners       events.Listeners
	cached          atomic.Uint64 // refusals that were answered without the server
	back            backing
}

// stock holds the scripts of all stores.
var stock lua.Scripts

// New returns a store that uses the client. It does not connect. The error
// names every mistake in the options.
//
// The store adds a hook to the client, which wraps the connections that it dials from then on.
// A go-redis before v9.22 must not be in use by other goroutines meanwhile.
//
// Set ContextTimeoutEnabled in the client's options. Without it the client
// ignores deadlines, and each call needs another goroutine to end in time. So
// does each call over TLS unless Protocol is 2. If a Dialer speaks TLS, set
// TLSConfig too, so that the store can detect TLS.
func New(client redis.UniversalClient, o Options) (*Store, error) {
	if err := o.check(client); err != nil {
		return nil, err
	}
	s := &Store{
		client:  client,
		scripts: &stock,
		prefix:  cmp.Or(o.Prefix, DefaultPrefix),
		unnamed: o.Prefix == "",
		fixed:   o.Timeout,
		most:    max(DefaultTimeout, cmp.Or(o.MaxTimeout, DefaultMaxTimeout)),
		oneSlot: o.OneSlot,
		secret:  o.Secret,
		clock:   o.Clock,
		shared:  shares(client, o),
		back:    backing{expected: o.Instances, memoryKeys: o.MemoryKeys, log: o.Logger},
	}
	s.queue.maxOps, s.queue.serve = cmp.Or(o.Batch, DefaultBatch), s.serve
	s.ready.Store(maxFull)
	traits := rediscall.TraitsOf(client)
	s.sharded, s.heedsDeadline, s.ignoresDeadline = traits.Sharded, traits.HeedsDeadlines, traits.IgnoresDeadlines
	if s.ignoresDeadline {
		s.ready.Store(maxBatches + maxGaps) // the client connects by itself
	}
	s.single.begins(s.fixed, s.most)
	patience{s.budget}.addTo(client)
	s.dials.begin(client)
	s.doors.to = map[string]*door{}
	s.waiters.New, s.batches.New, s.scratches.New = newWaiter, newBatch, newScratch
	s.overflow = newRefusalCache(maxOverflow, o.Clock)
	if o.CacheRefusals > 0 {
		s.refusals = newRefusalCache(o.CacheRefusals, o.Clock)
	}
	return s, nil
}

// check returns an error that names every mistake in the options.
func (o *Options) check(client redis.UniversalClient) error {
	var errs []error
	if client == nil {
		errs = append(errs, errors.New("redisstore: the client is nil"))
	}
	if strings.ContainsAny(o.Prefix, "{}") {
		errs = append(errs, fmt.Errorf("redisstore: the prefix %q holds a brace", o.Prefix))
	}
	if o.Secret != nil && len(o.Secret) < 16 {
		errs = append(errs, fmt.Errorf("redisstore: a secret of %d bytes is shorter than 16", len(o.Secret)))
	}
	if o.Batch < 0 || o.Batch > maxBatch {
		errs = append(errs, fmt.Errorf("redisstore: a batch of %d is not within 0 to %d", o.Batch, maxBatch))
	}
	if o.CacheRefusals < 0 || o.CacheRefusals > maxCachedRefusals {
		errs = append(errs, fmt.Errorf("redisstore: a cache of %d refusals is not within 0 to %d", o.CacheRefusals, maxCachedRefusals))
	}
	return errors.Join(append(errs, o.checkTimeouts(), o.checkMemory())...)
}

// checkTimeouts returns an error that names every mistake in the timeouts.
func (o *Options) checkTimeouts() error {
	var errs []error
	if o.Timeout < 0 || o.Timeout > maxTimeout {
		errs = append(errs, fmt.Errorf("redisstore: the timeout %v is not within 0 to %v", o.Timeout, maxTimeout))
	}
	if o.MaxTimeout < 0 || o.MaxTimeout > maxTimeout {
		errs = append(errs, fmt.Errorf("redisstore: the maximum timeout %v is not within 0 to %v", o.MaxTimeout, maxTimeout))
	}
	if o.Timeout > 0 && o.MaxTimeout > 0 {
		errs = append(errs, fmt.Errorf("redisstore: the timeout %v is fixed, so there is no maximum timeout %v", o.Timeout, o.MaxTimeout))
	}
	if o.MaxTimeout > 0 && o.MaxTimeout < DefaultTimeout {
		errs = append(errs, fmt.Errorf("redisstore: the maximum timeout %v is below the least timeout, %v", o.MaxTimeout, DefaultTimeout))
	}
	return errors.Join(errs...)
}

// MustNew is [New] for arguments that are known to be valid; it panics on an
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
		return unsent(ownTime(err))
	}
	if s.refusals == nil {
		return s.carryOut(ctx, ops, out)
	}
	var q tickets
	s.refusals.begin(&q, ops)
	if s.refusals.answer(&q, ops, out) {
		s.tellCached(&ops[0])
		return nil
	}
	err := s.carryOut(ctx, ops, out)
	s.refusals.learn(&q, ops, out, err)
	return err
}

// MaxCall implements [core.Remote]. It returns the timeout of the Options.
func (s *Store) MaxCall() time.Duration { return s.maxCall() }

// carryOut has Redis decide the step.
func (s *Store) carryOut(ctx context.Context, ops []core.Op, out []core.Decision) error {
	var err error
	if s.sharded && !s.oneSlot && severalSubjects(ops) {
		ctx, cancel := context.WithTimeout(ctx, s.budget())
		defer cancel()
		err = s.applyBySubject(ctx, ops, out)
	} else {
		err = s.decide(ctx, ops, out)
	}
	s.overflow.forgetChanged(ops)
	if err == nil {
		s.noteBans(ops, out)
	}
	return err
}

// maxLimits is the number of limits remembered as valid. Other limits are
// checked each time.
const maxLimits = 4096

// terms is a valid limit in the form for scripts: its numbers as one text.
type terms struct {
	limit    core.Limit
	text     any
	shortCut bool // the script has a quick function for takes
	long     bool // the state may have more than maxSmall records

	windows atomic.Pointer[windowsText] // of a calendar, as they were last sent
	lastBan atomic.Pointer[banText]     // the ban that was last sent
}

// windowsText is the windows of a calendar in the form for scripts.
type windowsText struct {
	of   core.Windows
	text any
}

// boundaries returns the windows in the form for scripts.
func (t *terms) boundaries(w *core.Windows) any {
	if last := t.windows.Load(); last != nil && last.of == *w {
		return last.text
	}
	text := strings.Trim(fmt.Sprint(*w), "[]")
	t.windows.Store(&windowsText{*w, text})
	return text
}

// maxSmall is the largest number of records in a state that is written although the
// memory of the server is full. They take 448 bytes in a log and 1472 as leases.
const maxSmall = 64

// limits remembers valid limits. The zero value is ready for use.
type limits struct {
	recent [64]atomic.Pointer[terms] // each at the index of its numbers' hash
	known  sync.Map                  // core.Limit to *terms
	size   atomic.Int64
}

// of returns the terms of the operation's limit, or an error if the limit is
// not valid.
func (k *limits) of(op *core.Op) (*terms, error) {
	l := &op.Limit
	mix := (uint64(l.Quota)*31+uint64(l.Period))*31 + uint64(l.Burst)*31 + uint64(l.Algorithm)
	recent := &k.recent[mix*0x9E3779B97F4A7C15>>58]
	if t := recent.Load(); t != nil && t.limit.Equal(l) {
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
	t := &terms{
		limit:    op.Limit,
		text:     fmt.Sprintf("%d %d %d", period, quota, extra),
		shortCut: lua.HasQuick(op.Limit.Algorithm, quota),
		long:     lua.Grows(op.Limit.Algorithm) && op.Limit.MaxRecords() > maxSmall,
	}
	if k.size.Load() >= maxLimits {
		return t, nil
	}
	kept, known := k.known.LoadOrStore(op.Limit, t)
	if !known {
		k.size.Add(1)
	}
	return kept.(*terms), nil
}
