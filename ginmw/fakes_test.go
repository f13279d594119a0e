package ginmw_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
)

// mapStore is the plainest store that holds the contract, at an instant that
// does not pass.
type mapStore struct {
	mu     sync.Mutex
	states map[string]*core.State
}

func (s *mapStore) Apply(_ context.Context, ops []core.Op, out []core.Decision) error {
	if err := core.CheckOps(ops, out); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	states := make([]*core.State, len(ops))
	for i := range ops {
		k := ops[i].Rule + "\n" + ops[i].Key
		if s.states[k] == nil {
			s.states[k] = &core.State{}
		}
		states[i] = s.states[k]
	}
	core.Decide(ops, states, time.Unix(1_800_000_000, 0).UnixMicro(), out)
	return nil
}

// downStore cannot decide.
type downStore struct{}

func (downStore) Apply(context.Context, []core.Op, []core.Decision) error {
	return context.DeadlineExceeded
}

func everyone(core.Request) (string, bool) { return "k", true }

func rule(t testing.TB, text string) core.Rule {
	t.Helper()
	l, err := core.ParseLimit(text)
	if err != nil {
		t.Fatal(err)
	}
	return core.Rule{Name: "a", Limit: l, Key: everyone}
}

func limiter(t testing.TB, c core.Config) *core.Limiter {
	t.Helper()
	if c.Store == nil {
		c.Store = &mapStore{states: map[string]*core.State{}}
	}
	l, err := core.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func limited(t testing.TB, text string) *core.Limiter {
	t.Helper()
	return limiter(t, core.Config{Rules: []core.Rule{rule(t, text)}})
}

// wantLeft fails unless exactly n units are left.
func wantLeft(t testing.TB, l *core.Limiter, n int64) {
	t.Helper()
	list, err := l.Peek(context.Background(), "k")
	if err != nil {
		t.Fatal(err)
	}
	if got := list[0].Decision.Remaining; got != n {
		t.Errorf("%d left, want %d", got, n)
	}
}
