package storetest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/headgate/headgate/core"
)

// Model is the reference store: the arithmetic of core, a map and a mutex. It
// keeps only the parts of a state that a store has to keep: it forgets the
// changes of a state that is not marked as Changed, and every changed state that is
// fresh. It is safe for concurrent use.
type Model struct {
	clock *Clock

	mu     sync.Mutex
	states map[core.ID]core.State // Guarded by mu.
}

// NewModel is the [Factory] of Models.
func NewModel(_ testing.TB, clock *Clock) core.Store {
	return &Model{clock: clock, states: map[core.ID]core.State{}}
}

// Apply implements [core.Store].
func (m *Model) Apply(ctx context.Context, ops []core.Op, out []core.Decision) error {
	if err := core.CheckOps(ops, out); err != nil {
		return err
	}
	for i := range ops {
		if err := ops[i].Limit.Validate(); err != nil {
			return fmt.Errorf("%w %d: %w", core.ErrOp, i, err)
		}
	}

	if err := ctx.Err(); err != nil {
		return err
	}

	// Steps are decided one after the other, at the instant at which each begins.
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.clock.Now()
	for i := range ops {
		if err := ops[i].CheckWindows(now); err != nil {
			return err
		}
	}

	// Ops on one key share one copy of its state.
	states := make([]*core.State, len(ops))
	loaded := map[core.ID]*core.State{}
	for i := range ops {
		id := ops[i].ID()
		if loaded[id] == nil {
			loaded[id] = m.loadLocked(id)
		}
		states[i] = loaded[id]
	}

	core.Decide(ops, states, now, out)
	for i := range ops {
		m.keepLocked(ops[i].ID(), states[i], &out[i])
	}
	return nil
}

// loadLocked returns a copy of the state, so that only keepLocked changes the kept state.
func (m *Model) loadLocked(id core.ID) *core.State {
	s := m.states[id]
	s.Log, s.Others, s.Leases = slices.Clone(s.Log), slices.Clone(s.Others), slices.Clone(s.Leases)
	s.Changed, s.ConductChanged = false, false
	return &s
}

// keepLocked keeps what a step has changed of a state.
func (m *Model) keepLocked(id core.ID, s *core.State, d *core.Decision) {
	switch {
	case !s.Changed && s.ConductChanged:
		old := m.states[id]
		old.Conduct, old.Credits = s.Conduct, s.Credits
		m.states[id] = old
	case !s.Changed:
	case s.ForgetAfter(d) == 0:
		delete(m.states, id)
	default:
		m.states[id] = *s
	}
}

// Len returns the number of keys that are kept.
func (m *Model) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.states)
}
