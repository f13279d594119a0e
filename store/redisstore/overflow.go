// This file remembers which steps were refused, for callers whom the server does not answer.

package redisstore

import (
	"strings"
	"time"

	"github.com/headgate/headgate/core"
)

const (
	// maxOverflow is the number of keys that are remembered.
	maxOverflow = 4096

	// freshFor is how long an answer is not replaced by a newer one, in microseconds.
	freshFor = 100_000
)

// recall decides a step that the server does not decide in time, if it is known to be
// refused, and reports whether it did. If not, out is not to be read.
func (s *Store) recall(now time.Time, ops []core.Op, out []core.Decision) bool {
	if !s.overflow.recall(now, ops, out) {
		return false
	}
	s.tellCached(&ops[0])
	return true
}

// at returns the instant in microseconds.
func (r *refusalCache) at(now time.Time) int64 {
	if r.clock != nil {
		return r.checkClock(r.clock())
	}
	return now.Sub(r.start).Microseconds()
}

// recall decides a step of which one Take that is not Soft is known to be refused. What is
// known of the others is as old as their latest answers.
func (r *refusalCache) recall(now time.Time, ops []core.Op, out []core.Decision) bool {
	at, generation, refused := r.at(now), r.generation.Load(), false
	for i := range ops {
		op := &ops[i]
		f := r.known(r.hash(op), generation, op)
		switch {
		case f == nil:
			return false
		case f.answer(op, at, &out[i]):
			refused = refused || !op.Soft
		case !f.age(op, at, &out[i]):
			return false
		}
	}
	return refused
}

// age decides a Take which would be allowed in a step that is refused, if nothing has
// changed since the answer.
func (f *refusal) age(op *core.Op, now int64, d *core.Decision) bool {
	if !remembers(op) || !f.decision.Allowed || op.Cost > f.decision.Remaining ||
		!f.limit.Equal(&op.Limit) || !sameBan(f.ban, op.Ban) {
		return false
	}
	since := max(0, now-f.answered)
	*d = f.decision
	d.ResetAfter = max(0, d.ResetAfter-micros(since))
	d.At += since
	return true
}

// remembers reports whether an answer about the op is remembered: units under Concurrency
// may come back at any time.
func remembers(op *core.Op) bool {
	return op.Verb == core.Take && !op.UpTo && !op.Limit.Leased() && len(op.Key) <= maxCachedKey
}

// remember remembers the answers to a step that came at the time and was refused.
func (r *refusalCache) remember(came time.Time, ops []core.Op, out []core.Decision) {
	if core.Granted(ops, out) {
		return
	}
	now := r.now()
	asked := came.Sub(r.start).Microseconds()
	for i := range ops {
		if r.clock != nil {
			asked = out[i].At
		}
		if remembers(&ops[i]) {
			r.keep(&ops[i], &out[i], asked, now)
		}
	}
}

// keep remembers the answer to an op of a refused step, unless a newer step may have
// changed its key.
func (r *refusalCache) keep(op *core.Op, d *core.Decision, asked, now int64) {
	hash, generation := r.hash(op), r.generation.Load()
	if r.known(hash, generation, op).isFresh(op, d, now) {
		return
	}
	f := &refusal{
		id: op.ID(), limit: op.Limit, ban: op.Ban, generation: generation,
		cost: op.Cost, decision: *d, asked: asked, answered: now,
	}
	f.id.Key = strings.Clone(op.Key)
	s := r.stripe(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changes.Load() == 0 || s.changed.Load() < asked {
		r.entry(hash, generation, op, now).Store(f)
	}
}

// isFresh reports whether a newer answer d would say nothing new.
func (f *refusal) isFresh(op *core.Op, d *core.Decision, now int64) bool {
	return f != nil && now-f.answered < freshFor && f.cost == op.Cost && f.limit.Equal(&op.Limit) && sameBan(f.ban, op.Ban) &&
		f.decision.Allowed == d.Allowed && (d.Allowed || micros(now-f.asked) < f.decision.RetryAfter)
}

// forgetChanged forgets the answers about keys to which units may have come back.
func (r *refusalCache) forgetChanged(ops []core.Op) {
	for i := range ops {
		if v := ops[i].Verb; v != core.Take && v != core.Peek && !ops[i].Limit.Leased() {
			r.forget(&ops[i])
		}
	}
}
