package rpcspec

import (
	"slices"
	"testing"
)

// Run holds the framework to the specification, over each store.
func Run(t *testing.T, f Framework) {
	t.Run("memory", func(t *testing.T) { run(t, f, inMemory) })
	t.Run("redis", func(t *testing.T) { run(t, f, inRedis(t)) })
}

// RunInMemory holds the framework to the specification over the memory store alone, for a
// framework that [Run] is called with too, which differs only in what is on the wire.
func RunInMemory(t *testing.T, f Framework) { run(t, f, inMemory) }

// spec is one promise.
type spec struct {
	name string
	hold func(*bench)
}

func run(t *testing.T, f Framework, stores makeStore) {
	for _, s := range slices.Concat(setup, limiting, nesting, options, failing, status, leases, settling, waiting, identity, messages) {
		t.Run(s.name, func(t *testing.T) { s.hold(newBench(t, f, stores)) })
	}
}
