package limiter

import (
	"sync"
	"time"

	"github.com/headgate/headgate/core"
)

const (
	// maxReleases is the maximum number of queued leases. Any further lease ends
	// with its Period.
	maxReleases = 4096

	// Between two attempts there is at least minReleasePause, and at most maxReleasePause.
	minReleasePause = 100 * time.Millisecond
	maxReleasePause = 5 * time.Second
)

// releaseQueue holds leases that could not be released at the end of their requests
// because the store failed. They are released later, which is harmless if done twice,
// by a timer that runs only while the queue holds leases.
type releaseQueue struct {
	mu     sync.Mutex
	queued []queuedRelease
	pause  time.Duration
	busy   bool // the timer runs
}

// queuedRelease is an op that ends a lease, and the instant at which it ends anyway.
type queuedRelease struct {
	op    core.Op
	until time.Time
}

// next returns the oldest lease that has not expired, or notes that the timer stops.
func (q *releaseQueue) next(now time.Time) (op core.Op, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.queued) > 0 && !q.queued[0].until.After(now) {
		q.drop()
	}
	if len(q.queued) == 0 {
		q.busy, q.queued = false, nil
		return core.Op{}, false
	}
	return q.queued[0].op, true
}

func (q *releaseQueue) done() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.drop()
}

func (q *releaseQueue) drop() {
	q.queued[0] = queuedRelease{}
	q.queued = q.queued[1:]
}

func (q *releaseQueue) retry(run func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pause = min(2*q.pause, maxReleasePause)
	time.AfterFunc(q.pause, run)
}
