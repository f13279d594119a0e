package httpspec

import (
	"slices"
	"testing"
)

// Run holds the framework to the specification, over each store.
func Run(t *testing.T, f Framework) {
	t.Run("memory", func(t *testing.T) { run(t, f, inMemory) })
	t.Run("redis", func(t *testing.T) { run(t, f, inRedis(t)) })
}

// spec is one promise.
type spec struct {
	name string
	hold func(*bench)
}

func run(t *testing.T, f Framework, stores makeStore) {
	promises := slices.Concat(setup, limiting, nesting, options, failing, status, leases, settling, waiting, identity)
	if !f.NoRanges {
		promises = append(promises, ranges...)
	}
	for _, s := range promises {
		t.Run(s.name, func(t *testing.T) { s.hold(newBench(t, f, stores)) })
	}
}
