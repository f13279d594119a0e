// This file asks the primary, and counts how its calls end.

package failover

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/core"
)

// primary is the primary store behind its breakers.
type primary struct {
	store    core.Store
	copying  copying                 // store, or nil if it is not one
	shardOf  func(key string) string // nil if all keys are on one shard
	reporter *reporter

	ignore   func(error) bool
	slow     time.Duration // beyond which a call counts as a failure, or 0
	patience time.Duration // for a probe, or another call in the background
	interval time.Duration
	jitter   func() float64 // from 0 up to 1
	failures int64          // the score at which a breaker opens

	breaker     *breaker // of the keys whose shard is not known
	shards      shards
	generations atomic.Uint64 // the latest of any breaker, as no two share one
	punctuality punctuality

	latest               atomic.Pointer[cause] // nil until the primary fails
	opened, probes, lost atomic.Uint64
}

// askTimed has the primary decide, and counts a call that succeeded. It returns whether c has
// copied the step.
func (p *primary) askTimed(ctx context.Context, r route, ops, sent []core.Op, out []core.Decision,
	c Copier) (copied bool, err error) {

	if p.slow == 0 {
		copied, err = p.copying.ApplyCopied(ctx, sent, out, c)
		if err == nil {
			r.succeed(out[0].At)
		}
		return copied, err
	}

	// The clock is read only where there is a bound to compare with.
	start := time.Now()
	if copied, err = p.copying.ApplyCopied(ctx, sent, out, c); err != nil {
		return false, err
	}

	switch took := time.Since(start); {
	case took <= p.slow:
		r.succeed(out[0].At)
	case r.others == nil && p.punctuality.wasPunctual(start, took): // else it is not known which shard is slow
		p.count(r, ops, &slowError{took})
	}
	return copied, nil
}

// recordFailure counts an error of the primary against the shards that are at fault.
func (p *primary) recordFailure(ctx context.Context, r route, ops []core.Op, err error) {
	if !isPrimaryFault(ctx, err) {
		return
	}

	shard, named := shardIn(err)

	if r.others == nil {
		shard = r.shard
	}

	// The cause is stored of an excused error too: it is why the fallback decides.
	p.latest.Store(&cause{shard, err})
	if p.excused(err) {
		return
	}
	if r.others == nil {
		p.count(r, ops, err)
		return
	}
	for _, one := range r.others {
		if !named || one.shard == shard {
			p.count(one, ops, err)
		}
	}
}

// excused reports whether an error of the primary says nothing about its health. The error
// counts if the program's function panics.
func (p *primary) excused(err error) (is bool) {
	if p.ignore == nil {
		return errors.Is(err, core.ErrOverload)
	}
	defer p.reporter.guard("Ignore")
	return errors.Is(err, core.ErrOverload) || p.ignore(err)
}

// count counts a failure against one breaker.
func (p *primary) count(r route, ops []core.Op, err error) {
	if r.fail(r.generation, err) {
		p.open(r.breaker, r.generation, ops, err)
	}
}

// restoreCause makes the cause for which the breaker opened the latest.
func (p *primary) restoreCause(b *breaker) {
	if c := b.cause.Load(); p.latest.Load() != c {
		p.latest.Store(c)
	}
}

// slowError is the cause if a call that succeeded counts as a failure.
type slowError struct{ took time.Duration }

func (e *slowError) Error() string { return "a call took " + e.took.Round(time.Millisecond).String() }

// cause is why the fallback decides.
type cause struct {
	shard string
	err   error
}

func (c *cause) Error() string {
	return core.ErrFallback.Error() + atShard(c.shard) + ": " + c.err.Error()
}

// Unwrap returns [core.ErrFallback] and the error of the primary.
func (c *cause) Unwrap() []error { return []error{core.ErrFallback, c.err} }

// postpone makes the Refunds and Resets of a step wait after the primary failed
// to carry them out with cause. If it may have carried them out, only the
// repeatable ones wait. err wraps cause if some do not wait.
func (p *primary) postpone(ops []core.Op, cause error) (err error) {
	unsent := wasNotSent(cause)
	for i := range ops {
		op := ops[i]
		switch {
		case !mayWait(&op):
			continue
		case !unsent && !repeatable(&op):
			err = cause
			continue
		}

		// The operation outlives its request, whose memory the texts may be.
		op.Key, op.Lease = strings.Clone(op.Key), strings.Clone(op.Lease)
		e := pendingOp{op: op}
		if repeatable(&op) {
			e.until = time.Now().Add(op.Limit.Period)
		}

		b := p.breakerOf(op.Key)
		if lost := b.waiting.add(e); lost != nil {
			err = fmt.Errorf("failover: %w: %w", lost, cause)
		}
		b.background.arm()
	}
	return err
}

// sendWaiting sends the operations that wait for the breaker's shard. An operation that
// fails waits on if it is repeatable or was not sent, and is dropped otherwise, because the
// primary may have carried it out. One whose key has moved waits for the other shard.
func (p *primary) sendWaiting(ctx context.Context, b *breaker) {
	for b.state() == Closed {
		e, ok := b.waiting.oldest()
		if !ok {
			return
		}

		if to := p.breakerOf(e.op.Key); to != b {
			b.waiting.removeOldest()
			_ = to.waiting.add(e) // which counts what is lost
			to.background.arm()
			continue
		}

		generation := b.generation.Load()
		within, cancel := context.WithTimeout(ctx, p.patience)
		out := make([]core.Decision, 1)
		err := p.call(within, []core.Op{e.op}, out)
		cancel()

		// An operation that the primary calls invalid is removed: it would fail again.
		if err != nil && !errors.Is(err, core.ErrOp) {
			p.requeueOrDrop(ctx, b, generation, e, err)
			return
		}
		b.waiting.removeOldest()
		b.succeed(generation, out[0].At)
	}
}

// requeueOrDrop has an operation that the primary did not confirm wait on or drops it, and counts
// the failure.
func (p *primary) requeueOrDrop(ctx context.Context, b *breaker, generation uint64, e pendingOp, err error) {
	if repeatable(&e.op) || wasNotSent(err) {
		b.waiting.requeueOldest()
	} else {
		b.waiting.removeOldest()
		p.lost.Add(1)
	}

	// A store that is being closed ends the call itself, which says nothing about the primary.
	if ctx.Err() == nil && !p.excused(err) && b.fail(generation, err) {
		p.open(b, generation, []core.Op{e.op}, err)
	}
}
