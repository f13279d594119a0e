package redisstore

import (
	"context"
	"fmt"

	"github.com/headgate/headgate/core"
)

// step is one call of [Store.Apply] that is decided together with others. Its
// operations are as CheckOps and the limits want them.
type step struct {
	ops []core.Op
	out []core.Decision
	err error
}

// decideTogether carries out the steps one after the other, as if each were a
// call of its own, and puts into each its decisions or its error. All keys must
// be on one server, and in a Cluster in one slot. A returned error means that
// none of the steps is known to have been decided.
func (s *Store) decideTogether(ctx context.Context, steps []*step) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	script, args := s.call(steps)
	ints, err := s.run(ctx, script, args)
	if err != nil {
		return fmt.Errorf("redisstore: %w", err)
	}
	return decode(steps, ints)
}
