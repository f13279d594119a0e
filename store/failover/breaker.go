package failover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/core"
)

// confirmations is how many probes in a row must succeed to close the breaker.
const confirmations = 4

// trustAgain is how soon after a silence of the primary another makes the breaker wait for
// all confirmations.
const trustAgain = 10 * time.Second

// breaker decides whether a shard of the primary is asked. It is closed at first.
//
//	        the score reaches max, or the primary is silent
//	closed -------------------------------------------------> open
//	   ^                                                       | after a pause: a probe;
//	   |   as many probes in a row as it needs                 | after a silence at once
//	   +-------------------------------------------------------+
//
//	a failed call, or a slow one    score + 1, once for all steps that shared the call
//	a call answered in time         score - 1, if it is above 0
//	the breaker closes              score = max - 1
type breaker struct {
	shard string // or "": the primary, unless it knows the shard of a key

	// generation changes with each change of state: it is odd while the breaker is
	// open. The result of a call counts only in the generation in which the
	// call was made.
	generation atomic.Uint64
	score      atomic.Int64 // calls that failed, less those that did not; at least 0
	max        int64        // the score at which the breaker opens

	counted [64]atomic.Uint64 // the latest calls that failed, each at its number modulo 64
	shared  atomic.Bool       // the primary numbers its calls, which steps share
	latest  atomic.Int64      // if so, when the latest call was decided by the primary's clock

	changing sync.Mutex            // held during a change
	probe    []core.Op             // guarded by changing; replaced as a whole
	needed   int                   // probes in a row that close the breaker; guarded by changing
	silent   time.Time             // of the latest silence, or zero; guarded by changing
	cause    atomic.Pointer[cause] // why it is open: the latest error of the primary, also of a probe

	confirmed  int // probes in a row that succeeded; used by the background work alone
	background *background
	waiting    waiting
}

// newBreaker returns a breaker for a shard. Its background work has not begun.
func (p *primary) newBreaker(shard string) *breaker {
	b := &breaker{shard: shard, max: p.failures}
	b.waiting.lost = &p.lost
	b.background = newBackground(func(ctx context.Context) bool { return p.backgroundStep(ctx, b) }, p.pause)
	return b
}

// end ends the background work and loses what waits.
func (b *breaker) end() {
	b.background.close()
	b.waiting.close()
}

// refusal returns the error of a call that is not made because the breaker is open.
func (b *breaker) refusal() error {
	e := &openError{shard: b.shard, wait: b.background.wait()}
	if c := b.cause.Load(); c != nil {
		e.cause = c.err
	}
	return e
}

func (b *breaker) state() State {
	if isOpen(b.generation.Load()) {
		return Open
	}
	return Closed
}

func isOpen(generation uint64) bool { return generation%2 == 1 }

// succeed counts a step that was answered in time. at is the instant by the primary's clock at
// which it was decided.
func (b *breaker) succeed(generation uint64, at int64) {
	if b.score.Load() <= 0 || b.shared.Load() && !b.isNewCall(at) {
		return
	}

	for b.generation.Load() == generation {
		n := b.score.Load()
		if n <= 0 || b.score.CompareAndSwap(n, n-1) {
			return
		}
	}
}

// isNewCall reports whether a step was decided later than all others that were counted. The
// steps that share a call are decided at one instant.
func (b *breaker) isNewCall(at int64) bool {
	for {
		latest := b.latest.Load()
		if at <= latest {
			return false
		}
		if b.latest.CompareAndSwap(latest, at) {
			return true
		}
	}
}

// fail counts a call that failed with err or was slow, and reports whether the breaker
// is to open.
func (b *breaker) fail(generation uint64, err error) bool {
	if b.generation.Load() != generation {
		return false
	}

	if errors.Is(err, core.ErrSilent) {
		return true
	}

	// The steps that shared a call fail with it, and the first of them counts for all.
	if n := callOf(err); n != 0 {
		b.shared.Store(true)
		if b.counted[n%uint64(len(b.counted))].Swap(n) == n {
			return false
		}
	}
	return b.score.Add(1) >= b.max
}

// callOf returns the number of the call that failed, or 0 if the primary numbers none.
func callOf(err error) uint64 {
	var call interface{ Call() uint64 }
	if errors.As(err, &call) {
		return call.Call()
	}
	return 0
}

// open bypasses the breaker's shard after a call with ops has failed with err. Of
// several concurrent callers only one does so.
func (p *primary) open(b *breaker, generation uint64, ops []core.Op, err error) {
	if ops = p.opsOn(b, ops); len(ops) == 0 || !b.changing.TryLock() {
		return
	}
	defer b.changing.Unlock()

	// The breaker has changed since the call was made, so the call says nothing about it now.
	if b.generation.Load() != generation {
		return
	}

	// All that a probe and a refused call read is there before the breaker is open.
	b.probe = probeOf(ops)
	b.cause.Store(&cause{b.shard, err})
	b.needed = confirmations

	silence := errors.Is(err, core.ErrSilent)

	if silence {
		b.recordSilenceLocked(time.Now())
	}

	b.generation.Store(p.generations.Add(2) + 1)
	p.opened.Add(1)
	p.reporter.announce(change{shard: b.shard, state: Open, cause: err})

	// A silence is mostly short, so the first probe need not wait.
	if silence {
		b.background.armNow()
	} else {
		b.background.arm()
	}
}

// recordSilenceLocked lets a single probe close the breaker, because most silences are short,
// unless there was another one within trustAgain.
func (b *breaker) recordSilenceLocked(now time.Time) {
	if b.silent.IsZero() || now.Sub(b.silent) > trustAgain {
		b.needed = 1
	}
	b.silent = now
}

// close makes the breaker's shard decide again. The next failure reopens the breaker at
// once, until enough calls have succeeded.
func (p *primary) close(b *breaker) {
	b.changing.Lock()
	defer b.changing.Unlock()

	// The score comes first: a call of the new generation that fails opens the breaker again.
	b.score.Store(b.max - 1)
	b.generation.Store(p.generations.Add(2))
	p.reporter.announce(change{shard: b.shard, state: Closed})
}

// State is the state of a breaker, which determines the store that decides.
type State uint8

const (
	Closed State = iota // the primary
	Open                // the fallback, because the primary is bypassed
)

// String returns "closed" or "open".
func (s State) String() string {
	switch s {
	case Closed:
		return "closed"
	case Open:
		return "open"
	}
	return "unknown state"
}

// ErrOpen is wrapped by the error of a call that was not made because the
// primary, or the shard of a key, is bypassed. That error has a method RetryAfter, which
// returns the time until the primary may be asked again. Its text ends with the latest error of
// the primary.
var ErrOpen = errors.New("the primary store is bypassed")

// openError is ErrOpen with the time until the next probe, and with why the breaker is open:
// as text alone, because it is the error of another call.
type openError struct {
	shard string
	wait  time.Duration
	cause error // or nil
}

func (e *openError) Error() string {
	text := fmt.Sprintf("failover: %v%s", ErrOpen, atShard(e.shard))
	if e.cause == nil {
		return text
	}
	return text + ": " + e.cause.Error()
}

// Shard returns the name of the shard that is bypassed, or ""; see [core.Sharded].
func (e *openError) Shard() string { return e.shard }

// atShard names a shard after what is said about it.
func atShard(shard string) string {
	if shard == "" {
		return ""
	}
	return " at " + shard
}

// Unwrap returns ErrOpen.
func (e *openError) Unwrap() error { return ErrOpen }

// RetryAfter returns the time until the next probe of the primary.
func (e *openError) RetryAfter() time.Duration { return e.wait }

// probeRule is the rule of probes. No request is counted under it, because the name of a
// limiter's rule has no space.
const probeRule = "failover probe"

// probeQuota and probePeriod are the numbers of the limits of probes. They admit
// every probe, because one that is refused writes nothing, and what probes write
// is soon gone.
const (
	probeQuota  = 100
	probePeriod = 10 * time.Millisecond
)

// probeOf returns a step that fails where a step with ops fails, and counts under a
// rule of its own: it uses the same keys, so it reaches the same servers, with the
// same algorithms, because a server whose memory is full runs some of them, and it
// writes if ops write.
func probeOf(ops []core.Op) []core.Op {
	var probe []core.Op
	for i := range ops {
		op := core.Op{
			Verb: core.Take, Soft: true, Rule: probeRule, Key: ops[i].Key, Cost: 1,
			Limit: core.Limit{Algorithm: ops[i].Limit.Algorithm, Quota: probeQuota, Period: probePeriod},
		}

		if op.Limit.Leased() {
			op.Lease = "probe"
		}

		// What a probe of a calendar writes would stay until the window ends.
		if op.Limit.NeedsWindows() {
			op.Limit = core.Limit{Quota: probeQuota, Period: probePeriod}
		}

		if v := ops[i].Verb; v == core.Peek || v == core.Take && ops[i].Cost == 0 {
			op.Verb = core.Peek
		}

		// One operation a key and algorithm is enough. It writes if any of them does.
		same := func(o core.Op) bool { return o.ID() == op.ID() }
		switch at := slices.IndexFunc(probe, same); {
		case at < 0:
			op.Key = strings.Clone(op.Key)
			probe = append(probe, op)
		case op.Verb == core.Take:
			probe[at].Verb = core.Take
		}
	}

	return probe
}

// pause returns the time to wait before the next probe.
func (p *primary) pause() time.Duration {
	half := p.interval / 2
	return p.interval - half + time.Duration(p.jitter()*float64(half))
}

// backgroundStep probes the primary while the breaker is open, and sends it the
// waiting operations once the breaker is closed. It reports whether there is
// more to do.
func (p *primary) backgroundStep(ctx context.Context, b *breaker) (more bool) {
	if b.state() == Open {
		b.changing.Lock()
		probe, needed := b.probe, b.needed
		b.changing.Unlock()

		switch {
		case len(p.opsOn(b, probe)) < len(probe):
			// Keys have moved, so no probe says anything about this shard: the breaker closes.
		case !p.ping(ctx, b, probe):
			b.confirmed = 0
			return true
		default:
			if b.confirmed++; b.confirmed < needed {
				return true
			}
		}
		b.confirmed = 0
		p.close(b)
	}

	p.sendWaiting(ctx, b)
	return b.state() == Open || b.waiting.len() > 0
}

// ping reports whether a probe of the primary succeeded. Its error becomes the cause of the
// outage, because it is newer than that for which the breaker opened: a server that did not
// answer may by now refuse connections.
func (p *primary) ping(ctx context.Context, b *breaker, ops []core.Op) bool {
	p.probes.Add(1)
	ctx, cancel := context.WithTimeout(ctx, p.patience)
	defer cancel()

	start := time.Now()
	err := p.call(ctx, ops, make([]core.Decision, len(ops)))
	if err != nil && b.background.life.Err() == nil {
		b.cause.Store(&cause{b.shard, err})
	}
	return err == nil && time.Since(start) <= p.patience
}

// call asks the primary outside of any request.
func (p *primary) call(ctx context.Context, ops []core.Op, out []core.Decision) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("failover: the primary panicked: %v", v)
		}
	}()
	return p.store.Apply(ctx, ops, out)
}

// isPrimaryFault reports whether the primary is at fault for the error. It is not if the program's
// clock gave it other windows of a calendar.
func isPrimaryFault(ctx context.Context, err error) bool {
	return ctx.Err() == nil && !errors.Is(err, core.ErrOp) && !errors.Is(err, core.ErrWindows)
}
