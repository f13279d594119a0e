package failover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/core"
)

// confirmations is how many probes in a row must succeed to close the breaker.
const confirmations = 4

// breaker decides whether the primary is asked. Its zero value is closed.
type breaker struct {
	// generation counts the changes of state: it is odd while the breaker is
	// open. The result of a call counts only in the generation in which the
	// call was made.
	generation atomic.Uint64
	score      atomic.Int64 // of failures; see the package comment
	max        int64        // the score at which the breaker opens

	changing sync.Mutex // held during a change
	probe    []core.Op  // guarded by changing; replaced as a whole
}

func isOpen(generation uint64) bool { return generation%2 == 1 }

// succeed counts a call that was answered in time.
func (b *breaker) succeed(generation uint64) {
	for b.generation.Load() == generation {
		n := b.score.Load()
		if n <= 0 || b.score.CompareAndSwap(n, n-1) {
			return
		}
	}
}

// fail counts a call that failed or was slow, and reports whether the breaker
// is to open.
func (b *breaker) fail(generation uint64) bool {
	return b.generation.Load() == generation && b.score.Add(1) >= b.max
}

// open bypasses the primary after a call with ops has failed with cause. Of
// several concurrent callers only one does so.
func (s *Store) open(generation uint64, ops []core.Op, cause error) {
	b := &s.breaker
	if !b.changing.TryLock() {
		return
	}
	defer b.changing.Unlock()
	if b.generation.Load() != generation {
		return
	}
	b.probe = probeOf(ops)
	b.generation.Store(generation + 1)
	s.opened.Add(1)
	s.announce(change{Open, cause})
	s.background.arm()
}

// close makes the primary decide again. The next failure reopens the breaker at
// once, until enough calls have succeeded.
func (s *Store) close() {
	b := &s.breaker
	b.changing.Lock()
	defer b.changing.Unlock()
	b.score.Store(b.max - 1)
	b.generation.Add(1)
	s.announce(change{state: Closed})
}

// State is the state of the breaker, which determines the store that decides.
type State uint8

const (
	Closed State = iota // the primary
	Open                // the fallback, because the primary is bypassed
)

// String returns "closed" or "open".
func (s State) String() string {
	switch s {
	case Closed:
		return "closed"
	case Open:
		return "open"
	}
	return "unknown state"
}

// Stats are counters since the store was made.
type Stats struct {
	State  State
	Opened uint64 // how often the breaker opened
	Probes uint64 // how often a probe asked the primary
	Local  uint64 // steps that the fallback decided
	Lost   uint64 // refunds dropped for lack of room to wait, after a failure, or by Close
	Waits  int    // refunds that wait for the primary now
}

// State returns the current state.
func (s *Store) State() State {
	if isOpen(s.breaker.generation.Load()) {
		return Open
	}
	return Closed
}

// Stats returns the counters. They are not read at one instant.
func (s *Store) Stats() Stats {
	return Stats{
		State: s.State(), Opened: s.opened.Load(), Probes: s.probes.Load(),
		Local: s.local.Load(), Lost: s.waiting.lost.Load(), Waits: s.waiting.len(),
	}
}

// ErrOpen is wrapped by the error of a call that was not made because the
// primary is bypassed. That error has a method RetryAfter, which returns the
// time until the primary may be asked again.
var ErrOpen = errors.New("the primary store is bypassed")

// openError is ErrOpen with the time until the next probe.
type openError struct{ wait time.Duration }

func (e *openError) Error() string { return fmt.Sprintf("failover: %v", ErrOpen) }

// Unwrap returns ErrOpen.
func (e *openError) Unwrap() error { return ErrOpen }

// RetryAfter returns the time until the next probe of the primary.
func (e *openError) RetryAfter() time.Duration { return e.wait }

// probeRule is the rule of probes. No request is counted under it.
const probeRule = "failover.probe"

// probeQuota and probePeriod are the numbers of the limits of probes. They admit
// every probe, because one that is refused writes nothing, and what probes write
// is soon gone.
const (
	probeQuota  = 100
	probePeriod = 10 * time.Millisecond
)

// probeOf returns a step that fails where a step with ops fails, and counts under a
// rule of its own: it uses the same keys, so it reaches the same servers, with the
// same algorithms, because a server whose memory is full runs some of them, and it
// writes if ops write.
func probeOf(ops []core.Op) []core.Op {
	var probe []core.Op
	for i := range ops {
		op := core.Op{
			Verb: core.Take, Soft: true, Rule: probeRule, Key: ops[i].Key, Cost: 1,
			Limit: core.Limit{Algorithm: ops[i].Limit.Algorithm, Quota: probeQuota, Period: probePeriod},
		}
		if op.Limit.Leased() {
			op.Lease = "probe"
		}
		if v := ops[i].Verb; v == core.Peek || v == core.Take && ops[i].Cost == 0 {
			op.Verb = core.Peek
		}
		same := func(o core.Op) bool { return o.ID() == op.ID() }
		switch at := slices.IndexFunc(probe, same); {
		case at < 0:
			op.Key = strings.Clone(op.Key)
			probe = append(probe, op)
		case op.Verb == core.Take:
			probe[at].Verb = core.Take
		}
	}
	return probe
}

// pause returns the time to wait before the next probe.
func (s *Store) pause() time.Duration {
	half := s.interval / 2
	return s.interval - half + time.Duration(s.jitter()*float64(half))
}

// backgroundStep probes the primary while the breaker is open, and sends it the
// waiting operations once the breaker is closed. It reports whether there is
// more to do.
func (s *Store) backgroundStep(ctx context.Context) (more bool) {
	if s.State() == Open {
		if !s.ping(ctx) {
			s.confirmed = 0
			return true
		}
		if s.confirmed++; s.confirmed < confirmations {
			return true
		}
		s.confirmed = 0
		s.close()
	}
	s.sendWaiting(ctx)
	return s.State() == Open || s.waiting.len() > 0
}

// ping reports whether a probe of the primary succeeded.
func (s *Store) ping(ctx context.Context) bool {
	s.breaker.changing.Lock()
	ops := s.breaker.probe
	s.breaker.changing.Unlock()
	s.probes.Add(1)
	ctx, cancel := context.WithTimeout(ctx, s.slow)
	defer cancel()
	start := time.Now()
	err := s.call(ctx, ops)
	return err == nil && time.Since(start) <= s.slow
}

// call asks the primary outside of any request.
func (s *Store) call(ctx context.Context, ops []core.Op) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("failover: the primary panicked: %v", v)
		}
	}()
	return s.primary.Apply(ctx, ops, make([]core.Decision, len(ops)))
}

// blames reports whether the primary is at fault for the error.
func blames(ctx context.Context, err error) bool {
	return ctx.Err() == nil && !errors.Is(err, core.ErrOp)
}
