// Package storetest tests that a [core.Store] decides exactly as specified. The tests of a store
// run it so:
//
//	storetest.Run(t, func(t testing.TB, clock *storetest.Clock) core.Store {
//		return memstore.MustNew(memstore.Options{Clock: clock.Now})
//	})
//
// A [Factory] makes a store whose time is that of a [Clock], which the tests move. [Model] is the
// reference: the arithmetic of core behind one mutex. [Run] holds everything that a store must
// pass, and each part can be run by itself:
//
//   - Timelines: text files of steps at given instants and their answers,
//     written to be read.
//   - Properties: facts that hold for every limit under any arrivals.
//   - Kept: the bound on what is admitted while limits change.
//   - Diff: random histories, decided step by step like the reference.
//   - Contention: exact counts under concurrent callers.
//
// The file docs/store.md says how to write a store.
package storetest

import (
	"context"
	"testing"

	"github.com/headgate/headgate/core"
)

// Factory returns a new and empty store that reads the time from clock. It
// registers what closes the store with t.Cleanup. Several stores of one Factory
// must not share keys.
type Factory func(t testing.TB, clock *Clock) core.Store

// Seed and Histories are the arguments of the random parts of [Run].
const (
	Seed      = 1
	Histories = 2000
)

// Run tests the stores that f makes against everything in this package.
func Run(t *testing.T, f Factory) {
	t.Run("Timelines", func(t *testing.T) { Timelines(t, f) })
	t.Run("Properties", func(t *testing.T) { Properties(t, f) })
	t.Run("Contention", func(t *testing.T) { Contention(t, f) })
	t.Run("Kept", func(t *testing.T) { Kept(t, Histories, Seed, f) })
	t.Run("Diff", func(t *testing.T) { Diff(t, Histories, Seed, NewModel, f) })
}

// apply carries out ops and ends the test on an error.
func apply(t fataler, s core.Store, ops ...core.Op) []core.Decision {
	t.Helper()
	out := make([]core.Decision, len(ops))
	if err := s.Apply(context.Background(), ops, out); err != nil {
		t.Fatalf("Apply(%v): %v", ops, err)
	}
	return out
}

// fataler is the part of a testing.TB or a rapid.T that this package needs.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}
