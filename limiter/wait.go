// This file lets requests wait, up to a bound on their number.

package limiter

import (
	"context"
	"hash/maphash"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/core"
)

// minPause is the shortest pause between two calls of a store that returns no
// RetryAfter.
const minPause = time.Millisecond

// wait is the state of one request that may wait.
type wait struct {
	start   time.Time
	maxWait time.Duration // by the context's deadline
	waited  time.Duration
	key     waitKey
	queued  bool
	place   place // among the requests that wait for leases
}

// step asks the store once and waits as its decisions say. again reports whether the
// store has to be asked once more.
func (w *wait) step(ctx context.Context, res *Result) (again bool, err error) {
	w.book(res)
	if err := w.ask(ctx, res); err != nil {
		return false, err
	}
	pause, at, forLease := w.pause(res)
	if pause == 0 {
		return false, nil
	}
	booked := res.allowed
	if res.notQueued = w.enter(res.limiter, at); res.notQueued != nil {
		if booked {
			res.cancelBooking(ctx)
		}
		return false, nil
	}
	if forLease {
		return w.stand(ctx, res, at, pause), nil
	}
	w.leaveLine(res.limiter)
	res.stopped = res.limiter.sleep(ctx, pause)
	before := w.waited
	w.waited = time.Since(w.start)
	res.noteWaited(at.rule, w.waited-before, w.waited)
	switch {
	case res.stopped != nil && booked:
		res.cancelBooking(ctx)
		return false, nil
	case res.stopped != nil:
		return false, nil
	case booked:
		res.reachSlot(pause)
		return false, res.renewAfterWait(ctx)
	}
	return true, nil
}

// remaining returns the time for which the request may still wait for rule i.
func (w *wait) remaining(res *Result, i int) time.Duration {
	if res.ops[i].Soft || res.calls[i].maxWait == 0 {
		return 0
	}
	return max(0, min(w.maxWait, res.calls[i].maxWait)-w.waited)
}

// book lets the store book slots where the request may wait for them.
func (w *wait) book(res *Result) {
	for i := range res.ops {
		op := &res.ops[i]
		op.MaxWait = w.remaining(res, i)
		if op.MaxWait > 0 && !w.queued && res.limiter.queueFull(waitKey{op.Rule, op.Key}) {
			op.MaxWait = 0
		}
	}
}

// pause returns how long to wait now, and for which key: 0 if there is nothing to
// wait for, or if it would take too long. A lease may be released at any time, so
// forLease is true, and the pause is the longest possible, where nothing else is missing.
func (w *wait) pause(res *Result) (longest time.Duration, at waitKey, forLease bool) {
	var lease waitKey
	var forLeaseAtMost time.Duration
	for i := range res.ops {
		d, key := &res.out[i], waitKey{res.ops[i].Rule, res.ops[i].Key}
		span := d.Wait
		if !res.allowed {
			if res.ops[i].Soft || d.Allowed {
				continue
			}
			left := w.remaining(res, i)
			if w.waitsForLease(res, i) && d.RetryAfter != core.Never {
				if forLeaseAtMost == 0 {
					forLeaseAtMost, lease = left, key
				}
				continue
			}
			if span = max(d.RetryAfter, minPause); span > left {
				return 0, waitKey{}, false
			}
		}
		if span > longest {
			longest, at = span, key
		}
	}
	if longest == 0 {
		return forLeaseAtMost, lease, forLeaseAtMost > 0
	}
	return longest, at, false
}

// enter takes a place in the queue for the whole wait, or returns an error.
func (w *wait) enter(l *Limiter, p waitKey) error {
	switch {
	case w.queued:
		return nil
	case l.isClosed():
		return ErrClosed
	}
	err := l.queue.enter(p)
	if err == nil {
		w.key, w.queued = p, true
		l.tellQueue(p, 1)
	}
	return err
}

// leave ends the wait.
func (w *wait) leave(l *Limiter) {
	w.leaveLine(l)
	if w.place.arrival > 0 {
		l.queue.lines.interested.Add(-1)
	}
	if w.queued {
		l.queue.leave(w.key)
		l.tellQueue(w.key, -1)
	}
}

// waitQueue bounds the number of waiting requests, in all and for each key of a rule.
type waitQueue struct {
	max, maxPerKey int
	fullStatus     int // of the answer when it is full; 0 means 503

	draining chan struct{} // closed by drain
	deadline time.Time     // of the drain; zero if it has none

	mu      sync.Mutex
	waiting int
	at      map[waitKey]int
	empty   chan struct{} // closed when no request waits; nil before drain
	lines   lines
}

// start makes the queue ready for use.
func (q *waitQueue) start(max, maxPerKey int) {
	q.max, q.maxPerKey, q.draining = max, maxPerKey, make(chan struct{})
	q.lines.seed = maphash.MakeSeed()
}

// drain lets no further request enter, and ends the waits that would last until the
// deadline of ctx or longer. The channel that it returns is closed when no request waits.
func (q *waitQueue) drain(ctx context.Context) (empty <-chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.empty == nil {
		q.empty = make(chan struct{})
		q.deadline, _ = ctx.Deadline()
		close(q.draining)
		q.reportEmpty()
	}
	return q.empty
}

// reportEmpty closes the channel that drain returns, if there is one and no request
// waits. That happens once, because no request enters any longer. The caller holds the
// lock.
func (q *waitQueue) reportEmpty() {
	if q.empty != nil && q.waiting == 0 {
		close(q.empty)
	}
}

// endsBy reports whether the drain ends at t or before. It is called when draining is
// closed.
func (q *waitQueue) endsBy(t time.Time) bool {
	return !q.deadline.IsZero() && !q.deadline.After(t)
}

// waitKey is a key of a rule for which requests wait.
type waitKey struct{ rule, key string }

// full reports whether no further request may wait at p.
func (q *waitQueue) full(p waitKey) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.refusal(p) != nil
}

// refusal returns why no further request may wait at p, or nil. The caller holds the
// lock.
func (q *waitQueue) refusal(p waitKey) error {
	switch {
	case q.empty != nil:
		return ErrClosed
	case q.waiting >= q.max, q.at[p] >= q.maxPerKey:
		return ErrQueueFull
	}
	return nil
}

// enter adds a waiter, or returns the reason why it may not wait. A successful enter
// must be followed by leave.
func (q *waitQueue) enter(p waitKey) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.refusal(p); err != nil {
		return err
	}
	n := q.at[p]
	if q.at == nil {
		q.at = map[waitKey]int{}
	}
	if n == 0 { // the map keeps this key, maybe longer than its request lives
		p.key = strings.Clone(p.key)
	}
	q.at[p] = n + 1
	q.waiting++
	return nil
}

func (q *waitQueue) leave(p waitKey) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting--
	if q.at[p]--; q.at[p] <= 0 {
		delete(q.at, p)
	}
	q.reportEmpty()
}
