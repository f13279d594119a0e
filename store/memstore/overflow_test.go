package memstore

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
)

func TestFullStoreForgetsFreshKeysFirst(t *testing.T) {
	s, c := newStore(t, 10)

	// Ten keys are all that fit: nine last an hour and one a second.
	fill(t, s, "long", 9, limit("5/1h"))
	fill(t, s, "short", 1, limit("1/1s"))

	op := takes("new", limit("5/1h"))
	do(t, s, op)
	if _, _, ok := held(s, &op); ok {
		t.Error("a new key is held beyond MaxKeys")
	}

	// A second later the short one is fresh, and the new key has its slot.
	c.move(time.Second)
	do(t, s, op)
	if _, _, ok := held(s, &op); !ok {
		t.Error("a new key is not held although another was fresh")
	}

	// The bucket of the first Take is still held.
	if n := s.Len(); n != 11 {
		t.Errorf("%d held, want 10 keys and a bucket", n)
	}
}

func TestFullStoreUsesTheRoomThatIsLeft(t *testing.T) {
	s, _ := newStore(t, 2)
	l := limit("5/1h")
	ops := []core.Op{takes("a", l), takes("b", l), takes("c", l)}
	do(t, s, ops...)
	for i, want := range []bool{true, true, false} {
		if _, _, ok := held(s, &ops[i]); ok != want {
			t.Errorf("key %d: held %v, want %v", i, ok, want)
		}
	}
}

// fullStore holds one key of a minute and has no room.
func fullStore(t *testing.T) (*Store, *fakeClock) {
	s, c := newStore(t, 1)
	oneShard(s)
	do(t, s, takes("first", limit("1/1m")))
	return s, c
}

func TestBucketUnitsFollowAKeyThatIsGivenRoom(t *testing.T) {
	// The limits of an hour without leases; each has 37 units.
	for _, l := range each[:5] {
		s, c := fullStore(t)

		all := takes("abuser", l)
		all.Cost = 36
		if !do(t, s, all)[0].Allowed {
			t.Fatalf("%v: refused an unused unit", l)
		}

		c.move(time.Minute) // one unit may have come back
		do(t, s, peeks("first", limit("1/1m")))

		// The first key is forgotten, so there is room. Moving into it, the key must not leave
		// behind the units that it used in the bucket.
		all.Cost = 3
		if d := do(t, s, all)[0]; d.Allowed {
			t.Errorf("%v: %+v: 39 units admitted", l, d)
		}

		// A refused Take does not move it.
		if n := s.keys.Load(); n != 0 {
			t.Errorf("%v: a refused key is held", l)
		}

		one := takes("abuser", l)
		if d := do(t, s, one)[0]; !d.Allowed || d.Remaining > 1 {
			t.Errorf("%v: %+v for a unit that is left", l, d)
		}
		if _, _, ok := held(s, &one); !ok {
			t.Errorf("%v: no slot of its own although there is room", l)
		}

		// Others of the bucket still find its units used: they cannot be told apart from theirs.
		bucket, own := size(s), do(t, s, peeks("stranger", l))[0]
		if own.Remaining > 2 || bucket == 0 {
			t.Errorf("%v: the bucket is forgotten: %+v", l, own)
		}

		checkCounts(t, s)
	}
}

// A state that is copied must not share its log with the bucket.
func TestBucketIsLeftByAKeyThatIsGivenRoom(t *testing.T) {
	for _, l := range []core.Limit{limit("9/1h sliding-log"), limit("9/1h sliding-window segments=2")} {
		// Three Takes fill records of the bucket.
		s, c := fullStore(t)
		for range 3 {
			c.move(time.Millisecond)
			do(t, s, takes("key", l))
		}

		// A slot becomes free, and the key goes on in it with a copy of the bucket's six units.
		c.move(time.Minute)
		do(t, s, peeks("first", limit("1/1m")))

		for want := int64(5); want >= 3; want-- {
			c.move(time.Millisecond)
			if d := do(t, s, takes("key", l))[0]; d.Remaining != want {
				t.Errorf("%v: %d units left to the key, want %d", l, d.Remaining, want)
			}
		}

		// Three units were taken from the copy, none of them from the bucket.
		if d := do(t, s, peeks("stranger", l))[0]; d.Remaining != 6 {
			t.Errorf("%v: %d units left in the bucket, want 6", l, d.Remaining)
		}
	}
}

func TestBucketLeasesBelongToTheirKeys(t *testing.T) {
	l := limit("2 concurrent ttl=1h")

	// All three keys share one bucket of two leases.
	s, c := fullStore(t)
	a, b, other := takes("a", l), takes("b", l), takes("other", l)
	for i, row := range []struct {
		ops  []core.Op
		want bool
	}{
		// Each key renews its own lease and cannot end or renew that of another, though their ids
		// are equal.
		{[]core.Op{a}, true},
		{[]core.Op{a}, true}, // renewed
		{[]core.Op{b}, true}, // the same lease id of another key
		{[]core.Op{other}, false},
		{[]core.Op{a, b}, true},
		{[]core.Op{undo(b)}, true},
		{[]core.Op{other}, true},
		{[]core.Op{b}, false},
	} {
		for _, d := range do(t, s, row.ops...) {
			if d.Allowed != row.want {
				t.Errorf("row %d: %+v, want allowed %v", i, d, row.want)
			}
		}
	}

	// After a minute the first key is gone and there is room for one more.
	c.move(time.Minute)
	do(t, s, peeks("first", limit("1/1m")))

	// A key with a lease in the bucket stays there, or it would get twice as many.
	more := takes("a", l)
	more.Lease = "more"
	if do(t, s, more)[0].Allowed {
		t.Error("a key that holds a lease in the bucket counts anew when there is room")
	}

	if !do(t, s, b)[0].Allowed {
		t.Error("a key that holds none is refused for others when there is room")
	}

	if s.Len() != 2 {
		t.Errorf("%d held, want the bucket and a key", s.Len())
	}

	// With the other leases ended, a and its second lease fill the limit exactly.
	do(t, s, undo(other), undo(b))
	for _, op := range []core.Op{more, a} {
		if !do(t, s, op)[0].Allowed {
			t.Errorf("lease %q is refused, which the key has room for or holds", op.Lease)
		}
	}

	do(t, s, undo(a), undo(more))
	if s.Len() != 0 {
		t.Errorf("%d held after all leases ended, want 0", s.Len())
	}

	checkCounts(t, s)
}

func undo(op core.Op) core.Op {
	op.Verb = core.Refund
	return op
}

// A debit of a new key is charged to the bucket, and to nothing where there is none.
func TestBucketIsDebited(t *testing.T) {
	l := limit("5/1h")
	s, _ := fullStore(t)

	// Eight units are debited from a new key: the bucket has five, and owes three.
	debit := takes("a", l)
	debit.Verb, debit.Cost = core.Debit, 8
	if d := do(t, s, debit)[0]; d.Taken != 8 || d.Remaining != 0 {
		t.Errorf("%+v", d)
	}

	// Another key of the bucket has to wait for the debt of three and for its own unit: four units
	// of twelve minutes each.
	if d := do(t, s, takes("b", l))[0]; d.Allowed || d.RetryAfter != 4*12*time.Minute {
		t.Errorf("another key of the bucket: %+v, want a refusal until the debt and a unit are back", d)
	}

	// The most that a limit of five can owe is five more, so the next debit is charged two of its
	// eight; those are what a refund gives back.
	refund := debit.Refund(do(t, s, debit)[0])
	if d := do(t, s, refund)[0]; refund.Cost != 2 || d.RetryAfter != 0 || d.ResetAfter != 8*12*time.Minute {
		t.Errorf("a refund of %d: %+v", refund.Cost, d)
	}

	// A debit is no Take that was shared or refused; the one that was shared is that of b.
	if shared, refused := s.Overflowed(); shared != 1 || refused != 0 {
		t.Errorf("%d takes are counted in buckets and %d are refused, want 1 and 0", shared, refused)
	}

	// When there are as many buckets as there may be, a debit without one is charged nothing.
	for i := range maxBuckets {
		op := takes("a", l)
		op.Rule = fmt.Sprint("rule", i)
		do(t, s, op)
	}
	debit.Rule = "none"
	if d := do(t, s, debit)[0]; d.Taken != 0 || d.Remaining != 0 {
		t.Errorf("without a bucket: %+v", d)
	}

	checkCounts(t, s)
}

func TestBucketResetFreesNoOtherKey(t *testing.T) {
	l := limit("1/1h")
	s, _ := fullStore(t)
	do(t, s, takes("exhausted", l))
	reset := takes("friend", l)
	reset.Verb = core.Reset
	if d := do(t, s, reset)[0]; !d.Allowed || d.ResetAfter != time.Hour {
		t.Errorf("%+v, want the bucket as it stands", d)
	}
	if do(t, s, takes("exhausted", l))[0].Allowed {
		t.Error("a reset of another key has freed this one")
	}
}

func TestBucketRefundReachesTheChargedBucket(t *testing.T) {
	l := limit("1/1h")
	s, _ := fullStore(t)
	op := takes("key", l)
	d := do(t, s, op)[0]
	op = undo(op)
	op.At, op.ResetAfter = d.At, d.ResetAfter
	do(t, s, op)
	if !do(t, s, takes("key", l))[0].Allowed {
		t.Error("the unit was not given back")
	}
}

func TestBucketUnitsAreSharedByOpsOfAStep(t *testing.T) {
	l := limit("3/1h")
	s, _ := fullStore(t)

	// Both keys are counted in the bucket of three units: the first step takes two, the second has
	// one for two ops and is refused.
	two := []core.Op{takes("a", l), takes("b", l)}
	for i, left := range []int64{1, 1} {
		for k, d := range do(t, s, two...) {
			if d.Remaining != left || d.Allowed != (i == 0 || k == 0) {
				t.Errorf("step %d, op %d: %+v, want %d left", i, k, d, left)
			}
		}
	}

	if s.Len() != 2 {
		t.Errorf("%d held, want the first key and the bucket", s.Len())
	}
}

func TestBucketUnitsAreSharedByUpToTakes(t *testing.T) {
	for n, want := range []int64{7, 3, 2, 1} { // keys, and what each of them gets of 7
		s, _ := fullStore(t)

		// What the bucket has is split evenly among the keys, as each alone may take up to nine.
		ops := make([]core.Op, n+1)
		for i := range ops {
			ops[i] = takes(strconv.Itoa(i), limit("7/1h"))
			ops[i].UpTo, ops[i].Cost = true, 9
		}

		for k, d := range do(t, s, ops...) {
			if !d.Allowed || d.Taken != want || d.Remaining != 7-want*int64(n+1) {
				t.Errorf("%d keys, op %d: %+v, want %d taken", n+1, k, d, want)
			}
		}
	}

	s, _ := fullStore(t)

	// With one unit left for two keys, half of it is none, and the second is refused.
	do(t, s, takes("a", limit("2/1h")))
	two := []core.Op{takes("b", limit("2/1h")), takes("c", limit("2/1h"))}
	two[0].UpTo, two[1].UpTo = true, true

	if out := do(t, s, two...); !out[0].Allowed || out[1].Allowed || out[0].Taken != 0 || out[1].Taken != 0 ||
		out[0].Remaining != 1 {
		t.Errorf("one unit for two keys: %+v", out)
	}
}

// fillBuckets opens every overflow bucket of a full store with one shard, each for a
// limit of its own.
func fillBuckets(t *testing.T, s *Store) {
	t.Helper()
	for i := range maxBuckets {
		op := takes("key", core.Limit{Quota: int64(i + 1), Period: time.Hour})
		op.Rule = fmt.Sprint("filler", i)
		do(t, s, op)
	}
}

// The bound is the one that docs/promises.md names.
func TestBucketsAreBounded(t *testing.T) {
	const bound = 256
	for _, interned := range []bool{true, false} {
		s, c := fullStore(t)

		// With and without interned classes, because buckets are found by the class.
		for i := 0; !interned && s.classes.count() < maxClasses; i++ {
			s.classes.add(limitClassKey{strconv.Itoa(i), core.Limit{Quota: 1}})
		}

		fillBuckets(t, s)

		// Beyond the bound a new key is refused at once, and for as long as a unit takes.
		for i := range 2 {
			op := takes("key", core.Limit{Quota: 5, Period: time.Second})
			op.Rule = fmt.Sprint(i)
			if d := do(t, s, op)[0]; d.Allowed || d.RetryAfter != time.Second/5 {
				t.Errorf("interned %v: %+v without a bucket, want a refusal for 200 ms", interned, d)
			}
		}

		if s.Len() != 1+bound {
			t.Errorf("interned %v: %d held, want a key and %d buckets", interned, s.Len(), bound)
		}
		if shared, refused := s.Overflowed(); shared != bound || refused != 2 {
			t.Errorf("interned %v: %d shared and %d refused, want %d and 2", interned, shared, refused, bound)
		}

		// With time the buckets are forgotten like other keys.
		c.move(time.Hour)
		if d := do(t, s, takes("key", limit("7/1s")))[0]; d.Remaining != 6 {
			t.Errorf("interned %v: %+v when there is room again", interned, d)
		}

		checkCounts(t, s)
	}
}

// admits reports whether a Take got a unit.
func admits(op *core.Op, d *core.Decision) bool {
	switch {
	case op.Verb != core.Take:
		return false
	case op.UpTo:
		return d.Taken > 0
	}
	return d.Allowed || d.RetryAfter <= 0
}

// Nothing that a step may hold gets a new key past a limit that has no bucket.
func TestNewKeyWithoutABucketIsNeverFree(t *testing.T) {
	for _, l := range each {
		s, _ := fullStore(t)
		fillBuckets(t, s)

		// Each verb and flag that might get around the bucket, alone and beside others in a step.
		take := takes("new", l)
		reset, booked, upTo, soft, peek := take, take, take, take, take
		reset.Verb, peek.Verb, soft.Soft, upTo.UpTo = core.Reset, core.Peek, true, !l.Leased()

		if l.Books() {
			booked.MaxWait = time.Hour
		}

		all := takes("other", l)
		all.Cost = l.Capacity()

		// A refund or a reset of a key that is not held must not make the Take after it look free.
		for i, ops := range [][]core.Op{
			{take}, {take, take}, {undo(take), take}, {reset, take}, {reset, undo(take), soft}, {booked}, {upTo},
			{soft}, {peek}, {all},
		} {
			for k, d := range do(t, s, ops...) {
				if got := admits(&ops[k], &d); got || d.Remaining != 0 || d.RetryAfter > d.ResetAfter {
					t.Errorf("%v: step %d, op %d: %+v, want a refusal", l, i, k, d)
				}
			}
		}

		if s.Len() != 1+maxBuckets {
			t.Errorf("%v: %d held", l, s.Len())
		}
		// A key that is held goes on, and pays for no step that a new key is refused.
		if d := do(t, s, takes("first", limit("1/1m")), take); d[0].Allowed || d[1].Allowed {
			t.Errorf("%v: %+v", l, d)
		}
		checkCounts(t, s)
	}
}

func TestFullStoreLogsOnceAndCounts(t *testing.T) {
	// The store holds one key, so the second is shared from the start.
	var lines strings.Builder
	c := newClock()
	s := oneShard(MustNew(Options{MaxKeys: 1, Clock: c.read, Logger: slog.New(slog.NewTextHandler(&lines, nil))}))

	do(t, s, takes("first", limit("9/1m")), takes("first", limit("9/1m")))
	if lines.Len() != 0 {
		t.Errorf("logged %q before the store was full", &lines)
	}

	// Each new key is counted, but the line is logged once. Peeks are not Takes.
	for range 3 {
		do(t, s, takes("new", limit("1/1h")))
		do(t, s, peeks("new", limit("1/1h")))
	}

	if shared, refused := s.Overflowed(); shared != 3 || refused != 0 {
		t.Errorf("%d shared and %d refused, want 3 and 0", shared, refused)
	}

	// Refusals for want of a bucket have a line of their own, once too.
	fillBuckets(t, s)
	for i, want := range []string{
		`msg="headgate: the memory store is full, so new keys share limits with one another" max_keys=1`,
		`msg="headgate: the memory store is full and has too many limits to share, so new keys are refused" max_keys=1`} {
		if n := strings.Count(lines.String(), want); n != 1 {
			t.Errorf("line %d is there %d times: %s", i, n, &lines)
		}
	}

	if n := strings.Count(lines.String(), "\n"); n != 2 {
		t.Errorf("%d lines, want 2: %s", n, &lines)
	}
}
