// Package memstore keeps the counts of a single process in its memory.
//
// Keys are compared as they are, never by a hash alone, and are copied when they
// are first kept, so that a caller may reuse its memory. Keys of up to 39
// bytes lie where their counts are. There is no goroutine and nothing to close: the
// decisions themselves look, a few keys at a time, for those that are fresh, forget
// them and give their memory back. A store that is not asked any more keeps what it
// holds.
//
// # How a step is decided
//
//	path     when                                             cost
//	pinned   a Take of the key that its shard was asked for   no lock: one compare-and-swap, and a hash
//	         64 times in a row, and no other since            unless the key was pinned last of its limit
//	quick    Takes on up to 16 keys, all held, or of a step   a hash for each key, a lock for each shard,
//	         that is refused                                  at most one division for each Take
//	general  every other step                                 as quick, and core.Decide on copies of the
//	                                                          states; new keys are inserted and others swept
//
// The first two are for Takes of at least one unit that book nothing, under GCRA
// limits of which a unit comes back every so many whole microseconds (see
// [core.Steady]). None of the three allocates on a key that is held, but for a note
// of a few bytes when a key is pinned and for the logs and leases of the algorithms
// that keep some. Keys of one shard wait for each other, and a step on a pinned key
// that is not quick takes the lock and ends its pinning.
//
// # When the store is full
//
// A store holds at most [Options.MaxKeys] keys. When it is full and a new key
// is to be charged, it looks at a bounded number of keys for some that are fresh
// and forgets those. If it finds none, the new key is counted in an overflow
// bucket, which it shares with others: the store is cut into at least 64 shards by
// a seeded hash, and a shard has one such bucket for each pair of rule and limit. A
// client can neither choose nor guess with which keys its own shares.
//
// So a flood of random keys costs no memory, forgets no key that used up a limit,
// and admits none for free. Its price is paid by new keys alone: until there is
// room again they have the limit in common with the others of their bucket, and may
// be refused because of them. Keys that the store held before are not touched.
//
// A key that is given room later starts from what its bucket had used, so that
// it gains nothing by the move. Leases of Concurrency stay where they were
// taken until they end. A Reset of a key that is counted in a bucket changes
// nothing, as it would free the others too. A limit that is changed while the
// store is full starts new buckets.
//
// Overflow buckets come on top of MaxKeys, at most 64 a shard. When a shard has
// that many, of as many pairs of rule and limit, one more pair is refused with
// [ErrFull].
package memstore

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/core"
)

// DefaultMaxKeys is what [Options.MaxKeys] 0 means.
const DefaultMaxKeys = 1 << 20

const (
	maxMaxKeys   = 1 << 30
	minShards    = 64
	maxShards    = 1 << 14
	keysPerShard = 2048 // small enough that moving a shard's table takes little time
)

// ErrFull is what Apply's error wraps when a store that is full has no overflow
// bucket left for another pair of rule and limit.
var ErrFull = errors.New("memstore: no room for the overflow of another limit")

// Options says how a [Store] works. The zero value is ready to use.
type Options struct {
	// MaxKeys is the most keys that are held, each under one rule and one
	// algorithm, at most 1<<30; 0 means DefaultMaxKeys. See the package's
	// documentation for what happens when they are reached.
	MaxKeys int

	// Clock returns the time in microseconds since the Unix epoch. Nil means
	// the time of the system when the store was made, moved on by the
	// monotonic clock, which no change of the system's time touches.
	//
	// It is called once for each step, and once more for one that finds that
	// others with a later instant came in between, so that no unit of a key
	// comes back twice. It is called by many at once and sometimes under
	// locks, and must not call the store.
	Clock func() int64
}

// Store is a [core.Store] in memory. It is safe for concurrent use, needs no
// Close, and is made by [New].
type Store struct {
	clock        func() int64
	seed         maphash.Seed
	classes      *interner
	shards       []shard
	mask         uint64
	max          int64
	keys         atomic.Int64  // held or about to be, without overflow buckets
	overflowKeys atomic.Int64  // overflow buckets held
	nextShard    atomic.Uint64 // the shard to be tidied next
	steps        sync.Pool     // of *step

	earliest atomic.Int64 // no slot of any shard is fresh before
}

var _ core.Store = (*Store)(nil)

// New returns an empty store, or an error that names what is wrong with the
// options.
func New(o Options) (*Store, error) {
	if o.MaxKeys < 0 || o.MaxKeys > maxMaxKeys {
		return nil, fmt.Errorf("memstore: MaxKeys %d is not within 0 to %d", o.MaxKeys, maxMaxKeys)
	}
	if o.MaxKeys == 0 {
		o.MaxKeys = DefaultMaxKeys
	}
	if o.Clock == nil {
		o.Clock = monotonic()
	}
	n := shardsFor(o.MaxKeys)
	s := &Store{
		clock:   o.Clock,
		seed:    maphash.MakeSeed(),
		classes: newInterner(),
		shards:  make([]shard, n),
		mask:    uint64(n - 1),
		max:     int64(o.MaxKeys),
	}
	s.earliest.Store(never)
	s.steps.New = func() any { return new(step) }
	for i := range s.shards {
		s.shards[i].open(s)
	}
	return s, nil
}

// MustNew is New for options that are known to be right; it panics on an error.
func MustNew(o Options) *Store {
	s, err := New(o)
	if err != nil {
		panic(err)
	}
	return s
}

// shardsFor is the power of two that gives a shard of a full store between one
// half and all of keysPerShard.
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

// Apply implements [core.Store]. It never waits for anything but other steps
// on the same shards, so it does not look at the context. Its errors wrap
// [core.ErrOp], for operations that make no sense or limits that are not
// valid, or [ErrFull]; nothing was charged then.
func (s *Store) Apply(_ context.Context, ops []core.Op, out []core.Decision) error {
	if len(ops) != 1 || len(out) == 0 {
		return s.applySeveral(ops, out)
	}
	op := &ops[0]
	v := s.classes.lookup(op).Load()
	if v == nil || !v.matches(op) {
		v = nil
	} else if v.steady.Every != 0 && quick(op) {
		now, looked, done := s.take(v, op, &out[0])
		if done {
			return nil
		}
		if looked {
			return s.decideStep(ops, out, now)
		}
	}
	if err := core.CheckOps(ops, out); err != nil {
		return err
	}
	now, known, err := s.decideKnown(v, ops, out)
	if known || err != nil {
		return err
	}
	return s.decideStep(ops, out, now)
}

// applySeveral is Apply for any ops but a single one.
func (s *Store) applySeveral(ops []core.Op, out []core.Decision) error {
	now, read, done := s.takeAll(ops, out)
	if done {
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

// Len returns how many keys the store holds, overflow buckets included. Keys
// that are fresh are among them until they are found and forgotten.
func (s *Store) Len() int { return int(s.keys.Load() + s.overflowKeys.Load()) }

// reserve makes room for one more key, unless the store is full.
func (s *Store) reserve() bool {
	for {
		n := s.keys.Load()
		if n >= s.max {
			return false
		}
		if s.keys.CompareAndSwap(n, n+1) {
			return true
		}
	}
}
