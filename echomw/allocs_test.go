//go:build !race

package echomw_test

import (
	"testing"

	"github.com/headgate/headgate/echomw"
	"github.com/headgate/headgate/internal/test/gatetest"
)

// Under the race detector a sync.Pool drops some items.

// The three allocations are the handler, the text of the headers and their values.
func TestMiddlewareAllocations(t *testing.T) {
	without, with := chain(t), chain(t, echomw.New(gatetest.ByAddress(t, "1000000000/1m")))
	if got := testing.AllocsPerRun(1000, with) - testing.AllocsPerRun(1000, without); got != 1 {
		t.Errorf("%v allocations more, want 1", got)
	}
}

// An admission that is not recycled costs one more allocation.
func TestRefusalRecycled(t *testing.T) {
	refuse := chain(t, echomw.New(gatetest.ByAddress(t, "1/1h")))
	refuse()
	if got := testing.AllocsPerRun(1000, refuse); got != 1 {
		t.Errorf("%v allocations, want 1", got)
	}
}
