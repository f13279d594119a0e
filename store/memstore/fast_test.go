package memstore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/core"
)

func TestFastPathLeavesOtherOpsToCore(t *testing.T) {
	good := takes("key", limit("1/1h"))
	v := &limitClass{compact: good.Limit.Compact()}
	if !quick(&good) || !sound(v, &good) {
		t.Error("a Take of one unit is not quick")
	}

	// Anything that is not a plain Take, faults included, is for the general path, which names
	// them.
	for name, spoil := range map[string]func(*core.Op){
		"verb":        func(op *core.Op) { op.Verb = core.Peek },
		"no cost":     func(op *core.Op) { op.Cost = 0 },
		"cost":        func(op *core.Op) { op.Cost = -1 },
		"wait":        func(op *core.Op) { op.MaxWait = 1 },
		"at":          func(op *core.Op) { op.At = -1 },
		"reset after": func(op *core.Op) { op.ResetAfter = -1 },
		"ban":         func(op *core.Op) { op.Ban = new(core.Ban) },
	} {
		bad := good
		spoil(&bad)
		if quick(&bad) && sound(v, &bad) {
			t.Errorf("quick in spite of its %s", name)
		}
	}
}

// pin pins the key of the op, and takes all units that it is granted.
func pin(t *testing.T, s *Store, op core.Op) {
	t.Helper()
	n := 0
	for ; !isPinned(t, s, op) && n <= pinAfter+1; n++ {
		do(t, s, op)
	}
	if n != pinAfter && n != pinAfter+1 { // one that is new is inserted first
		t.Fatalf("pinned after %d takes", n)
	}
}

// isPinned reports whether the op needs no lock.
func isPinned(t *testing.T, s *Store, op core.Op) bool {
	t.Helper()
	r := s.shards[s.shardOf(s.keyHash(op.Key))].pinned.Load()
	return r != nil && r.key == op.Key
}

func TestPinnedKeyIsRefusedUntilItChanges(t *testing.T) {
	l := limit("2/1m")
	op := takes("key", l)
	changed := op
	changed.Limit = limit("9/1m")

	// Whatever may have changed the key's state unpins it, and only then is a refusal asked for
	// again.
	for name, row := range map[string]struct {
		change func(*Store, *fakeClock)
		want   bool
	}{
		// A unit of two a minute comes back after thirty seconds.
		"nothing":          {func(*Store, *fakeClock) {}, false},
		"time, not enough": {func(_ *Store, c *fakeClock) { c.move(30*time.Second - time.Microsecond) }, false},
		"time":             {func(_ *Store, c *fakeClock) { c.move(30 * time.Second) }, true},
		"a refund": {func(s *Store, _ *fakeClock) {
			do(t, s, core.Op{Verb: core.Refund, Rule: "rule", Key: "key", Limit: l, Cost: 1})
		}, true},
		"a reset": {func(s *Store, _ *fakeClock) {
			do(t, s, core.Op{Verb: core.Reset, Rule: "rule", Key: "key", Limit: l})
		}, true},
		"a reset among many": {func(s *Store, _ *fakeClock) {
			do(t, s, peeks("a", l), core.Op{Verb: core.Reset, Rule: "rule", Key: "key", Limit: l})
		}, true},

		// After a step at the earlier hour the thirty seconds count from there.
		"a clock that steps back": {func(s *Store, c *fakeClock) {
			c.move(-time.Hour)
			do(t, s, op)
			c.move(30 * time.Second)
		}, true},
		"a limit": {func(s *Store, _ *fakeClock) { do(t, s, changed) }, false},

		// Another key of the shard unpins the key but gives it nothing.
		"another key's reset": {func(s *Store, _ *fakeClock) {
			do(t, s, core.Op{Verb: core.Reset, Rule: "rule", Key: "yek", Limit: l})
		}, false},
	} {
		s, c := newStore(t, 0)
		oneShard(s)
		pin(t, s, op)

		// The pinned key holds its last refusal, which answers Takes until it ends.
		row.change(s, c)
		if got := do(t, s, op)[0].Allowed; got != row.want {
			t.Errorf("%s: allowed %v, want %v", name, got, row.want)
		}
	}
}

func TestPinnedRefusalIsThatOfTheLockedPath(t *testing.T) {
	s, c := newStore(t, 0)
	op := takes("key", limit("4/1m burst=3"))
	pin(t, s, op)

	// The steps of 70 ms take 14 seconds, nearly the 15 of a unit, so that each refusal is a
	// little shorter than the one before. The costs lie below, at and above what is there.
	for range 200 {
		c.move(70 * time.Millisecond)
		for _, cost := range []int64{1, 2, 3, 4} {
			op.Cost = cost

			// A Peek takes the locked path and changes nothing, so it is what the Take must say.
			one := do(t, s, func() core.Op { o := op; o.Verb = core.Peek; return o }())[0]
			if one.Allowed {
				continue
			}

			if got := do(t, s, op)[0]; got != one {
				t.Fatalf("refused with %+v, want %+v", got, one)
			}
		}
	}
}

// The key is refused most of the time. Refunds, and refusals of other keys, unpin
// it meanwhile.
func TestPinnedOutdatedRefusalAdmitsNoTakeTwice(t *testing.T) {
	s, _ := newStore(t, 0)
	oneShard(s)
	l := limit("5/1h")
	var admitted, returned atomic.Int64
	var group sync.WaitGroup

	// Each goroutine takes from the one key and then from a key of its own in the same shard, which
	// unpins the first.
	for g := range 4 {
		group.Go(func() {
			out := make([]core.Decision, 1)
			apply := func(op core.Op) bool {
				if err := s.Apply(t.Context(), []core.Op{op}, out); err != nil {
					t.Error(err)
				}
				return out[0].Allowed
			}

			for i := range 5000 {
				if apply(takes("key", l)) {
					admitted.Add(1)
					if i%3 == 0 {
						returned.Add(1)
						apply(core.Op{Verb: core.Refund, Rule: "rule", Key: "key", Limit: l, Cost: 1})
					}
				}

				apply(takes([]string{"a", "b", "c", "d"}[g], l))
			}
		})
	}

	group.Wait()

	// What was taken and not returned is exactly the quota: a refusal that is out of date may
	// refuse, but no Take may count twice.
	if n := admitted.Load() - returned.Load(); n != 5 {
		t.Errorf("%d units are out, want 5", n)
	}
}

// The clock is read without the lock, so another step may come before the decision.
func TestPinnedKeyResetDuringATakeIsNotRefused(t *testing.T) {
	op := takes("key", limit("2/1m"))

	// The second reading of the clock is where the fast path has looked at the pinned state and not
	// yet decided.
	var s *Store
	var during func()
	s = MustNew(Options{Clock: func() int64 {
		if f := during; f != nil {
			during = nil
			f()
		}
		return start
	}})

	pin(t, s, op)

	// A Reset within the reading makes room, and the Take must see it.
	during = func() { do(t, s, core.Op{Verb: core.Reset, Rule: op.Rule, Key: op.Key, Limit: op.Limit}) }
	if !do(t, s, op)[0].Allowed {
		t.Error("refused by a state that is gone")
	}
}

func TestInvalidTakeOfAKeyInUseIsAnError(t *testing.T) {
	// A key that is in use and pinned is the likeliest to skip the checks.
	s, _ := newStore(t, 0)
	good := takes("key", limit("1/1m"))
	pin(t, s, good)
	for name, spoil := range map[string]func(*core.Op){
		"cost":        func(op *core.Op) { op.Cost = -1 },
		"wait":        func(op *core.Op) { op.MaxWait = -1 },
		"at":          func(op *core.Op) { op.At = -1 },
		"reset after": func(op *core.Op) { op.ResetAfter = -1 },
	} {
		bad := good
		spoil(&bad)
		if err := s.Apply(t.Context(), []core.Op{bad}, make([]core.Decision, 1)); !errors.Is(err, core.ErrOp) {
			t.Errorf("%s: %v, want %v", name, err, core.ErrOp)
		}
	}

	if err := s.Apply(t.Context(), []core.Op{good}, nil); !errors.Is(err, core.ErrOp) {
		t.Errorf("no room for the decision: %v, want %v", err, core.ErrOp)
	}
}

// A fault is an error also where the key has room, alone and in a step of several.
func TestInvalidOpOnAKeyWithRoomIsAnError(t *testing.T) {
	lease := strings.Repeat("0a", 16)
	for _, text := range []string{"9/1h", "9/1h sliding-log", "9 concurrent ttl=1h"} {
		s, _ := newStore(t, 0)
		take := takes("key", limit(text))
		take.Lease = lease
		release := take.Refund(do(t, s, take)[0])

		spoils := map[string]func(*core.Op){
			"ban":    func(op *core.Op) { op.Ban = &core.Ban{Strikes: 1, Within: time.Minute, For: 2, Max: 1} },
			"cost":   func(op *core.Op) { op.Cost = -1 },
			"wait":   func(op *core.Op) { op.MaxWait = -1 },
			"at":     func(op *core.Op) { op.At = 1 << 53 },
			"before": func(op *core.Op) { op.At = -1 },
			"reset":  func(op *core.Op) { op.ResetAfter = -1 },
		}
		if take.Limit.Leased() {
			spoils["lease"] = func(op *core.Op) { op.Lease = "" }
			spoils["sound ban"] = func(op *core.Op) { op.Ban = strikes("", op.Limit).Ban }
			spoils["up to"] = func(op *core.Op) { op.UpTo = true }
		}
		for name, spoil := range spoils {
			for _, good := range []core.Op{take, release} {
				bad := good
				spoil(&bad)
				for _, ops := range [][]core.Op{{bad}, {bad, takes("other", limit("9/1h"))}} {
					err := s.Apply(t.Context(), ops, make([]core.Decision, 2))
					if !errors.Is(err, core.ErrOp) {
						t.Errorf("%s, %s of %d ops with a bad %s: %v", text, good.Verb, len(ops), name, err)
					}
				}
			}
		}
	}
}

func TestPinnedKeyIsOneKeyUnderOneLimit(t *testing.T) {
	// A pinned key is compared by a hash first; here each part of its identity differs alone.
	s, _ := newStore(t, 0)
	op := takes("key", limit("1/1m"))
	pin(t, s, op)

	v, err := s.classes.classOf(&op)
	if err != nil {
		t.Fatal(err)
	}
	hash := v.hash(s.keyHash(op.Key))
	r := s.shards[s.shardOf(s.keyHash(op.Key))].pinned.Load()
	other := &limitClass{limitClassKey: v.limitClassKey, id: v.id + 1, compact: v.compact, salt: v.salt}

	if !r.is(hash, v, op.Key) {
		t.Error("the key is not itself")
	}
	for name, is := range map[string]bool{
		"hash":  r.is(hash^1<<63, v, op.Key),
		"limit": r.is(hash, other, op.Key),
		"key":   r.is(hash, v, "yek"),
	} {
		if is {
			t.Errorf("taken for another %s", name)
		}
	}
}

// A class points to the key that was pinned last, until that key is unpinned.
func TestLimitClassPointsToItsLatestPinnedKey(t *testing.T) {
	s, _ := newStore(t, 0)

	// The two keys lie in different shards, so that both can be pinned at once.
	first, second := takes("key", limit("100/1m")), takes("yek", limit("100/1m"))
	for i := 0; s.shardOf(s.keyHash(second.Key)) == s.shardOf(s.keyHash(first.Key)); i++ {
		second.Key = fmt.Sprint("yek", i)
	}

	v, err := s.classes.classOf(&first)
	if err != nil {
		t.Fatal(err)
	}
	latest := func() string {
		if r := v.pinned.Load(); r != nil {
			return r.key
		}
		return ""
	}

	unpin := func(op core.Op) {
		h := &s.shards[s.shardOf(s.keyHash(op.Key))]
		h.lock()
		h.mu.Unlock()
	}

	pin(t, s, first)
	pin(t, s, second)

	// The first key is no longer the latest, so its end changes nothing; the second's clears the
	// pointer.
	for _, row := range []struct {
		unpinned core.Op
		want     string
	}{{first, second.Key}, {second, ""}} {
		unpin(row.unpinned)
		if got := latest(); got != row.want {
			t.Errorf("the latest pinned key is %q, want %q", got, row.want)
		}
	}
}

// A key counts its own units, whichever key the class points to.
func TestLimitClassKeepsItsKeysApart(t *testing.T) {
	s, _ := newStore(t, 0)
	first, other := takes("key", limit("100/1m")), takes("yek", limit("100/1m"))
	pin(t, s, first)
	for i, op := range []core.Op{other, first, other, first} {
		want := []int64{99, 100 - pinAfter - 2, 98, 100 - pinAfter - 3}[i]
		if got := do(t, s, op)[0].Remaining; got != want {
			t.Errorf("take %d leaves %d, want %d", i+1, got, want)
		}
	}
}

func TestPinnedKeyThatARefusalLeavesFreshIsForgotten(t *testing.T) {
	s, c := newStore(t, 0)
	op := takes("key", limit("3/1m"))
	pin(t, s, op)

	// The refusal of four units, more than the limit has, leaves the key as it is: a microsecond
	// before it is fresh, it is still held.
	c.move(time.Minute - time.Microsecond)
	s.tidied.Store(c.now.Load()) // a tidy unpins the keys of the shards that it sweeps
	op.Cost = 4
	if d := do(t, s, op)[0]; d.Allowed || d.ResetAfter != time.Microsecond || !isPinned(t, s, op) || s.Len() != 1 {
		t.Errorf("%+v, pinned %v, %d keys held", d, isPinned(t, s, op), s.Len())
	}

	// When it is fresh, the same refusal lets it go.
	c.move(time.Microsecond)
	want := core.Decision{Remaining: 3, RetryAfter: core.Never, At: c.now.Load()}
	if d := do(t, s, op)[0]; d != want || isPinned(t, s, op) || s.Len() != 0 {
		t.Errorf("%+v, want %+v, pinned %v, %d keys held", d, want, isPinned(t, s, op), s.Len())
	}
}

func TestPinnedKeyIsPinnedAgainAfterItWasFresh(t *testing.T) {
	for _, text := range []string{"1/1m", "1000/1m"} {
		s, c := newStore(t, 0)
		op := takes("key", limit(text))
		for range 3 {
			pin(t, s, op)
			c.move(time.Minute)
			s.shards[s.shardOf(s.keyHash(op.Key))].lock()
			s.shards[s.shardOf(s.keyHash(op.Key))].mu.Unlock()
		}
	}
}

// While keys of one shard become pinned and are unpinned all the time, no unit is
// lost and none is given twice.
func TestPinnedKeyGetsItsUnitsAfterEachUnpin(t *testing.T) {
	s, _ := newStore(t, 0)
	pinAtOnce(oneShard(s))
	l := limit("5000/1h")
	var admitted atomic.Int64

	// Costs of one and two, and steps that unpin the key in three ways: another key's Take, a Peek,
	// the sweep.
	concurrently(8, func(g int) {
		for i := range 2000 {
			op := takes("key", l)
			op.Cost = int64(1 + (g+i)%2)
			if do(t, s, op)[0].Allowed {
				admitted.Add(op.Cost)
			}

			switch i % 16 {
			case 3:
				do(t, s, takes("other", l))
			case 7:
				do(t, s, peeks("key", l))
			case 11:
				s.sweepNext(start, maxTidy, grace)
			}
		}
	})

	if n := admitted.Load(); n != 5000 {
		t.Errorf("%d units admitted, want 5000", n)
	}
}

func TestPinnedKeyStaysExactWhereItsWordEnds(t *testing.T) {
	// A pinned state is one word of 64 bits: the burst here is the largest whose units fit into its
	// half.
	op := takes("key", limit("1000/1s burst=4294967294"))
	s, c := newStore(t, 0)
	pinAtOnce(s)
	ref := reference{}

	// The first Take brings the count near the word's end. The pauses are such that the other half,
	// the time, ends too (71 minutes are 2^32 microseconds).
	op.Cost = 4_294_967_000
	for i, step := range []time.Duration{0, 0, time.Second, 71 * time.Minute, time.Minute, 72 * time.Minute,
		300 * time.Hour} {
		c.move(step)
		for range 3 {
			want := ref.apply([]core.Op{op}, c.now.Load())
			if got := do(t, s, op); got[0] != want[0] {
				t.Errorf("step %d: %+v, want %+v", i, got[0], want[0])
			}
			op.Cost = 1
		}

		if !isPinned(t, s, op) {
			t.Errorf("step %d: not pinned", i)
		}
	}

	// One unit more in the burst does not fit, so the key must not be pinned.
	wider := takes("key", limit("1000/1s burst=4294967295"))
	for range 3 {
		do(t, s, wider)
	}
	if isPinned(t, s, wider) {
		t.Error("pinned under a limit that has no room in a word")
	}
}

// A Take may read the clock and then be overtaken by one that reads it later and
// finds the key fresh. The clock has not stepped back then.
func TestPinnedTakeOvertakenIsAtALaterInstant(t *testing.T) {
	op := takes("key", limit("3/3s"))

	// The hook runs another Take between the reading of the clock and the decision.
	now := start
	var s *Store
	var during func()
	s = pinAtOnce(MustNew(Options{Clock: func() int64 {
		read := now
		if f := during; f != nil {
			during = nil
			f()
		}
		return read
	}}))

	do(t, s, op)
	do(t, s, op)
	if !isPinned(t, s, op) {
		t.Fatal("not pinned")
	}

	// Five seconds later the key is fresh. The overtaking Take is a microsecond later still, and
	// has charged a unit.
	now += 5_000_000
	during = func() {
		now++
		do(t, s, op)
	}

	want := core.Decision{Allowed: true, Taken: 1, Remaining: 1, ResetAfter: 2 * time.Second, At: start + 5_000_001}
	if got := do(t, s, op)[0]; got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestPinnedKeyNeedsAStreak(t *testing.T) {
	s, _ := newStore(t, 0)
	oneShard(s)
	l := limit("900/1h")
	for range 2 * pinAfter {
		do(t, s, takes("a", l))
		do(t, s, takes("b", l))
	}
	if isPinned(t, s, takes("a", l)) || isPinned(t, s, takes("b", l)) {
		t.Error("pinned after one take in a row")
	}
}

// Keys of two rules may have the same hash, and a table that grows may reverse
// their order.
func TestPinnedKeyIsUnpinnedToTheSlotOfItsRule(t *testing.T) {
	s, _ := newStore(t, 0)
	a, b := ruled("a", "key", "900/1h"), ruled("b", "key", "800/1h")

	// Equal salts give the two rules the same hash for the key.
	va, _ := s.classes.classOf(&a)
	vb, _ := s.classes.classOf(&b)
	vb.salt = va.salt

	// Both keys are in the table; b comes again and again and is pinned.
	do(t, s, b)
	do(t, s, a)
	pinAtOnce(s)

	do(t, s, b)
	do(t, s, b)
	if !isPinned(t, s, b) {
		t.Fatal("not pinned")
	}

	// The swap of the two slots is what a growing table may do: a search by the hash alone would
	// now find a.
	h := &s.shards[s.shardOf(s.keyHash("key"))]
	i := slices.IndexFunc(h.slots, func(c entry) bool { return c.class == vb.id })
	j := slices.IndexFunc(h.slots, func(c entry) bool { return c.class == va.id })
	h.slots[i], h.slots[j] = h.slots[j], h.slots[i]

	// Three units of b were taken and one of a. A swap would give the one's count to the other.
	a.Verb, b.Verb = core.Peek, core.Peek
	if got := do(t, s, a, b); got[0].Remaining != 899 || got[1].Remaining != 797 {
		t.Errorf("%d of 900 and %d of 800 are left, want 1 and 3 less", got[0].Remaining, got[1].Remaining)
	}
}

// ruled is a quick Take of one unit under a rule.
func ruled(rule, key, text string) core.Op {
	return core.Op{Rule: rule, Key: key, Limit: limit(text), Cost: 1}
}

// takings draws steps that are mostly of quick Takes. A few ops are of the kinds that
// the quick path leaves to the general one.
func takings(t *rapid.T, h *history) []core.Op {
	// Steps in time from none to an hour, in either direction, and across the borders of the
	// limits.
	h.now += rapid.SampledFrom([]int64{
		0, 0, 0, 1, -1, 200_000, 1_000_000, 999_999, -1_000_000, 60_000_000, 3_600_000_000, -3_600_000_000,
	}).Draw(t, "move")

	limits := map[string]core.Limit{}
	for _, rule := range []string{"a", "b", "c", "d"} {
		text := rapid.SampledFrom([]string{
			"5/1s", "5/1s", "5/1s", "2/1h burst=6", "60/1m burst=3", "3/7s burst=4", "3/1m sliding-log",
			"9/1m sliding-window segments=20",
		}).Draw(t, "limit")
		limits[rule] = limit(text)
	}

	// Four rules keep one limit throughout, so that their keys are pinned; the others change it now
	// and then.
	limits["a"] = limit("5/1s")
	limits["b"] = limit("2/1h burst=6")
	limits["e"] = limit("12/1s sliding-window")
	limits["f"] = limit("12/1s sliding-log")

	ops := make([]core.Op, rapid.SampledFrom([]int{1, 2, 2, 3, 3, 4, 10, 17}).Draw(t, "ops"))
	for i := range ops {
		rule := rapid.SampledFrom([]string{"a", "a", "b", "b", "c", "d", "e", "e", "f", "f"}).Draw(t, "rule")
		key := rapid.SampledFrom([]string{"", "x", "y", "z", strings.Repeat("f", maxText+1)})
		ops[i] = core.Op{Rule: rule, Key: key.Draw(t, "key"), Limit: limits[rule],
			Cost: rapid.SampledFrom([]int64{1, 1, 1, 1, 2, 6, 100}).Draw(t, "cost"),
			Soft: rapid.IntRange(0, 3).Draw(t, "soft") == 0}

		// Now and then an op is spoilt in a way that the quick path has to leave alone.
		blemish(t, &ops[i])
	}
	return ops
}

// blemish turns a few ops into other ones than quick Takes.
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

func TestFastTakesDecideAsAMapOfStates(t *testing.T) {
	for name, prepare := range map[string]func(*Store){
		"spread over shards": func(*Store) {},
		"in one shard":       func(s *Store) { oneShard(s) },
		"always pinned":      func(s *Store) { pinAtOnce(oneShard(s)) },
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

					// Both the decisions and what is held afterwards have to be those of the map.
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

func TestFastTakesLeaveOtherStepsToTheGeneralPath(t *testing.T) {
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
		// Decided by the fast path: several quick Takes of different keys that are known, or of a
		// new one in a step that is refused.
		"two rules":                     {[]core.Op{a, b}, true},
		"a refusal":                     {[]core.Op{a, c, b}, true},
		"a refusal that does not count": {[]core.Op{a, soft(c), b}, true},
		"a new key, refused":            {[]core.Op{ruled("a", "new", "9/1h"), c}, true},

		// What it has to leave to the general path, which must find nothing changed.
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
		_, read, done := s.takeAll(row.ops, got)
		if done != row.done {
			t.Errorf("%s: done %v, want %v", name, done, row.done)
			continue
		}

		// The clock is read at most once, and a reading is handed on to the path that then decides.
		if n := clock.reads.Load() - reads; n > 1 || (n == 1) != read {
			t.Errorf("%s: %d readings of the clock", name, n)
		}

		// The general path alone is what the fast one is compared with.
		general, _ := known(t)
		want := make([]core.Decision, len(row.ops))
		if err := general.decideStep(row.ops, want, start); err != nil {
			t.Fatal(err)
		}

		// A step that was left undone has to leave the slots as they were.
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

func TestFastTakesRefusedLeaveNewKeysToOverflow(t *testing.T) {
	// The step is refused by c, so the new key need not be inserted, unless it may be counted in a
	// bucket.
	step := []core.Op{ruled("a", "new", "9/1h"), ruled("c", "key", "1/1h")}
	for name, row := range map[string]struct {
		spoil func(s *Store)
		done  bool
	}{
		"there is room":      {func(*Store) {}, true},
		"the store is full":  {func(s *Store) { s.maxKeys = s.keys.Load() + maxFastTakes - 1 }, false},
		"it may be a bucket": {func(s *Store) { s.shards[s.shardOf(s.keyHash("new"))].buckets = 1 }, false},
	} {
		s, _ := known(t)
		row.spoil(s)
		if _, _, done := s.takeAll(step, make([]core.Decision, 2)); done != row.done {
			t.Errorf("%s: done %v, want %v", name, done, row.done)
		}
	}
}

func TestFastTakesRefusedForgetFreshKeys(t *testing.T) {
	s, c := known(t)

	// Half an hour later a and b are fresh; c, of one unit an hour, refuses the step.
	c.move(30 * time.Minute)
	s.tidied.Store(c.now.Load()) // a tidy would forget b too
	got := do(t, s, ruled("a", "key", "9/1h"), ruled("c", "key", "1/1h"))

	want := []core.Decision{
		{Allowed: true, Remaining: 9, At: c.now.Load()},
		{RetryAfter: 30 * time.Minute, ResetAfter: 30 * time.Minute, At: c.now.Load()},
	}
	if !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}

	// The fresh key is forgotten even though its step was refused.
	if s.Len() != 2 {
		t.Errorf("%d keys held, want those of b and c", s.Len())
	}
}

func TestFastTakesOvertakenAreAtALaterInstant(t *testing.T) {
	s, c := known(t)

	// The clock is replaced by one that lets another step pass while it is read, a second later.
	s.clock = func() int64 {
		c.move(time.Second)
		s.clock = c.read
		do(t, s, ruled("b", "key", "9/1h"))
		return start
	}

	c.reads.Store(0)

	// That step had charged b, so b has a unit less; both ops are decided at the later instant.
	for i, d := range do(t, s, ruled("a", "key", "9/1h"), ruled("b", "key", "9/1h")) {
		if want := int64(7 - i); d.At != start+1_000_000 || d.Remaining != want {
			t.Errorf("op %d: %+v, want %d left at the second reading", i, d, want)
		}
	}

	if n := c.reads.Load(); n != 2 {
		t.Errorf("%d more readings of the clock, want one of either step", n)
	}
}

// Every step is about the same keys in another order, so a step that locks in
// the order of its ops blocks another.
func TestFastTakesUnderContentionInAnyOrder(t *testing.T) {
	s, _ := newStore(t, 0)

	// The scarce key has room for 719 steps after the first, the ample ones for all.
	ops := []core.Op{ruled("scarce", "key", "720/1h")}
	for i := range 9 {
		ops = append(ops, ruled("ample", strconv.Itoa(i), "9000/1h"))
	}
	do(t, s, ops...)

	var admitted, quick atomic.Int64
	concurrently(8, func(i int) {
		r := rand.New(rand.NewPCG(uint64(i), 0))
		mine := slices.Clone(ops)
		for range 500 {
			r.Shuffle(len(mine), func(a, b int) { mine[a], mine[b] = mine[b], mine[a] })
			out := make([]core.Decision, len(mine))
			if _, _, done := s.takeAll(mine, out); done {
				quick.Add(1)
			}

			// The slice was zero before, so a step is admitted if no decision in it is a refusal.
			if !slices.ContainsFunc(out, func(d core.Decision) bool { return !d.Allowed }) {
				admitted.Add(1)
			}
		}
	})

	// A step that went to the general path, or an admission too many, would show here.
	if quick.Load() != 4000 || admitted.Load() != 719 {
		t.Errorf("%d steps were decided and %d admitted, want 4000 and 719", quick.Load(), admitted.Load())
	}

	// The ample keys were charged by admitted steps alone.
	for i := range 9 {
		op := ruled("ample", strconv.Itoa(i), "9000/1h")
		op.Verb = core.Peek
		if d := do(t, s, op)[0]; d.Remaining != 9000-720 {
			t.Errorf("%d units are left of key %d, want %d", d.Remaining, i, 9000-720)
		}
	}
}

func TestFastTakesLeaveBookedKeysToTheGeneralPath(t *testing.T) {
	s, clock := known(t)
	booking := ruled("c", "key", "1/1h")
	booking.MaxWait = time.Hour
	if d := do(t, s, booking)[0]; !d.Allowed || d.Wait != time.Hour {
		t.Fatalf("%+v, want a unit in an hour", d)
	}
	clock.move(time.Hour + time.Second)
	do(t, s, ruled("a", "key", "9/1h"))
	step := []core.Op{ruled("a", "key", "9/1h"), ruled("c", "key", "1/1h")}
	if _, _, done := s.takeAll(step, make([]core.Decision, 2)); done {
		t.Error("units that were booked are counted as others")
	}
}

// A debt of which a part has come back leaves more units in the slot than a pinned key has room
// for. Refused Takes, which write nothing, must not pin it: the key would have units again.
func TestADebtThatNoTakeHasWrittenOffIsNotPinned(t *testing.T) {
	for text, verb := range map[string]core.Verb{
		"10/1s token-bucket":         core.Peek,
		"1/1h token-bucket burst=70": core.Peek,
		"10/10s":                     core.Refund, // without an instant, which ends the note of the debt
		"3/1s burst=10":              core.Refund,
	} {
		l := limit(text)
		s, c := newStore(t, 0)
		op := takes("key", l)
		op.Cost = l.Capacity()
		do(t, s, op)

		debit := op
		debit.Verb = core.Debit
		owed := do(t, s, debit)[0]
		c.move(owed.ResetAfter / 2)
		between := op
		between.Verb, between.Cost = verb, 1
		do(t, s, between)

		peek := op
		peek.Verb = core.Peek
		want := do(t, s, peek)[0]
		for i := range 3 * pinAfter {
			if got := do(t, s, op)[0]; got.Remaining != want.Remaining || got.Allowed != want.Allowed {
				t.Errorf("%s: take %d: %+v, want %+v", text, i, got, want)
				break
			}
		}
	}
}

// A Take that read the clock 40 ms before others of its pinned key is decided at a later instant:
// at its own, the units that have come back since would seem to be those of a clock that stepped
// back, and be given back twice.
func TestATakeThatIsLateGivesNoUnitsBack(t *testing.T) {
	c := newClock()
	var overtake func()
	s := MustNew(Options{Clock: func() int64 {
		now := c.now.Load()
		if f := overtake; f != nil {
			overtake = nil
			f()
		}
		return now
	}})

	op, admitted := takes("key", limit("99991/1s burst=5000")), 0
	exhaust := func() {
		for do(t, s, op)[0].Allowed {
			admitted++
		}
	}
	exhaust()
	for range 3 {
		c.move(40 * time.Millisecond)
		exhaust()
	}

	overtake = func() {
		c.move(40 * time.Millisecond)
		exhaust()
	}
	exhaust() // its first Take is late
	exhaust()

	if want := 5000 + 160*99991/1000; admitted != want {
		t.Errorf("%d admitted in 160 ms, want %d", admitted, want)
	}
}

func TestShardIsSharedByTheRulesOfASubject(t *testing.T) {
	s, _ := newStore(t, 0)

	// A step locks the shards of its keys. One subject under many rules should cost one lock.
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
