// This file repeats refused steps that other calls have overtaken.

package prefetch

import (
	"context"
	"slices"

	"github.com/headgate/headgate/core"
)

// maxTries is the most times that Apply carries out a step that is refused while
// other calls move units of its keys. Each of these calls makes the next less
// likely: the fewer units remain, the fewer are taken ahead.
const maxTries = 4

// overtaken reports whether a step that the store has refused may be granted
// now, because units of its keys have moved since rounds was counted. It waits for calls that
// move such units: meanwhile the store counts them as used.
func (s *Store) overtaken(ctx context.Context, ops []core.Op, out []core.Decision, rounds int64) bool {
	if core.Granted(ops, out) || slices.ContainsFunc(out[:len(ops)], func(d core.Decision) bool { return d.Banned }) {
		return false
	}

	var sum int64
	for i := range ops {
		sum += s.shardOf(s.hash(&ops[i])).awaitRounds(ctx, &ops[i])
	}
	return sum != rounds
}

// awaitRounds waits for the call that moves units of the op's key, if there is one,
// and returns the rounds of the key.
func (s *shard) awaitRounds(ctx context.Context, op *core.Op) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.holds[op.ID()]
	if held == nil {
		return 0
	}

	// The call that moves units needs the lock to end. The hold may be replaced meanwhile, but its
	// rounds still say that units have moved.
	if moving := held.moving; moving != nil {
		s.mu.Unlock()
		select {
		case <-moving:
		case <-ctx.Done():
		}
		s.mu.Lock()
	}

	return held.rounds
}
