package prefetch

import (
	"context"
	"hash/maphash"
	"slices"
	"sync"

	"github.com/headgate/headgate/core"
)

// Store is a [core.Store] that hands out units which it has taken from another
// one. It is made by [New] and safe for concurrent use.
type Store struct {
	store  core.Store
	units  int64
	clock  func() int64
	seed   maphash.Seed
	takes  takeCounter
	shards [shards]shard
	steps  sync.Pool // of *step
}

var _ core.Store = (*Store)(nil)

const shards = 64

// shard holds a part of the keys.
type shard struct {
	mu    sync.Mutex
	holds map[core.ID]*hold
	max   int // 0 after Close
}

// New returns a store over another one, or an error that names every mistake in
// the arguments.
func New(store core.Store, o Options) (*Store, error) {
	if err := o.check(store); err != nil {
		return nil, err
	}
	o.complete()

	s := &Store{store: store, units: o.Units, clock: o.Clock, seed: maphash.MakeSeed()}
	s.steps.New = func() any { return new(step) }

	for i := range s.shards {
		s.shards[i].holds = make(map[core.ID]*hold)
		s.shards[i].max = (o.MaxKeys + shards - 1) / shards
	}
	return s, nil
}

// Apply implements [core.Store]. A step is decided here if all its ops are
// Takes of held units; otherwise it goes to the store as a whole.
func (s *Store) Apply(ctx context.Context, ops []core.Op, out []core.Decision) error {
	if err := core.CheckOps(ops, out); err != nil {
		return err
	}
	if !servable(ops) {
		return s.forward(ctx, ops, out, s.clock())
	}

	// A refusal stands only if no other call moved units of the keys meanwhile: the store counts
	// units as used that such a call may give back.
	for try := range maxTries {
		now := s.clock()
		if s.handOut(ops, out, now) {
			return nil
		}

		rounds, err := s.fetch(ctx, ops, out, now, try > 0)
		if err != nil || !s.overtaken(ctx, ops, out, rounds) {
			return err
		}
	}
	return nil
}

// servable reports whether ops are Takes that can be served from held units.
func servable(ops []core.Op) bool {
	for i := range ops {
		op := &ops[i]
		if op.Verb != core.Take || op.Cost == 0 || op.MaxWait > 0 || !op.Limit.Prefetchable() {
			return false
		}

		// Two Takes of one key would have to be counted together.
		for j := range i {
			if ops[j].ID() == op.ID() {
				return false
			}
		}
	}
	return len(ops) > 0
}

// handOut decides the step if enough units of all its keys are held.
func (s *Store) handOut(ops []core.Op, out []core.Decision, now int64) bool {
	for i := range ops {
		if s.shardOf(s.hash(&ops[i])).take(&ops[i], now, &out[i]) {
			continue
		}

		// A step takes all or nothing.
		for j := range i {
			s.shardOf(s.hash(&ops[j])).putBack(&ops[j], now, &out[j])
		}
		return false
	}
	return true
}

func (s *Store) hash(op *core.Op) uint64 {
	return maphash.String(s.seed, op.Key) + 31*maphash.String(s.seed, op.Rule)
}

func (s *Store) shardOf(hash uint64) *shard { return &s.shards[hash>>32%shards] }

func (s *shard) take(op *core.Op, now int64, d *core.Decision) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.holds[op.ID()]
	return held != nil && held.take(op, now, d)
}

// putBack undoes a take with decision d, unless the hold was dropped or
// replaced since: then the units come back in the store by themselves.
func (s *shard) putBack(op *core.Op, now int64, d *core.Decision) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.holds[op.ID()]
	if held != nil && held.fits(op) && !held.filling && held.last.At+now-held.filled == d.At {
		held.units += op.Cost
	}
}

// forward has the store carry out a step for which no units are taken ahead. It drops the
// units held of a key that the step resets or bans, or finds banned. The units held of a key
// that the step peeks at count as units that remain, as they do for a Take. Those of a key
// that it debits are charged first: the store is asked for the rest of the cost.
func (s *Store) forward(ctx context.Context, ops []core.Op, out []core.Decision, now int64) error {
	asked, held := ops, []int64(nil)
	for i := range ops {
		n, op := int64(0), &ops[i]
		switch op.Verb {
		case core.Reset, core.Impose:
			s.shardOf(s.hash(op)).forget(op)
		case core.Peek:
			n = s.shardOf(s.hash(op)).held(op, now)
		case core.Debit:
			n = s.shardOf(s.hash(op)).use(op, now)
		}

		if n == 0 {
			continue
		}

		// The caller's ops stay as they are. Most steps need no copy.
		if held == nil {
			asked, held = slices.Clone(ops), make([]int64, len(ops))
		}

		held[i] = n
		if op.Verb == core.Debit || op.Cost <= op.Limit.Capacity() { // a higher cost of a Peek is never allowed
			asked[i].Cost = max(0, op.Cost-n)
		}
	}

	if err := s.store.Apply(ctx, asked, out); err != nil {
		return err // units that were used come back in the store by themselves
	}
	for i, n := range held {
		if n == 0 {
			continue
		}

		// The held units that the Debit has used do not remain. What is held now does.
		if ops[i].Verb == core.Debit {
			out[i].Taken += n
			n = s.shardOf(s.hash(&ops[i])).held(&ops[i], now)
		}

		if out[i].Banned {
			if err := s.dropBanned(ctx, ops[i:i+1], out[i:i+1]); err != nil {
				return err
			}
			continue
		}
		out[i].Remaining += n
	}

	return nil
}

// dropBanned drops the units held of the key of an op that has found it banned. A Peek was
// asked for less than its cost, and is repeated.
func (s *Store) dropBanned(ctx context.Context, op []core.Op, d []core.Decision) error {
	s.shardOf(s.hash(&op[0])).forget(&op[0])
	if op[0].Verb != core.Peek {
		return nil
	}
	return s.store.Apply(ctx, op, d)
}

// use takes up to op.Cost of the units that are held of the op's key under its limit.
func (s *shard) use(op *core.Op, now int64) (n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if held := s.holds[op.ID()]; held != nil && held.fits(op) {
		n = min(held.stillHeld(now), op.Cost)
		held.units -= n
	}
	return n
}

func (s *shard) forget(op *core.Op) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.holds, op.ID())
}

// held returns how many units of the op's key are held under its limit.
func (s *shard) held(op *core.Op, now int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.holds[op.ID()]
	if held == nil || !held.fits(op) {
		return 0
	}
	return held.stillHeld(now)
}

var _ core.Sharded = (*Store)(nil)

// Shards implements [core.Sharded]. The shards are those of the store.
func (s *Store) Shards() (shardOf func(key string) string) {
	if of, ok := s.store.(core.Sharded); ok {
		return of.Shards()
	}
	return nil
}
