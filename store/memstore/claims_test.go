package memstore

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/core"
)

// ruled is a quick Take of one unit under a rule.
func ruled(rule, key, text string) core.Op {
	return core.Op{Rule: rule, Key: key, Limit: limit(text), Cost: 1}
}

// takings draws steps that are mostly of quick Takes, with all that keeps a step
// from being one in between.
func takings(t *rapid.T, h *history) []core.Op {
	h.now += rapid.SampledFrom([]int64{
		0, 0, 0, 1, -1, 200_000, 1_000_000, 999_999, -1_000_000, 60_000_000, 3_600_000_000, -3_600_000_000,
	}).Draw(t, "move")
	limits := map[string]core.Limit{}
	for _, rule := range []string{"a", "b", "c", "d"} {
		text := rapid.SampledFrom([]string{
			"5/1s", "5/1s", "5/1s", "2/1h burst=6", "60/1m burst=3", "3/7s burst=4", "3/1m sliding-log",
		}).Draw(t, "limit")
		limits[rule] = limit(text)
	}
	limits["a"] = limit("5/1s")
	limits["b"] = limit("2/1h burst=6")
	ops := make([]core.Op, rapid.SampledFrom([]int{1, 2, 2, 3, 3, 4, 10, 17}).Draw(t, "ops"))
	for i := range ops {
		rule := rapid.SampledFrom([]string{"a", "a", "b", "b", "c", "d"}).Draw(t, "rule")
		key := rapid.SampledFrom([]string{"", "x", "y", "z", strings.Repeat("f", maxText+1)})
		ops[i] = core.Op{Rule: rule, Key: key.Draw(t, "key"), Limit: limits[rule],
			Cost: rapid.SampledFrom([]int64{1, 1, 1, 1, 2, 6, 100}).Draw(t, "cost"),
			Soft: rapid.IntRange(0, 3).Draw(t, "soft") == 0}
		blemish(t, &ops[i])
	}
	return ops
}

// blemish makes few ops something else than a quick Take.
func blemish(t *rapid.T, op *core.Op) {
	switch rapid.IntRange(0, 60).Draw(t, "blemish") {
	case 0:
		op.Verb = core.Peek
	case 1:
		op.Verb = core.Reset
	case 2:
		op.Cost = 0
	case 3:
		op.MaxWait = time.Minute
	case 4:
		op.Verb = core.Refund
	}
}

func TestEveryStepOfTakesIsDecidedAsByAMapOfStates(t *testing.T) {
	for name, prepare := range map[string]func(*Store){
		"spread over shards": func(*Store) {},
		"in one shard":       func(s *Store) { oneShard(s) },
		"always hot":         func(s *Store) { hotAtOnce(oneShard(s)) },
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				h, ref := &history{now: start}, reference{}
				s := MustNew(Options{Clock: func() int64 { return h.now }})
				prepare(s)
				for range rapid.IntRange(1, 100).Draw(t, "steps") {
					ops := takings(t, h)
					got := make([]core.Decision, len(ops))
					if err := s.Apply(t.Context(), ops, got); err != nil {
						t.Fatal(err)
					}
					if want := ref.apply(ops, h.now); !reflect.DeepEqual(got, want) {
						t.Fatalf("%+v at %d\n got %+v\nwant %+v", ops, h.now, got, want)
					}
					ref.follow(t, s, h.now)
				}
			})
		})
	}
}

// known is a store that holds "key" under the rules a, b and c, of which c has
// no unit left, and that is not full.
func known(t *testing.T) (*Store, *fakeClock) {
	s, c := newStore(t, 100)
	do(t, s, ruled("a", "key", "9/1h"))
	do(t, s, ruled("b", "key", "9/1h"))
	do(t, s, ruled("c", "key", "1/1h"))
	return s, c
}

func TestWhatIsMoreThanToCountIsLeftToTheGeneralStep(t *testing.T) {
	a, b, c := ruled("a", "key", "9/1h"), ruled("b", "key", "9/1h"), ruled("c", "key", "1/1h")
	spoilt := func(spoil func(op *core.Op)) []core.Op {
		op := b
		spoil(&op)
		return []core.Op{a, op}
	}
	for name, row := range map[string]struct {
		ops  []core.Op
		done bool
	}{
		"two rules":                         {[]core.Op{a, b}, true},
		"a refusal":                         {[]core.Op{a, c, b}, true},
		"a refusal that does not count":     {[]core.Op{a, soft(c), b}, true},
		"a new key, refused":                {[]core.Op{ruled("a", "new", "9/1h"), c}, true},
		"a new key, taken":                  {[]core.Op{ruled("a", "new", "9/1h"), b}, false},
		"one key twice":                     {[]core.Op{a, b, a}, false},
		"another limit":                     {[]core.Op{ruled("a", "key", "8/1h"), b}, false},
		"a limit not in whole microseconds": {[]core.Op{a, ruled("b", "key", "7/1h")}, false},
		"another algorithm":                 {[]core.Op{a, ruled("b", "key", "9/1h fixed-window")}, false},
		"a rule that was never seen":        {[]core.Op{a, ruled("d", "key", "9/1h")}, false},
		"a peek":                            {spoilt(func(op *core.Op) { op.Verb = core.Peek }), false},
		"a booking":                         {spoilt(func(op *core.Op) { op.MaxWait = time.Hour }), false},
		"no cost":                           {spoilt(func(op *core.Op) { op.Cost = 0 }), false},
	} {
		s, clock := known(t)
		got := make([]core.Decision, len(row.ops))
		reads := clock.reads.Load()
		now, done := s.takeAll(row.ops, got)
		if done != row.done {
			t.Errorf("%s: done %v, want %v", name, done, row.done)
			continue
		}
		if n := clock.reads.Load() - reads; n > 1 || (n == 1) != (now != unread) {
			t.Errorf("%s: %d readings of the clock", name, n)
		}
		general, _ := known(t)
		want := make([]core.Decision, len(row.ops))
		if err := general.decideStep(row.ops, want, unread); err != nil {
			t.Fatal(err)
		}
		if !done {
			general, _ = known(t)
		} else if !slices.Equal(got, want) {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got, want)
		}
		compareSlots(t, name, s, general)
	}
}

func soft(op core.Op) core.Op {
	op.Soft = true
	return op
}

// compareSlots compares what two stores hold of the keys of known.
func compareSlots(t *testing.T, name string, got, want *Store) {
	t.Helper()
	if got.Len() != want.Len() {
		t.Errorf("%s: %d keys, want %d", name, got.Len(), want.Len())
	}
	for _, op := range []core.Op{ruled("a", "key", "9/1h"), ruled("b", "key", "9/1h"), ruled("c", "key", "1/1h")} {
		a, _, _ := held(got, &op)
		b, _, _ := held(want, &op)
		if !same(&a, &b) {
			t.Errorf("%s: rule %s is %+v, want %+v", name, op.Rule, a, b)
		}
	}
}

func TestANewKeyOfARefusedStepMayBeCountedElsewhere(t *testing.T) {
	step := []core.Op{ruled("a", "new", "9/1h"), ruled("c", "key", "1/1h")}
	for name, row := range map[string]struct {
		spoil func(s *Store)
		done  bool
	}{
		"there is room":      {func(*Store) {}, true},
		"the store is full":  {func(s *Store) { s.max = s.keys.Load() + maxFastTakes - 1 }, false},
		"it may be a bucket": {func(s *Store) { s.shards[s.shardOf(s.keyHash("new"))].buckets = 1 }, false},
	} {
		s, _ := known(t)
		row.spoil(s)
		if _, done := s.takeAll(step, make([]core.Decision, 2)); done != row.done {
			t.Errorf("%s: done %v, want %v", name, done, row.done)
		}
	}
}

func TestAKeyThatARefusedStepLeavesAsGoodAsNewIsForgotten(t *testing.T) {
	s, c := known(t)
	c.move(30 * time.Minute)
	got := do(t, s, ruled("a", "key", "9/1h"), ruled("c", "key", "1/1h"))
	want := []core.Decision{
		{Allowed: true, Remaining: 9, At: c.now.Load()},
		{RetryAfter: 30 * time.Minute, ResetAfter: 30 * time.Minute, At: c.now.Load()},
	}
	if !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if s.Len() != 2 {
		t.Errorf("%d keys held, want those of b and c", s.Len())
	}
}

func TestAStepOfTakesThatIsOvertakenIsAtALaterInstantStill(t *testing.T) {
	s, c := known(t)
	s.clock = func() int64 {
		c.move(time.Second)
		s.clock = c.read
		do(t, s, ruled("b", "key", "9/1h"))
		return start
	}
	c.reads.Store(0)
	for i, d := range do(t, s, ruled("a", "key", "9/1h"), ruled("b", "key", "9/1h")) {
		if want := int64(7 - i); d.At != start+1_000_000 || d.Remaining != want {
			t.Errorf("op %d: %+v, want %d left at the second reading", i, d, want)
		}
	}
	if n := c.reads.Load(); n != 2 {
		t.Errorf("%d more readings of the clock, want one of either step", n)
	}
}

// Every step is about the same keys in another order, so that whoever locks as
// they come blocks another.
func TestStepsOfTakesInAnyOrderNeitherBlockNorOvercharge(t *testing.T) {
	s, _ := newStore(t, 0)
	ops := []core.Op{ruled("scarce", "key", "720/1h")}
	for i := range 9 {
		ops = append(ops, ruled("ample", strconv.Itoa(i), "9000/1h"))
	}
	do(t, s, ops...)
	var admitted, quick atomic.Int64
	together(8, func(i int) {
		r := rand.New(rand.NewPCG(uint64(i), 0))
		mine := slices.Clone(ops)
		for range 500 {
			r.Shuffle(len(mine), func(a, b int) { mine[a], mine[b] = mine[b], mine[a] })
			out := make([]core.Decision, len(mine))
			if _, done := s.takeAll(mine, out); done {
				quick.Add(1)
			}
			if !slices.ContainsFunc(out, func(d core.Decision) bool { return !d.Allowed }) {
				admitted.Add(1)
			}
		}
	})
	if quick.Load() != 4000 || admitted.Load() != 719 {
		t.Errorf("%d steps were decided and %d admitted, want 4000 and 719", quick.Load(), admitted.Load())
	}
	for i := range 9 {
		op := ruled("ample", strconv.Itoa(i), "9000/1h")
		op.Verb = core.Peek
		if d := do(t, s, op)[0]; d.Remaining != 9000-720 {
			t.Errorf("%d units are left of key %d, want %d", d.Remaining, i, 9000-720)
		}
	}
}

func TestAKeyThatWasBookedIsLeftToTheGeneralStepUntilItIsSettled(t *testing.T) {
	s, clock := known(t)
	booking := ruled("c", "key", "1/1h")
	booking.MaxWait = time.Hour
	if d := do(t, s, booking)[0]; !d.Allowed || d.Wait != time.Hour {
		t.Fatalf("%+v, want a unit in an hour", d)
	}
	clock.move(time.Hour + time.Second)
	do(t, s, ruled("a", "key", "9/1h"))
	step := []core.Op{ruled("a", "key", "9/1h"), ruled("c", "key", "1/1h")}
	if _, done := s.takeAll(step, make([]core.Decision, 2)); done {
		t.Error("units that were booked are counted as others")
	}
}

func TestAKeyThatASweepFoundIdleIsInUseAgain(t *testing.T) {
	s, _ := known(t)
	step := []core.Op{ruled("a", "key", "9/1h"), ruled("b", "key", "9/1h")}
	p, err := s.locate(&step[0])
	if err != nil {
		t.Fatal(err)
	}
	h := &s.shards[p.shard]
	slot := &h.slots[h.find(&p, &step[0])]
	slot.class |= idle
	if _, done := s.takeAll(step, make([]core.Decision, 2)); !done || slot.class != p.class {
		t.Errorf("done %v, and the kind is %x, want %x", done, slot.class, p.class)
	}
}

func TestKeysOfOneSubjectUnderGCRAShareAShard(t *testing.T) {
	s, _ := newStore(t, 0)
	seen := map[uint32]bool{}
	for i := range 20 {
		op := ruled("rule"+strconv.Itoa(i), "key", "9/1h")
		p, err := s.locate(&op)
		if err != nil {
			t.Fatal(err)
		}
		seen[p.shard] = true
	}
	if len(seen) != 1 {
		t.Errorf("%d shards, want 1", len(seen))
	}
}
