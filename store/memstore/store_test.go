package memstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/headgate/headgate/core"
)

func TestNewRefusesOptionsThatCannotWork(t *testing.T) {
	for _, n := range []int{-1, math.MinInt, 1<<30 + 1} {
		if _, err := New(Options{MaxKeys: n}); err == nil || !strings.Contains(err.Error(), "MaxKeys") {
			t.Errorf("MaxKeys %d: error %v, want one that names MaxKeys", n, err)
		}
	}
}

func TestNewRefusesBytesThatHoldNothing(t *testing.T) {
	for n, good := range map[int64]bool{-1: false, 1: false, MinBytes - 1: false, 0: true, MinBytes: true,
		math.MaxInt64: true} {
		_, err := New(Options{MaxBytes: n})
		if good != (err == nil) || !good && !strings.Contains(err.Error(), fmt.Sprintf("MaxBytes %d", n)) {
			t.Errorf("MaxBytes %d: %v", n, err)
		}
	}
	if _, err := New(Options{MaxBytes: -1, MaxKeys: -1}); err == nil ||
		strings.Count(err.Error(), "memstore: Max") != 2 {
		t.Errorf("%v, want both mistakes", err)
	}
}

func TestMustNewPanicsOnOptionsThatCannotWork(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	MustNew(Options{MaxKeys: -1})
}

func TestDefaultClockIsTheSystemsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := MustNew(Options{})
		for range 2 {
			if at, now := do(t, s, takes("key", limit("1/1h")))[0].At, time.Now().UnixMicro(); at != now {
				t.Errorf("decided at %d, not at %d", at, now)
			}
			time.Sleep(time.Hour + time.Microsecond)
		}
	})
}

// Instants that cannot be counted exactly are those next to them, and decide as any other.
func TestClockIsBounded(t *testing.T) {
	const last = 1<<53 - 1 - 400*24*3_600_000_000
	for instant, want := range map[int64]int64{
		math.MinInt64: 0, -1: 0, 0: 0, 1: 1, last: last, last + 1: last, 1 << 53: last, math.MaxInt64: last,
	} {
		for _, l := range each {
			if l.NeedsWindows() {
				continue
			}
			s := MustNew(Options{Clock: func() int64 { return instant }})
			l.Period = core.MaxPeriod
			for i := range 38 {
				op := takes("key", l)
				op.Lease = leaseID(i)
				d := do(t, s, op)[0]
				if d.Allowed != (i < 37) || d.At != want || d.RetryAfter < 0 || d.ResetAfter <= 0 {
					t.Fatalf("%v at %d, take %d: %+v, want it at %d", l, instant, i, d, want)
				}
			}
			if d := do(t, s, peeks("key", l))[0]; d.Remaining != 0 {
				t.Errorf("%v at %d: %+v, want none to remain", l, instant, d)
			}
		}
	}
}

func TestShardSizesAndNumbers(t *testing.T) {
	for _, row := range []struct{ keys, shards int }{
		{1, 64}, {64 * 2048, 64}, {64*2048 + 1, 128}, {1 << 20, 512}, {1 << 30, 1 << 14},
	} {
		if n := shardsFor(row.keys); n != row.shards {
			t.Errorf("%d keys: %d shards, want %d", row.keys, n, row.shards)
		}
	}
	if n := unsafe.Sizeof(entry{}); n != 64 {
		t.Errorf("a slot has %d bytes, want 64", n)
	}
}

func TestTakeBeyondTheQuotaIsRefused(t *testing.T) {
	for _, l := range each {
		s, _ := newStore(t, 0)
		for i := range 38 {
			op := takes("key", l)
			op.Lease = string(rune('A' + i))
			if got, want := do(t, s, op)[0].Allowed, i < 37; got != want {
				t.Errorf("%v: take %d: allowed %v, want %v", l, i+1, got, want)
			}
		}
	}
}

func TestClockIsReadOncePerStep(t *testing.T) {
	s, c := newStore(t, 0)

	// A new key, a known one, one that stays unknown, and several in four shards.
	steps := [][]core.Op{
		{takes("new", each[0])},
		{takes("new", each[0])},
		{peeks("unknown", each[0])},
		{takes("a", each[0]), takes("b", each[1]), takes("c", each[2]), takes("new", each[0])},
	}

	for i, ops := range steps {
		do(t, s, ops...)
		if n := c.reads.Load(); n != int64(i+1) {
			t.Errorf("%d readings of the clock after %d steps", n, i+1)
		}
	}
}

// While one step reads the clock, another takes place at a later instant.
func TestStepOvertakenIsAtALaterInstant(t *testing.T) {
	// The fast path for known keys, the general one, and both with a key of another step in
	// between.
	for name, row := range map[string]struct {
		known bool
		op    core.Op
	}{
		"a key in use":                    {true, takes("key", limit("5/1h"))},
		"a key in use, by another limit":  {true, takes("key", limit("5/7h"))},
		"a key in use, by another window": {true, takes("key", limit("5/1h fixed-window"))},
		"a new key":                       {false, takes("key", limit("5/1h"))},
		"a new key, by a window":          {false, takes("key", limit("5/1h fixed-window"))},
	} {
		// Every reading is a microsecond later than the one before. The hook lets another step pass
		// while the step of the row reads.
		now := start
		var s *Store
		var during func()
		s = oneShard(MustNew(Options{Clock: func() int64 {
			now++
			at := now
			if f := during; f != nil {
				during = nil
				f()
			}
			return at
		}}))

		if row.known {
			do(t, s, row.op)
		}

		do(t, s, takes("other", limit("5/1h")))

		// The late step must be at a new reading after the other's, not at its own old one:
		// decisions of a shard may not go back in time.
		var between int64
		during = func() { between = do(t, s, takes("other", limit("5/1h")))[0].At }
		if got := do(t, s, row.op)[0].At; got != between+1 {
			t.Errorf("%s: decided at %d, after a step at %d", name, got, between)
		}
	}
}

func TestBookingThatIsOverLeavesNothingBehind(t *testing.T) {
	s, c := newStore(t, 0)

	// Both units are taken, and a third is booked for when the first comes back.
	op := takes("key", limit("2/2s"))
	op.Cost = 2
	do(t, s, op)
	op.Cost, op.MaxWait = 1, time.Second
	do(t, s, op)
	if st, _, _ := held(s, &op); st.Over != 1 {
		t.Fatalf("%d units are booked, want 1", st.Over)
	}

	// Two seconds later the booking is over and both units are back.
	c.move(2 * time.Second)
	op.MaxWait = 0
	if !do(t, s, op)[0].Allowed {
		t.Error("refused when units have come back")
	}

	// A stale booking would take from the capacity for ever.
	if st, _, _ := held(s, &op); st.Over != 0 {
		t.Errorf("%d units are booked after the booking is over", st.Over)
	}
}

func TestKeyIsHeldOnlyAfterATake(t *testing.T) {
	for _, l := range each {
		s, _ := newStore(t, 0)

		// What takes nothing leaves no slot, or Peeks of random keys would fill the store.
		for _, v := range []core.Verb{core.Peek, core.Refund, core.Reset} {
			op := takes("key", l)
			op.Verb = v
			do(t, s, op)
			do(t, s, op, op)
		}

		free := takes("key", l)
		free.Cost = 0
		do(t, s, free)

		// Nor does a cost that never fits.
		big := takes("key", l)
		big.Cost = 38
		if d := do(t, s, big)[0]; d.RetryAfter != core.Never {
			t.Errorf("%v: RetryAfter %v for a cost above the limit, want Never", l, d.RetryAfter)
		}

		if s.Len() != 0 || size(s) != 0 {
			t.Errorf("%v: %d keys in %d slots held, want none", l, s.Len(), size(s))
		}

		do(t, s, takes("key", l))
		if s.Len() != 1 {
			t.Errorf("%v: %d keys held after a take, want 1", l, s.Len())
		}
	}
}

func TestKeyThatAStepLeavesFreshIsForgotten(t *testing.T) {
	for _, l := range each {
		for _, verb := range []core.Verb{core.Refund, core.Reset} {
			s, c := newStore(t, 0)

			// The key has one unit taken, which the op gives back or forgets.
			do(t, s, takes("key", l))
			op := takes("key", l)
			op.Verb = verb
			do(t, s, op)

			if verb == core.Reset && !l.Leased() { // until the units would have come back, no refund does
				if s.Len() != 1 {
					t.Errorf("%v: %d keys held after a reset, want 1", l, s.Len())
				}
				op.Verb = core.Peek
				c.move(366 * 24 * time.Hour)
				do(t, s, op)
			}

			// A key whose last lease was released keeps its slot for a second, or until a Peek.
			if verb == core.Refund && l.Leased() {
				if s.Len() != 1 {
					t.Errorf("%v: %d keys held after a release, want 1", l, s.Len())
				}
				do(t, s, peeks("key", l))
			}

			if s.Len() != 0 {
				t.Errorf("%v: %d keys held after a %v, want 0", l, s.Len(), verb)
			}

			// What a slot leaves in its shard's scratch state would keep the memory of a log alive.
			for i := range s.shards {
				if st := &s.shards[i].state; st.Log != nil || st.Leases != nil {
					t.Errorf("%v: the log or the leases of a forgotten key are still held", l)
				}
			}
		}

		// The same for a key that only time has made fresh.
		s, c := newStore(t, 0)
		c.move(do(t, s, takes("key", l))[0].ResetAfter)
		do(t, s, peeks("key", l))
		if s.Len() != 0 {
			t.Errorf("%v: %d keys held after a peek of one that is fresh, want 0", l, s.Len())
		}
	}
}

func TestRefusedStepHoldsNoKeyAndKeepsNoRoom(t *testing.T) {
	s, _ := newStore(t, 2)

	// One of two places is taken by a key that is used up.
	full := takes("full", limit("1/1h"))
	do(t, s, full)

	// Each step reserves a place for the new key and is refused by the full one: the place has to
	// be given back ten times.
	for range 10 {
		if d := do(t, s, takes("new", limit("5/1h")), full); d[1].Allowed {
			t.Fatal("allowed beyond the quota")
		}
	}

	if s.Len() != 1 {
		t.Errorf("%d keys held, want 1", s.Len())
	}

	do(t, s, takes("new", limit("5/1h")))
	if _, _, ok := held(s, &core.Op{Rule: "rule", Key: "new", Limit: limit("5/1h")}); !ok {
		t.Error("the room that a refused step had reserved is lost")
	}
}

// Frameworks reuse the memory of a request.
func TestKeysRulesAndLeasesOutliveTheMemoryTheyCameIn(t *testing.T) {
	s, _ := newStore(t, 0)
	l := limit("1 concurrent ttl=1h")

	// The rule, the key and the lease lie in one piece of memory, as in a request's buffer, which
	// is then written over.
	memory := []byte("rulekeylease")
	op := core.Op{
		Rule: unsafe.String(&memory[0], 4), Key: unsafe.String(&memory[4], 3),
		Lease: unsafe.String(&memory[7], 5), Limit: l, Cost: 1,
	}

	do(t, s, op)
	copy(memory, "xxxxxxxxxxxx")

	// The lease of the key is found to be held by another than this one, and by itself.
	op = core.Op{Rule: "rule", Key: "key", Lease: "other", Limit: l, Cost: 1}
	if do(t, s, op)[0].Allowed {
		t.Error("the key was forgotten with the memory of its request")
	}

	op.Lease = "lease"
	if !do(t, s, op)[0].Allowed {
		t.Error("the lease was forgotten with the memory of its request")
	}
}

func TestKeysAreComparedAndNotOnlyTheirHashes(t *testing.T) {
	s, _ := newStore(t, 0)
	h := &oneShard(s).shards[0]

	// Every key gets the same hash, so only the comparison tells them apart.
	at := func(op *core.Op) location {
		v, err := s.classes.classOf(op)
		if err != nil {
			t.Fatal(err)
		}
		return location{hash: 7, class: v.id}
	}

	// Keys up to maxText bytes are in the slot, and longer ones beside it: those that differ only
	// in the last byte are compared there.
	long := strings.Repeat("a", maxText)
	for _, key := range []string{"a", long + "a", long + "b"} {
		op := takes(key, limit("1/1h"))
		p := at(&op)
		h.insert(&p, &op)
	}

	// Each of these differs from all that are held, in the key, its length, the rule or the
	// algorithm.
	for _, other := range []core.Op{
		takes("", limit("1/1h")),
		takes("b", limit("1/1h")),
		takes(long, limit("1/1h")),
		takes(long+"c", limit("1/1h")),
		{Rule: "other", Key: "a", Limit: limit("1/1h")},
		takes("a", limit("1/1h fixed-window")),
	} {
		if q := at(&other); h.find(&q, &other) >= 0 {
			t.Errorf("%q of rule %q under %v is taken for another key of the same hash", other.Key, other.Rule,
				other.Limit)
		}
	}

	// The quota is no part of the identity.
	for i, key := range []string{"a", long + "a", long + "b"} {
		changed := takes(key, limit("9/1h"))
		if p := at(&changed); h.find(&p, &changed) != h.home(7)+i {
			t.Errorf("%q is not found again under a changed limit", key)
		}
	}
}

func TestKeysOfOneHashDifferByRuleAndAlgorithm(t *testing.T) {
	for _, interned := range []bool{true, false} {
		// Classes that are interned are compared by number; those that are not, by their content.
		s, _ := newStore(t, 0)
		for i := 0; !interned && s.classes.count() < maxClasses; i++ {
			s.classes.add(limitClassKey{strconv.Itoa(i), core.Limit{Quota: 1}})
		}

		// Three identities with the same empty key: two algorithms, and another rule.
		h := &oneShard(s).shards[0]
		ops := []core.Op{takes("", limit("1/1h")), takes("", limit("1/1h fixed-window")), takes("", limit("1/1h"))}
		ops[2].Rule = "other"

		// A bucket and a key of each are put under hashes that collide.
		places := make([]location, len(ops))
		for i := range ops {
			v, err := s.classes.classOf(&ops[i])
			if err != nil {
				t.Fatal(err)
			}
			places[i] = location{class: v.id, hash: bucketHash(v.id)}
			b := h.insertBucket(&places[i])
			h.save(b, &core.State{Limit: ops[i].Limit}, v.id, ops[i].Rule)

			if n := h.find(&places[i], &ops[i]); n >= 0 {
				t.Errorf("interned %v: a bucket is taken for a key", interned)
			}

			places[i].hash = 7
			n := h.insert(&places[i], &ops[i])
			h.save(n, &core.State{Limit: ops[i].Limit}, v.id, ops[i].Rule)
		}

		// Each key is found with its own rule and limit, among six slots.
		for i := range ops {
			if n := h.find(&places[i], &ops[i]); n < 0 || *h.classOf(n) != (limitClassKey{ops[i].Rule, ops[i].Limit}) {
				t.Errorf("interned %v: op %d is not found", interned, i)
			}
		}
	}
}

func TestInvalidLimitsAreNamedAndNothingIsCharged(t *testing.T) {
	s, _ := newStore(t, 0)

	// Two bad ops beside a good one, so that the error has to name both.
	good := takes("key", limit("5/1h"))
	bad := core.Op{Rule: "first", Limit: core.Limit{Quota: -1, Period: time.Second}}
	worse := core.Op{Rule: "second", Limit: core.Limit{Quota: 1}}

	// The first error must not leave behind a class under which the second attempt passes.
	for range 2 {
		err := s.Apply(t.Context(), []core.Op{good, bad, worse}, make([]core.Decision, 3))
		if !errors.Is(err, core.ErrOp) || !strings.Contains(err.Error(), `"first"`) ||
			!strings.Contains(err.Error(), `"second"`) {
			t.Errorf("error %v does not name both rules", err)
		}
		if err := s.Apply(t.Context(), []core.Op{bad}, make([]core.Decision, 1)); !errors.Is(err, core.ErrOp) {
			t.Errorf("error %v for a single op under a bad limit", err)
		}
	}

	if err := s.Apply(t.Context(), []core.Op{good}, nil); !errors.Is(err, core.ErrOp) {
		t.Errorf("error %v for no room for the decision", err)
	}

	if s.Len() != 0 {
		t.Errorf("%d keys held, want 0", s.Len())
	}
}

func TestContextThatIsDoneIsIgnored(t *testing.T) {
	s, _ := newStore(t, 0)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Apply(ctx, []core.Op{takes("key", each[0])}, make([]core.Decision, 1)); err != nil {
		t.Error(err)
	}
	if err := s.Apply(ctx, nil, nil); err != nil {
		t.Errorf("no ops: %v", err)
	}
}

func TestLimitsNotInternedAreCounted(t *testing.T) {
	s, _ := newStore(t, 0)

	// Limits that a caller makes up without end must not fill the memory with classes.
	for i := range maxClasses + 10 {
		do(t, s, peeks("key", core.Limit{Quota: int64(i + 1), Period: time.Hour}))
	}

	if n := s.classes.count(); n != maxClasses {
		t.Errorf("%d classes are interned, want %d", n, maxClasses)
	}

	// Beyond the bound a limit is counted all the same: two units, then a refusal.
	for i, want := range []bool{true, true, false} {
		if got := do(t, s, takes("late", limit("2/7m")))[0].Allowed; got != want {
			t.Errorf("take %d under a limit that is not interned: allowed %v, want %v", i+1, got, want)
		}
	}

	// Another quota is the same key with one unit more.
	if !do(t, s, takes("late", limit("3/7m")))[0].Allowed {
		t.Error("one more unit under another limit that is not interned is refused")
	}

	if err := s.Apply(t.Context(), []core.Op{takes("late", core.Limit{})}, make([]core.Decision, 1)); !errors.Is(err,
		core.ErrOp) {
		t.Errorf("error %v for a bad limit when no class can be interned", err)
	}
}

// A decision writes to one line of the shard, for which processors that decide about other keys of
// the shard wait, and reads a second one.
func TestShardDecisionNeedsTwoCacheLines(t *testing.T) {
	var h shard
	written := unsafe.Offsetof(h.pinAfter) + unsafe.Sizeof(h.pinAfter) - 1
	read := unsafe.Offsetof(h.count) - 1
	if strconv.IntSize == 64 && (written/cacheLine != 0 || read/cacheLine != 1 || unsafe.Sizeof(h)%cacheLine != 0) {
		t.Errorf("a decision writes bytes up to %d and reads up to %d of %d, want a line each",
			written, read, unsafe.Sizeof(h))
	}
}

func TestPinnedStateHasItsOwnCacheLine(t *testing.T) {
	var r pinned
	at := unsafe.Offsetof(r.state)
	if strconv.IntSize == 64 && (at != cacheLine || unsafe.Sizeof(r) != 2*cacheLine) {
		t.Errorf("the state begins at byte %d of %d", at, unsafe.Sizeof(r))
	}
}

func TestStateTakesNothingFromTheOneBefore(t *testing.T) {
	s, c := newStore(t, 0)
	oneShard(s)

	// A shard decides all its keys in one state of scratch.
	logged, booked := takes("a", limit("3/1s sliding-log")), takes("b", limit("1/1h"))
	booked.MaxWait = time.Hour
	do(t, s, logged)
	do(t, s, booked)

	// The log's entry has ended, so the Peek leaves an empty log behind.
	c.move(2 * time.Second)
	do(t, s, peeks("a", logged.Limit))

	// What follows is a booking, which has a head and no log of its own.
	do(t, s, booked)
	st, _, _ := held(s, &booked)
	if st.Head != 0 || st.Used != 2 {
		t.Errorf("%+v, want two units and no log", st)
	}
}
