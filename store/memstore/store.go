// Package memstore keeps the counts of a single process in its memory.
//
//	store := memstore.MustNew(memstore.Options{MaxKeys: 100_000})
//	l := limiter.MustNew(limiter.Config{Store: store, Rules: []limiter.Rule{
//		{Name: "ip", Key: keyfuncs.RemoteIP, Limit: core.MustParseLimit("100/1m")},
//	}})
//	d, err := l.Allow(ctx, "203.0.113.7", 1)
//
// A limiter without a store makes one of its own. [Options] say how much memory a [Store] may
// take, and [Store.Overflowed] whether that was enough.
//
// A store is safe for concurrent use, and there is nothing to close. Decisions give back the memory
// of keys that have been fresh for a second; a store that is no longer called keeps its memory. No
// two keys are taken for one. A caller may reuse the memory of a key.
//
// # When the store is full
//
// A store holds at most [Options.MaxKeys] keys, which need at most [Options.MaxBytes]. When it
// is full of keys in use, a new key is counted in an overflow bucket, which it shares with other
// keys of the same rule and limit. A client can neither choose nor guess which keys share it.
//
// So a flood of random keys costs no memory, does not displace a key that has
// used up a limit, and admits no key for free. New keys alone pay for that:
// until there is room again, they share the limit with the other keys of their
// bucket and may be refused because of them. Keys that the store held before
// are not affected.
//
// A ban is kept until it ends, and remembered until it is forgotten, whatever else the store
// is asked for. A refusal in a bucket is no strike, because others may have used its units up.
// Under MaxBytes a key that has no strikes gets none while the store has no room for them.
//
// The store logs once when new keys begin to share buckets, and once when new keys
// begin to be refused for lack of one; see [Options.Logger]. [Store.Overflowed] counts
// both. The file docs/internals.md says how the store works inside.
package memstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"math"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/observe/events"
)

// DefaultMaxKeys is the maximum number of keys if [Options.MaxKeys] is 0.
const DefaultMaxKeys = 1 << 20

// MinBytes is the smallest [Options.MaxBytes].
const MinBytes = 1 << 20

const (
	maxMaxKeys   = 1 << 30
	minShards    = 64
	maxShards    = 1 << 14
	keysPerShard = 2048 // small enough that moving a shard's table takes little time
)

// Options configures a [Store]. The zero value is ready to use.
type Options struct {
	// MaxKeys is the maximum number of keys held, each under one rule and one
	// algorithm, at most 1<<30; 0 means DefaultMaxKeys. The package
	// documentation says what happens when the store is full.
	MaxKeys int

	// MaxBytes is the maximum memory of keys and overflow buckets in bytes, at least
	// MinBytes; 0 means that MaxKeys alone bounds it. Each key counts as if its state
	// were as large as its limit allows: about 100 bytes under GCRA, FixedWindow, TokenBucket
	// and CalendarWindow, 270 under a SlidingWindow of ten segments, 150 more for a key of 64
	// bytes, and up to 9 and 24 for each unit of a SlidingLog and of a Concurrency limit. A key
	// with strikes or bans takes 200 more, and one with credit up to 400. So the memory stays
	// below MaxBytes when the states grow. A GCRA key with booked units takes about 100 bytes
	// that are not counted. Leases with ids other than those of package limiter take 112 bytes a
	// unit, which are counted once a key has one.
	//
	// With MaxBytes a MaxKeys of 0 means as many keys as fit. An eighth of MaxBytes is
	// for overflow buckets and strikes.
	MaxBytes int64

	// Clock returns the time in microseconds since the Unix epoch. Nil means
	// the system's time when the store was made, advanced by the monotonic
	// clock, which no change of the system's time affects.
	//
	// It is called once for each step, and once more for a step that finds that
	// another has used a later instant, so that no unit of a key comes back
	// twice. It is called concurrently and sometimes under locks, and must not
	// call the store. An instant before the epoch counts as the epoch, and one after the
	// year 2254 as the last from which all periods end below 2^53.
	Clock func() int64

	// Logger receives a line when the store is full and new keys begin to share
	// limits, and one when it begins to refuse new keys; each comes once for a store.
	// nil means slog.Default() at the time.
	Logger *slog.Logger
}

// Store is a [core.Store] in memory, made by [New]. It is safe for concurrent
// use and needs no Close.
type Store struct {
	clock       func() int64
	logger      *slog.Logger // nil: the default one at the time
	seed        maphash.Seed
	classes     *interner
	shards      []shard
	mask        uint64
	maxKeys     int64
	maxBytes    int64     // of all slots
	keyBytes    int64     // of all slots, above which no key is added
	struckBytes int64     // of all slots, above which no key gets its first strike
	steps       sync.Pool // of *step

	// What is above is read by every step and never written. What tidying writes, every step reads
	// too. What new keys write is read by none on a known key.
	_         [cacheLine]byte
	tidied    atomic.Int64  // when the store was last tidied
	nextShard atomic.Uint64 // the shard to be tidied next
	earliest  atomic.Int64  // no slot of any shard is fresh before it

	_            [cacheLine]byte
	bytes        atomic.Int64 // estimate for the slots held or reserved, and the shards
	keys         atomic.Int64 // held or reserved, without overflow buckets
	overflowKeys atomic.Int64 // overflow buckets held
	sharing      atomic.Int64 // Takes counted in overflow buckets so far
	refused      atomic.Int64 // Takes refused for lack of an overflow bucket so far
	_            [cacheLine]byte
}

var _ core.Store = (*Store)(nil)

// New returns an empty store, or an error that names every mistake in the
// options.
func New(o Options) (*Store, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	clock := monotonic()
	if o.Clock != nil {
		clock = withinInstants(o.Clock)
	}

	n := shardsFor(o.MaxKeys)
	s := &Store{
		clock:   clock,
		logger:  o.Logger,
		seed:    maphash.MakeSeed(),
		classes: newInterner(),
		shards:  make([]shard, n),
		mask:    uint64(n - 1),
		maxKeys: int64(o.MaxKeys),

		// Keys leave 1/bucketShare of the memory to buckets and strikes, and strikes leave half of
		// it to buckets.
		maxBytes:    o.MaxBytes,
		keyBytes:    o.MaxBytes - o.MaxBytes/bucketShare,
		struckBytes: o.MaxBytes - o.MaxBytes/bucketShare/2,
	}

	s.bytes.Store(int64(n) * shardBytes)
	s.earliest.Store(never)
	s.steps.New = func() any { return new(step) }

	for i := range s.shards {
		s.shards[i].open(s)
	}
	return s, nil
}

// complete puts the defaults in, or returns an error that names every mistake.
func (o *Options) complete() error {
	var errs []error
	if o.MaxKeys < 0 || o.MaxKeys > maxMaxKeys {
		errs = append(errs, fmt.Errorf("memstore: MaxKeys %d is not within 0 to %d", o.MaxKeys, maxMaxKeys))
	}
	if o.MaxBytes < 0 || o.MaxBytes > 0 && o.MaxBytes < MinBytes {
		errs = append(errs, fmt.Errorf("memstore: MaxBytes %d is neither 0 nor at least %d", o.MaxBytes, MinBytes))
	}

	// Without MaxKeys the number of keys is bounded too, by as many of the smallest as fit.
	switch {
	case o.MaxBytes == 0:
		o.MaxBytes = math.MaxInt64
		o.MaxKeys = cmp.Or(o.MaxKeys, DefaultMaxKeys)
	case o.MaxKeys == 0:
		o.MaxKeys = int(min(maxMaxKeys, o.MaxBytes/slotBytes))
	}
	return errors.Join(errs...)
}

// MustNew is [New] for options that are known to be valid; it panics on an
// error.
func MustNew(o Options) *Store {
	s, err := New(o)
	if err != nil {
		panic(err)
	}
	return s
}

// shardsFor returns the power of two for which a shard of a full store has
// between one half and all of keysPerShard.
func shardsFor(keys int) int {
	n := 1 << bits.Len(uint((keys-1)/keysPerShard))
	return min(max(n, minShards), maxShards)
}

// monotonic returns a clock that starts at the system's time.
func monotonic() func() int64 {
	base := time.Now()
	start := base.UnixMicro()
	return func() int64 { return start + time.Since(base).Microseconds() }
}

// latestInstant is the last one that a store decides at. Instants are counted exactly below 2^53.
const latestInstant = exact - 1 - int64(core.MaxPeriod/time.Microsecond)

// withinInstants returns the clock within the instants that a store decides at.
func withinInstants(clock func() int64) func() int64 {
	return func() int64 { return min(max(clock(), 0), latestInstant) }
}

// Apply implements [core.Store]. It only ever waits for other steps on the same
// shards, so it ignores the context. Its errors wrap [core.ErrOp], for
// operations or limits that are not valid; after an error nothing was charged.
func (s *Store) Apply(_ context.Context, ops []core.Op, out []core.Decision) error {
	if len(ops) != 1 || len(out) == 0 {
		return s.applySeveral(ops, out)
	}

	// Nearly all steps end here, without a check of the operation: quick has found no fault in it.
	op := &ops[0]
	v := s.classes.lookup(op)
	if v != nil && v.compact.Valid() && (quick(op) && sound(v, op) || v.compact.Listed() && inPlace(ops, out)) {
		now, looked, done := s.take(v, op, &out[0])
		if done {
			s.tidyIfDue(now)
			return nil
		}
		// The key is new, or core has to decide. The clock is not read again for that.
		if looked {
			return s.decideStep(ops, out, now)
		}
	}

	if err := core.CheckOps(ops, out); err != nil {
		return err
	}

	return s.decideOne(v, ops, out)
}

// decideOne carries out a single op that has passed CheckOps. v is its class, or nil if it is not
// known yet.
func (s *Store) decideOne(v *limitClass, ops []core.Op, out []core.Decision) error {
	now, known, err := s.decideKnown(v, ops, out)
	if known || err != nil {
		s.tidyIfDue(now)
		return err
	}
	return s.decideStep(ops, out, now)
}

// Prepare returns the ops, which have neither a key nor a cost yet, as a step to be carried out
// many times. Its errors are those of Apply.
func (s *Store) Prepare(ops []core.Op) (*Prepared, error) {
	if err := core.CheckOps(ops, make([]core.Decision, len(ops))); err != nil {
		return nil, err
	}
	return newPrepared(s, ops)
}

// applySeveral is Apply for any ops but a single one.
func (s *Store) applySeveral(ops []core.Op, out []core.Decision) error {
	now, read, done := s.takeAll(ops, out)
	if done {
		s.tidyIfDue(now)
		return nil
	}

	if err := core.CheckOps(ops, out); err != nil {
		return err
	}

	if !read {
		now = s.clock()
	}
	return s.decideStep(ops, out, now)
}

// Bytes estimates the memory in bytes of the keys held when their states are as large as
// their limits allow, of the overflow buckets, and of the store without keys.
func (s *Store) Bytes() int64 { return s.bytes.Load() }

// Len returns how many keys the store holds, overflow buckets included. Fresh
// keys count until the store finds and forgets them.
func (s *Store) Len() int { return int(s.keys.Load() + s.overflowKeys.Load()) }

var _ events.Reporter = (*Store)(nil)

// Report implements [events.Reporter]. The store waits for no server, finds no mistakes and tells
// no events.
func (s *Store) Report() events.Report { return events.Report{Bans: s.bans, Status: s.status} }

// status appends the status of the store to list.
func (s *Store) status(list []events.StoreStatus) []events.StoreStatus {
	shared, refused := s.Overflowed()
	return append(list, events.StoreStatus{
		Store: "memory", Of: s, Keys: s.keys.Load(), Overflow: s.overflowKeys.Load(), Bytes: s.Bytes(),
		Shared: shared, Refused: refused})
}

// Overflowed returns how many Takes of new keys the store, when full, has counted in
// overflow buckets so far, and how many it has refused for lack of a bucket.
func (s *Store) Overflowed() (shared, refused int64) { return s.sharing.Load(), s.refused.Load() }

// reserve reserves room for one more key of size bytes. It reports whether there was room.
func (s *Store) reserve(size int64) bool {
	if !addUpTo(&s.keys, 1, s.maxKeys) {
		return false
	}
	if !addUpTo(&s.bytes, size, s.keyBytes) {
		s.keys.Add(-1)
		return false
	}
	return true
}

// isFull reports whether there is no room for another key of size bytes.
func (s *Store) isFull(size int64) bool {
	return s.keys.Load() >= s.maxKeys || s.bytes.Load() > s.keyBytes-size
}

// roomForAside reports whether there is room for an aside, such as of the strikes of a key
// that has none.
func (s *Store) roomForAside() bool { return s.bytes.Load() <= s.struckBytes-asideBytes }

// addUpTo adds n to sum unless the result would exceed bound. It reports whether it added.
func addUpTo(sum *atomic.Int64, n, bound int64) bool {
	for {
		old := sum.Load()
		if old > bound-n {
			return false
		}
		if sum.CompareAndSwap(old, old+n) {
			return true
		}
	}
}

// decideStep carries out ops that have passed CheckOps, as Apply promises.
func (s *Store) decideStep(ops []core.Op, out []core.Decision, now int64) error {
	t := s.steps.Get().(*step)
	defer t.release(s)
	if err := t.locate(s, ops); err != nil {
		return err
	}

	t.now = now
	err := t.run(s, ops, out)

	// Both wait until the locks of the step are given back: a tidy takes those of other shards, and
	// a logger may take long.
	s.tidyIfDue(t.now)
	s.reportOverflow(t)
	return err
}

// keyHash returns a hash of a key under the store's own seed, so that no client
// can aim at a shard or a slot.
func (s *Store) keyHash(key string) uint64 { return maphash.String(s.seed, key) }

// shardOf returns the shard of a key whatever the rule, so that a step of
// several rules about one key takes one lock.
func (s *Store) shardOf(keyHash uint64) uint32 { return uint32(keyHash & s.mask) }

// locationOf returns the location of an op of class v.
func (s *Store) locationOf(v *limitClass, op *core.Op) location {
	keyHash := s.keyHash(op.Key)
	hash, shard := v.hash(keyHash), s.shardOf(keyHash)
	if !op.Limit.Algorithm.MayBeCompact() {
		shard = s.shardOf(hash)
	}
	return location{shard, uint32(hash >> 32), v.id}
}

// reportOverflow counts the Takes of new keys that had no room, and logs the first ones.
// The caller holds no lock.
func (s *Store) reportOverflow(t *step) {
	s.countOverflow(&s.sharing, t.overflowed[overflowBucket],
		"the memory store is full, so new keys share limits with one another")
	s.countOverflow(&s.refused, t.overflowed[noBucket],
		"the memory store is full and has too many limits to share, so new keys are refused")
}

// countOverflow adds n to total, and logs the text if these are the first.
func (s *Store) countOverflow(total *atomic.Int64, n int64, text string) {
	if n == 0 || total.Add(n) != n {
		return
	}
	logger := s.logger
	if logger == nil {
		logger = slog.Default()
	}
	logger.LogAttrs(context.Background(), slog.LevelWarn, "headgate: "+text, slog.Int64("max_keys", s.maxKeys))
}

// bans lists bans for the report. It looks at every key, one shard at a time.
func (s *Store) bans(ctx context.Context, rules []string, most int) ([]core.Banned, error) {
	var list []core.Banned
	for i := range s.shards {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		list = s.shards[i].appendBans(list, rules, s.clock())
	}
	slices.SortFunc(list, core.Banned.Compare)
	return list[:min(len(list), max(0, most))], nil
}
