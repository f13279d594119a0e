package limiter

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/textform"
	"github.com/headgate/headgate/observe/events"
)

// storeLog remembers the latest calls, errors and breaker changes that a store has told.
type storeLog struct {
	mu       sync.Mutex
	calls    uint64
	failed   uint64
	recent   [recentCalls]storeCall // the call n is at n % recentCalls
	errors   []StoreError           // the latest last
	breakers []BreakerChange        // the latest last
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

// StoreCalls are the calls that the store of a limiter has made to its server, for all
// limiters that share it. A store in memory makes none.
type StoreCalls struct {
	Calls, Failed uint64 // since New

	// Recent is how many calls the times are of: the latest of the last minute, up to 256,
	// with those that failed. Median, P99 and Max are zero if there are none.
	Recent           int
	Median, P99, Max time.Duration

	// AtMost is how long a call may take, or 0 if the store does not say; see [core.Remote].
	AtMost time.Duration

	Last time.Time // the end of the latest call, or zero

	// Errors are the latest errors, the latest first, at most 16. Errors of one text in a
	// row are one.
	Errors []StoreError
}

// StoreError is an error of calls of a store.
type StoreError struct {
	First, Last time.Time
	Times       int64
	Type        events.ErrorType
	Text        string // one line, the cause as the client of the server reports it
}

// BreakerChange is a change of a breaker's state.
type BreakerChange struct {
	At    time.Time
	Shard string // of the store, or "" for all of it
	Open  bool   // the store is bypassed since then
	Cause string // one line, why it is; "" if Open is false
}

// hooks returns what the store is to tell.
func (s *storeLog) hooks() *events.Hooks {
	return &events.Hooks{StoreCall: s.noteCall, Breaker: s.noteBreaker}
}

func (s *storeLog) noteCall(c events.StoreCall) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recent[s.calls%recentCalls] = storeCall{now, c.Took}
	s.calls++
	if c.Err == nil {
		return
	}
	s.failed++
	text := textform.Line(c.Err)
	if n := len(s.errors); n > 0 && s.errors[n-1].Text == text {
		s.errors[n-1].Last = now
		s.errors[n-1].Times++
		return
	}
	s.errors = appendLatest(s.errors, maxStoreErrors, StoreError{now, now, 1, c.Type, text})
}

func (s *storeLog) noteBreaker(b events.Breaker) {
	e := BreakerChange{At: time.Now(), Shard: b.Shard, Open: b.Open}
	if b.Cause != nil {
		e.Cause = textform.Line(b.Cause)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.breakers = appendLatest(s.breakers, maxBreakerChanges, e)
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

// status fills in what the store has told.
func (s *storeLog) status(st *Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &st.Calls
	c.Calls, c.Failed = s.calls, s.failed
	c.Errors = latestFirst(s.errors)
	st.Breakers = latestFirst(s.breakers)
	st.Away = maps.Clone(s.away)
	if s.calls == 0 {
		return
	}
	c.Last = s.recent[(s.calls-1)%recentCalls].at
	var took []time.Duration
	for _, call := range s.recent[:min(s.calls, recentCalls)] {
		if st.At.Sub(call.at) <= recentWithin {
			took = append(took, call.took)
		}
	}
	if c.Recent = len(took); c.Recent > 0 {
		slices.Sort(took)
		c.Median, c.P99, c.Max = rank(took, 50), rank(took, 99), took[len(took)-1]
	}
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
