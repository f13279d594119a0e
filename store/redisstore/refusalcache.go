package redisstore

import (
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/core"
)

const (
	// maxCachedRefusals is the highest Options.CacheRefusals.
	maxCachedRefusals = 1 << 24

	// maxCachedKey is the length of the longest subject that is cached.
	maxCachedKey = 256

	// ways is the number of entries for a key.
	ways = 4

	// believed is how long an answer is repeated: another process may have granted the key units
	// meanwhile.
	believed = time.Second

	// maxCachedOps is the number of operations of the longest step that is answered.
	maxCachedOps = 8
)

// refusal is the cached refusal of a Take. It is immutable.
type refusal struct {
	id         core.ID
	limit      core.Limit
	ban        *core.Ban
	generation int64

	cost            int64
	decision        core.Decision
	asked, answered int64 // in microseconds by the clock of the refusals
}

// refusalCache remembers refused keys for a second, or until they can next be allowed. An entry is
// read without a lock and replaced as a whole.
//
//	          a step is refused, and no other has changed the key since it began
//	no entry -------------------------------------------------------------------> refused
//	  ^                                                                             |
//	  |  its RetryAfter or a second has passed, a step that ended may have changed  |
//	  |  the key, the limit or the ban is another, the clock has stepped back, or   |
//	  |  another key needs the entry                                                |
//	  +-----------------------------------------------------------------------------+
//
// The cache of Options.CacheRefusals is asked before each step (beforeStep, answer, afterStep).
// That of steps which waited is asked when there is no time for the server (recall, remember).
type refusalCache struct {
	clock   func() int64 // or nil, then instants count from start
	start   time.Time
	seed    maphash.Seed
	entries []atomic.Pointer[refusal] // ways for each hash

	// stripes are chosen by hash.
	stripes [256]stripe

	// A clock that steps back begins a new generation, because the store then
	// computes the ends of refusals anew.
	latest, generation atomic.Int64
}

// stripe counts the ended steps that may have changed one of its keys. An answer
// is cached only if the count is still that of the question. The mutex is held
// while entries are filled and emptied.
type stripe struct {
	mu      sync.Mutex
	changes atomic.Uint64
	changed atomic.Int64 // when the last of them ended, in microseconds by the clock
}

// newRefusalCache returns a cache for at least n refusals. A nil clock means
// the process's monotonic clock.
func newRefusalCache(n int, clock func() int64) *refusalCache {
	return &refusalCache{
		clock: clock, start: time.Now(),
		seed: maphash.MakeSeed(), entries: make([]atomic.Pointer[refusal], (n+ways-1)/ways*ways),
	}
}

// now returns the instant in microseconds.
func (r *refusalCache) now() int64 {
	if r.clock != nil {
		return r.checkClock(r.clock())
	}
	return time.Since(r.start).Microseconds()
}

// checkClock detects steps back.
func (r *refusalCache) checkClock(now int64) int64 {
	if latest := r.latest.Swap(now); now < latest {
		r.generation.Add(1)
	}
	return now
}

// ticket records when a step began, and the changes until then.
type ticket struct {
	now, generation int64
	hash, changes   uint64
}

func (r *refusalCache) hash(op *core.Op) uint64 {
	return maphash.String(r.seed, op.Key) ^ 0x9E3779B97F4A7C15*maphash.String(r.seed, op.Rule)
}

// tickets are those of the operations of a step. Those of a longer step are not used.
type tickets [maxCachedOps]ticket

// beforeStep must be called before a step is sent.
func (r *refusalCache) beforeStep(q *tickets, ops []core.Op) {
	if len(ops) > maxCachedOps {
		return
	}

	now := r.now()
	generation := r.generation.Load()
	for i := range ops {
		hash := r.hash(&ops[i])
		q[i] = ticket{now, generation, hash, r.stripe(hash).changes.Load()}
	}
}

func (r *refusalCache) stripe(hash uint64) *stripe { return &r.stripes[hash%uint64(len(r.stripes))] }

// waysOf returns the entries of a hash.
func (r *refusalCache) waysOf(hash uint64) []atomic.Pointer[refusal] {
	i := hash / uint64(len(r.stripes)) % uint64(len(r.entries)/ways) * ways
	return r.entries[i : i+ways]
}

// isAbout reports whether the refusal is about the key of op.
func (r *refusal) isAbout(op *core.Op) bool { return r != nil && r.id == op.ID() }

// answer decides a step if all its keys are known to be refused, and reports whether it
// did. If not, out is not to be read. What remains of a key that is not refused is not
// known, because other processes use it.
func (r *refusalCache) answer(q *tickets, ops []core.Op, out []core.Decision) bool {
	if len(ops) > maxCachedOps {
		return false
	}

	for i := range ops {
		f := r.known(q[i].hash, q[i].generation, &ops[i])
		if f == nil || !f.answer(&ops[i], q[i].now, &out[i]) {
			return false
		}
	}
	return true
}

// known returns the refusal of the op's key, or nil.
func (r *refusalCache) known(hash uint64, generation int64, op *core.Op) *refusal {
	entries := r.waysOf(hash)
	for i := range entries {
		if f := entries[i].Load(); f.isAbout(op) && f.generation == generation {
			return f
		}
	}
	return nil
}

// answer decides op as the store would at now. A refusal ends RetryAfter after
// its question, so it is never kept for too long. The remaining time is counted
// from the answer, so it is never too short.
func (r *refusal) answer(op *core.Op, now int64, d *core.Decision) bool {
	if !r.limit.Equal(&op.Limit) || !sameBan(r.ban, op.Ban) {
		return false
	}
	// The step began at now, which may be before the answer came.
	since, waited := max(0, now-r.answered), micros(now-r.asked)
	return waited >= 0 && waited < min(believed, r.decision.RetryAfter) && op.Foretell(r.cost, &r.decision, since, d)
}

// sameBan reports whether both bans are the same, or neither is one.
func sameBan(a, b *core.Ban) bool { return a == b || a != nil && b != nil && *a == *b }

// afterStep must be called after a step was decided or failed. It forgets refusals
// that the step may have changed, and caches others.
func (r *refusalCache) afterStep(q *tickets, ops []core.Op, out []core.Decision, err error) {
	for i := range ops {
		if err != nil || changes(&ops[i], &out[i]) {
			r.forget(&ops[i])
		} else {
			r.forgetOtherLimit(&ops[i])
		}
	}

	if err != nil || len(ops) > maxCachedOps {
		return
	}
	for i := range ops {
		r.add(q[i], &ops[i], &out[i])
	}
}

// changes reports whether op changed its key.
func changes(op *core.Op, d *core.Decision) bool {
	switch op.Verb {
	case core.Take:
		return d.Allowed && op.Cost > 0
	case core.Peek:
		return false
	}
	return true
}

func (r *refusalCache) add(q ticket, op *core.Op, d *core.Decision) {
	if len(op.Key) > maxCachedKey {
		return
	}

	// Only refusals whose end can be foretold are worth an entry.
	var unused core.Decision
	if !op.Foretell(op.Cost, d, 0, &unused) {
		return
	}

	f := &refusal{
		id: op.ID(), limit: op.Limit, ban: op.Ban, generation: q.generation,
		cost: op.Cost, decision: *d, asked: q.now, answered: r.now(),
	}
	f.id.Key = strings.Clone(op.Key)

	// A step that has ended since the question may have changed the key, so the answer may be out
	// of date.
	s := r.stripe(q.hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changes.Load() == q.changes {
		r.entry(q.hash, q.generation, op, f.answered).Store(f)
	}
}

// entry returns the entry for op: the one that op's key has, else one without a
// useful refusal, else the one whose refusal ends first.
func (r *refusalCache) entry(hash uint64, generation int64, op *core.Op, now int64) *atomic.Pointer[refusal] {
	entries := r.waysOf(hash)
	best, soonest := &entries[0], int64(-1)

	for i := range entries {
		f := entries[i].Load()
		if f.isAbout(op) {
			return &entries[i]
		}

		end := now

		// A refusal of an older generation is never read again, so it counts as ended.
		if f != nil && f.generation == generation {
			end = max(now, f.asked+min(believed, f.decision.RetryAfter).Microseconds())
		}
		if soonest < 0 || end < soonest {
			best, soonest = &entries[i], end
		}
	}

	return best
}

// forget empties the entries of op's key.
func (r *refusalCache) forget(op *core.Op) {
	hash := r.hash(op)
	s := r.stripe(hash)
	s.mu.Lock()
	defer s.mu.Unlock()

	// An answer is not added if its question was asked before the count has changed.
	s.changes.Add(1)
	s.changed.Store(r.now())

	entries := r.waysOf(hash)
	for i := range entries {
		if f := entries[i].Load(); f.isAbout(op) {
			entries[i].CompareAndSwap(f, nil)
		}
	}
}

// forgetOtherLimit forgets the refusal of op's key if its limit has other numbers
// than op's, because the store then reads the state in a new way.
func (r *refusalCache) forgetOtherLimit(op *core.Op) {
	entries := r.waysOf(r.hash(op))
	for i := range entries {
		if f := entries[i].Load(); f.isAbout(op) && f.limit != op.Limit {
			r.forget(op)
			return
		}
	}
}

const (
	// maxRemembered is how many answers to steps that waited are kept.
	maxRemembered = 4096

	// freshFor is how long an answer is not replaced by a newer one, in microseconds.
	freshFor = 100_000
)

// instantOf returns a time as an instant in microseconds.
func (r *refusalCache) instantOf(now time.Time) int64 {
	if r.clock != nil {
		return r.checkClock(r.clock())
	}
	return now.Sub(r.start).Microseconds()
}

// recall decides a step of which one Take that is not Soft is known to be refused. What is
// known of the others is as old as their latest answers.
func (r *refusalCache) recall(now time.Time, ops []core.Op, out []core.Decision) bool {
	at, generation, refused := r.instantOf(now), r.generation.Load(), false
	for i := range ops {
		op := &ops[i]
		f := r.known(r.hash(op), generation, op)
		switch {
		case f == nil:
			// A step is not refused by halves: each of its decisions has to be known.
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
func (r *refusal) age(op *core.Op, now int64, d *core.Decision) bool {
	if !remembers(op) || !r.decision.Allowed || op.Cost > r.decision.Remaining ||
		!r.limit.Equal(&op.Limit) || !sameBan(r.ban, op.Ban) {
		return false
	}

	since := max(0, now-r.answered)
	if micros(since) >= believed {
		return false
	}
	*d = r.decision
	d.ResetAfter = max(0, d.ResetAfter-micros(since))
	d.At += since
	return true
}

// remembers reports whether an answer about the op is remembered: units under Concurrency
// may come back at any time.
func remembers(op *core.Op) bool {
	return op.Verb == core.Take && !op.UpTo && !op.Limit.Leased() && len(op.Key) <= maxCachedKey
}

// remember keeps the answers to a step if it was refused. came is when the step came to the store,
// before it waited.
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

	// A step that waited has no ticket: its answer is kept if no key of the stripe was changed
	// after the step came.
	s := r.stripe(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changes.Load() == 0 || s.changed.Load() < asked {
		r.entry(hash, generation, op, now).Store(f)
	}
}

// isFresh reports whether a newer answer d would say nothing new.
func (r *refusal) isFresh(op *core.Op, d *core.Decision, now int64) bool {
	return r != nil && now-r.answered < freshFor && r.cost == op.Cost &&
		r.limit.Equal(&op.Limit) && sameBan(r.ban, op.Ban) &&
		r.decision.Allowed == d.Allowed && (d.Allowed || micros(now-r.asked) < r.decision.RetryAfter)
}

// returnsUnits reports whether units may come back to the key of an op by it.
func returnsUnits(op *core.Op) bool {
	return op.Verb != core.Take && op.Verb != core.Peek && !op.Limit.Leased()
}

// anyReturnsUnits reports whether one of the ops does.
func anyReturnsUnits(ops []core.Op) bool {
	for i := range ops {
		if returnsUnits(&ops[i]) {
			return true
		}
	}
	return false
}

// forgetChanged forgets the answers about keys to which units may have come back.
func (r *refusalCache) forgetChanged(ops []core.Op) {
	for i := range ops {
		if returnsUnits(&ops[i]) {
			r.forget(&ops[i])
		}
	}
}
