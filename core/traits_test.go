package core_test

import (
	"testing"

	"github.com/headgate/headgate/core"
)

// The traits of a limit are those of its algorithm, and an unknown algorithm has none.
func TestTraitsOfLimits(t *testing.T) {
	type traits struct {
		rolling, windowed, needsWindows bool
		segments                        int
	}

	of := func(l core.Limit) traits {
		return traits{l.Rolling(), l.Windowed(), l.NeedsWindows(), l.SegmentCount()}
	}

	// A limit with segments of its own has those, and ten without.
	for text, want := range map[string]traits{
		"5/1m":                           {},
		"5/1m token-bucket":              {},
		"5 concurrent ttl=1m":            {},
		"5/1m fixed-window":              {windowed: true},
		"5/1m fixed-window aligned":      {windowed: true},
		"5/month":                        {needsWindows: true},
		"5/1m sliding-log":               {rolling: true},
		"5/1m sliding-window":            {rolling: true, segments: 10},
		"5/1m sliding-window segments=6": {rolling: true, segments: 6},
	} {
		if got := of(core.MustParseLimit(text)); got != want {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}

	// Stores ask before they have checked the op: the answer may not panic.
	if got := of(core.Limit{Algorithm: 200, Segments: 7}); got != (traits{}) {
		t.Errorf("an unknown algorithm: %+v", got)
	}
}
