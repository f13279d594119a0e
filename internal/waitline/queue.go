// Package waitline keeps the requests that wait for units of a key in a line, and says which of
// them asks the store next. It asks no store itself. A [Queue] has the lines of a limiter, and a
// [Turn] is the place of one request in them.
package waitline

import (
	"context"
	"errors"
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/core"
)

// Key is a key of a rule for which requests wait.
type Key struct{ Rule, Key string }

// KeyOf returns the key of an operation.
func KeyOf(op *core.Op) Key { return Key{op.Rule, op.Key} }

// Why a request may not wait.
var (
	ErrFull    = errors.New("too many requests wait already")
	ErrDrained = errors.New("the queue is drained")
)

// Queue is the lines of a limiter. It bounds how many requests wait, in all and for each key
// of a rule, and ends their waits when it is drained. It is safe for concurrent use; [Queue.Init]
// comes first. What becomes of a request:
//
//	arrives --- an older one waits: peeks ---> the turn would come too late: refused
//	   |                              |
//	   | none does                    v
//	   +----------> asks <-------- in line <-----------+
//	                | | \     first, and due           |
//	          taken | |  +--- no unit or lease yet ----+
//	                v |
//	           passes +--- booked ---> holds a slot ---> its instant: passes
//	                                        |
//	                                        +--- leaves: the slot goes to the next
type Queue struct {
	max, maxPerKey int

	draining chan struct{} // closed by Drain
	deadline time.Time     // of the drain; zero if it has none; set before draining is closed

	count atomic.Int64 // of lines, for requests that find none

	// interested is the number of requests that may wait for leases. If there are none, a
	// release costs one atomic load more.
	interested atomic.Int64

	// released counts the releases, apart by the hash of the key. A request that is about
	// to join a line compares it with the count before its question: a release between
	// its answer and its place in the line would wake no request.
	released [buckets]atomic.Uint64
	seed     maphash.Seed

	mu       sync.Mutex    // guards all below, and the lines
	waiting  int           // requests that have entered
	at       map[Key]int   // of these, those that wait for a key first
	empty    chan struct{} // closed when no request waits; nil before Drain
	lines    map[Key]*lineOfKey
	arrivals uint64 // in all lines

	// ends says, apart by the hash of the key, how requests in line have ended.
	ends [buckets]ends
}

// buckets is the number of hashes by which keys are told apart.
const buckets = 64

// Init makes the queue ready for use: for so many requests in all, and for each key of a rule.
func (q *Queue) Init(most, mostPerKey int) {
	q.max, q.maxPerKey, q.draining = most, mostPerKey, make(chan struct{})
	q.seed = maphash.MakeSeed()
}

// Max returns how many requests may wait.
func (q *Queue) Max() int { return q.max }

// Waiting returns how many requests wait.
func (q *Queue) Waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting
}

// Lines returns the number of lines.
func (q *Queue) Lines() int { return int(q.count.Load()) }

// Drain lets no further request enter, and ends the waits that would last until the
// deadline of ctx or longer. The channel that it returns is closed when no request waits. It
// may be called again; the deadline of the first call counts.
func (q *Queue) Drain(ctx context.Context) (empty <-chan struct{}) {
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

// Draining returns a channel that is closed by Drain.
func (q *Queue) Draining() <-chan struct{} { return q.draining }

// EndsBy reports whether the drain ends at t or before. It is called when Draining is
// closed.
func (q *Queue) EndsBy(t time.Time) bool {
	return !q.deadline.IsZero() && !q.deadline.After(t)
}

// reportEmptyLocked closes the channel that Drain returns, if there is one and no request
// waits. That happens once, because no request enters any longer.
func (q *Queue) reportEmptyLocked() {
	if q.empty != nil && q.waiting == 0 {
		close(q.empty)
	}
}

// Enter adds a request that waits for k first, or returns [ErrFull] or [ErrDrained]. A
// successful Enter must be followed by Exit.
func (q *Queue) Enter(k Key) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.empty != nil:
		return ErrDrained
	case q.waiting >= q.max, q.at[k] >= q.maxPerKey:
		return ErrFull
	}

	n := q.at[k]
	if q.at == nil {
		q.at = map[Key]int{}
	}
	if n == 0 { // the map keeps this key, maybe longer than its request lives
		k.Key = strings.Clone(k.Key)
	}

	q.at[k] = n + 1
	q.waiting++
	return nil
}

// Exit removes a request that has entered.
func (q *Queue) Exit(k Key) {
	q.mu.Lock()
	defer q.mu.Unlock()

	q.waiting--
	if q.at[k]--; q.at[k] <= 0 {
		delete(q.at, k)
	}
	q.reportEmptyLocked()
}

// Interested adds n to the number of requests that may wait for leases.
func (q *Queue) Interested(n int64) { q.interested.Add(n) }

// Releases returns a number that changes whenever leases of the key come back while requests
// are interested.
func (q *Queue) Releases(k Key) uint64 { return q.counter(k).Load() }

func (q *Queue) bucket(k Key) int { return int(maphash.Comparable(q.seed, k) % buckets) }

func (q *Queue) counter(k Key) *atomic.Uint64 { return &q.released[q.bucket(k)] }

// WakeForReleases makes the first request of each line ask whose leases have come back by
// the ops, which the store has carried out.
func (q *Queue) WakeForReleases(ops []core.Op) {
	if q.interested.Load() == 0 {
		return
	}

	for i := range ops {
		if !ops[i].Limit.Leased() {
			continue
		}

		k := KeyOf(&ops[i])
		q.counter(k).Add(1)

		// The count above comes first: a request that joins after this looks at the count itself.
		q.mu.Lock()
		if l := q.lines[k]; l != nil {
			l.askNow = true
			l.wakeNext()
		}
		q.mu.Unlock()
	}
}

// openLocked returns the line for k, which it makes if there is none.
func (q *Queue) openLocked(k Key, lead time.Duration) *lineOfKey {
	l := q.lines[k]
	if l != nil {
		return l
	}

	k.Key = strings.Clone(k.Key) // the map may keep it longer than its request lives
	if q.lines == nil {
		q.lines = map[Key]*lineOfKey{}
	}
	l = &lineOfKey{lead: lead}
	q.lines[k] = l
	q.count.Add(1)
	return l
}

// closeEmptyLocked forgets the line for k if nothing is left of it.
func (q *Queue) closeEmptyLocked(k Key) {
	if l := q.lines[k]; l != nil && len(l.waiters)+len(l.spare)+l.canceling == 0 {
		delete(q.lines, k)
		q.count.Add(-1)
	}
}

// endsOfLocked returns how requests in line for k have ended.
func (q *Queue) endsOfLocked(k Key) *ends { return &q.ends[q.bucket(k)] }
