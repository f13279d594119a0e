// This file repeats refused steps that other calls have overtaken.

package prefetch

import (
	"context"

	"github.com/headgate/headgate/core"
)

// maxTries is how often a step is carried out that is refused while calls move
// units of its keys. Each of these calls makes the next less likely: the fewer
// units remain, the fewer are taken ahead.
const maxTries = 4

// overtaken reports whether a step that the store has refused may be granted
// now, because units of its keys have moved since rounds was counted: the store
// counts units as used that another call was about to bring or to give back. It
// waits for such calls.
func (s *Store) overtaken(ctx context.Context, ops []core.Op, out []core.Decision, rounds int64) bool {
	if core.Granted(ops, out) {
		return false
	}
	var now int64
	for i := range ops {
		now += s.shardOf(s.hash(&ops[i])).rest(ctx, &ops[i])
	}
	return now != rounds
}

// rest waits for the call that moves units of the op's key, if there is one,
// and returns the rounds of the key.
func (h *shard) rest(ctx context.Context, op *core.Op) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	held := h.holds[op.ID()]
	if held == nil {
		return 0
	}
	if moving := held.moving; moving != nil {
		h.mu.Unlock()
		select {
		case <-moving:
		case <-ctx.Done():
		}
		h.mu.Lock()
	}
	return held.rounds
}
