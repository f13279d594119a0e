// This file bounds how many requests wait, and ends their waits at a Shutdown.

package limiter

import (
	"context"
	"hash/maphash"
	"strings"
	"sync"
	"time"
)

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
		q.reportEmptyLocked()
	}
	return q.empty
}

// reportEmptyLocked closes the channel that drain returns, if there is one and no request
// waits. That happens once, because no request enters any longer.
func (q *waitQueue) reportEmptyLocked() {
	if q.empty != nil && q.waiting == 0 {
		close(q.empty)
	}
}

// endsBy reports whether the drain ends at t or before. It is called when draining is
// closed.
func (q *waitQueue) endsBy(t time.Time) bool {
	return !q.deadline.IsZero() && !q.deadline.After(t)
}

// refusalLocked returns why no further request may wait at p, or nil.
func (q *waitQueue) refusalLocked(p waitKey) error {
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
	if err := q.refusalLocked(p); err != nil {
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
	q.reportEmptyLocked()
}
