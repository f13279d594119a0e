package memstore

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/headgate/headgate/core"
)

// shard is a part of the store with a lock of its own. Whatever is in it is
// guarded by that lock, but for earliest, which may be read without.
type shard struct {
	mu sync.Mutex
	table
	steps  uint32 // single steps carried out, to tidy now and then
	latest int64  // the instant of the last step
	store  *Store
	kinds  *kinds
	state  core.State // a copy of the state that is being decided

	buckets  int          // overflow buckets among the slots
	earliest atomic.Int64 // no slot is as good as new before, see sweep
	pending  int64        // the same for the slots that the sweep has passed
	cursor   int          // where the sweep goes on
	probe    probe
}

// probe is what it takes to ask for the state of a slot.
type probe struct {
	op    [1]core.Op
	out   [1]core.Decision
	state core.State

	// Copies of what the state points to.
	log    []core.Entry
	leases []core.Lease
}

// never is an instant that does not come.
const never = math.MaxInt64

func (h *shard) open(s *Store) {
	h.store, h.kinds = s, s.kinds
	h.pending = never
	h.earliest.Store(never)
}

// decide carries out a single op on a key that the store holds. It reports
// whether it does.
func (s *Store) decide(ops []core.Op, out []core.Decision) (known bool, err error) {
	op := &ops[0]
	p, err := s.locate(op)
	if err != nil {
		return false, err
	}
	h := &s.shards[p.shard]
	known, due := h.decide(&p, ops, out)
	if due {
		s.tidy(out[0].At)
	}
	return known, nil
}

func (h *shard) decide(p *place, ops []core.Op, out []core.Decision) (known, due bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := h.find(p, &ops[0])
	if i < 0 {
		return false, false
	}
	now := h.store.clock()
	h.observe(now)
	h.kinds.load(&h.slots[i], &h.state)
	states := [1]*core.State{&h.state}
	core.Decide(ops, states[:], now, out)
	h.settle(i, &h.state, p.kind, ops[0].Rule, &out[0])
	h.steps++
	return true, h.steps%tidyEvery == 0
}

// settle leaves slot i as a step has decided, under the limit of kind id.
func (h *shard) settle(i int, st *core.State, id kindID, rule string, d *core.Decision) {
	switch {
	case d.ResetAfter == 0:
		h.remove(i)
	case st.Changed:
		h.slots[i].save(st, id, rule)
		h.expect(d)
	}
}

// observe notes the time of a step. When the clock has stepped back, what was
// known of the time to come is void.
func (h *shard) observe(now int64) {
	if now < h.latest {
		h.foresee(min(h.earliest.Load(), now))
		h.pending = min(h.pending, now)
	}
	h.latest = now
}

// expect notes when a slot will be as good as new.
func (h *shard) expect(d *core.Decision) {
	at := d.At + d.ResetAfter.Microseconds()
	if at < h.earliest.Load() {
		h.foresee(at)
	}
	h.pending = min(h.pending, at)
}

// foresee sets before when no slot is as good as new.
func (h *shard) foresee(at int64) {
	h.earliest.Store(at)
	h.store.foresee(at)
}

// add puts a slot into the table.
func (h *shard) add(c slot) int {
	size := len(h.slots)
	i := h.put(c)
	if len(h.slots) != size {
		h.restart()
	}
	return i
}

// remove forgets slot i.
func (h *shard) remove(i int) {
	h.state.Log, h.state.Leases = nil, nil // they may be those of the slot
	if h.slots[i].kind&shared != 0 {
		h.buckets--
		h.store.spill.Add(-1)
	} else {
		h.store.keys.Add(-1)
	}
	h.cut(i, h.moved)
	if h.sparse() {
		h.resize(h.count)
		h.restart()
	}
}
