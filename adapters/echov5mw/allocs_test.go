//go:build !race

package echov5mw_test

import (
	"testing"

	"github.com/headgate/headgate/adapters/echov5mw"
	"github.com/headgate/headgate/internal/test/gatetest"
)

// Under the race detector a sync.Pool drops some items.

// Package echomw has one more, the handler, which middleware that does nothing has too.
// The text of the headers and their values are allocated for several requests at once.
func TestMiddlewareAllocations(t *testing.T) {
	without, with := chain(t, through), chain(t, echov5mw.New(gatetest.ByAddress(t, "1000000000/1m")))
	if got := testing.AllocsPerRun(1000, with) - testing.AllocsPerRun(1000, without); got != 0 {
		t.Errorf("%v allocations more, want 0", got)
	}
}

// An admission that is not recycled costs one more allocation.
func TestRefusalRecycled(t *testing.T) {
	without, refuse := chain(t, through), chain(t, echov5mw.New(gatetest.ByAddress(t, "1/1h")))
	refuse()
	if got := testing.AllocsPerRun(1000, refuse) - testing.AllocsPerRun(1000, without); got != 0 {
		t.Errorf("%v allocations more, want 0", got)
	}
}
