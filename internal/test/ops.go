package test

import (
	"slices"

	"github.com/headgate/headgate/core"
)

// ShareUnits makes every Take UpTo for which that is valid.
func ShareUnits(ops []core.Op) {
	// All UpTo takes of a step have the cost of the first.
	cost := int64(-1)
	for i := range ops {
		op := &ops[i]

		// A key that is taken twice in a step may not share its units.
		others := slices.DeleteFunc(slices.Clone(ops), func(o core.Op) bool {
			return o.Verb != core.Take || o.ID() != op.ID()
		})
		if op.Verb != core.Take || op.Limit.Leased() || len(others) > 1 {
			continue
		}

		if cost < 0 {
			cost = op.Cost
		}

		op.UpTo, op.Cost, op.MaxWait = true, cost, 0
	}
}
