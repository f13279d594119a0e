package memstore

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
)

// refuse makes the key of the op be refused without the lock.
func refuse(t *testing.T, s *Store, op core.Op) {
	t.Helper()
	for op := op; do(t, s, op)[0].Allowed; {
	}
	for range refusalsKept - 1 {
		if answers(t, s, op) {
			t.Fatal("the refusal is kept at once")
		}
		do(t, s, op)
	}
	if !answers(t, s, op) {
		t.Fatal("the refusal is not kept")
	}
}

// answers tells whether the op is refused without the lock.
func answers(t *testing.T, s *Store, op core.Op) bool {
	t.Helper()
	v, err := s.kinds.of(&op)
	if err != nil {
		t.Fatal(err)
	}
	hash := v.hash(s.subject(op.Key))
	r := s.shards[s.shardOf(s.subject(op.Key))].refusal.Load()
	return r != nil && r.answer(hash, v, &op, s.clock(), new(core.Decision))
}

func TestARefusalThatIsKeptEndsWithWhateverChangesTheKey(t *testing.T) {
	l := limit("2/1m")
	op := takes("key", l)
	changed := op
	changed.Limit = limit("9/1m")
	for name, row := range map[string]struct {
		change func(*Store, *fakeClock)
		want   bool
	}{
		"nothing":          {func(*Store, *fakeClock) {}, false},
		"time, not enough": {func(_ *Store, c *fakeClock) { c.move(30*time.Second - time.Microsecond) }, false},
		"time":             {func(_ *Store, c *fakeClock) { c.move(30 * time.Second) }, true},
		"a refund": {func(s *Store, _ *fakeClock) {
			do(t, s, core.Op{Verb: core.Refund, Rule: "rule", Key: "key", Limit: l, Cost: 1})
		}, true},
		"a reset": {func(s *Store, _ *fakeClock) { do(t, s, core.Op{Verb: core.Reset, Rule: "rule", Key: "key", Limit: l}) }, true},
		"a reset among many": {func(s *Store, _ *fakeClock) {
			do(t, s, peeks("a", l), core.Op{Verb: core.Reset, Rule: "rule", Key: "key", Limit: l})
		}, true},
		"a clock that steps back": {func(s *Store, c *fakeClock) {
			c.move(-time.Hour)
			do(t, s, op)
			c.move(30 * time.Second)
		}, true},
		"a limit":             {func(s *Store, _ *fakeClock) { do(t, s, changed) }, false},
		"another key's reset": {func(s *Store, _ *fakeClock) { do(t, s, core.Op{Verb: core.Reset, Rule: "rule", Key: "yek", Limit: l}) }, false},
	} {
		s, c := newStore(t, 0)
		oneShard(s)
		refuse(t, s, op)
		row.change(s, c)
		if got := do(t, s, op)[0].Allowed; got != row.want {
			t.Errorf("%s: allowed %v, want %v", name, got, row.want)
		}
	}
}

func TestARefusalSaysTheSameWithTheLockAndWithout(t *testing.T) {
	s, c := newStore(t, 0)
	op := takes("key", limit("4/1m burst=3"))
	refuse(t, s, op)
	for range 200 {
		c.move(70 * time.Millisecond)
		for _, cost := range []int64{1, 2, 3, 4} {
			op.Cost = cost
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

// While one key is refused all the time, its shard's copy is put to the test by
// refunds and by refusals of other keys.
func TestNobodyIsAdmittedTwiceByARefusalThatIsOutOfDate(t *testing.T) {
	s, _ := newStore(t, 0)
	oneShard(s)
	l := limit("5/1h")
	var admitted, returned atomic.Int64
	var group sync.WaitGroup
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
	if n := admitted.Load() - returned.Load(); n != 5 {
		t.Errorf("%d units are out, want 5", n)
	}
}

// The clock is read without the lock: whatever happens then comes before the
// decision.
func TestAKeyThatIsResetWhileTheClockIsReadIsNotRefused(t *testing.T) {
	op := takes("key", limit("2/1m"))
	var s *Store
	var during func()
	s = MustNew(Options{Clock: func() int64 {
		if f := during; f != nil {
			during = nil
			f()
		}
		return start
	}})
	refuse(t, s, op)
	during = func() { do(t, s, core.Op{Verb: core.Reset, Rule: op.Rule, Key: op.Key, Limit: op.Limit}) }
	if !do(t, s, op)[0].Allowed {
		t.Error("refused by a state that is gone")
	}
}

func TestATakeThatMakesNoSenseIsAnErrorForAKeyInUse(t *testing.T) {
	s, _ := newStore(t, 0)
	good := takes("key", limit("1/1m"))
	refuse(t, s, good)
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

func TestARefusalIsOfOneKeyUnderOneLimit(t *testing.T) {
	s, _ := newStore(t, 0)
	op := takes("key", limit("1/1m"))
	refuse(t, s, op)
	v, err := s.kinds.of(&op)
	if err != nil {
		t.Fatal(err)
	}
	hash := v.hash(s.subject(op.Key))
	r := s.shards[s.shardOf(s.subject(op.Key))].refusal.Load()
	other := *v
	other.id++
	yek := op
	yek.Key = "yek"
	for name, refused := range map[string]bool{
		"hash":  r.answer(hash^1<<63, v, &op, start, new(core.Decision)),
		"limit": r.answer(hash, &other, &op, start, new(core.Decision)),
		"key":   r.answer(hash, v, &yek, start, new(core.Decision)),
	} {
		if refused {
			t.Errorf("refused in spite of another %s", name)
		}
	}
}

func TestAKeyIsRefusedWithoutTheLockAgainAfterItWasAdmitted(t *testing.T) {
	s, c := newStore(t, 0)
	op := takes("key", limit("1/1m"))
	for range 3 {
		refuse(t, s, op)
		c.move(time.Minute)
	}
}

func TestAKeyThatIsTooLongForASlotIsRefusedAllTheSame(t *testing.T) {
	s, _ := newStore(t, 0)
	op := takes(strings.Repeat("k", mostText+1), limit("1/1m"))
	for i := range 3 * refusalsKept {
		if got := do(t, s, op)[0].Allowed; got != (i == 0) {
			t.Errorf("take %d: allowed %v", i+1, got)
		}
	}
}
