package limiter

import (
	"strings"
	"sync"
)

// waitQueue bounds the number of waiting requests, in all and for each key of a rule.
type waitQueue struct {
	max, maxPerKey int

	mu      sync.Mutex
	waiting int
	at      map[waitKey]int
}

// waitKey is a key of a rule for which requests wait.
type waitKey struct{ rule, key string }

// full reports whether no further request may wait at p.
func (q *waitQueue) full(p waitKey) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting >= q.max || q.at[p] >= q.maxPerKey
}

// enter reports whether there was room for one more waiter. A successful enter must
// be followed by leave.
func (q *waitQueue) enter(p waitKey) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.at[p]
	if q.waiting >= q.max || n >= q.maxPerKey {
		return false
	}
	if q.at == nil {
		q.at = map[waitKey]int{}
	}
	if n == 0 { // the map keeps this key, maybe longer than its request lives
		p.key = strings.Clone(p.key)
	}
	q.at[p] = n + 1
	q.waiting++
	return true
}

func (q *waitQueue) leave(p waitKey) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting--
	if q.at[p]--; q.at[p] <= 0 {
		delete(q.at, p)
	}
}
