package memstore

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
)

// ident identifies the state of an op.
type ident struct {
	rule, key string
	algorithm core.Algorithm
}

func identOf(op *core.Op) ident { return ident{op.Rule, op.Key, op.Limit.Algorithm} }

// reference is the simplest store with the same decisions.
type reference map[ident]core.State

func (r reference) apply(ops []core.Op, now int64) []core.Decision {
	// Ops of one key share a state, as in a store; each state is a copy until the step is decided.
	states := map[ident]*core.State{}
	shares := make([]*core.State, len(ops))
	for i := range ops {
		id := identOf(&ops[i])
		if states[id] == nil {
			old := r[id]
			st := clone(&old)
			st.Changed, st.ConductChanged = false, false
			states[id] = &st
		}
		shares[i] = states[id]
	}

	out := make([]core.Decision, len(ops))
	core.Decide(ops, shares, now, out)

	// Only what Decide says was changed is kept, and what is fresh is forgotten.
	for i := range ops {
		switch {
		case !shares[i].Changed && shares[i].ConductChanged:
			old := r[identOf(&ops[i])]
			if old.Conduct = shares[i].Conduct; old.Limit == (core.Limit{}) {
				old.Limit = ops[i].Limit
			}
			r[identOf(&ops[i])] = old
		case !shares[i].Changed:
		case shares[i].ForgetAfter(&out[i]) == 0:
			delete(r, identOf(&ops[i]))
		default:
			r[identOf(&ops[i])] = clone(shares[i])
		}
	}

	return out
}

func (r reference) peek(id ident, now int64) time.Duration {
	op := core.Op{Verb: core.Peek, Rule: id.rule, Key: id.key, Limit: r[id].Limit}
	st := r[id]
	d := r.apply([]core.Op{op}, now)[0]
	return st.ForgetAfter(&d)
}

// follow checks that the store holds what the reference holds. It may have
// forgotten only fresh keys, and changed only keys that a sweep has settled. A
// key that it holds must not expire before the store looks for it.
func (r reference) follow(t *rapid.T, s *Store, now int64) {
	for id, want := range r {
		op := core.Op{Rule: id.rule, Key: id.key, Limit: want.Limit}
		got, latest, ok := held(s, &op)

		// The store may have decided at a later instant than the clock now shows.
		at := max(now, latest)
		if ok && latest <= now {
			checkEarliest(t, s, &op, got, now)
		}

		if ok && same(&got, &want) {
			continue
		}

		// What was forgotten must be fresh, and is then forgotten in the reference too.
		reset := r.peek(id, at)
		if !ok && reset != 0 {
			t.Fatalf("%v is forgotten %v before it is fresh", id, reset)
		}
		if !ok {
			delete(r, id)
		}

		// A sweep may have settled the state: then it is what a Peek leaves behind.
		if after := r[id]; ok && !same(&got, &after) {
			t.Fatalf("%v is %+v, want %+v or, settled, %+v", id, got, want, after)
		}
	}

	if n := s.Len() - withoutLeases(s); n != len(r) {
		t.Fatalf("%d keys held, want %d", n, len(r))
	}
}

// withoutLeases returns how many slots hold a leased key whose last lease was released, until a
// sweep forgets it.
func withoutLeases(s *Store) (n int) {
	for i := range s.shards {
		h := &s.shards[i]
		h.mu.Lock()
		for j, tag := range h.tags {
			if tag != free && h.slots[j].used&usedBits == 0 && h.rareState(j) == nil && h.classOf(j).limit.Leased() {
				n++
			}
		}
		h.mu.Unlock()
	}
	return n
}

// leaseIDs are two as limiters make them and two others.
var leaseIDs = []string{strings.Repeat("0a", 16), strings.Repeat("0", 31) + "b", "x", strings.Repeat("A", 32)}

func checkEarliest(t *rapid.T, s *Store, op *core.Op, st core.State, now int64) {
	id := identOf(op)
	expires := now + reference{id: clone(&st)}.peek(id, now).Microseconds()
	p, _ := s.locate(op)
	if earliest := s.shards[p.shard].earliest.Load(); expires < earliest || earliest < s.earliest.Load() {
		t.Fatalf("%v expires at %d, expected by its shard from %d and by the store from %d",
			id, expires, earliest, s.earliest.Load())
	}
}

// same compares what counts in two states.
func same(a, b *core.State) bool {
	return a.Limit == b.Limit && a.Used == b.Used && a.Mark == b.Mark && a.Slot == b.Slot && a.Over == b.Over &&
		a.Conduct == b.Conduct && a.Void == b.Void &&
		reflect.DeepEqual(append([]core.Entry{}, a.Log[a.Head:]...), append([]core.Entry{}, b.Log[b.Head:]...)) &&
		slices.Equal(a.Others, b.Others) &&
		reflect.DeepEqual(append([]core.Lease{}, a.Leases...), append([]core.Lease{}, b.Leases...))
}

var variants = map[core.Algorithm][]core.Limit{
	core.GCRA:        {limit("5/1s"), limit("3/7s burst=4"), limit("60/1m burst=2")},
	core.FixedWindow: {limit("5/1s fixed-window"), limit("2/3s fixed-window aligned"), limit("9/1m fixed-window")},
	core.SlidingLog:  {limit("5/1s sliding-log"), limit("3/7s sliding-log")},
	core.SlidingWindow: {limit("5/1s sliding-window"), limit("3/7s sliding-window segments=7"),
		limit("8/1m sliding-window segments=2")},
	core.TokenBucket:    {limit("5/1s token-bucket"), limit("1/1s token-bucket burst=6"), limit("7/1m token-bucket")},
	core.Concurrency:    {limit("3 concurrent ttl=2s"), limit("2 concurrent ttl=30s")},
	core.CalendarWindow: {limit("5/day"), limit("3/month"), limit("9/day tz=Asia/Kolkata")},

	// the clock starts at the end of a year
}

// bans are those of rules: two, of which a history takes one for each rule.
var bans = []*core.Ban{
	{Strikes: 1, Within: time.Second, For: 2 * time.Second, Max: time.Minute},
	{Strikes: 3, Within: time.Minute, For: time.Minute, Max: time.Hour},
}

// names are keys; some just fit into a slot, and some just do not.
var names = []string{
	"", "a", "b", "c", "d", "e", strings.Repeat("f", maxText), strings.Repeat("f", maxText+1),
	strings.Repeat("f", maxText) + "g", strings.Repeat("f", 300),
}

// history draws one step after the other.
type history struct {
	now  int64
	past []core.Op // Refunds of what was taken before
	ids  int       // of leases
}

// Time stands still, moves by the odd microsecond, or by as much as the limits' periods.
func (h *history) step(t *rapid.T) []core.Op {
	move := rapid.OneOf(
		rapid.SampledFrom([]int64{0, 0, 1, -1, 200_000, 1_000_000, -1_000_000, 3_600_000_000, -3_600_000_000}),
		rapid.Int64Range(0, 3_000_000), rapid.Int64Range(-3_000_000, 0))
	h.now += move.Draw(t, "move")

	// Within a step each algorithm has one limit, as a key has; between steps it may be another of
	// its variants.
	limits := map[core.Algorithm]core.Limit{}
	for a := core.GCRA; a <= core.CalendarWindow; a++ {
		limits[a] = rapid.SampledFrom(variants[a]).Draw(t, "limit")
	}

	ops := make([]core.Op, rapid.SampledFrom([]int{1, 1, 1, 2, 3, 5}).Draw(t, "ops"))
	for i := range ops {
		ops[i] = h.op(t, limits)
	}

	if rapid.IntRange(0, 3).Draw(t, "as many as fit") == 0 {
		test.ShareUnits(ops)
	}
	return ops
}

func (h *history) op(t *rapid.T, limits map[core.Algorithm]core.Limit) core.Op {
	// Refunds of what was really taken come now and then, also under a limit that has changed
	// since.
	if len(h.past) > 0 && rapid.IntRange(0, 5).Draw(t, "undo") == 0 {
		op := rapid.SampledFrom(h.past).Draw(t, "past")
		op.Limit = limits[op.Limit.Algorithm]
		return op
	}

	l := limits[rapid.SampledFrom([]core.Algorithm{
		core.GCRA, core.FixedWindow, core.SlidingLog, core.SlidingWindow, core.TokenBucket, core.Concurrency,
		core.CalendarWindow,
	}).Draw(t, "algorithm")]

	// Each rule has its own ban, which leased limits cannot have.
	rule := rapid.IntRange(0, 1).Draw(t, "rule")
	var ban *core.Ban
	if !l.Leased() && rapid.IntRange(0, 2).Draw(t, "ban") > 0 {
		ban = bans[rule]
	}

	return core.Op{
		Verb: rapid.SampledFrom([]core.Verb{core.Take, core.Take, core.Take, core.Take, core.Peek, core.Refund,
			core.Reset, core.Lift}).Draw(t, "verb"),
		Soft:    rapid.Bool().Draw(t, "soft"),
		Rule:    string("ab"[rule]),
		Ban:     ban,
		Key:     rapid.SampledFrom(names).Draw(t, "key"),
		Limit:   l,
		Windows: l.Windows(h.now),
		Cost:    rapid.SampledFrom([]int64{1, 1, 1, 2, 3, 0, 100}).Draw(t, "cost"),
		MaxWait: rapid.SampledFrom([]time.Duration{0, 0, time.Second, time.Minute}).Draw(t, "wait"),
		Lease:   rapid.SampledFrom(leaseIDs[:h.ids]).Draw(t, "lease"),
	}
}

// note remembers how to undo the Takes of a step.
func (h *history) note(ops []core.Op, out []core.Decision) {
	for i, op := range ops {
		if op.Verb == core.Take && out[i].Allowed && len(h.past) < 50 {
			h.past = append(h.past, op.Refund(out[i]))
		}
	}
}

func TestHistoriesAreDecidedAsByAMapOfStates(t *testing.T) {
	// An interner that is full gives no class to a limit, which then is kept beside the slot.
	full := newInterner()
	for i := range maxClasses {
		full.add(limitClassKey{"", core.Limit{Quota: int64(i + 1)}})
	}

	for name, prepare := range map[string]func(*Store){
		"spread over shards": func(*Store) {},
		"in one shard":       func(s *Store) { oneShard(s) },
		"always pinned":      func(s *Store) { pinAtOnce(oneShard(s)) },
		"in one shard with no class interned": func(s *Store) {
			oneShard(s).classes = full
			s.shards[0].classes = full
		},
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				h, ref := &history{now: start, ids: rapid.IntRange(1, len(leaseIDs)).Draw(t, "ids")}, reference{}
				s := MustNew(Options{Clock: func() int64 { return h.now }})
				prepare(s)

				for range rapid.IntRange(1, 200).Draw(t, "steps") {
					ops := h.step(t)
					got := make([]core.Decision, len(ops))
					if err := s.Apply(t.Context(), ops, got); err != nil {
						t.Fatal(err)
					}

					want := ref.apply(ops, h.now)

					// Both the decisions and what is held afterwards have to be those of the map.
					if !reflect.DeepEqual(got, want) {
						t.Fatalf("%+v at %d\n got %+v\nwant %+v", ops, h.now, got, want)
					}
					ref.follow(t, s, h.now)
					h.note(ops, got)
				}
			})
		})
	}
}
