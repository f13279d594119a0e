//go:build !race

package keyfuncs

import (
	"testing"
)

// Under the race detector a sync.Pool drops some items.

func TestKeyAllocations(t *testing.T) {
	for _, c := range costs {
		if got := testing.AllocsPerRun(100, func() { c.k(c.r) }); got != c.allocs {
			t.Errorf("%s: %v allocations, want %v", c.name, got, c.allocs)
		}
	}
}
