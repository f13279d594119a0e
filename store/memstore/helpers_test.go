package memstore

import (
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
)

// start is 2025-01-01 00:00:00 UTC.
const start = int64(1_735_689_600_000_000)

// fakeClock is moved by the test and counts how often it is read.
type fakeClock struct{ now, reads atomic.Int64 }

func newClock() *fakeClock {
	c := new(fakeClock)
	c.now.Store(start)
	return c
}

func (c *fakeClock) read() int64 {
	c.reads.Add(1)
	return c.now.Load()
}

func (c *fakeClock) move(d time.Duration) { c.now.Add(d.Microseconds()) }

func newStore(t testing.TB, maxKeys int) (*Store, *fakeClock) {
	t.Helper()
	c := newClock()
	s, err := New(Options{MaxKeys: maxKeys, Clock: c.read, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return s, c
}

// pinAtOnce pins keys as soon as they are asked for.
func pinAtOnce(s *Store) *Store {
	for i := range s.shards {
		s.shards[i].pinAfter = 1
	}
	return s
}

// oneShard sends every key to the same shard.
func oneShard(s *Store) *Store {
	s.mask = 0
	return s
}

func do(t testing.TB, s core.Store, ops ...core.Op) []core.Decision {
	t.Helper()
	out := make([]core.Decision, len(ops))
	if err := s.Apply(t.Context(), ops, out); err != nil {
		t.Fatal(err)
	}
	return out
}

func limit(text string) core.Limit {
	l, err := core.ParseLimit(text)
	if err != nil {
		panic(err)
	}
	return l
}

// heldLease is the id of a lease as limiters make them.
const heldLease = "0123456789abcdef0123456789abcdef"

// takes is a Take of one unit; its lease matters to Concurrency alone. The windows of a
// calendar are those around start.
func takes(key string, l core.Limit) core.Op {
	return core.Op{Rule: "rule", Key: key, Limit: l, Windows: l.Windows(start), Cost: 1, Lease: heldLease}
}

func peeks(key string, l core.Limit) core.Op {
	op := takes(key, l)
	op.Verb = core.Peek
	return op
}

// held is the slot of the key of an op, and when its shard last took a step.
func held(s *Store, op *core.Op) (st core.State, latest int64, ok bool) {
	p, err := s.locate(op)
	if err != nil {
		panic(err)
	}

	h := &s.shards[p.shard]
	h.mu.Lock()
	defer h.mu.Unlock()

	i := h.find(&p, op)
	if i < 0 {
		return st, h.latest, false
	}

	// The latest units of a pinned key are in its word, not in its slot.
	h.load(i, &st)
	if r := h.pinned.Load(); r != nil && r.class == h.slots[i].class && r.key == op.Key && r.shard == nil {
		st.Used, st.Mark = r.unpack(r.state.Load())
	}
	return clone(&st), max(h.latest, st.Mark), true
}

// clone is a copy that shares nothing with st.
func clone(st *core.State) core.State {
	c := *st
	c.Log, c.Others, c.Leases = slices.Clone(st.Log), slices.Clone(st.Others), slices.Clone(st.Leases)
	return c
}

// size is how many slots the tables of the store have room for.
func size(s *Store) (n int) {
	for i := range s.shards {
		n += len(s.shards[i].slots)
	}
	return n
}

// fill takes one unit of each of n keys.
func fill(t testing.TB, s *Store, name string, n int, l core.Limit) (admitted int) {
	t.Helper()
	ops, out := []core.Op{takes("", l)}, make([]core.Decision, 1)
	for i := range n {
		ops[0].Key = fmt.Sprintf("%s%d", name, i)
		if err := s.Apply(t.Context(), ops, out); err != nil {
			t.Fatal(err)
		}
		if out[0].Allowed {
			admitted++
		}
	}
	return admitted
}

// each is one limit for each algorithm, of 37 units an hour, or a year by the calendar.
var each = []core.Limit{
	limit("37/1h"),
	limit("37/1h fixed-window"),
	limit("37/1h sliding-log"),
	limit("37/1h sliding-window"),
	limit("37/1h token-bucket"),
	limit("37 concurrent ttl=1h"),
	limit("37/year"),
}

// locate finds the op's location, or what is wrong with its limit.
func (s *Store) locate(op *core.Op) (location, error) {
	v, err := s.classes.classOf(op)
	if err != nil {
		return location{}, err
	}
	return s.locationOf(v, op), nil
}

// count returns how many classes the interner holds.
func (i *interner) count() int { return len(*i.list.Load()) - 1 }
