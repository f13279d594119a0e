package telling

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/observe/events"
)

// StoreLog remembers the latest calls, errors and breaker changes that a store has reported. The
// zero value is ready for use.
type StoreLog struct {
	mu sync.Mutex

	// Guarded by mu.
	calls    uint64
	failed   uint64
	recent   [recentCalls]storeCall // the call n is at n % recentCalls
	errors   []events.StoreError    // the latest last
	breakers []events.BreakerChange // the latest last
	away     map[string]time.Time   // the shards that are bypassed, and since when
}

const (
	// recentCalls is how many calls the times of calls are of, at most.
	recentCalls = 256

	// recentWithin is the age up to which calls are recent.
	recentWithin = time.Minute

	// maxStoreErrors and maxBreakerChanges are how many of them are remembered.
	maxStoreErrors    = 16
	maxBreakerChanges = 32

	// maxAway is how many shards are remembered to be bypassed. A store has no more.
	maxAway = 1025
)

// storeCall is a call of the store.
type storeCall struct {
	at   time.Time // of its end
	took time.Duration
}

// Hooks returns hooks by which s hears of the store.
func (s *StoreLog) Hooks() *events.Hooks {
	return &events.Hooks{StoreCall: s.recordCall, Breaker: s.recordBreaker}
}

func (s *StoreLog) recordCall(c events.StoreCall) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()

	s.recent[s.calls%recentCalls] = storeCall{now, c.Took}
	s.calls++

	if c.Err == nil {
		return
	}
	s.failed++

	// An outage is one error that happens often, and not many that push the others out.
	text := textform.Line(c.Err)
	if n := len(s.errors); n > 0 && s.errors[n-1].Text == text {
		s.errors[n-1].Last = now
		s.errors[n-1].Times++
		return
	}
	latest := events.StoreError{First: now, Last: now, Times: 1, Type: c.Type, Text: text}
	s.errors = appendLatest(s.errors, maxStoreErrors, latest)
}

func (s *StoreLog) recordBreaker(b events.Breaker) {
	e := events.BreakerChange{At: time.Now(), Shard: b.Shard, Open: b.Open}
	if b.Cause != nil {
		e.Cause = textform.Line(b.Cause)
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	s.breakers = appendLatest(s.breakers, maxBreakerChanges, e)

	// A shard that is bypassed already stays so since the first report.
	switch _, known := s.away[b.Shard]; {
	case !b.Open:
		delete(s.away, b.Shard)
	case !known && len(s.away) < maxAway:
		if s.away == nil {
			s.away = map[string]time.Time{}
		}
		s.away[b.Shard] = e.At
	}
}

// appendLatest appends e to list, which keeps the latest max.
func appendLatest[T any](list []T, max int, e T) []T {
	if len(list) == max {
		copy(list, list[1:])
		list = list[:max-1]
	}
	return append(list, e)
}

// Calls returns the calls so far. Recent ones are those of the last minute before now.
func (s *StoreLog) Calls(now time.Time) events.StoreCalls {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := events.StoreCalls{Calls: s.calls, Failed: s.failed, Errors: latestFirst(s.errors)}
	if s.calls == 0 {
		return c
	}

	c.Last = s.recent[(s.calls-1)%recentCalls].at
	var took []time.Duration
	for _, call := range s.recent[:min(s.calls, recentCalls)] {
		if now.Sub(call.at) <= recentWithin {
			took = append(took, call.took)
		}
	}

	if c.Recent = len(took); c.Recent > 0 {
		slices.Sort(took)
		c.Median, c.P99, c.Max = rank(took, 50), rank(took, 99), took[len(took)-1]
	}
	return c
}

// Breakers returns the latest changes of breakers, the latest first, and the shards that are
// bypassed now, with since when.
func (s *StoreLog) Breakers() (changes []events.BreakerChange, away map[string]time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return latestFirst(s.breakers), maps.Clone(s.away)
}

// rank returns the smallest value that percent of the sorted values do not exceed.
func rank(sorted []time.Duration, percent int) time.Duration {
	return sorted[(len(sorted)*percent+99)/100-1]
}

func latestFirst[T any](list []T) []T {
	list = slices.Clone(list)
	slices.Reverse(list)
	return list
}
