// Package gatetest has limiters for the tests of adapters, on a store whose time
// does not pass.
package gatetest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/limiter"
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

// Everyone counts all requests by one key.
func Everyone(core.Request) (string, bool) { return "k", true }

// Rule is the rule "a" with the limit that text says, for everyone.
func Rule(t testing.TB, text string) limiter.Rule {
	t.Helper()
	l, err := core.ParseLimit(text)
	if err != nil {
		t.Fatal(err)
	}
	return limiter.Rule{Name: "a", Limit: l, Key: Everyone}
}

// Limiter is one of c, with a store of its own unless c has one.
func Limiter(t testing.TB, c limiter.Config) *limiter.Limiter {
	t.Helper()
	if c.Store == nil {
		c.Store = &mapStore{states: map[string]*core.State{}}
	}
	l, err := limiter.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Limited is a limiter with one rule, see [Rule].
func Limited(t testing.TB, text string) *limiter.Limiter {
	t.Helper()
	return Limiter(t, limiter.Config{Rules: []limiter.Rule{Rule(t, text)}})
}

// WantLeft fails the test unless exactly n units are left under the first rule.
func WantLeft(t testing.TB, l *limiter.Limiter, n int64) {
	t.Helper()
	list, err := l.Peek(context.Background(), "k")
	if err != nil {
		t.Fatal(err)
	}
	if got := list[0].Decision.Remaining; got != n {
		t.Errorf("%d left, want %d", got, n)
	}
}
