package service

import (
	"context"
	"sync"
)

// memo keeps what was read from the database, so that it need not be read again while it is the
// same. Each value has the version of the rows that it was made of, which changes with them, so
// that a value of the version that a transaction sees is exact. It is safe for concurrent use.
type memo[K comparable, V any] struct {
	most int // the largest sum of the weights of what is kept

	mu      sync.Mutex
	entries map[K]*kept[V] // Guarded by mu, as weight and turn are.
	weight  int
	turn    int64
}

// kept is a value that may be used again. value, version and weight are written by the holder of
// busy's token with memo.mu held, so that either is enough to read them. used is guarded by
// memo.mu. An entry without a value stays as long as it has callers, so that one of them reads.
type kept[V any] struct {
	busy    chan struct{} // holds a token while the value is made
	value   V
	version int64
	weight  int // 0 if there is no value
	used    int64
	callers int // of get; guarded by memo.mu
}

func newMemo[K comparable, V any](most int) *memo[K, V] {
	return &memo[K, V]{most: most, entries: map[K]*kept[V]{}}
}

// get returns the value of a key at a version, which read makes if it is not known. While one
// caller makes it, the others wait. A value that weighs 0 or too much is not kept. Callers must
// not change the value.
func (m *memo[K, V]) get(
	ctx context.Context, key K, version int64, read func() (value V, weight int, err error),
) (value V, err error) {
	e := m.enter(key)
	defer m.leave(key, e)

	// Unlike a mutex, a channel can be waited for until a context ends.
	select {
	case e.busy <- struct{}{}:
	case <-ctx.Done():
		return value, ctx.Err()
	}
	defer func() { <-e.busy }()

	if e.weight > 0 && e.version == version {
		return e.value, nil
	}

	value, weight, err := read()
	if err != nil {
		m.keep(key, e, kept[V]{})
		return value, err
	}

	// A transaction that began long ago may see an older version, and leaves the newer value.
	if version >= e.version {
		m.keep(key, e, kept[V]{value: value, version: version, weight: weight})
	}

	return value, nil
}

func (m *memo[K, V]) enter(key K) *kept[V] {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries[key]
	if e == nil {
		e = &kept[V]{busy: make(chan struct{}, 1)}
		m.entries[key] = e
	}
	m.turn++
	e.used = m.turn
	e.callers++
	return e
}

// leave forgets an entry that has neither a value nor callers.
func (m *memo[K, V]) leave(key K, e *kept[V]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e.callers--
	if e.callers == 0 && e.weight == 0 && m.entries[key] == e {
		delete(m.entries, key)
	}
}

// keep stores a value, and drops those that were used longest ago if there is too much. One of no
// weight, or of too much, leaves the entry without a value.
func (m *memo[K, V]) keep(key K, e *kept[V], made kept[V]) {
	if made.weight > m.most {
		made = kept[V]{}
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	if m.entries[key] != e { // it was dropped meanwhile
		return
	}

	m.weight += made.weight - e.weight
	e.value, e.version, e.weight = made.value, made.version, made.weight

	// The new value stays, since it weighs no more than all may together.
	for m.weight > m.most {
		oldest := key
		for k, other := range m.entries {
			if other != e && other.weight > 0 && (oldest == key || other.used < m.entries[oldest].used) {
				oldest = k
			}
		}
		m.weight -= m.entries[oldest].weight
		delete(m.entries, oldest)
	}
}
