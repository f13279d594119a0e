package limiter

import (
	"strings"
	"sync"
)

// queue bounds who waits, in all and for each key of a rule.
type queue struct {
	most, mostPerKey int

	mu      sync.Mutex
	waiting int
	at      map[place]int
}

// place is where one waits: a key of a rule.
type place struct{ rule, key string }

// full tells that nobody else may wait at p.
func (q *queue) full(p place) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting >= q.most || q.at[p] >= q.mostPerKey
}

// enter takes a place, unless there is no room. Who enters leaves.
func (q *queue) enter(p place) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.at[p]
	if q.waiting >= q.most || n >= q.mostPerKey {
		return false
	}
	if q.at == nil {
		q.at = map[place]int{}
	}
	if n == 0 { // the map keeps this key, maybe longer than its request lives
		p.key = strings.Clone(p.key)
	}
	q.at[p] = n + 1
	q.waiting++
	return true
}

func (q *queue) leave(p place) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting--
	if q.at[p]--; q.at[p] <= 0 {
		delete(q.at, p)
	}
}
