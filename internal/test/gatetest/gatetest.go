// Package gatetest makes limiters for the tests of adapters. [Limited] makes one with one rule.
package gatetest

import (
	"context"
	"log/slog"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfuncs"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/store/memstore"
)

// Store returns a memory store whose clock stands still.
func Store() *memstore.Store {
	return memstore.MustNew(memstore.Options{Clock: func() int64 { return 1_800_000_000_000_000 }})
}

// Everyone counts all requests by one key.
func Everyone(core.Request) (string, bool) { return "k", true }

// Rule returns the rule "a" with the limit that text says, for [Everyone], and
// with the changes.
func Rule(text string, changes ...func(*limiter.Rule)) limiter.Rule {
	r := limiter.Rule{Name: "a", Limit: core.MustParseLimit(text), Key: Everyone}
	for _, change := range changes {
		change(&r)
	}
	return r
}

// Limiter returns a limiter of c. It has a [Store] of its own unless c has a store,
// and it writes no log unless c has a logger.
func Limiter(t testing.TB, c limiter.Config) *limiter.Limiter {
	t.Helper()
	if c.Store == nil {
		c.Store = Store()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	l, err := limiter.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Limited returns a limiter with one rule; see [Rule].
func Limited(t testing.TB, text string, changes ...func(*limiter.Rule)) *limiter.Limiter {
	t.Helper()
	return Limiter(t, limiter.Config{Rules: []limiter.Rule{Rule(text, changes...)}})
}

// ByAddress returns a limiter with one rule, which counts each peer, over a memory
// store with the clock of the machine. Benchmarks use it.
func ByAddress(t testing.TB, text string) *limiter.Limiter {
	t.Helper()
	byAddress := Rule(text, func(r *limiter.Rule) { r.Key = keyfuncs.RemoteIP })
	return Limiter(t, limiter.Config{Store: memstore.MustNew(memstore.Options{}), Rules: []limiter.Rule{byAddress}})
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
