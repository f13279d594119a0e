package prefetch

import (
	"testing"

	"github.com/headgate/headgate/core"
)

func TestPutBackOnlyToTheSameHold(t *testing.T) {
	const now = 1000
	op := core.Op{Rule: "rule", Key: "key", Limit: core.Limit{Quota: 10, Period: 1e9, Algorithm: core.FixedWindow},
		Cost: 1}

	other := op.Limit
	other.Quota = 11
	for what, row := range map[string]struct {
		change func(*hold)
		want   int64
	}{
		// The four that are left after a Take of one, and the one if it comes back. After another
		// fill, during one, or under another limit the unit may be void in the store.
		"nothing":        {func(*hold) {}, 5},
		"another fill":   {func(h *hold) { h.last.At, h.filled = h.last.At+9, h.filled+8 }, 4},
		"a fill to come": {func(h *hold) { h.filling = true }, 4},
		"another limit":  {func(h *hold) { h.limit = other }, 4},
	} {
		held := &hold{limit: op.Limit, units: 5, filled: 400, fresh: 1 << 40, known: true, last: core.Decision{At: 77}}
		h := &shard{holds: map[core.ID]*hold{op.ID(): held}}

		var d core.Decision
		if !h.take(&op, now, &d) {
			t.Fatal("not taken")
		}

		row.change(held)
		h.putBack(&op, now, &d)

		if held.units != row.want {
			t.Errorf("%s: %d units, want %d", what, held.units, row.want)
		}
	}
}
