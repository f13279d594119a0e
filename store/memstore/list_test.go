package memstore

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
)

// listOf returns the list beside the slot of the key, or nil.
func listOf(s *Store) []byte {
	for i := range s.shards[0].exts {
		if list := s.shards[0].listBeside(i); len(list) > 0 {
			return list
		}
	}
	return nil
}

// A list stays in its slot as long as there is room beside the key, or instead of a long one.
func TestListThatFitsIsInItsSlot(t *testing.T) {
	for _, c := range []struct {
		key, text string
		cost      int64
		takes     int
		beside    bool
	}{
		// Three words of eight bytes fit beside 15, and eleven numbers of a byte beside 28.
		{"203.0.113.25512", "1000/1h sliding-log", 1, 3, false},
		{strings.Repeat("k", 31), "1000/year", 1, 3, false},
		{strings.Repeat("k", 32), "1000/year", 1, 3, true},
		{strings.Repeat("k", 40), "1000/year", 1, 3, false},
		{"203.0.113.255123", "1000/1h sliding-log", 1, 3, true},
		{"203.0.113.25512", "1000/1h sliding-log", 1, 4, true},
		{strings.Repeat("k", 28), "1000/1h sliding-window", 255, 1, false},
		{strings.Repeat("k", 29), "1000/1h sliding-window", 255, 1, true},

		// The numbers get as wide as the largest of them needs.
		{strings.Repeat("k", 17), "70000/1h sliding-window", 65_535, 1, false},
		{strings.Repeat("k", 17), "70000/1h sliding-window", 65_536, 1, true},
		{strings.Repeat("k", 18), "1000/1h sliding-window", 256, 1, true},
		{strings.Repeat("k", 400), "1000/1h sliding-window", 256, 1, false},
	} {
		s, clock := newStore(t, 0)
		oneShard(s)
		op := takes(c.key, limit(c.text))
		op.Cost = c.cost

		for range c.takes {
			if !do(t, s, op)[0].Allowed {
				t.Fatalf("%+v: refused", c)
			}
			clock.move(time.Microsecond)
		}
		if got := listOf(s); (got != nil) != c.beside {
			t.Errorf("%+v: the list beside the slot is %v", c, got)
		}
		if got := len(s.shards[0].exts) > 0; got != (c.beside || len(c.key) > maxText) {
			t.Errorf("%+v: the shard has exts %t", c, got)
		}
	}
}

// A list takes no more than is counted for its key, however it has grown.
func TestListTakesWhatIsCounted(t *testing.T) {
	for _, l := range []core.Limit{limit("1000/1h sliding-log"), limit("100/1h sliding-log"),
		limit("2000000/1h sliding-window segments=360")} {
		s, clock := newStore(t, 0)
		oneShard(s)
		op := takes("key", l)
		op.Cost = l.Quota / min(l.Quota, 1000)

		for range l.Quota / op.Cost {
			if !do(t, s, op)[0].Allowed {
				t.Fatalf("%v: refused", l)
			}
			clock.move(time.Second)
		}

		list, counted := int64(cap(listOf(s))), bytesOf(3, &l, none)-slotBytes-extBytes
		if list == 0 || list > counted {
			t.Errorf("%v: the list takes %d bytes, %d are counted", l, list, counted)
		}
		if d := do(t, s, op)[0]; d.Allowed {
			t.Errorf("%v: allowed beyond its quota", l)
		}
	}
}

// A key with a list that is asked for again and again is pinned, and decides as one that never is.
func TestPinnedListDecidesAsOneThatIsNot(t *testing.T) {
	for _, text := range []string{"50/1s sliding-log", "50/1s sliding-window", "900/1s sliding-window segments=100",
		"4000/day"} {
		r, l := rand.New(rand.NewPCG(1, 2)), limit(text)
		s, clock := newStore(t, 0)
		other, _ := newStore(t, 0)
		oneShard(other)
		other.clock = clock.now.Load
		op, pins := takes("key", l), 0

		for i := range 50_000 {
			clock.move(time.Duration(r.IntN(40_000)) * time.Microsecond)
			if op.Cost = 1 + int64(r.IntN(3)); i%1000 == 999 {
				clock.move(-2 * time.Second)
			}
			if l.NeedsWindows() && i%2000 == 0 {
				clock.move(time.Duration(r.IntN(48)-18) * time.Hour)
				op.Windows = l.Windows(clock.now.Load())
			}

			// A Peek unpins the key of the other store each time.
			peek := op
			peek.Verb = core.Peek
			do(t, other, peek)
			got, want := do(t, s, op)[0], do(t, other, op)[0]
			if got != want {
				t.Fatalf("%v, step %d: %+v, want %+v", l, i, got, want)
			}
			if isPinned(t, s, op) {
				pins++
			}
		}
		if pins < 5_000 {
			t.Errorf("%v: pinned at %d of 50,000 steps", l, pins)
		}
	}
}

// The windows of an op are looked at on every path: a clock that none of them holds, and windows
// out of order, are errors also on a key that is held or pinned.
func TestHeldKeyNeedsSoundWindows(t *testing.T) {
	l := limit("100/day")
	for name, prepare := range map[string]func(*Store, core.Op){
		"held":   func(s *Store, op core.Op) { do(t, s, op) },
		"pinned": func(s *Store, op core.Op) { pinAtOnce(s); do(t, s, op); do(t, s, op) },
	} {
		s, clock := newStore(t, 0)
		op, other := takes("key", l), takes("other", limit("100/1h"))
		do(t, s, other)
		prepare(s, op)

		wrong := *op.Windows
		wrong[0], wrong[1] = wrong[1], wrong[0]
		late := l.Windows(clock.now.Load() + (10 * 24 * time.Hour).Microseconds())
		for _, row := range []struct {
			windows *core.Windows
			want    error
		}{{nil, core.ErrOp}, {&wrong, core.ErrOp}, {late, core.ErrWindows}} {
			bad := op
			bad.Windows = row.windows
			peek := bad
			peek.Verb = core.Peek
			for _, ops := range [][]core.Op{{bad}, {peek}, {bad, other}} {
				if err := s.Apply(t.Context(), ops, make([]core.Decision, 2)); !errors.Is(err, row.want) {
					t.Errorf("%s: %s under %v: %v, want %v", name, ops[0].Verb, row.windows, err, row.want)
				}
			}
		}

		// None of these was charged, and the next Take is decided in place.
		free := do(t, s, peeks("key", l))[0].Remaining
		if d := do(t, s, op)[0]; !d.Allowed || d.Remaining != free-1 {
			t.Errorf("%s: %+v after %d were free", name, d, free)
		}
	}
}

// A log that is empty while its key is banned is fresh as soon as the ban is lifted, also by an op
// under another limit.
func TestLiftedBanOfAnEmptyList(t *testing.T) {
	for _, algorithm := range []string{"sliding-log", "sliding-window"} {
		t.Run(algorithm, func(t *testing.T) {
			s, _ := newStore(t, 0)
			op := takes("key", limit("5/1h "+algorithm))
			op.Ban = &core.Ban{Strikes: 1, Within: time.Minute, For: time.Hour, Max: time.Hour}

			// The refused Take bans the key, and the Refund empties its log.
			taken := do(t, s, op)
			big := op
			big.Cost = 5
			if d := do(t, s, big)[0]; !d.Banned {
				t.Fatalf("%+v, want a ban", d)
			}
			do(t, s, op.Refund(taken[0]))

			lift := takes("key", limit("7/1h "+algorithm))
			lift.Verb, lift.Cost = core.Lift, 0
			do(t, s, lift)
			if d := do(t, s, op)[0]; !d.Allowed || d.Remaining != 4 {
				t.Errorf("%+v, want 4 left", d)
			}
		})
	}
}

// A list takes no more than is counted under the limit that its key has now.
func TestListShrinksWithItsLimit(t *testing.T) {
	for _, row := range [][2]string{
		{"1000/1h sliding-log", "5/1h sliding-log"},
		{"1000000/1h sliding-window segments=300", "1000000/1h sliding-window segments=60"},
	} {
		s, clock := newStore(t, 0)
		oneShard(s)
		base := s.Bytes()
		op := takes("key", limit(row[0]))
		for range 1000 {
			do(t, s, op)
			clock.move(time.Millisecond)
		}

		// All units have come back, and the next Take is under the smaller limit.
		clock.move(time.Hour)
		op.Limit = limit(row[1])
		do(t, s, op)
		for i, tag := range s.shards[0].tags {
			if tag == free {
				continue
			}
			if list, counted := s.shards[0].list(i), s.Bytes()-base; int64(cap(list)) > counted {
				t.Errorf("%s: a list of %d bytes, %d are counted", row[1], cap(list), counted)
			}
		}
	}
}
