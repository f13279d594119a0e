//go:build !race

package transport

import "testing"

// Under the race detector a sync.Pool drops some items.

func TestRoundTripAllocations(t *testing.T) {
	for name, header := range said {
		for own, most := range map[bool]float64{false: 0, true: 1} {
			tr, r := quick(t, own, header)
			if got := testing.AllocsPerRun(1000, func() { tr.RoundTrip(r) }); got > most {
				t.Errorf("%s, own limits %v: %v allocations", name, own, got)
			}
		}
	}
}
