//go:build !race

package ginmw_test

import (
	"testing"

	"github.com/headgate/headgate/ginmw"
	"github.com/headgate/headgate/internal/test/gatetest"
)

// Under the race detector a sync.Pool drops some items.

// The allocations are the text of the headers and their values.
func TestMiddlewareAllocations(t *testing.T) {
	without, with := chain(), chain(ginmw.New(gatetest.ByAddress(t, "1000000000/1m")))
	for range 1001 { // the first requests, whose keys are examined
		with()
	}
	if got := testing.AllocsPerRun(1000, with) - testing.AllocsPerRun(1000, without); got != 0 {
		t.Errorf("%v allocations more, want 0", got)
	}
}

// An admission that is not recycled costs one more allocation.
func TestRefusalRecycled(t *testing.T) {
	refuse := chain(ginmw.New(gatetest.ByAddress(t, "1/1h")))
	for range 1001 {
		refuse()
	}
	if got := testing.AllocsPerRun(1000, refuse); got != 0 {
		t.Errorf("%v allocations, want 0", got)
	}
}
