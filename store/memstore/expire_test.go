package memstore

import (
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
)

func TestSweepFreesMemoryAsOneKeyIsTaken(t *testing.T) {
	const n = 5_000
	for _, l := range each {
		// The table grows to hold the keys; a year later, which is longer than any of the limits,
		// all are fresh.
		s, c := newStore(t, 0)
		fill(t, s, "key", n, l)
		full := size(s)
		c.move(366 * 24 * time.Hour)

		// One caller alone comes back, a hundred thousand times a second. Half a second has to be
		// enough.
		ops, out := []core.Op{takes("one", limit("1000000/1h"))}, make([]core.Decision, 1)
		for i := 0; s.Len() > 1; i++ {
			if i == 10*n {
				t.Fatalf("%v: %d keys are held after %d takes, want 1", l, s.Len(), i)
			}

			c.move(10 * time.Microsecond)
			if err := s.Apply(t.Context(), ops, out); err != nil || !out[0].Allowed {
				t.Fatal(out[0], err)
			}
		}

		// The tables have shrunk too: a flood must not cost memory for ever.
		if got, want := size(s), len(s.shards)*2*minSlots; got > want {
			t.Errorf("%v: %d slots are left of %d, want at most %d", l, got, full, want)
		}
		checkCounts(t, s)
	}
}

func TestSweepFreesMemoryAsOneKeyIsRefused(t *testing.T) {
	const n = 5_000
	s, c := newStore(t, 0)
	fill(t, s, "key", n, each[0])

	// A refusal changes nothing, so it could easily skip the sweep: a client that is refused all
	// the time would keep all keys in memory.
	ops, out := []core.Op{takes("one", limit("1/100h"))}, make([]core.Decision, 1)
	do(t, s, ops...)
	c.move(2 * time.Hour)

	for i := 0; s.Len() > 1; i++ {
		if i == 10*n {
			t.Fatalf("%d keys are held after %d refusals, want 1", s.Len(), i)
		}

		c.move(7 * time.Microsecond)
		if err := s.Apply(t.Context(), ops, out); err != nil || out[0].Allowed {
			t.Fatal(out[0], err)
		}
	}
}

// The memory comes back by time, however few decisions there are: a hundred a second are enough
// for twenty thousand keys in a second.
func TestSweepFreesMemoryByTime(t *testing.T) {
	s, c := newStore(t, 0)
	fill(t, s, "key", 20_000, limit("1/1s"))
	one := takes("one", limit("1000000/1h"))

	// The keys are fresh after a second, and keep their slots for another.
	for range 200 {
		if n := s.Len(); n < 20_000 {
			t.Fatalf("%d keys held within the grace", n)
		}
		c.move(10 * time.Millisecond)
		do(t, s, one)
	}

	for range 100 {
		c.move(10 * time.Millisecond)
		do(t, s, one)
	}
	if n := s.Len(); n != 1 {
		t.Errorf("%d keys held a second after the grace, want 1", n)
	}
}

func TestSweepVisitsNoSlotBeforeItsExpiry(t *testing.T) {
	s, c := newStore(t, 0)
	h := &oneShard(s).shards[0]
	fill(t, s, "long", 100, limit("1/1h"))
	if n := h.sweep(c.now.Load(), 1000, 0); n != 0 {
		t.Errorf("%d slots looked at, want 0", n)
	}
	fill(t, s, "short", 1, limit("1/1s"))
	c.move(time.Second)
	h.sweep(c.now.Load(), 1000, 0)
	if got, want := h.earliest.Load(), start+time.Hour.Microseconds(); s.Len() != 100 || got != want {
		t.Errorf("%d keys held, the next expires at %d, want 100 and %d", s.Len(), got, want)
	}
}

// A key that comes again within a second after it was fresh is worth its slot, as inserting it anew
// costs more.
func TestSweepSparesAKeyForASecond(t *testing.T) {
	s, c := newStore(t, 0)
	h := &oneShard(s).shards[0]
	op := takes("key", limit("1/1s"))

	// It is fresh after a second, and asked for a microsecond before it has been so for another.
	for range 3 {
		do(t, s, op)
		c.move(2*time.Second - time.Microsecond)
		h.sweep(c.now.Load(), 2*len(h.slots), grace)
		if s.Len() != 1 {
			t.Fatal("a key that comes again within a second is forgotten")
		}
	}

	do(t, s, op)
	c.move(2 * time.Second)
	h.sweep(c.now.Load(), 2*len(h.slots), grace)
	if s.Len() != 0 {
		t.Error("a key is still held a second after it was fresh")
	}
}

// When a clock steps back by an hour, which the process's own never does, the
// keys are held until it has caught up, and no longer.
func TestSweepFreesMemoryOnceTheClockHasCaughtUp(t *testing.T) {
	s, c := newStore(t, 0)
	h := &oneShard(s).shards[0]
	fill(t, s, "key", 1000, limit("1/1s"))

	// A step at the earlier hour must not move what the shard has seen.
	c.move(-time.Hour)
	do(t, s, takes("one", limit("1/2h")))
	h.sweep(c.now.Load(), 4*len(h.slots), grace)

	// The sweep uses the latest instant that was seen, so seconds of the earlier clock count for
	// nothing.
	c.move(time.Second)
	h.sweep(c.now.Load(), 4*len(h.slots), grace)
	if n := s.Len(); n != 1001 {
		t.Errorf("%d keys held before it has caught up, want 1001", n)
	}

	c.move(time.Hour + time.Second)
	h.sweep(c.now.Load(), 4*len(h.slots), grace)
	if n := s.Len(); n != 1 {
		t.Errorf("%d keys held after it has caught up, want 1", n)
	}
}

// The store is tidied too after the clock was an hour ahead.
func TestSweepFreesMemoryAfterTheClockWasAhead(t *testing.T) {
	s, c := newStore(t, 0)
	one := takes("one", limit("1000000/1h"))
	c.move(time.Hour)
	do(t, s, one)
	c.move(-time.Hour)

	// The shard of that step waits until its time has come again, and no other does.
	fill(t, s, "key", 20_000, limit("1/1s"))
	for range 10_000 {
		c.move(time.Millisecond)
		do(t, s, one)
	}
	if n := s.Len(); n > 100 {
		t.Errorf("%d keys held after ten seconds, want those of one shard", n)
	}
}

// A key that a large debt has left more used units than an int64 can multiply is in use.
func TestSweepKeepsAKeyOfALargeDebt(t *testing.T) {
	s, c := newStore(t, 0)
	h := &oneShard(s).shards[0]
	op := takes("key", limit("999983/1s burst=9000000000000"))
	op.Cost = op.Limit.Capacity()
	do(t, s, op)

	debit, refund := op, op
	debit.Verb, debit.Cost = core.Debit, 5_000_000_000_000
	do(t, s, debit)
	c.move(60 * 24 * time.Hour)

	// A Refund without an instant ends the note of the debt.
	refund.Verb, refund.Cost = core.Refund, 1
	do(t, s, refund)
	h.earliest.Store(0)
	h.sweep(c.now.Load(), 100, 0)
	if s.Len() != 1 {
		t.Error("a key in use is forgotten")
	}
}

func TestSweepDoesNotTakeBackTime(t *testing.T) {
	s, c := newStore(t, 0)
	h := &oneShard(s).shards[0]

	op := takes("key", limit("1/1s"))
	do(t, s, op)
	do(t, s, takes("fresh", limit("1/1ms")))

	// The shard has seen a step at 500 ms.
	c.move(500 * time.Millisecond)
	op.Key = "later"
	do(t, s, op)

	// A sweep that read the clock before that step comes late, with 10 ms: it must not set the
	// state back.
	h.sweep(start+10_000, 100, 0)
	st, _, ok := held(s, &op)
	if want := start + 500_000; !ok || st.Mark != want {
		t.Errorf("held %v, used since %d, want %d", ok, st.Mark, want)
	}
}

func TestSweepOfAFullStoreFindsTheFirstExpiry(t *testing.T) {
	s, c := newStore(t, 3)
	l := limit("5/1h")
	gone := takes("gone", limit("1/1s"))
	do(t, s, gone)
	gone.Verb = core.Reset
	do(t, s, gone)
	fill(t, s, "key", 3, l)
	c.move(time.Second)
	fill(t, s, "new", 2, l)
	if got, want := s.earliest.Load(), start+(12*time.Minute).Microseconds(); got != want {
		t.Errorf("the first key is expected to expire at %d, want %d", got, want)
	}
}

// halfSwept is a shard with slots of the given hashes that were used at the
// start. The one at short expires a minute later, the others an hour later. The
// sweep has looked at n places.
func halfSwept(t *testing.T, hashes []uint32, short, n int) *shard {
	s, _ := newStore(t, 0)
	h := &s.shards[0]

	// The slots are inserted by hand, as only then can their hashes be chosen.
	for i, hash := range hashes {
		op := takes(strconv.Itoa(i), limit("1/1h"))
		if i == short {
			op.Limit = limit("1/1m")
		}

		v, err := s.classes.classOf(&op)
		if err != nil {
			t.Fatal(err)
		}

		s.reserve(0)
		h.save(h.insert(&location{hash: hash, class: v.id}, &op), &core.State{Limit: op.Limit, Used: 1, Mark: start},
			v.id, op.Rule)
	}

	// The first sweep stops halfway, as a small budget makes it.
	h.observe(start)
	h.lowerEarliest(start)
	h.sweep(start, n, 0)
	return h
}

// grow adds slots until the table is moved.
func grow(h *shard) {
	first := h.slots[0].class
	for size := len(h.slots); len(h.slots) == size; {
		i := h.add(entry{hash: 1 << 31}, ext{})
		h.save(i, &core.State{Used: 1, Mark: start}, first, "")
	}
}

func TestSweepFindsSlotsThatMoveBehindIt(t *testing.T) {
	const end = 1<<32 - 1

	// A slot that moves to where the sweep has been would be missed in this round, and with it the
	// first expiry.
	for name, row := range map[string]struct {
		hashes   []uint32
		short, n int
		move     func(*shard)
	}{
		"by a removal":      {[]uint32{0, 0, 0}, 2, 2, func(h *shard) { h.remove(0) }},
		"by a larger table": {[]uint32{end, end}, 0, 1, grow},
	} {
		h := halfSwept(t, row.hashes, row.short, row.n)
		row.move(h)
		h.sweep(start, 100, 0)

		// The slot that expires first is the one at short, after its minute.
		if got, want := h.earliest.Load(), start+time.Minute.Microseconds(); got != want {
			t.Errorf("%s: the first slot is expected to expire at %d, want %d", name, got, want)
		}
	}
}
