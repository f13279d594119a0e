package prefetch

import (
	"context"
	"slices"
	"strings"

	"github.com/headgate/headgate/core"
)

// step is a step on its way to the store: the caller's ops, and after them the
// ops that take units ahead. It lives in a pool.
type step struct {
	ops    []core.Op
	out    []core.Decision
	fills  []fill
	rounds int64 // of the keys of the caller's ops, see hold
}

// fill is a hold that the step fills by op ahead, for the key of op asked. When
// little remains, no units are taken ahead; ahead is then equal to asked, and
// the answer to op asked shows how many units remain.
type fill struct {
	hold         *hold
	asked, ahead int
}

// fetch has the store decide, and takes units of busy keys ahead. The Takes
// ahead are Soft, so they never make the store refuse. It returns the rounds of
// the keys as of the time at which it asked. If the step is asked for again, its refusal is
// counted already.
func (s *Store) fetch(ctx context.Context, ops []core.Op, out []core.Decision, now int64,
	again bool) (rounds int64, err error) {

	t := s.steps.Get().(*step)
	defer s.release(t)
	t.ops = append(t.ops, ops...)

	for i := range ops {
		hash := s.hash(&ops[i])
		busy := s.takes.add(hash, now)
		s.shardOf(hash).addFill(t, i, now, s.units, busy)

		// The first try has counted the strike.
		if again {
			t.ops[i].Ban = nil
		}
	}

	t.out = slices.Grow(t.out, len(t.ops))[:len(t.ops)]

	// The fills end after an error too, or no later step could fill these holds.
	err = s.store.Apply(ctx, t.ops, t.out)
	s.endFills(t, now, err)
	if err != nil {
		return 0, err
	}

	// Units that were taken ahead are used in the store, but the caller may still have them.
	copy(out, t.out[:len(ops)])
	for _, f := range t.fills {
		out[f.asked].Remaining += t.granted(f)
	}
	return t.rounds, nil
}

// addFill adds to the step an op that takes units of op i's key ahead, if the key
// is busy and no other call does so already. Units that are still held go back,
// because units of two calls could not be told apart.
func (s *shard) addFill(t *step, i int, now, ceiling int64, busy bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	op := t.ops[i]
	if held := s.holds[op.ID()]; held != nil {
		t.rounds += held.rounds
	}

	held := s.holdFor(&op, now, busy)
	if held == nil || held.filling {
		return
	}

	n, ahead := held.stillHeld(now), int64(0)
	if !op.UpTo { // an UpTo Take takes what is left by itself
		ahead = held.ahead(now, ceiling)
	}

	// The refund comes before the Take ahead in the step, so that it may take these units anew.
	if n > 0 {
		t.ops = append(t.ops, held.refund(op.ID(), n))
	}

	held.units, held.filling = 0, true
	if n > 0 || ahead > 0 {
		held.moving = make(chan struct{})
		held.rounds++
		t.rounds += 2 // the begin and the end of this call, which is over when rounds are compared
	}

	f := fill{hold: held, asked: i, ahead: i}
	if ahead > 0 {
		f.ahead = len(t.ops)
		t.ops = append(t.ops, core.Op{
			Verb: core.Take, Soft: true, Rule: op.Rule, Key: op.Key, Limit: op.Limit, Windows: op.Windows, Cost: ahead,
		})
	}
	t.fills = append(t.fills, f)
}

// holdFor returns the hold of the op's key. It makes one if there is none, or if the hold is for
// another limit or Ban: the units of that one come back by themselves. It returns nil if the key
// is not busy, if there is no room for it, or while a call still fills a hold to be replaced.
func (s *shard) holdFor(op *core.Op, now int64, busy bool) *hold {
	id := op.ID()
	held := s.holds[id]
	switch {
	case !busy && (held == nil || now-held.filled > maxQuiet):
		return nil
	case held != nil && held.fits(op):
		return held
	case held != nil && held.filling:
		// It is for another limit, and its call has still to end.
		return nil
	case held == nil && !s.makeRoom(now):
		return nil
	}

	// The map keeps the texts longer than the request lives.
	id.Rule, id.Key = strings.Clone(id.Rule), strings.Clone(id.Key)
	held = &hold{limit: op.Limit, ban: op.Ban, size: 1}
	s.holds[id] = held
	return held
}

// makeRoom reports whether the shard has room for another key. If it is full, makeRoom looks at a
// few keys and drops one that holds nothing and was not filled lately.
func (s *shard) makeRoom(now int64) bool {
	if len(s.holds) < s.max {
		return true
	}

	tries := 4
	for id, held := range s.holds {
		if !held.filling && held.stillHeld(now) == 0 && now-held.filled > maxQuiet {
			delete(s.holds, id)
			return true
		}
		if tries--; tries == 0 {
			break
		}
	}
	return false
}

// endFills ends the fills of a step and notes what the store has granted. After an
// error nothing is held: units that may have been charged come back by themselves.
func (s *Store) endFills(t *step, sent int64, err error) {
	for _, f := range t.fills {
		op := &t.ops[f.asked]
		h := s.shardOf(s.hash(op))
		h.mu.Lock()

		f.hold.filling = false
		if err == nil {
			f.hold.refill(t.granted(f), sent, &t.out[f.ahead])
		}

		// Steps that were refused meanwhile wait for this, and ask again if the rounds have
		// changed.
		if f.hold.moving != nil {
			close(f.hold.moving)
			f.hold.moving = nil
			f.hold.rounds++
		}
		h.mu.Unlock()
	}
}

// granted returns how many units the step has taken ahead.
func (s *step) granted(f fill) int64 {
	if f.ahead == f.asked || !s.out[f.ahead].Allowed || !core.Granted(s.ops, s.out) {
		return 0
	}
	return s.ops[f.ahead].Cost
}

func (s *Store) release(t *step) {
	clear(t.ops)
	clear(t.fills)
	t.rounds = 0
	t.ops, t.out, t.fills = t.ops[:0], t.out[:0], t.fills[:0]
	s.steps.Put(t)
}
