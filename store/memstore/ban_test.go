package memstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
)

// strikes is a Take of one unit under a Ban of two hours, after two strikes.
func strikes(key string, l core.Limit) core.Op {
	op := takes(key, l)
	op.Ban = &core.Ban{Strikes: 2, Within: time.Minute, For: 2 * time.Hour, Max: 24 * time.Hour}
	return op
}

// A key that was never refused is kept as it is without a Ban, and pinned.
func TestBanCostsAnAdmittedKeyNothing(t *testing.T) {
	s, _ := newStore(t, 0)
	oneShard(s)

	// A key is pinned after pinAfter Takes in a row; twice as many are enough to be past it.
	op := strikes("key", limit("1000000/1s"))
	for range 2 * pinAfter {
		if !do(t, s, op)[0].Allowed {
			t.Fatal("refused")
		}
	}

	h := &s.shards[0]
	if h.pinned.Load() == nil || h.exts != nil {
		t.Errorf("pinned: %v, extensions: %v", h.pinned.Load(), h.exts)
	}

	// Nor does the Ban cost an allocation once the key is known.
	ops, out := []core.Op{op}, make([]core.Decision, 1)
	if n := testing.AllocsPerRun(1000, func() { _ = s.Apply(t.Context(), ops, out) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A refusal on each of the fast paths is a strike, alone, pinned and among several.
func TestBanCountsRefusalsOfTheFastPaths(t *testing.T) {
	l := limit("3/1h")
	for name, take := range map[string]func(*Store) core.Decision{
		"alone":  func(s *Store) core.Decision { return do(t, s, strikes("key", l))[0] },
		"pinned": func(s *Store) core.Decision { return do(t, pinAtOnce(s), strikes("key", l))[0] },
		"several": func(s *Store) core.Decision {
			return do(t, s, strikes("key", l), strikes("other", limit("99/1h")))[0]
		},
	} {
		s, c := newStore(t, 0)
		oneShard(s)

		// Three Takes fit, the two refusals after them are the strikes of the ban, and the ban then
		// refuses.
		for n, want := range []core.Decision{{Allowed: true}, {Allowed: true}, {Allowed: true}, {}, {Banned: true},
			{Banned: true}} {
			if d := take(s); d.Allowed != want.Allowed || d.Banned != want.Banned {
				t.Fatalf("%s: take %d: %+v", name, n+1, d)
			}
		}

		checkCounts(t, s)

		// The ban and the hour of the limit are over after two hours, but what follows a ban is
		// remembered for a day.
		c.move(2 * time.Hour)
		if d := take(s); !d.Allowed {
			t.Errorf("%s: after the ban: %+v", name, d)
		}

		c.move(24*time.Hour - time.Microsecond) // until the ban is forgotten, all but a microsecond
		s.shards[0].sweep(c.read(), 100, 0)
		if n := s.Len(); n != 1 {
			t.Errorf("%s: %d keys are held while a ban is remembered", name, n)
		}

		c.move(time.Microsecond)
		s.shards[0].sweep(c.read(), 100, 0)
		if n := s.Len(); n != 0 {
			t.Errorf("%s: %d keys are held", name, n)
		}
		checkCounts(t, s)
	}
}

// Keys that share a bucket are never banned, because others may have used its units up, and
// neither does a key begin with the strikes of a bucket.
func TestBanIsNeverThatOfABucket(t *testing.T) {
	s, c := newStore(t, 64)
	oneShard(s)
	l := limit("2/1h fixed-window")

	// The table is full of keys that come once each, so those that follow share a bucket.
	fill(t, s, "early", 64, l)
	for i := range 20 {
		op := strikes(fmt.Sprint("late", i%4), l)
		if d := do(t, s, op)[0]; d.Banned || d.Allowed != (i < 2) {
			t.Fatalf("take %d of the bucket: %+v", i+1, d)
		}
	}

	// A slot becomes free, and a key with a bucket behind it moves into it: the units it did not
	// use alone may refuse it, but not ban it.
	free := takes("early0", l)
	free.Verb = core.Reset
	do(t, s, free)

	for range 3 {
		if d := do(t, s, strikes("late0", l))[0]; d.Banned {
			t.Errorf("banned for the units of its bucket: %+v", d)
		}
	}

	checkCounts(t, s)

	// When all is fresh again, a key in a slot of its own is banned like any other.
	c.move(time.Hour)
	do(t, s, strikes("early1", l), strikes("early1", l))

	for n, want := range []bool{false, true} {
		if d := do(t, s, strikes("early1", l))[0]; d.Banned != want {
			t.Errorf("refusal %d of a key with a slot of its own: %+v", n+1, d)
		}
	}

	checkCounts(t, s)
}

// A slot without records follows one whose first record no longer counts.
func TestExpiryOfAKeyWhoseBanIsLiftedUnderAnotherLimit(t *testing.T) {
	s, c := newStore(t, 0)
	oneShard(s)

	// The records of another key stay in memory that slots share; the first of them ends while the
	// others count.
	for range 3 {
		do(t, s, takes("records", limit("9/4s sliding-window segments=4")))
		c.move(2 * time.Second)
	}

	s.shards[0].sweep(c.read(), 100, 0) // asks when the key is fresh
	ban, lift := strikes("banned", limit("5/4s sliding-window segments=4")),
		takes("banned", limit("7/4s sliding-window segments=4"))
	ban.Verb, lift.Verb = core.Impose, core.Lift

	// The Lift comes under another quota than the ban was imposed under, which changes no record.
	do(t, s, ban)
	if !do(t, s, strikes("banned", ban.Limit))[0].Banned {
		t.Fatal("not banned")
	}

	do(t, s, lift)

	// A unit that another key's records had left in the slot would show here.
	if d := do(t, s, strikes("banned", ban.Limit))[0]; !d.Allowed || d.Remaining != 4 {
		t.Errorf("%+v", d)
	}
	checkCounts(t, s)
}
