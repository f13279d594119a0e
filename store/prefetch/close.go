// This file ends a store and gives back its units.

package prefetch

import (
	"context"
	"errors"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/observe/events"
)

// Held returns how many units are held of all keys.
func (s *Store) Held() (n int64) {
	for _, units := range s.heldByRule() {
		n += units
	}
	return n
}

var _ events.Reporter = (*Store)(nil)

// Report implements [events.Reporter]. It is the report of the store behind s, whose status
// follows that of s.
func (s *Store) Report() events.Report {
	r := events.ReportOf(s.store)
	under := r.Status
	r.Status = func(list []events.StoreStatus) []events.StoreStatus {
		return under(append(list, events.StoreStatus{Store: "prefetch", Of: s, Held: s.heldByRule()}))
	}
	return r
}

// heldByRule returns how many units are held, by rule.
func (s *Store) heldByRule() map[string]int64 {
	now, held := s.clock(), map[string]int64{}
	for i := range s.shards {
		h := &s.shards[i]
		h.mu.Lock()

		for id, hold := range h.holds {
			if n := hold.stillHeld(now); n > 0 {
				held[id.Rule] += n
			}
		}
		h.mu.Unlock()
	}
	return held
}

// Close gives back all held units. Afterwards every step goes to the store,
// which Close does not close. The error joins those of the store. Units that
// Close could not give back, or that a call under way is about to take, come
// back as time passes.
func (s *Store) Close(ctx context.Context) error {
	now := s.clock()
	var errs []error
	var out [1]core.Decision

	// A shard that is shut opens no hold, so what it returns is all that it will ever hold.
	for i := range s.shards {
		for _, op := range s.shards[i].shut(now) {
			if err := s.store.Apply(ctx, []core.Op{op}, out[:]); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// shut drops all holds and returns the refunds of what they held.
func (s *shard) shut(now int64) []core.Op {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ops []core.Op

	for id, held := range s.holds {
		if n := held.stillHeld(now); n > 0 {
			ops = append(ops, held.refund(id, n))
		}
	}

	clear(s.holds)
	s.max = 0
	return ops
}
