// This file has steps decided: at once and alone, or together with others.

package redisstore

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/store/failover"
)

// dispatcher has steps decided by one server each: at once while few calls are in flight, and
// else in batches.
type dispatcher struct {
	made      time.Time // with the monotonic clock
	wire      *wire
	servers   *servers
	connector *connector
	link      *link
	notifier  *notifier

	queue    queue
	waiters  sync.Pool     // of *waiter
	batches  sync.Pool     // of *batch
	overflow *refusalCache // of steps that waited
}

// decide carries out ops, whose keys share a server: at once and alone while
// few calls are in flight, else together with others that wait. Then it gives the decisions to c,
// unless that is nil, and returns whether c has copied them.
func (d *dispatcher) decide(ctx context.Context, ops []core.Op, out []core.Decision,
	c failover.Copier) (copied bool, err error) {

	// Every decision reads the time. The monotonic clock alone takes half as long as time.Now.
	now, v := d.made.Add(time.Since(d.made)), d.servers.serverFor(ops[0].Key)

	deadline, err := v.deadline(now)
	if err != nil {
		return false, unsent(err)
	}

	// A deadline of the wall clock alone cannot be compared with the monotonic clock.
	if end, ok := ctx.Deadline(); ok {
		deadline = now.Add(min(deadline.Sub(now), time.Until(end)))
	}

	slot := d.wire.slotOf(ops)
	if slot == noSlot {
		return false, d.decideAlone(ctx, v, now, deadline, ops, out)
	}

	l, shed := d.queue.start(slot, len(ops), deadline.Sub(now), now)
	if shed {
		if d.recall(now, ops, out) {
			return false, nil
		}
		return false, errShed
	}

	if l == nil {
		w := d.waiters.Get().(*waiter)
		w.copyOps(ops)
		w.copier, w.copied = c, false
		own, theirs, full := d.queue.enter(slot, w, deadline, now)

		// The batch is that of others, which wait already. A goroutine serves it.
		if theirs != nil {
			go d.gather(theirs, full)
		}
		if own == nil {
			return d.await(ctx, v, w, now, deadline, ops, out)
		}

		// A call has ended since start, so the step goes alone after all.
		l = own
		d.waiters.Put(w)
	}

	defer d.handOver(l)
	return false, d.decideAlone(ctx, v, now, deadline, ops, out)
}

// decideAlone sends the step, which began now, by itself, under its caller's context.
func (d *dispatcher) decideAlone(ctx context.Context, v *server, now, deadline time.Time,
	ops []core.Op, out []core.Decision) error {

	ctx, cancel := d.link.within(ctx, deadline)
	defer cancel()

	// It is a batch of one, which no other waiter can join or see.
	b := d.batches.Get().(*batch)
	w := &b.alone
	w.step, w.stage = step{ops: ops, out: out}, filled
	b.add(w)

	err := d.send(ctx, b)

	if err != nil {
		err = d.failAlone(d.servers.judged(v, now, deadline, err), ops)
	}

	if d.notifier.listeners.Hooks().StoreCall != nil {
		d.notifier.notifyCall(b, 1, len(ops), time.Since(now), err)
	}
	if err != nil {
		return err
	}

	err = w.err
	w.step = step{}
	b.clear()
	d.batches.Put(b)
	return err
}

// failAlone returns the error of a caller whose call failed with err. It leads to the decisions of
// the step if the reply comes yet.
func (d *dispatcher) failAlone(err error, ops []core.Op) error {
	var call *lateCall
	if !errors.As(err, &call) || call.conn == nil {
		return err
	}

	w := keepFailed(ops)
	late := claimReply(&d.queue, err, []*waiter{w})
	if late == nil {
		return err
	}
	go late.tell(&d.queue)
	return w.err
}

// await waits until w, which came now, is done, until the deadline and no longer than ctx
// allows, and returns whether the decisions were copied. A waiter is reused only when no batch
// refers to it any more.
func (d *dispatcher) await(ctx context.Context, v *server, w *waiter, now, deadline time.Time,
	ops []core.Op, out []core.Decision) (copied bool, err error) {

	err = w.wait(ctx)
	if err != nil && ctx.Err() == nil {
		// The end of the time was noticed late, so the answer may be here. The caller gets as much
		// longer as this process was late.
		if now := time.Now(); now.Sub(deadline) > onTime {
			late := now.Sub(deadline)
			d.servers.recordLate(now, late)
			d.queue.extend(w, now.Add(min(late, v.budget())), now)
			err = w.wait(ctx)
		}
	}
	if err != nil {
		if was := d.queue.leave(w); was != done {
			return false, leftAt(was, d.unserved(v, err, ops, out), w, &d.queue)
		}

		// It was decided at the last moment.
		w.waitAnswered()
	}
	if w.err != nil {
		return false, w.err
	}

	copied = w.copied
	copy(out, w.out)
	d.waiters.Put(w)
	d.overflow.remember(now, ops, out)
	return copied, nil
}

// recall decides a step that the server does not decide in time, if it is known to be
// refused, and reports whether it did. If not, out is not to be read.
func (d *dispatcher) recall(now time.Time, ops []core.Op, out []core.Decision) bool {
	if !d.overflow.recall(now, ops, out) {
		return false
	}
	d.notifier.notifyCached(&ops[0])
	return true
}

// unserved returns the error of a waiter whose time ended with err. That is the failure of a
// call, if there is one that no caller has got, or the server is silent. If the step is known
// to be refused, it returns nil.
func (d *dispatcher) unserved(v *server, err error, ops []core.Op, out []core.Decision) error {
	if errors.Is(err, context.Canceled) {
		return ownTime(err)
	}
	if e := v.untold.Swap(nil); e != nil {
		return e
	}
	if e := v.silent.Load(); e != nil {
		return e
	}
	if d.recall(time.Now(), ops, out) {
		return nil
	}
	return &overloadError{fmt.Errorf("redisstore: %w", d.connector.explainLate(err))}
}

// handOver ends the batch of a caller. If steps wait, a goroutine goes on with
// them, so that the caller need not stay.
func (d *dispatcher) handOver(l *lane) {
	if d.queue.end(l) {
		go d.serve(l)
	}
}

// gather serves the lane. Unless the batch is full, the callers that are awake come first:
// an answer wakes all callers of its batch, and they ask again at the same time.
func (d *dispatcher) gather(l *lane, full bool) {
	if !full {
		runtime.Gosched()
	}
	d.serve(l)
}

// serve decides the waiting steps of the lane, batch after batch, until none may begin.
// Every call ends at its deadline, so serve ends soon after the last waiter has left.
func (d *dispatcher) serve(l *lane) {
	b := d.batches.Get().(*batch)
	for ok := d.queue.fill(l, b); ok; {
		begun, took := time.Now(), time.Duration(0)

		steps, ops := b.size()

		v := d.servers.serverFor(b.waiters[0].ops[0].Key)

		err := d.sendTogether(b, v, begun)
		ended := time.Since(begun)
		var late *lateReply
		if err != nil {
			b.fail(err)
			late = claimReply(&d.queue, err, b.waiters)
		} else {
			took = ended
		}

		// Results are delivered before the next batch is filled: who is woken may be in it.
		d.notifier.notifyCall(b, steps, ops, ended, err)
		d.deliver(b)
		d.leaveUntold(v, b, err)
		if late != nil {
			go late.tell(&d.queue)
		}

		// A caller that is woken now may ask again at once, and then shares the
		// next call.
		runtime.Gosched()

		var more int
		if more, ok = d.queue.refill(l, b, took, d.connector.connections()); more > 0 {
			d.connector.connect(more, nil)
		}
	}

	d.batches.Put(b)
}

// deliver gives their results to the waiters that have not left, once they are copied, and to who
// follows the others.
func (d *dispatcher) deliver(b *batch) {
	for _, w := range d.queue.markDone(b) {
		w.follower(w.ops, w.out)
	}
	b.copyDecided()
	for _, w := range b.waiters {
		w.signals <- doneSignal
	}
}

// leaveUntold keeps the failure of a batch whose waiters have all left, for the next caller.
func (d *dispatcher) leaveUntold(v *server, b *batch, err error) {
	if err == nil || len(b.waiters) > 0 {
		return
	}
	var e *callError
	if errors.As(err, &e) {
		v.untold.Store(e)
	}
}

// sendTogether sends the batch under a context of its own, so a waiter that
// leaves takes nothing from the others. It has more time than its waiters, also if all of them
// leave before: the client would drop the connection, and a reply that comes a little later
// would be lost. It recovers panics, such as one of a hook of the client, because no caller
// could.
func (d *dispatcher) sendTogether(b *batch, v *server, begun time.Time) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("redisstore: panic: %v", v)
		}
	}()

	deadline := begun.Add(patienceOf(v.budget()))
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()

	if err = d.send(ctx, b); err != nil {
		err = d.servers.judged(v, begun, deadline, err)
	}
	return err
}

// send decides the steps of the batch. It tries again only after errors which
// prove that no step ran, and then without the waiters that have left.
func (d *dispatcher) send(ctx context.Context, b *batch) error {
	var before error
	for pause := time.Millisecond; ; pause *= 2 {
		err := d.decideTogether(ctx, b.steps)

		// The error before says why there was no answer. The end of the time does not.
		if before != nil && isLate(err) {
			err = &retryError{err, before}
		}

		if err != nil && len(b.steps) > 1 && dividing(err) {
			d.sendOneByOne(ctx, b)
			return nil
		}

		if err == nil || !neverRan(err) || d.connector.refused(err) || !sleep(ctx, pause) {
			return ofCall(err)
		}

		before = err
		if d.queue.dropAbandoned(b); len(b.waiters) == 0 {
			return nil
		}
	}
}

// retryError is the error of a call that was late, after one whose error proves that it did
// not run.
type retryError struct{ late, before error }

func (e *retryError) Error() string { return e.late.Error() + ", after " + e.before.Error() }

// Unwrap returns the error of the call that was late.
func (e *retryError) Unwrap() error { return e.late }

// dividing reports whether the error proves that nothing was written, but need
// not occur for each step by itself. One cause is a slot that is moving to
// another node: until all of it has moved, a script may only use keys that have
// all arrived, or none of which has. The other is a full memory of the server, if
// only one step is under a limit that may not write then.
func dividing(err error) bool {
	return redis.HasErrorPrefix(err, "TRYAGAIN") || redis.HasErrorPrefix(err, "OOM")
}

// sendOneByOne sends each step of the batch by itself, and repeats the steps
// that did not run, because the keys of one step may be on two nodes too. A
// waiter whose step is decided does not wait for them.
func (d *dispatcher) sendOneByOne(ctx context.Context, b *batch) {
	for pause := time.Millisecond; ; pause *= 2 {
		d.queue.dropAbandoned(b)

		for i, each := range b.steps {
			each.err = nil
			if err := d.decideTogether(ctx, b.steps[i:i+1]); err != nil {
				each.err = failedCall(ofCall(err))
				if !neverRan(err) {
					b.failure = err
				}
			}
		}

		d.deliverDecided(b)
		if len(b.waiters) == 0 || !sleep(ctx, pause) {
			return
		}
	}
}

// deliverDecided delivers the steps that ran, and leaves the others in the
// batch.
func (d *dispatcher) deliverDecided(b *batch) {
	decided := d.batches.Get().(*batch)
	b.split(decided)
	d.deliver(decided)
	decided.clear()
	d.batches.Put(decided)
}

// decideTogether carries out the steps one after the other, as if each were a
// call of its own, and puts into each its decisions or its error. All keys must
// be on one server, and in a Cluster in one slot. A returned error means that
// none of the steps is known to have been decided.
func (d *dispatcher) decideTogether(ctx context.Context, steps []*step) error {
	if err := ctx.Err(); err != nil {
		return unsent(err)
	}

	v := d.servers.serverFor(steps[0].ops[0].Key)
	script, args := d.wire.call(steps)
	ints, err := d.link.run(ctx, v, script, args)

	// The script has written nothing. From now on the store sends those that know of bans.
	if d.wire.meetsBan(err) {
		script, args = d.wire.call(steps)
		ints, err = d.link.run(ctx, v, script, args)
	}

	switch {
	case err == nil:
		return decode(steps, ints)
	case redis.HasErrorPrefix(err, "OOM"):
		return d.wire.fullMemory(steps, err)
	}
	return fmt.Errorf("redisstore: %w", err)
}

// leftAt returns the error of a waiter that has left at a stage, or nil if err is.
func leftAt(was stage, err error, w *waiter, q *queue) error {
	switch {
	case err == nil:
		return nil
	case was == queued:
		return unsent(err)
	}
	return &pendingError{err, w, q}
}

// pendingError is the error of a step that was sent, and whose answer may come yet, although its
// caller has left, or its call has ended.
type pendingError struct {
	err    error
	waiter *waiter
	queue  *queue
}

func (e *pendingError) Error() string { return e.err.Error() }

// Unwrap returns the error.
func (e *pendingError) Unwrap() error { return e.err }

// Unsent reports whether the step was certainly not carried out.
func (e *pendingError) Unsent() bool { return false }

// WhenDecided has f called once with the decisions of the step if its answer comes yet, or is
// here. f must not wait, and must not keep its arguments. Only one f can be set.
func (e *pendingError) WhenDecided(f func(ops []core.Op, out []core.Decision)) {
	if w := e.waiter; e.queue.follow(w, f) {
		f(w.ops, w.out)
	}
}
