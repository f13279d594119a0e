package redisstore

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test/redistest"
	"github.com/headgate/headgate/store/storetest"
)

// twoRules returns a step of two rules about two keys.
func twoRules(t *testing.T, first, second string) []core.Op {
	return []core.Op{
		{Rule: "r", Key: "k", Limit: limit(t, first), Cost: 1},
		{Rule: "q", Key: "address", Limit: limit(t, second), Cost: 1},
	}
}

// A step of several rules is answered without Redis if all of them refuse it, as Redis would.
func TestRefusalCacheAnswersStepsOfSeveralRules(t *testing.T) {
	addr := redistest.Addr(t)
	for _, row := range []struct {
		first, second string
		known         bool
	}{
		{"2/1h", "2/1h fixed-window", true},
		{"2/1h sliding-window", "2/1m", true},
		// A step is known only if each rule of it is refused by itself.
		{"2/1h", "3/1h", false}, // what remains of the second is not known
		{"2/1h", "2 concurrent ttl=1m", false},
	} {
		p := newPair(t, addr)
		ops := twoRules(t, row.first, row.second)
		for i := range ops {
			if ops[i].Limit.Leased() {
				ops[i].Lease = "a"
			}
		}

		// Two steps are granted, and the third is the first refusal, which only Redis can say.
		p.apply(ops...)
		p.apply(ops...)
		if out, asked := p.apply(ops...); core.Granted(ops, out) || !asked {
			t.Fatalf("%+v: a first refusal %+v, asked %v", row, out, asked)
		}

		for range 3 {
			p.clock.Add(300 * time.Millisecond)
			if _, asked := p.apply(ops...); asked == row.known {
				t.Errorf("%+v: Redis was asked: %v", row, asked)
			}
		}

		// The order of the rules says nothing about the step.
		slices.Reverse(ops)
		if _, asked := p.apply(ops...); asked == row.known {
			t.Errorf("%+v in another order: Redis was asked: %v", row, asked)
		}

		// After a Reset by this store nothing is known of the key.
		undo := ops[0]
		undo.Verb = core.Reset
		p.apply(undo)
		if _, asked := p.apply(ops...); !asked {
			t.Errorf("%+v: Redis was not asked after a Reset", row)
		}
	}
}

// waited has a step waited for, as await does.
func waited(s *Store, came time.Time, ops []core.Op, out []core.Decision) {
	s.dispatcher.overflow.remember(came, ops, out)
}

// What was refused to steps that waited is the answer to the same step, as Redis gives it, as
// long as nothing changes, for a second.
func TestOverflowAnswersAsRedis(t *testing.T) {
	addr := redistest.Addr(t)

	// The first rule refuses, and the second has units left, in every pair of algorithms.
	for _, row := range [][2]string{
		{"2/1h", "5/1h"},
		{"2/1h", "5/1h fixed-window"},
		{"2/1h fixed-window", "5/1h token-bucket"},
		{"2/1h sliding-window", "5/1h sliding-log"},
		{"2/1h sliding-log", "5/1h burst=9"},
		{"2/1h", "2/1h"},
	} {
		clock := storetest.NewClock()
		s, _ := fresh(t, addr, Options{Clock: clock.Now})
		ops := twoRules(t, row[0], row[1])

		apply(t, s, ops...)
		apply(t, s, ops...)
		refusal := apply(t, s, ops...)

		got := make([]core.Decision, 2)
		if s.dispatcher.recall(time.Now(), ops, got) {
			t.Errorf("%q: known, although no step has waited", row)
		}

		// From the first waiter on the refusal is known: it stays that of Redis while time passes.
		waited(s, time.Now(), ops, refusal)
		for range 5 {
			clock.Add(190 * time.Millisecond)
			want := apply(t, s, ops...)
			if !s.dispatcher.recall(time.Now(), ops, got) || !slices.Equal(got, want) {
				t.Errorf("%q: %+v\nRedis says %+v", row, got, want)
			}
		}

		// When the first unit is back, the answer has ended.
		clock.Add(refusal[0].RetryAfter)
		if s.dispatcher.recall(time.Now(), ops, got) {
			t.Errorf("%q: %+v, although the refusal has ended", row, got)
		}
	}
}

// These steps are not answered: another may have changed the key, or what would be refused is
// not known.
func TestOverflowAnswersNoOtherSteps(t *testing.T) {
	addr := redistest.Addr(t)
	ops := twoRules(t, "2/1h", "5/1h")

	ban := &core.Ban{Strikes: 100, Within: time.Hour, For: time.Hour}
	for name, change := range map[string]func(s *Store, ops []core.Op) []core.Op{
		// Another operation of this store on the key.
		"after a Reset": func(s *Store, ops []core.Op) []core.Op {
			undo := ops[0]
			undo.Verb = core.Reset
			apply(t, s, undo)
			return ops
		},
		// Another question than the one that was refused.
		"another key":                  func(_ *Store, ops []core.Op) []core.Op { ops[1].Key = "other"; return ops },
		"more units":                   func(_ *Store, ops []core.Op) []core.Op { ops[0].Cost = 2; return ops },
		"more units of the other rule": func(_ *Store, ops []core.Op) []core.Op { ops[1].Cost = 4; return ops },
		"another limit": func(_ *Store, ops []core.Op) []core.Op {
			ops[1].Limit = limit(t, "6/1h")
			return ops
		},
		"with a ban": func(_ *Store, ops []core.Op) []core.Op { ops[0].Ban = ban; return ops },
		"a booking": func(_ *Store, ops []core.Op) []core.Op {
			ops[0].MaxWait = time.Hour
			return ops
		},
		// A step with another meaning, although its keys and units are the same.
		"a Peek":                      func(_ *Store, ops []core.Op) []core.Op { ops[1].Verb = core.Peek; return ops },
		"only the other rule":         func(_ *Store, ops []core.Op) []core.Op { return ops[1:] },
		"a Soft refusal":              func(_ *Store, ops []core.Op) []core.Op { ops[0].Soft = true; return ops },
		"as many units as are wanted": func(_ *Store, ops []core.Op) []core.Op { ops[1].UpTo = true; return ops },
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := fresh(t, addr, Options{})

			came := time.Now()
			apply(t, s, ops...)
			apply(t, s, ops...)
			waited(s, came, ops, apply(t, s, ops...))

			got := make([]core.Decision, 2)
			if !s.dispatcher.recall(time.Now(), ops, got) {
				t.Error("the step itself is not known")
			}

			if step := change(s, slices.Clone(ops)); s.dispatcher.recall(time.Now(), step, got) {
				t.Errorf("%+v is answered: %+v", step, got)
			}
		})
	}
}

// An answer that was on its way during a Reset is not remembered.
func TestOverflowSkipsAnswersFromBeforeAChange(t *testing.T) {
	s, _ := fresh(t, redistest.Addr(t), Options{})
	ops := twoRules(t, "1/1h", "5/1h")
	came := time.Now()
	apply(t, s, ops...)
	refusal := apply(t, s, ops...)
	undo := ops[0]
	undo.Verb = core.Reset
	apply(t, s, undo)
	waited(s, came, ops, refusal)
	if s.dispatcher.recall(time.Now(), ops, make([]core.Decision, 2)) {
		t.Error("it is remembered")
	}
}

// A step that would be turned away, or whose time ends, gets the refusal that is known.
func TestOverflowAnswersForTheQueue(t *testing.T) {
	s, _ := fresh(t, redistest.Addr(t), Options{})
	ops := twoRules(t, "1/1h", "5/1h")

	came := time.Now()
	apply(t, s, ops...)
	waited(s, came, ops, apply(t, s, ops...))

	// The other step is unlike any that waited.
	other := slices.Clone(ops)
	other[0].Key = "other"

	l := &s.dispatcher.queue.whole
	l.batches = maxBatches // as if two calls were in flight
	ask := func(what string) {
		out := make([]core.Decision, 2)
		within := func(ops []core.Op) error {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			return s.Apply(ctx, ops, out)
		}
		if err := within(ops); err != nil || core.Granted(ops, out) || out[1].Remaining != 4 {
			t.Errorf("%s: %v, %+v", what, err, out)
		}
		if err := within(other); !errors.Is(err, core.ErrOverload) {
			t.Errorf("%s: %v", what, err)
		}
	}

	// Once the caller's time ends in the queue, and once there is no room in it.
	ask("a step whose time ends")
	l.ops, l.rate = 1000, slowRate()
	ask("a step that is turned away")

	if n := s.Report().Status(nil)[0].CachedRefusals; n != 2 {
		t.Errorf("%d are told", n)
	}
	l.batches, l.ops = 0, 0
}
