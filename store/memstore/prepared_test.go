package memstore

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/core"
)

// prepare is Store.Prepare for ops that are valid.
func prepare(t rapid.TB, s *Store, ops ...core.Op) *Prepared {
	for i := range ops {
		ops[i].Key, ops[i].Cost = "", 0
	}
	p, err := s.Prepare(ops)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// preparations draws the ops of a step: few rules or many, on the fast paths or not.
func preparations(t *rapid.T) []core.Op {
	limits := []string{"5/1s", "5/1s", "2/1h burst=6", "60/1m burst=3", "9/2s fixed-window", "7/1s token-bucket"}
	// A step of several under a list is for the general path, and one alone is not.
	if rapid.IntRange(0, 3).Draw(t, "lists") == 0 {
		limits = append(limits, "3/1m sliding-log", "12/1s sliding-window", "7/1h")
	}

	var ops []core.Op
	for i := range rapid.SampledFrom([]int{0, 1, 1, 2, 2, 3, 4, 5, 16, 17}).Draw(t, "rules") {
		op := ruled(fmt.Sprint("rule", i), "", rapid.SampledFrom(limits).Draw(t, "limit"))
		op.Soft = rapid.IntRange(0, 3).Draw(t, "soft") == 0
		ops = append(ops, op)
	}
	// One key twice has to be decided one upon the other.
	if len(ops) > 0 && rapid.IntRange(0, 9).Draw(t, "twice") == 0 {
		ops = append(ops, ops[0])
	}
	return ops
}

func TestPreparedDecidesAsAMapOfStates(t *testing.T) {
	for name, change := range map[string]func(*Store){
		"spread over shards": func(*Store) {},
		"always pinned":      func(s *Store) { pinAtOnce(oneShard(s)) },
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				h, ref := &history{now: start}, reference{}
				s := MustNew(Options{Clock: func() int64 { return h.now }})
				change(s)
				ops := preparations(t)
				p := prepare(t, s, slices.Clone(ops)...)

				for range rapid.IntRange(1, 60).Draw(t, "steps") {
					h.now += rapid.SampledFrom([]int64{
						0, 0, 1, 200_000, 1_000_000, -1, -1_000_000, 3_600_000_000}).Draw(t, "move")
					key := rapid.SampledFrom([]string{"", "x", "x", "y"}).Draw(t, "key")
					cost := rapid.SampledFrom([]int64{1, 1, 1, 2, 6, 100, 0}).Draw(t, "cost")
					for i := range ops {
						ops[i].Key, ops[i].Cost = key, cost
					}

					// Now and then another step, of a single rule, comes in between.
					if n := rapid.IntRange(0, 9).Draw(t, "other"); n < len(ops) {
						want, got := ref.apply(ops[n:n+1], h.now), make([]core.Decision, 1)
						if err := s.Apply(t.Context(), ops[n:n+1], got); err != nil || !reflect.DeepEqual(got, want) {
							t.Fatalf("%+v, want %+v, %v", got, want, err)
						}
					}

					got := make([]core.Decision, len(ops))
					if err := p.Take(key, cost, got); err != nil {
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

// takeTogether decides where the fast path does that has looked nothing up, and equally.
func TestPreparedTakesTogetherWhatIsQuick(t *testing.T) {
	a, b, c := ruled("a", "key", "9/1h"), ruled("b", "key", "9/1h"), ruled("c", "key", "1/1h")
	for name, row := range map[string]struct {
		ops   []core.Op
		spoil func(s *Store)
		done  bool
	}{
		"two rules":                     {[]core.Op{a, b}, nil, true},
		"a refusal":                     {[]core.Op{a, c, b}, nil, true},
		"a refusal that does not count": {[]core.Op{a, soft(c), b}, nil, true},
		"a new rule, refused":           {[]core.Op{ruled("new", "key", "9/1h"), c}, nil, true},

		"a new rule, taken": {[]core.Op{ruled("new", "key", "9/1h"), b}, nil, false},
		"a new limit":       {[]core.Op{ruled("a", "key", "8/1h"), b}, nil, false},
		"a new rule, the store is full": {[]core.Op{ruled("new", "key", "9/1h"), c},
			func(s *Store) { s.maxKeys = s.keys.Load() + maxFastTakes - 1 }, false},
		"a new rule that may be in a bucket": {[]core.Op{ruled("new", "key", "9/1h"), c},
			func(s *Store) { s.shards[s.shardOf(s.keyHash("key"))].buckets = 1 }, false},
	} {
		s, _ := known(t)
		if row.spoil != nil {
			row.spoil(s)
		}
		got := make([]core.Decision, len(row.ops))
		if _, done := prepare(t, s, slices.Clone(row.ops)...).takeTogether("key", 1, got); done != row.done {
			t.Errorf("%s: done %v, want %v", name, done, row.done)
		}

		// A step that was left undone has to leave the slots as they were.
		other, _ := known(t)
		if row.done {
			if want := do(t, other, row.ops...); !slices.Equal(got, want) {
				t.Errorf("%s:\n got %+v\nwant %+v", name, got, want)
			}
		}
		compareSlots(t, name, s, other)
	}
}

// A refused step forgets what it leaves fresh: b half an hour later, and the key of a cost that is
// above its limit.
func TestPreparedRefusedForgetsFreshKeys(t *testing.T) {
	for name, row := range map[string]struct {
		rules []core.Op
		cost  int64
		left  int
	}{
		"by another rule": {[]core.Op{ruled("a", "", "9/1h"), ruled("c", "", "1/1h")}, 1, 2},
		"by its cost":     {[]core.Op{ruled("a", "", "9/1h"), ruled("b", "", "9/1h")}, 10, 1},
	} {
		s, c := known(t)
		c.move(30 * time.Minute)
		s.tidied.Store(c.now.Load()) // a tidy would forget the others too
		out := make([]core.Decision, 2)
		if err := prepare(t, s, row.rules...).Take("key", row.cost, out); err != nil {
			t.Fatal(err)
		}
		if out[0].Taken+out[1].Taken != 0 || s.Len() != row.left {
			t.Errorf("%s: %+v, %d keys held, want %d", name, out, s.Len(), row.left)
		}
	}
}

// A step reads the clock once, whichever path decides, and once more if another has used a later
// instant.
func TestPreparedReadsTheClockOnce(t *testing.T) {
	for _, ops := range [][]core.Op{{ruled("a", "", "9/1h")}, {ruled("a", "", "9/1h"), ruled("b", "", "9/1h")}} {
		s, c := newStore(t, 0)
		p, out := prepare(t, s, ops...), make([]core.Decision, len(ops))
		take := func() int64 {
			c.reads.Store(0)
			if err := p.Take("key", 1, out); err != nil {
				t.Fatal(err)
			}
			return c.reads.Load()
		}
		for _, want := range []int64{8, 7, 6} { // the first of a new key
			if n := take(); n != 1 || out[0].Remaining != want {
				t.Errorf("%d rules: %d readings, %+v", len(ops), n, out)
			}
		}

		s.clock = func() int64 {
			c.move(time.Second)
			s.clock = c.read
			do(t, s, ruled("a", "key", "9/1h"))
			return start
		}
		// One of them is that of the other step.
		if n := take(); n != 2 || out[0].Remaining != 4 || out[0].At != start+1_000_000 {
			t.Errorf("%d rules, overtaken: %d readings, %+v", len(ops), n, out)
		}
	}
}

func TestPreparedRefusesWhatIsInvalid(t *testing.T) {
	s, _ := newStore(t, 0)
	for name, op := range map[string]core.Op{
		"limit":    {Rule: "a"},
		"max wait": {Rule: "a", Limit: limit("1/1h"), MaxWait: -1},
	} {
		if p, err := s.Prepare([]core.Op{op}); !errors.Is(err, core.ErrOp) || p != nil {
			t.Errorf("%s: %v, %v", name, p, err)
		}
	}
	for _, ops := range [][]core.Op{{ruled("a", "", "9/1h")}, {ruled("a", "", "9/1h"), ruled("b", "", "9/1h")}} {
		if err := prepare(t, s, ops...).Take("key", -1, make([]core.Decision, 2)); !errors.Is(err, core.ErrOp) {
			t.Errorf("%d rules, a negative cost: %v", len(ops), err)
		}

		// Too few decisions are no panic, which would leave a shard locked.
		err := prepare(t, s, ops...).Take("key", 1, make([]core.Decision, len(ops)-1))
		if !errors.Is(err, core.ErrOp) {
			t.Errorf("%d rules, a decision too few: %v", len(ops), err)
		}
	}
	if s.Len() != 0 {
		t.Errorf("%d keys", s.Len())
	}
}

// Steps at once are granted as many units as the tightest rule has, and no refusal costs another
// rule a unit.
func TestPreparedUnderContention(t *testing.T) {
	s, _ := newStore(t, 0)
	p := prepare(t, s, ruled("a", "", "500/1h"), ruled("b", "", "900/1h"))
	var granted atomic.Int64
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			out := make([]core.Decision, 2)
			for range 500 {
				if err := p.Take("key", 1, out); err != nil {
					t.Error(err)
				}
				if out[0].Taken == 1 && out[1].Taken == 1 {
					granted.Add(1)
				}
			}
		})
	}
	group.Wait()

	peek := ruled("b", "key", "900/1h")
	peek.Verb = core.Peek
	if n, left := granted.Load(), do(t, s, peek)[0].Remaining; n != 500 || left != 400 {
		t.Errorf("%d granted, %d left under b", n, left)
	}
}
