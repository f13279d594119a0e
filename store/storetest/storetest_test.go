package storetest

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/test"
)

func TestModelPassesItsOwnSuite(t *testing.T) { Run(t, NewModel) }

// Under one limit and while the clock goes forward, a fresh key may be
// forgotten or kept.
func TestModelMayKeepAFreshKey(t *testing.T) { agree(t, newKeeper(changed)) }

// Under one limit and while the clock goes forward, a state that is not marked
// as Changed means what it meant before.
func TestModelMayKeepAnUnchangedState(t *testing.T) { agree(t, newKeeper(everything)) }

// agree compares a store with the model under limits that do not change, while
// the clock goes forward.
func agree(t *testing.T, f Factory) {
	d := newDiffer(t, families(), 2, "w", []Factory{NewModel, f})
	d.fixed, d.forward = true, true

	// A seed gives a history, so the number in a failure is all that is needed to see it again.
	histories := func(from, to uint64) {
		for n := from; n < to; n++ {
			if report := d.run(n); report != "" {
				t.Fatalf("history %d: %s", n, report)
			}
		}
	}

	histories(0, 1000)

	t.Run("long", func(t *testing.T) {
		test.Long(t, "it compares 9,000 more histories")
		histories(1000, 10_000)
	})
}

func newKeeper(keeps func(*core.State) bool) Factory {
	return func(_ testing.TB, clock *Clock) core.Store {
		return &keeper{clock: clock, keeps: keeps, states: map[core.ID]core.State{}}
	}
}

func changed(s *core.State) bool { return s.Changed || s.ConductChanged }

func everything(*core.State) bool { return true }

// keeper is a store that forgets nothing, and may keep more than it has to.
type keeper struct {
	clock  *Clock
	keeps  func(*core.State) bool
	mu     sync.Mutex
	states map[core.ID]core.State
}

func (k *keeper) Apply(_ context.Context, ops []core.Op, out []core.Decision) error {
	if err := core.CheckOps(ops, out); err != nil {
		return err
	}

	// One step at a time, as a store with one lock has it.
	k.mu.Lock()
	defer k.mu.Unlock()

	// Ops of one key share a state.
	m := Model{states: k.states}
	loaded := map[core.ID]*core.State{}
	states := make([]*core.State, len(ops))

	for i, op := range ops {
		id := op.ID()
		if loaded[id] == nil {
			loaded[id] = m.loadLocked(id)
		}
		states[i] = loaded[id]
	}

	core.Decide(ops, states, k.clock.Now(), out)

	// What is kept is what the fault of the test says; the rest is lost as in a store that forgets
	// to write it.
	for id, s := range loaded {
		if k.keeps(s) {
			k.states[id] = *s
		}
	}

	return nil
}

// faulty is a Model with a fault, for tests of the tests.
type faulty struct {
	*Model
	fault func(m *Model, ops []core.Op, out []core.Decision) error
}

func (f faulty) Apply(_ context.Context, ops []core.Op, out []core.Decision) error {
	return f.fault(f.Model, ops, out)
}

func withFault(fault func(*Model, []core.Op, []core.Decision) error) Factory {
	return func(t testing.TB, c *Clock) core.Store { return faulty{NewModel(t, c).(*Model), fault} }
}

// faults are what a store may get wrong.
func faults() map[string]Factory {
	ctx := context.Background()
	return map[string]Factory{
		// A step is charged op by op, not as a whole.
		"charges a rule though another refuses": withFault(func(m *Model, ops []core.Op, out []core.Decision) error {
			for i := range ops {
				if err := m.Apply(ctx, ops[i:i+1], out[i:i+1]); err != nil {
					return err
				}
			}
			return nil
		}),

		// A client that comes back at the rounded instant is refused once more.
		"rounds a retry to milliseconds": withFault(func(m *Model, ops []core.Op, out []core.Decision) error {
			err := m.Apply(ctx, ops, out)
			for i := range out {
				if out[i].RetryAfter != core.Never {
					out[i].RetryAfter = out[i].RetryAfter.Truncate(time.Millisecond)
				}
			}
			return err
		}),

		// Flags that are not passed on.
		"books nothing": withFault(func(m *Model, ops []core.Op, out []core.Decision) error {
			for i := range ops {
				ops[i].MaxWait = 0
			}
			return m.Apply(ctx, ops, out)
		}),
		"takes the whole cost or nothing": withFault(func(m *Model, ops []core.Op, out []core.Decision) error {
			for i := range ops {
				ops[i].UpTo = false
			}
			return m.Apply(ctx, ops, out)
		}),

		// Two Takes of one step both get the last units.
		"gives each take as many units as it has": withFault(func(m *Model, ops []core.Op, out []core.Decision) error {
			if err := m.Apply(ctx, ops, out); err != nil || !core.Granted(ops, out) {
				return err
			}
			for i := range ops {
				if more := min(out[i].Remaining, ops[i].Cost-out[i].Taken); ops[i].UpTo && more > 0 {
					out[i].Taken += more
				}
			}
			return nil
		}),

		// A refund of what has come back in the meantime gives a unit twice.
		"refunds without looking at the instant": withFault(func(m *Model, ops []core.Op, out []core.Decision) error {
			for i := range ops {
				ops[i].At = 0
			}
			return m.Apply(ctx, ops, out)
		}),

		// A step with a Reset never reaches the state.
		"leaves out what it was given": withFault(func(m *Model, ops []core.Op, out []core.Decision) error {
			for i := range ops {
				if ops[i].Verb == core.Reset {
					return nil
				}
			}
			return m.Apply(ctx, ops, out)
		}),
	}
}

func TestDiffFindsEveryFault(t *testing.T) {
	for name, f := range faults() {
		t.Run(name, func(t *testing.T) {
			// The model without the fault is the one to agree with.
			d := newDiffer(t, families(), 3, "w", []Factory{NewModel, f})

			for n := range uint64(2000) {
				report := d.run(n)
				if report == "" {
					continue
				}

				// A long report helps little: the failing history is cut down to the steps that
				// matter.
				if lines := strings.Count(report, "\nat "); lines > 4 {
					t.Errorf("the report is not short:\n%s", report)
				}

				// What is left is a timeline which the model plays without a fault.
				if _, text, _ := strings.Cut(report, "\n"); len(text) > 0 {
					Play(t, NewModel, "the report", text)
				}
				return
			}
			t.Error("not found in 2000 histories")
		})
	}
}

func TestHistoryFollowsFromItsSeed(t *testing.T) {
	// The text of thirty steps stands for the history.
	write := func(seed, n uint64) string {
		h := newHistory(families(), seed, n)
		var steps []step
		for range 30 {
			steps = append(steps, h.next())
		}

		return timeline(steps, nil)
	}

	first := write(1, 2)
	if first != write(1, 2) {
		t.Error("the same seed and number gave two histories")
	}
	if first == write(2, 2) || first == write(1, 3) {
		t.Error("another seed or number gave the same history")
	}
}

// With fewer histories than algorithms, each algorithm has one.
func TestDiffEachPlaysEveryAlgorithm(t *testing.T) {
	// The histories are shared out among seven algorithms: fourteen is the first number with two
	// for each.
	for histories, want := range map[int]int{0: 1, 1: 1, 13: 1, 14: 2} {
		var mu sync.Mutex
		played := map[core.Algorithm]map[string]bool{} // the histories of each, by their keys

		// The factory is called by histories that run at the same time.
		DiffEach(t, histories, Seed, NewModel, withFault(func(m *Model, ops []core.Op, out []core.Decision) error {
			mu.Lock()
			defer mu.Unlock()
			for _, op := range ops {
				if played[op.Limit.Algorithm] == nil {
					played[op.Limit.Algorithm] = map[string]bool{}
				}
				played[op.Limit.Algorithm][op.Key[:strings.LastIndex(op.Key, "-")]] = true
			}
			return m.Apply(context.Background(), ops, out)
		}))

		for a := core.GCRA; a <= core.CalendarWindow; a++ {
			if got := len(played[a]); got != want {
				t.Errorf("of %d histories %d are of %s, want %d", histories, got, a, want)
			}
		}
	}
}
